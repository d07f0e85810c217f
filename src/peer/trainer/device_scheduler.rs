//! The device scheduler: trainers of one machine use its device in turn instead of competing for it.
//!
//! A trainer with the device makes inner steps for about a second, and then asks again. Leases are given in the order
//! of requests. A single trainer never waits. Each device of a peer has a queue of its own.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Approximate length of a lease. Warming the caches again costs little in comparison.
pub const SLICE_MS: u64 = 1_000;

/// The queue of trainers that wait for the device.
#[derive(Debug, Default)]
pub struct DeviceScheduler {
    queue: Mutex<Queue>,
    moved: Condvar,
    /// Those of the further devices of the machine's profile.
    further: Mutex<Vec<Arc<DeviceScheduler>>>,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    serving: u64,
}

/// The device belongs to this trainer until the lease is dropped.
#[derive(Debug)]
pub struct DeviceLease<'a> {
    scheduler: &'a DeviceScheduler,
    ticket: u64,
}

impl DeviceLease<'_> {
    /// Number of the lease.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether anybody waits for the device.
    pub fn is_wanted(&self) -> bool {
        self.scheduler.lock().next > self.ticket + 1
    }
}

impl DeviceScheduler {
    /// The scheduler of a device by its number in the machine's profile. This one is that of the first.
    pub fn of_device(self: &Arc<Self>, number: usize) -> Arc<Self> {
        let Some(index) = number.checked_sub(1) else { return self.clone() };
        // A list that only grows is consistent even if a thread panicked.
        let mut further = self.further.lock().unwrap_or_else(PoisonError::into_inner);
        if further.len() <= index {
            further.resize_with(index + 1, Arc::default);
        }
        further[index].clone()
    }

    pub fn acquire(&self) -> DeviceLease<'_> {
        self.acquire_and_report(Duration::MAX, &mut || {})
    }

    /// Waits for the device, and calls `waits` at intervals.
    pub fn acquire_and_report(&self, every: Duration, waits: &mut dyn FnMut()) -> DeviceLease<'_> {
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
        DeviceLease { scheduler: self, ticket }
    }

    /// Ends the lease of a trainer that hangs.
    pub fn end(&self, ticket: u64) {
        let mut queue = self.lock();
        if queue.serving == ticket {
            queue.serving += 1;
            self.moved.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Two counters are consistent even if a thread panicked.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeviceLease<'_> {
    fn drop(&mut self) {
        self.scheduler.end(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    #[test]
    fn one_at_a_time_and_everybody_gets_as_many_turns() {
        let (scheduler, busy, made) =
            (Arc::new(DeviceScheduler::default()), Arc::new(AtomicBool::new(false)), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let lease = scheduler.acquire();
                        assert!(!busy.swap(true, Ordering::SeqCst));
                        made.fetch_add(1, Ordering::SeqCst);
                        busy.store(false, Ordering::SeqCst);
                        drop(lease);
                    }
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 200);
    }

    #[test]
    fn a_turn_that_was_ended_for_its_trainer_ends_once() {
        let scheduler = DeviceScheduler::default();
        let (stuck, others) = (scheduler.acquire(), Mutex::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut said = false;
                let lease = scheduler.acquire_and_report(Duration::from_millis(1), &mut || {
                    if !std::mem::replace(&mut said, true) {
                        scheduler.end(stuck.ticket());
                    }
                });
                assert!(said && lease.ticket() == 1);
                *others.lock().unwrap() += 1;
            });
        });
        drop(stuck);
        assert_eq!((*others.lock().unwrap(), scheduler.acquire().ticket()), (1, 2));
    }

    #[test]
    fn trainers_of_two_devices_do_not_wait_for_each_other() {
        let scheduler = Arc::new(DeviceScheduler::default());
        let third = scheduler.of_device(2);
        let (held, beside) = (scheduler.acquire(), third.acquire());
        assert!(!held.is_wanted() && !beside.is_wanted());
        assert!(Arc::ptr_eq(&scheduler.of_device(2), &third), "it is the same for all peers");
    }

    #[test]
    fn those_who_wait_are_served_in_order() {
        let scheduler = DeviceScheduler::default();
        let first = scheduler.acquire();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (scheduler, order) = (&scheduler, &order);
                scope.spawn(move || {
                    let _lease = scheduler.acquire();
                    order.lock().unwrap().push(number);
                });
                while scheduler.lock().next != number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    }
}
