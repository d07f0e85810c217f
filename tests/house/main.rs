//! What is asked of the source itself.

mod fuzz_targets;
mod graph;
mod items;
mod layers;
mod links;
mod rooms;
mod source;
mod tree;
mod words;
