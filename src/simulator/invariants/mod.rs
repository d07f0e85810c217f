//! Invariants that hold at every moment, or at the end, one per file.

pub mod bounded_queues;
pub mod carried_on;
pub mod counted_once;
pub mod fenced;
pub mod none_lost;
pub mod one_state;
pub mod one_sum;
pub mod one_writer;

/// The observations of one swarm.
#[derive(Debug, Default)]
pub struct Invariants {
    /// The same update makes the same state.
    pub one_state: one_state::OneState,
    /// Along a chain, nothing is counted twice.
    pub counted_once: counted_once::CountedOnce,
    /// Each version has one writer.
    pub one_writer: one_writer::OneWriter,
    /// No contribution is lost silently.
    pub none_lost: none_lost::NoneLost,
}
