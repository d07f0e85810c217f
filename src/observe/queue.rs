//! The queue between those that report progress and the thread that shows it. Nobody waits for space in it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::event::ProgressEvent;

/// Events of peers and stages that may wait: one second of 256 peers with four steps a second.
const EVENTS: usize = 1024;

/// Notes and results have as many places more, so that events of peers never take theirs.
const LINES: usize = 1024;

/// A bounded queue. What comes when it is full is dropped and counted.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    dropped: u64,
    /// Nothing more is taken in.
    closed: bool,
    /// Everything has been shown.
    ended: bool,
}

/// What the display takes from the queue.
#[derive(Debug, PartialEq)]
pub(super) enum Entry {
    Event(ProgressEvent),
    /// So many events were dropped here.
    Dropped(u64),
}

/// What the display finds in the queue.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Entry(Entry),
    /// Nothing came in time.
    Nothing,
    /// The queue is closed and empty.
    End,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Entries are whole even if a thread panicked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, or counts it as dropped.
    pub(super) fn push(&self, event: ProgressEvent) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        let most = match event {
            ProgressEvent::Peer(_) | ProgressEvent::Stage { .. } => EVENTS,
            ProgressEvent::Note { .. } | ProgressEvent::Result(_) => EVENTS + LINES,
        };
        if waiting.entries.len() >= most {
            waiting.dropped += 1;
            return;
        }
        if waiting.dropped > 0 {
            let dropped = std::mem::take(&mut waiting.dropped);
            waiting.entries.push_back(Entry::Dropped(dropped));
        }
        waiting.entries.push_back(Entry::Event(event));
        drop(waiting);
        self.changed.notify_all();
    }

    /// Takes nothing more in. What waits is still shown.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The next entry, waiting for it so long.
    pub(super) fn next(&self, timeout: Duration) -> Next {
        let is_empty = |waiting: &mut Waiting| waiting.entries.is_empty() && waiting.dropped == 0 && !waiting.closed;
        let waiting = self.changed.wait_timeout_while(self.lock(), timeout, is_empty);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner).0;
        if let Some(entry) = waiting.entries.pop_front() {
            return Next::Entry(entry);
        }
        match std::mem::take(&mut waiting.dropped) {
            0 if waiting.closed => Next::End,
            0 => Next::Nothing,
            dropped => Next::Entry(Entry::Dropped(dropped)),
        }
    }

    /// Everything has been shown.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until everything has been shown, but only so long. Returns whether it was.
    pub(super) fn has_ended(&self, timeout: Duration) -> bool {
        let waiting = self.changed.wait_timeout_while(self.lock(), timeout, |waiting| !waiting.ended);
        waiting.unwrap_or_else(PoisonError::into_inner).0.ended
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::PeerProgress;
    use super::*;

    fn note(number: usize) -> ProgressEvent {
        ProgressEvent::Note { text: number.to_string() }
    }

    #[test]
    fn a_full_queue_drops_with_a_count_and_keeps_places_for_notes() {
        let queue = Queue::default();
        for _ in 0..EVENTS + 5 {
            queue.push(ProgressEvent::Peer(PeerProgress::default()));
        }
        for number in 0..LINES + 7 {
            queue.push(note(number));
        }
        queue.close();
        let (mut peers, mut notes, mut dropped) = (0, 0, Vec::new());
        loop {
            match queue.next(Duration::ZERO) {
                Next::Entry(Entry::Event(ProgressEvent::Peer(_))) => peers += 1,
                Next::Entry(Entry::Event(_)) => notes += 1,
                Next::Entry(Entry::Dropped(count)) => dropped.push(count),
                Next::Nothing => panic!("the queue was closed"),
                Next::End => break,
            }
        }
        // The count of what was dropped before the first note takes one of the places.
        assert_eq!((peers, notes, dropped), (EVENTS, LINES - 1, vec![5, 8]));
    }

    #[test]
    fn what_waits_when_the_queue_is_closed_is_still_shown() {
        let queue = Queue::default();
        assert_eq!(queue.next(Duration::ZERO), Next::Nothing);
        queue.push(note(1));
        queue.close();
        queue.push(note(2));
        assert_eq!(queue.next(Duration::ZERO), Next::Entry(Entry::Event(note(1))));
        assert_eq!(queue.next(Duration::from_secs(60)), Next::End);
        assert!(!queue.has_ended(Duration::ZERO));
        queue.end();
        assert!(queue.has_ended(Duration::from_secs(60)));
    }
}
