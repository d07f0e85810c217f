//! Events of a peer as progress: one line that changes, and notes that stay.

use std::sync::Mutex;
use std::sync::PoisonError;

use super::explain::COPIED_IDENTITY;
use crate::config::run::{RunConfig, RunConfigError};
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
    state: Mutex<PeerProgress>,
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
        let state = PeerProgress { peer, phases, steps, phase: 1, ..PeerProgress::default() };
        // The feed hears what happens to the peer itself.
        Ok(Self { progress: progress.untapped(), slots: run.slots()?, feed, state: Mutex::new(state) })
    }

    /// Handles an event.
    pub fn hear(&self, news: &PeerEvent) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let note = note(news, &self.slots);
        self.feed.hear(news, note.as_deref());
        if let Some(note) = note {
            self.progress.note(format!("{}: {note}", state.peer));
            return;
        }
        match news {
            PeerEvent::Stepped(Stepped { phase, step, loss, tokens, seconds, .. }) => {
                state.phase = phase.0 + 1;
                state.step = *step;
                state.loss = Some(*loss);
                state.waiting = None;
                if *seconds > 0.0 {
                    state.tokens_per_s = Some(*tokens as f64 / seconds);
                }
            }
            PeerEvent::Waiting(waiting) => state.waiting = Some(waits(waiting)),
            PeerEvent::Reported(Report::PathDone(_)) => {
                (state.phase, state.step) = (state.phases, state.steps);
                state.waiting = Some(waits(&Waiting::Done));
            }
            _ => return,
        }
        self.progress.peer(state.clone());
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
        PeerEvent::ShortOfMemory(what) => format!("out of memory: {what}"),
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
        PeerEvent::Stepped(_) | PeerEvent::Waiting(_) | PeerEvent::Fetched { .. } => return None,
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
        Report::TrainerDied => "the trainer has died; restarting it".to_owned(),
        Report::TrainerRetired { left } => {
            format!("a trainer fails again and again, and its device is used no more; {left} left")
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
