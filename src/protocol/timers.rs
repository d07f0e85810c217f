//! One table of deadlines, a slot for each kind.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::ModuleId;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Say that one is alive.
    Heartbeat,
    /// Look at leases, gaps and stale requests.
    Sweep,
    /// Look whether a collection can close.
    Close(ModuleId),
}

/// The deadlines that are set.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    slots: BTreeMap<Timer, Millis>,
    /// The earliest of them: it is asked for after every event, and rarely another.
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

    /// Takes out what is due, in the order of the kinds.
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
