//! One table of deadlines, a slot for each kind.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::ModuleId;

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Send heartbeats.
    Heartbeat,
    /// Check leases, gaps and stale requests.
    Sweep,
    /// Check whether a collection can close.
    Close(ModuleId),
}

/// The deadlines that are set.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    slots: BTreeMap<Timer, Millis>,
    /// The earliest deadline. It is read after every event and seldom changes.
    next: Option<Millis>,
}

impl Timers {
    /// Sets or moves a deadline.
    pub fn set(&mut self, timer: Timer, at: Millis) {
        self.slots.insert(timer, at);
        self.look();
    }

    /// Clears a deadline.
    pub fn clear(&mut self, timer: Timer) {
        if self.slots.remove(&timer).is_some() {
            self.look();
        }
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Millis> {
        self.next
    }

    fn look(&mut self) {
        self.next = self.slots.values().min().copied();
    }

    /// Removes the deadlines that are due and returns them in the order of their kinds.
    pub fn take_due(&mut self, now: Millis) -> Vec<Timer> {
        let due: Vec<Timer> = self.slots.iter().filter(|(_, at)| **at <= now).map(|(timer, _)| *timer).collect();
        for timer in &due {
            self.slots.remove(timer);
        }
        self.look();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_one_deadline_and_fires_once() {
        let mut timers = Timers::default();
        timers.set(Timer::Heartbeat, Millis(10));
        timers.set(Timer::Heartbeat, Millis(20));
        timers.set(Timer::Sweep, Millis(15));
        assert_eq!(timers.next(), Some(Millis(15)));
        assert_eq!(timers.take_due(Millis(20)), [Timer::Heartbeat, Timer::Sweep]);
        assert_eq!(timers.next(), None);
    }
}
