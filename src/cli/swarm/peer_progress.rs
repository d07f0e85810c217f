//! Events of a peer as progress: one line that changes, and notes that stay.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use super::explain::COPIED_IDENTITY;
use crate::config::run::{RunConfig, RunConfigError};
use crate::names::PathId;
use crate::observe::{PeerProgress, Progress, Waits};
use crate::peer::PeerEvent;
use crate::peer::trainer::task::Stepped;
use crate::protocol::Report;
use crate::protocol::status::waiting::Waiting;
use crate::sampling::WorkerSlots;
use crate::telemetry::words::waits_for;
use crate::telemetry::{Feed, RunOutline, Telemetry};

fn waits(waiting: &Waiting) -> Waits {
    Waits { words: waits_for(waiting), value: serde_json::json!(waiting) }
}

/// Turns the events of one peer into progress.
pub struct PeerLine {
    progress: Progress,
    slots: WorkerSlots,
    feed: Feed,
    state: Mutex<Paths>,
}

/// The latest of a peer, and how far each of its paths is.
struct Paths {
    shown: PeerProgress,
    /// Inner steps since the first phase.
    made: BTreeMap<PathId, u64>,
}

impl Paths {
    fn new(peer: String, phases: u64, steps: u64) -> Self {
        let planned = phases.saturating_mul(steps);
        let shown = PeerProgress { peer, phases, steps, phase: 1, planned, ..PeerProgress::default() };
        Self { shown, made: BTreeMap::new() }
    }

    /// What an event changes, and whether it is to be shown.
    fn hear(&mut self, news: &PeerEvent) -> bool {
        let Self { shown, made } = self;
        let each = shown.phases.saturating_mul(shown.steps);
        match news {
            PeerEvent::Stepped(Stepped { path, phase, step, loss, tokens, seconds, .. }) => {
                made.insert(*path, phase.0.saturating_mul(shown.steps).saturating_add(*step).min(each));
                (shown.phase, shown.step, shown.path) = (phase.0 + 1, *step, Some(path.0));
                (shown.loss, shown.waiting) = (Some(*loss), None);
                if *seconds > 0.0 {
                    shown.tokens_per_s = Some(*tokens as f64 / seconds);
                }
            }
            PeerEvent::Reported(Report::Amended { phases, .. }) => shown.phases = *phases,
            PeerEvent::Waiting(waiting) => shown.waiting = Some(waits(waiting)),
            PeerEvent::Reported(Report::PathTaken(path)) => {
                made.entry(*path).or_insert(0);
            }
            PeerEvent::Reported(Report::PathYielded(path)) => {
                made.remove(path);
            }
            PeerEvent::Reported(Report::PathDone(path)) => {
                made.insert(*path, each);
                (shown.phase, shown.step) = (shown.phases, shown.steps);
                shown.waiting = Some(waits(&Waiting::Done));
            }
            _ => return false,
        }
        let each = shown.phases.saturating_mul(shown.steps);
        shown.made = made.values().fold(0, |sum, steps| sum.saturating_add(*steps));
        shown.planned = each.saturating_mul(made.len().max(1) as u64);
        true
    }
}

impl PeerLine {
    /// For a peer of a run.
    ///
    /// # Errors
    /// If the run's grid cannot be.
    pub fn new(
        progress: Progress,
        telemetry: &Telemetry,
        peer: String,
        run: &RunConfig,
    ) -> Result<Self, RunConfigError> {
        let feed = Feed::new(telemetry, &peer, RunOutline::new(run)?);
        let (phases, steps) = (run.training.phases, run.training.inner_steps);
        let state = Paths::new(peer, phases, steps);
        // The feed hears what happens to the peer itself.
        Ok(Self { progress: progress.untapped(), slots: run.slots()?, feed, state: Mutex::new(state) })
    }

    /// Handles an event.
    pub fn hear(&self, news: &PeerEvent) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let note = note(news, &self.slots);
        self.feed.hear(news, note.as_deref());
        let is_shown = state.hear(news);
        if let Some(note) = note {
            self.progress.note(format!("{}: {note}", state.shown.peer));
        } else if is_shown {
            self.progress.peer(state.shown.clone());
        }
    }
}

/// The note for an event that deserves one.
fn note(news: &PeerEvent, slots: &WorkerSlots) -> Option<String> {
    Some(match news {
        PeerEvent::Reported(report) => return note_of_report(report, slots),
        PeerEvent::Scored { drawn, test, .. } => {
            let Some(perplexity) = test.perplexity() else {
                return Some(format!(
                    "path {drawn}: none of its test text is longer than what chooses a path, so there \
                    is nothing to score"
                ));
            };
            let bits = test.bits_per_byte().map_or_else(String::new, |bits| format!(", {bits:.4} bits per byte"));
            format!("path {drawn} on its test text: perplexity {perplexity:.2}{bits}")
        }
        PeerEvent::ShortOfDisk(reason) => format!(
            "training and aggregation are paused until the disk accepts writes again; this peer still serves its data: \
             {reason}"
        ),
        PeerEvent::ShortOfMemory(what) => format!("memory ran out: {what}"),
        PeerEvent::WrongBytes { peer, blob } => {
            format!("peer …{} sent wrong bytes for blob {}; they were discarded", peer.short(), blob.short())
        }
        PeerEvent::DiskTakes => "the disk accepts writes again; resuming".to_owned(),
        PeerEvent::Alone { seconds, tried, outlook } => {
            let tried = if tried.is_empty() { "no address is known".to_owned() } else { tried.join(", ") };
            format!(
                "alone for {seconds} s; tried: {tried}; {}; retrying, without starting a swarm of its own; join with \
                 the address of a running peer, or diagnose with: pathswarm doctor ADDRESS",
                outlook.join("; ")
            )
        }
        PeerEvent::NotInvited(reason) => format!("the other peers do not admit this peer: {reason}"),
        PeerEvent::Stepped(_) | PeerEvent::Waiting(_) | PeerEvent::OuterStep(_) | PeerEvent::Fetched { .. } => {
            return None;
        }
    })
}

fn note_of_report(report: &Report, slots: &WorkerSlots) -> Option<String> {
    Some(match report {
        Report::PathTaken(slot) => format!("took {}", slots.describe(*slot)),
        Report::PathYielded(slot) => format!("handed {} to another peer", slots.describe(*slot)),
        Report::TrainerStuck { path, steps, silent_ms } => {
            let seconds = silent_ms / 1_000;
            let when = steps.map_or_else(|| "during scoring".to_owned(), |steps| format!("after step {steps}"));
            let path = slots.describe(*path);
            format!("the trainer of {path} has hung for {seconds} s {when}; restarting it")
        }
        Report::TrainerDied => {
            "the trainer has failed, and begins again; pathswarm.log in the run's folder says why".to_owned()
        }
        Report::TrainerRetired { left } => {
            format!(
                "a trainer fails again and again, and its device is out of use until this peer starts again; {left} left; \
                     pathswarm.log in the run's folder says why"
            )
        }
        Report::Amended { phases, number } => {
            format!("the run was amended by its creator: it has {phases} phases (amendment {number})")
        }
        Report::Refused { module, by, reason } => {
            format!("rejected an update of module {module} by …{}: {reason}", by.short())
        }
        Report::SteppedDown { module, owner, reason } => {
            format!("replaces …{} as owner of module {module}: {reason}", owner.short())
        }
        Report::Caught { module, owner, version } => format!(
            "version {version} of module {module} does not match its contributions: …{} signed it, and stays \
             quarantined",
            owner.short()
        ),
        Report::WentBack { module, from, to } => format!("module {module} is rolled back from version {from} to {to}"),
        Report::Quarantined { peer, fault } => {
            format!("…{} {}: quarantined for now, its offers are not used", peer.short(), fault.describe())
        }
        Report::Lost { module, path, parent, weight } => {
            let path = slots.describe(*path);
            format!("{path}: its contribution to module {module} version {parent} (weight {weight}) came too late")
        }
        Report::CopiedIdentity { peer, addresses, .. } => {
            let place = if addresses.is_empty() { String::new() } else { format!(" at {}", addresses.join(" ")) };
            format!("two machines run with the identity of peer …{}{place}; {COPIED_IDENTITY}", peer.short())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Phase;

    fn stepped(path: u32, phase: u64, step: u64) -> PeerEvent {
        let (loss, gradient_norm, learning_rate, tokens, seconds) = (2.0, 1.0, 0.1, 70, 2.0);
        let (path, phase) = (PathId(path), Phase(phase));
        PeerEvent::Stepped(Stepped { path, phase, step, loss, gradient_norm, learning_rate, tokens, seconds })
    }

    #[test]
    fn a_peer_with_several_paths_counts_the_steps_of_all_and_never_goes_back() {
        let mut paths = Paths::new("a".to_owned(), 2, 6);
        let mut hear = |news: PeerEvent| {
            paths.hear(&news);
            (paths.shown.made, paths.shown.planned)
        };
        assert_eq!(hear(PeerEvent::Reported(Report::PathTaken(PathId(0)))), (0, 12));
        assert_eq!(hear(PeerEvent::Reported(Report::PathTaken(PathId(1)))), (0, 24));
        assert_eq!(hear(stepped(0, 0, 6)), (6, 24));
        assert_eq!(hear(stepped(1, 0, 1)), (7, 24), "not 1 of 12");
        assert_eq!(hear(stepped(1, 1, 2)), (14, 24));
        assert_eq!(hear(PeerEvent::Reported(Report::PathDone(PathId(1)))), (18, 24));
        assert_eq!(hear(stepped(1, 9, 9)), (18, 24), "no more than there are");
        assert_eq!(hear(PeerEvent::Reported(Report::PathYielded(PathId(0)))), (12, 12));
    }
}
