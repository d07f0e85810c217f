//! A trainer for which there is no memory, not even for its smallest steps: it waits for another program to end, or for its
//! own peer to need less. A peer without a trainer still serves what it has.

use std::time::{Duration, Instant};

use crate::model::tensor_memory::{first_line, lift_profile_limit};
use crate::names::{PathId, Phase};
use crate::peer::trainer::REPORT;
use crate::peer::trainer::task::TrainerReport;
use crate::peer::trainer::thread::WorkerHandle;

/// Between two attempts.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Why a trainer waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// It is to try again.
    Enough,
    /// It is to do something else.
    Paused,
    /// The driver has gone.
    Abandoned,
}

/// Waits, after an error of memory that has run out. A phase that is waited for gives signs of life, so that its trainer is not
/// taken to hang.
pub(super) fn wait_for_memory(
    handle: &WorkerHandle,
    error: &anyhow::Error,
    phase: Option<(PathId, Phase, u64)>,
) -> Waited {
    if lift_profile_limit() {
        return Waited::Enough;
    }
    let reason = first_line(&format_args!("{error:#}"));
    tracing::error!(%reason, "memory ran out: the trainer waits and tries again");
    let again_s = AGAIN_AFTER.as_secs();
    let advice = "end other programs, or lower micro_batch_sequences in the machine's profile";
    let what = format!("{reason}; the trainer waits, and tries again in {again_s} s; {advice}");
    handle.report(TrainerReport::ShortOfMemory(what));
    wait(handle, AGAIN_AFTER, phase)
}

#[expect(clippy::disallowed_methods, reason = "an edge: how long it has waited")]
fn wait(handle: &WorkerHandle, time: Duration, phase: Option<(PathId, Phase, u64)>) -> Waited {
    let began = Instant::now();
    while began.elapsed() < time {
        if handle.is_abandoned() {
            return Waited::Abandoned;
        }
        if handle.is_paused() {
            return Waited::Paused;
        }
        if let Some((path, phase, steps)) = phase {
            handle.try_report(TrainerReport::Alive { path, phase, steps });
        }
        std::thread::sleep(REPORT.min(time));
    }
    Waited::Enough
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::model::tensor_memory::torch_error;
    use crate::peer::trainer::is_due_to_the_state;
    use crate::peer::trainer::thread::{TrainerThread, Work};
    use crate::training::TrainerError;

    #[test]
    fn memory_that_ran_out_is_no_reason_to_drop_what_a_path_carries() {
        let error = |said| anyhow::Error::new(TrainerError::Tensor(torch_error(said)));
        assert!(is_due_to_the_state(&error("of another shape")));
        assert!(!is_due_to_the_state(&error("out of memory: a tensor of 8 bytes")));
    }

    #[tokio::test]
    async fn a_trainer_that_waits_for_memory_gives_signs_of_life_and_does_something_else_when_it_is_to() {
        let (sender, waited) = mpsc::sync_channel(2);
        let work: Work = Arc::new(move |handle| {
            let phase = Some((PathId(3), Phase(1), 7));
            sender.send(wait(&handle, Duration::from_millis(1), phase)).unwrap();
            sender.send(wait(&handle, Duration::MAX, phase)).unwrap();
        });
        let mut trainer = TrainerThread::start(work, Arc::default()).unwrap();
        let report = trainer.next_report().await.unwrap();
        assert!(matches!(report, TrainerReport::Alive { path: PathId(3), phase: Phase(1), steps: 7 }), "{report:?}");
        assert_eq!(waited.recv().unwrap(), Waited::Enough);
        trainer.pause();
        assert_eq!(waited.recv().unwrap(), Waited::Paused);
        trainer.end(Duration::from_secs(60));
    }
}
