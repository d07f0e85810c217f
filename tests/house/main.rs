//! What is asked of the source itself.

mod fuzz_targets;
mod graph;
mod layers;
mod links;
mod source;
mod tree;
