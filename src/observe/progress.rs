//! Progress: a program sends events from any thread; one thread shows them on a terminal, as lines, or as JSON Lines.
//!
//! Sending never waits, whoever reads: what a slow terminal or a full pipe does not take in time is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::board::Board;
use super::event::{PeerProgress, ProgressEvent};
use super::queue::{Entry, Next, Queue};
use super::views::{Screen, View};
use crate::failpoints::failpoint;

/// Interval of the total, and least interval of plain lines.
const TICK: Duration = Duration::from_secs(5);

/// Interval at which the end of a display looks whether the program has become impatient.
const LOOK: Duration = Duration::from_millis(50);

/// How long an impatient program waits for the display.
const IMPATIENT: Duration = Duration::from_millis(500);

/// Whether the user wants the program to end.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Whether a display was left behind in the middle of a line that nobody reads.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Displays no longer wait for a reader that has stopped. May be called in a signal handler.
pub fn hurry() {
    ENDS.store(true, Ordering::SeqCst);
}

/// Whether nobody reads the output: another line would wait for ever.
pub fn is_stuck() -> bool {
    STUCK.load(Ordering::SeqCst)
}

/// Hears every event before it is shown; must not block.
type Tap = Arc<dyn Fn(&ProgressEvent) + Send + Sync>;

/// A handle to send events. Cheap to clone; sending after the end is ignored.
#[derive(Clone)]
pub struct Progress {
    queue: Arc<Queue>,
    tap: Option<Tap>,
}

impl Progress {
    /// Starts showing progress until the guard is dropped. If the system allows no further thread, nothing is shown.
    pub fn start(view: View) -> (Self, ProgressGuard) {
        Self::start_on(Screen::new(view))
    }

    /// A handle that shows nothing, for a program with a screen of its own.
    pub fn silent() -> Self {
        let queue = Arc::<Queue>::default();
        queue.close();
        queue.end();
        Self { queue, tap: None }
    }

    fn start_on(screen: Screen) -> (Self, ProgressGuard) {
        let queue = Arc::<Queue>::default();
        let shown = queue.clone();
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(move || {
            // Also if showing panics.
            let ended = Ended(shown);
            show(&ended.0, screen);
        });
        if thread.is_err() {
            queue.close();
            queue.end();
        }
        (Self { queue: queue.clone(), tap: None }, ProgressGuard { queue })
    }

    /// Lets somebody else hear what is sent through this handle and its clones.
    #[must_use]
    pub fn tapped(self, tap: impl Fn(&ProgressEvent) + Send + Sync + 'static) -> Self {
        Self { tap: Some(Arc::new(tap)), ..self }
    }

    /// Nobody but the display hears what is sent through this handle.
    #[must_use]
    pub fn untapped(self) -> Self {
        Self { tap: None, ..self }
    }

    /// Shows an event, if the display has space for it. Notes and results have more space than the rest.
    pub fn send(&self, event: ProgressEvent) {
        if let Some(tap) = &self.tap {
            tap(&event);
        }
        self.queue.push(event);
    }

    pub fn peer(&self, peer: PeerProgress) {
        self.send(ProgressEvent::Peer(peer));
    }

    pub fn stage(&self, name: &str, done: u64, total: u64) {
        self.send(ProgressEvent::Stage { name: name.to_owned(), done, total });
    }

    /// Shows a line that stays.
    pub fn note(&self, text: impl Into<String>) {
        self.send(ProgressEvent::Note { text: text.into() });
    }

    /// Passes a result to programs: an object with an `event`.
    pub fn result(&self, value: serde_json::Value) {
        self.send(ProgressEvent::Result(value));
    }
}

/// Ends the display when dropped, after all earlier events. It waits for a slow reader, unless the program is in a hurry.
#[derive(Debug)]
#[must_use = "progress ends when this is dropped"]
pub struct ProgressGuard {
    queue: Arc<Queue>,
}

impl Drop for ProgressGuard {
    #[expect(clippy::disallowed_methods, reason = "an edge: how long a display is waited for")]
    fn drop(&mut self) {
        self.queue.close();
        let mut hurries_since = None;
        while !self.queue.has_ended(LOOK) {
            if !ENDS.load(Ordering::SeqCst) {
                continue;
            }
            if hurries_since.get_or_insert_with(Instant::now).elapsed() >= IMPATIENT {
                STUCK.store(true, Ordering::SeqCst);
                return;
            }
        }
    }
}

/// Says that the display has ended.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.close();
        self.0.end();
    }
}

#[expect(clippy::disallowed_methods, reason = "progress is shown in real time")]
fn now() -> Instant {
    Instant::now()
}

fn show(queue: &Queue, mut screen: Screen) {
    let began = now();
    let mut board = Board::default();
    let mut next_tick = TICK;
    loop {
        failpoint("progress");
        match queue.next(next_tick.saturating_sub(began.elapsed())) {
            Next::Entry(Entry::Event(event)) => {
                board.apply(&event, began.elapsed());
                screen.event(&event, &board, began.elapsed());
            }
            Next::Entry(Entry::Dropped(count)) => screen.dropped(count, &board, began.elapsed()),
            Next::Nothing => {}
            Next::End => break,
        }
        if began.elapsed() >= next_tick {
            screen.tick(&mut board, began.elapsed());
            next_tick = began.elapsed() + TICK;
        }
    }
    screen.end(&mut board, began.elapsed());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::event::Waits;
    use crate::observe::views::tests::Shared;

    fn peer(phase: u64, step: u64) -> PeerProgress {
        PeerProgress { peer: "a".to_owned(), phase, phases: 4, step, steps: 10, ..PeerProgress::default() }
    }

    #[test]
    fn json_is_one_object_a_line_and_ends_with_the_result() {
        let written = Shared::default();
        let (progress, guard) = Progress::start_on(Screen::json(written.clone()));
        let waiting = Waits { words: "its turn".to_owned(), value: serde_json::json!({ "kind": "turn" }) };
        progress.peer(PeerProgress { waiting: Some(waiting), ..peer(1, 3) });
        progress.note("corpus 1.2 MB");
        progress.result(serde_json::json!({ "event": "result", "train_s": 2 }));
        drop(guard);
        progress.note("too late");
        let text = written.text();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(text.matches("event").count(), 3, "no key stands twice");
        assert_eq!((&lines[0]["event"], &lines[0]["step"]), (&"peer".into(), &3.into()));
        assert_eq!(lines[0]["waiting"], serde_json::json!({ "kind": "turn" }));
        assert_eq!(lines[1], serde_json::json!({ "event": "note", "text": "corpus 1.2 MB" }));
        assert_eq!(lines[2], serde_json::json!({ "event": "result", "train_s": 2 }));
    }
    #[test]
    fn a_reader_that_stops_holds_up_nobody_and_is_told_what_it_missed() {
        let (written, gate) = (Shared::default(), Arc::new(std::sync::Mutex::new(())));
        let closed = gate.lock().unwrap();
        let (progress, guard) =
            Progress::start_on(Screen::json(Gated { written: written.clone(), gate: gate.clone() }));
        for _ in 0..10_000 {
            progress.peer(peer(1, 1));
        }
        for number in 0..10_000 {
            progress.note(format!("note {number}"));
        }
        drop(closed);
        drop(guard);
        let text = written.text();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let dropped: u64 = lines.iter().filter_map(|line| line["count"].as_u64()).sum();
        let shown = lines.iter().filter(|line| line["event"] == "peer" || line["event"] == "note").count() as u64;
        assert!(lines.iter().any(|line| line["event"] == "dropped"), "{} lines", lines.len());
        assert_eq!(dropped + shown, 20_000);
        assert!(lines.len() < 3_000, "{} lines", lines.len());
    }

    /// A writer that waits while a test holds the gate.
    struct Gated {
        written: Shared,
        gate: Arc<std::sync::Mutex<()>>,
    }

    impl std::io::Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            drop(self.gate.lock());
            self.written.write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
