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
    handle.report(TrainerReport::ShortOfMemory(format!("the trainer waits, and tries again in {again_s} s")));
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
