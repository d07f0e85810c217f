//! The state of progress: the latest report of each peer, the stage, and the remaining time. Time is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::event::{PeerProgress, ProgressEvent};

/// The latest of all reports.
#[derive(Debug, Default)]
pub(super) struct Board {
    peers: BTreeMap<String, PeerProgress>,
    stage: Option<Stage>,
    pace: Option<Pace>,
    changed: BTreeSet<String>,
}

/// A named part of the work.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stage {
    name: String,
    done: u64,
    total: u64,
    pace: Pace,
}

/// Start of the measurement of speed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pace {
    since: Duration,
    /// Steps made before the measurement, which do not count for the speed.
    before: u64,
}

impl Pace {
    /// Remaining time at the speed so far.
    fn remaining(self, done: u64, total: u64, now: Duration) -> Option<Duration> {
        let made = done.checked_sub(self.before).filter(|made| *made > 0)?;
        let elapsed = now.checked_sub(self.since)?;
        let seconds = elapsed.as_secs_f64() * total.saturating_sub(done) as f64 / made as f64;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Portion {
    pub(super) name: String,
    pub(super) done: u64,
    pub(super) total: u64,
    pub(super) remaining: Option<Duration>,
}

impl Board {
    pub(super) fn apply(&mut self, event: &ProgressEvent, now: Duration) {
        match event {
            ProgressEvent::Peer(peer) => self.apply_peer(peer, now),
            ProgressEvent::Stage { name, done, total } => {
                let same = self.stage.take().filter(|stage| stage.name == *name);
                let pace = same.map_or(Pace { since: now, before: *done }, |stage| stage.pace);
                if done < total {
                    self.stage = Some(Stage { name: name.clone(), done: *done, total: *total, pace });
                }
            }
            ProgressEvent::Note { .. } | ProgressEvent::Result(_) => {}
        }
    }

    fn apply_peer(&mut self, peer: &PeerProgress, now: Duration) {
        let pace = self.pace.get_or_insert(Pace { since: now, before: 0 });
        if !self.peers.contains_key(&peer.peer) {
            pace.before = pace.before.saturating_add(peer.made);
        }
        self.changed.insert(peer.peer.clone());
        self.peers.insert(peer.peer.clone(), peer.clone());
    }

    /// The peers that changed since the last call, by name.
    pub(super) fn take_changed(&mut self) -> Vec<&PeerProgress> {
        std::mem::take(&mut self.changed).iter().filter_map(|name| self.peers.get(name)).collect()
    }

    /// All steps of all peers, once there is one.
    pub(super) fn total(&self, now: Duration) -> Option<Portion> {
        let pace = self.pace?;
        let sum = |of: fn(&PeerProgress) -> u64| self.peers.values().map(of).fold(0, u64::saturating_add);
        let (done, total) = (sum(|peer| peer.made), sum(|peer| peer.planned));
        Some(Portion { name: "all steps".to_owned(), done, total, remaining: pace.remaining(done, total, now) })
    }

    /// The current stage.
    pub(super) fn stage(&self, now: Duration) -> Option<Portion> {
        let Stage { name, done, total, pace } = self.stage.clone()?;
        Some(Portion { name, done, total, remaining: pace.remaining(done, total, now) })
    }
}

impl Portion {
    pub(super) fn line(&self) -> String {
        let Self { name, done, total, remaining } = self;
        let percent = (u128::from(*done) * 100).checked_div(u128::from(*total)).unwrap_or(0);
        let left = remaining.map(|left| format!(", {} left", duration(left))).unwrap_or_default();
        format!("{name}: {done}/{total} ({percent}%){left}")
    }
}

pub(super) fn peer_line(peer: &PeerProgress) -> String {
    let PeerProgress { peer: name, phase, phases, step, steps, loss, tokens_per_s, waiting, .. } = peer;
    let mut line = format!("{name}  phase {phase}/{phases}  step {step:>3}/{steps}");
    if let Some(loss) = loss {
        line += &format!("  loss {loss:.3}");
    }
    if let Some(speed) = tokens_per_s {
        let speed = if *speed < 1000.0 { format!("{speed:.0}") } else { format!("{:.1}k", speed / 1000.0) };
        line += &format!("  {speed} tokens/s");
    }
    if let Some(waiting) = waiting {
        line += &format!("  waits for {}", waiting.words);
    }
    line
}

/// `45 s`, `3 min 20 s`, `2 h 5 min`
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Waits;
    use super::*;

    fn peer(name: &str, phase: u64, step: u64) -> ProgressEvent {
        let (name, made) = (name.to_owned(), (phase - 1) * 10 + step);
        ProgressEvent::Peer(PeerProgress { peer: name, made, planned: 20, ..PeerProgress::default() })
    }

    #[test]
    fn what_a_resumed_peer_had_done_does_not_count_as_speed() {
        let seconds = Duration::from_secs;
        let mut board = Board::default();
        board.apply(&peer("a", 2, 0), seconds(100));
        board.apply(&peer("b", 1, 0), seconds(100));
        assert_eq!(board.total(seconds(100)).unwrap().line(), "all steps: 10/40 (25%)");
        board.apply(&peer("a", 2, 5), seconds(110));
        board.apply(&peer("b", 1, 5), seconds(110));
        assert_eq!(board.total(seconds(110)).unwrap().line(), "all steps: 20/40 (50%), 20 s left");
    }

    #[test]
    fn a_peer_that_did_not_move_is_not_shown_again() {
        let mut board = Board::default();
        board.apply(&peer("a", 1, 1), Duration::ZERO);
        assert_eq!(board.take_changed().len(), 1);
        assert_eq!(board.take_changed().len(), 0);
    }

    #[test]
    fn a_stage_ends_when_it_is_done() {
        let mut board = Board::default();
        let stage = |done| ProgressEvent::Stage { name: "tokenizer".to_owned(), done, total: 4 };
        board.apply(&stage(1), Duration::ZERO);
        board.apply(&stage(2), Duration::from_secs(90));
        let line = board.stage(Duration::from_secs(90)).unwrap().line();
        assert_eq!(line, "tokenizer: 2/4 (50%), 3 min 0 s left");
        board.apply(&stage(4), Duration::from_secs(95));
        assert_eq!(board.stage(Duration::from_secs(95)), None);
    }

    #[test]
    fn a_line_says_what_a_peer_waits_for() {
        let mut waiting = PeerProgress { peer: "a3f9".to_owned(), phases: 4, steps: 10, ..PeerProgress::default() };
        waiting.loss = Some(4.25);
        waiting.tokens_per_s = Some(12_345.0);
        let words = "the update of 1.0: 1 of 2 contributions".to_owned();
        waiting.waiting = Some(Waits { words, value: serde_json::Value::Null });
        let line = "a3f9  phase 0/4  step   0/10  loss 4.250  12.3k tokens/s  waits for the update of 1.0: 1 of 2 \
                    contributions";
        assert_eq!(peer_line(&waiting), line);
        (waiting.tokens_per_s, waiting.waiting) = (Some(35.4), None);
        assert!(peer_line(&waiting).ends_with("  35 tokens/s"), "a large model on a laptop");
    }
}
