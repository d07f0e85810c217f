//! Runs that are not trained as usual: some paths at a time, levels in turn, or the same digits each time.

mod deterministic;
mod sampled;
mod streaming;
