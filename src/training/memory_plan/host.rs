//! What a peer holds in the host's memory besides its trainer.

use crate::config::{OuterMode, RunConfig};

/// Bytes of a run's path that the host holds besides the trainer's tensors, without text: the states of its modules before
/// and after an update, the best parameters, and what is carried between the parts of a phase. `trained` are parameters that
/// gradients change.
pub fn host_bytes(run: &RunConfig, trained: u64) -> u64 {
    let states = 2 * state_bytes(run, trained);
    let best = if run.paths_end_apart() { trained.saturating_mul(4) } else { 0 };
    // The trainer's state stays in memory between the parts of a phase.
    let last = if run.outer.streaming.is_some() { trained.saturating_mul(16) } else { 0 };
    [best, last].into_iter().fold(states, u64::saturating_add)
}

/// Bytes of the states of a path's modules.
pub fn state_bytes(run: &RunConfig, trained: u64) -> u64 {
    match run.outer.mode {
        OuterMode::Synchronous => trained.saturating_mul(8),
        OuterMode::Asynchronous => trained.saturating_mul(12),
    }
}
