//! Trainers that share a machine take turns on it instead of fighting for its cores.
//!
//! Each takes a turn, in the order in which they asked, makes inner steps for about a second with all cores, and asks
//! again. A trainer that is alone never waits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a turn lasts, about: long enough that warming the caches again does not count.
pub const TURN_MS: u64 = 1_000;

/// A queue for the machine.
#[derive(Debug, Default)]
pub struct Turns {
    queue: Mutex<Queue>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    serving: u64,
}

/// The machine is this trainer's until the turn is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    ticket: u64,
}

impl Turn<'_> {
    /// Names it.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }
}

impl Turns {
    /// Waits for the machine.
    pub fn take(&self) -> Turn<'_> {
        self.take_and_say(Duration::MAX, &mut || {})
    }

    /// The same; says every so often that it still waits.
    pub fn take_and_say(&self, every: Duration, waits: &mut dyn FnMut()) -> Turn<'_> {
        let mut queue = self.lock();
        let ticket = queue.next;
        queue.next += 1;
        while queue.serving != ticket {
            let (woken, waited) = self.moved.wait_timeout(queue, every).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            if waited.timed_out() {
                drop(queue);
                waits();
                queue = self.lock();
            }
        }
        Turn { turns: self, ticket }
    }

    /// Ends a turn whose trainer never will.
    pub fn end(&self, ticket: u64) {
        let mut queue = self.lock();
        if queue.serving == ticket {
            queue.serving += 1;
            self.moved.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Two counters are whole whatever happened to a thread that held them.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.end(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    #[test]
    fn one_at_a_time_and_everybody_gets_as_many_turns() {
        let (turns, busy, made) = (Arc::new(Turns::default()), Arc::new(AtomicBool::new(false)), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let turn = turns.take();
                        assert!(!busy.swap(true, Ordering::SeqCst));
                        made.fetch_add(1, Ordering::SeqCst);
                        busy.store(false, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 200);
    }

    #[test]
    fn a_turn_that_was_ended_for_its_trainer_ends_once() {
        let turns = Turns::default();
        let (stuck, others) = (turns.take(), Mutex::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut said = false;
                let turn = turns.take_and_say(Duration::from_millis(1), &mut || {
                    if !std::mem::replace(&mut said, true) {
                        turns.end(stuck.ticket());
                    }
                });
                assert!(said && turn.ticket() == 1);
                *others.lock().unwrap() += 1;
            });
        });
        drop(stuck);
        assert_eq!((*others.lock().unwrap(), turns.take().ticket()), (1, 2));
    }

    #[test]
    fn those_who_wait_are_served_in_order() {
        let turns = Turns::default();
        let first = turns.take();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.take();
                    order.lock().unwrap().push(number);
                });
                while turns.lock().next != number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    }
}
