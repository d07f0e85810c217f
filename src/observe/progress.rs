//! Progress: a program sends events from any thread; one thread shows them on a terminal, as lines, or as JSON Lines.
//!
//! Sending never waits for a slow terminal or a full pipe, except for results and notes, which must not be lost.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::board::Board;
use super::event::{PeerProgress, ProgressEvent};
use super::views::{Screen, View};

/// Events that may wait: one second of 256 peers with four steps a second.
const MAILBOX: usize = 1024;

/// Interval of the total, and least interval of plain lines.
const TICK: Duration = Duration::from_secs(5);

enum Message {
    Event(ProgressEvent),
    Stop,
}

/// Hears every event before it is shown; must not block.
type Tap = Arc<dyn Fn(&ProgressEvent) + Send + Sync>;

/// A handle to send events. Cheap to clone; sending after the end is ignored.
#[derive(Clone)]
pub struct Progress {
    mailbox: SyncSender<Message>,
    tap: Option<Tap>,
}

impl Progress {
    /// Starts showing progress until the guard is dropped.
    pub fn start(view: View) -> (Self, ProgressGuard) {
        Self::start_on(Screen::new(view))
    }

    fn start_on(screen: Screen) -> (Self, ProgressGuard) {
        let (mailbox, messages) = sync_channel(MAILBOX);
        let worker = std::thread::spawn(move || show(&messages, screen));
        let guard = ProgressGuard { mailbox: mailbox.clone(), worker: Some(worker) };
        (Self { mailbox, tap: None }, guard)
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

    /// Shows an event. Events of peers and stages are dropped if the display is too slow.
    pub fn send(&self, event: ProgressEvent) {
        if let Some(tap) = &self.tap {
            tap(&event);
        }
        // An error means that the display has ended, or that a newer event will follow. Neither stops the work.
        match event {
            ProgressEvent::Peer(_) | ProgressEvent::Stage { .. } => {
                let _ = self.mailbox.try_send(Message::Event(event));
            }
            ProgressEvent::Note { .. } | ProgressEvent::Result(_) => {
                let _ = self.mailbox.send(Message::Event(event));
            }
        }
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

/// Ends the display when dropped, after all earlier events.
#[derive(Debug)]
#[must_use = "progress ends when this is dropped"]
pub struct ProgressGuard {
    mailbox: SyncSender<Message>,
    worker: Option<JoinHandle<()>>,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        // Errors mean that the worker has ended already.
        let _ = self.mailbox.send(Message::Stop);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "progress is shown in real time")]
fn now() -> Instant {
    Instant::now()
}

fn show(messages: &Receiver<Message>, mut screen: Screen) {
    let began = now();
    let mut board = Board::default();
    let mut next_tick = TICK;
    loop {
        let wait = next_tick.saturating_sub(began.elapsed());
        match messages.recv_timeout(wait) {
            Ok(Message::Event(event)) => {
                board.apply(&event, began.elapsed());
                screen.event(&event, &board, began.elapsed());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
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
}
