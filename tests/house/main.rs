//! What is asked of the source itself.

mod fuzz_targets;
mod layers;
mod links;
mod source;
