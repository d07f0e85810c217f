//! What a peer holds in the host's memory besides its trainer.

use crate::config::{OuterMode, RunConfig, level_parameters};

/// Bytes of a run's path that the host holds besides the trainer's tensors, without text: the states of its modules before
/// and after an update, the best parameters, what is carried between the parts of a phase, and what is frozen beside adapters
/// a second time, for answers. `trained` are parameters that gradients change.
pub fn host_bytes(run: &RunConfig, trained: u64) -> u64 {
    let states = 2 * state_bytes(run, trained);
    let best = if run.paths_end_apart() { trained.saturating_mul(4) } else { 0 };
    // The trainer's state stays in memory between the parts of a phase.
    let last = if run.outer.streaming.is_some() { trained.saturating_mul(16) } else { 0 };
    // The network that answers is not the trainer's.
    let answers = run.frozen().map_or(0, |level| (level_parameters(&run.model, &level) as u64).saturating_mul(4));
    [best, last, answers].into_iter().fold(states, u64::saturating_add)
}

/// Bytes of the states of a path's modules.
pub fn state_bytes(run: &RunConfig, trained: u64) -> u64 {
    match run.outer.mode {
        OuterMode::Synchronous => trained.saturating_mul(8),
        OuterMode::Asynchronous => trained.saturating_mul(12),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AdapterConfig;
    use crate::training::samples::small_run;

    #[test]
    fn what_is_frozen_is_there_a_second_time_for_answers() {
        let whole = small_run();
        let mut adapted = whole.clone();
        adapted.model.adapter = Some(AdapterConfig { rank: 2, alpha: None });
        for (block, level) in adapted.levels.iter_mut().enumerate() {
            level.parts = vec![format!("adapter.{block}")];
        }
        let frozen = level_parameters(&adapted.model, &adapted.frozen().unwrap()) as u64;
        assert_eq!(host_bytes(&adapted, 1000), host_bytes(&whole, 1000) + 4 * frozen);
    }
}
