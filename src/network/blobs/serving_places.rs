//! The places of the blobs that are served at the same time, and the streams that wait for one.
//!
//! Whoever comes next is the one whose IP address and key have least, and of equals the one that has waited longest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libp2p::PeerId;
use tokio::sync::Notify;

use crate::network::limits::{SERVING_STAYS, SERVINGS};
use crate::network::protection::places::{Claim, Places, StandingOf};
use crate::network::standing::Standing;

/// Pause before whoever waits looks again whether another may have to leave by now.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Tells a stream that it has a place, or that it has to end.
#[derive(Clone, Default)]
pub(crate) struct Signals {
    pub entered: Arc<Notify>,
    pub evicted: Arc<Notify>,
}

/// The streams with a place, and those that wait, in the order in which they came. Time is passed in.
struct Queue {
    places: Places<Arc<Notify>>,
    waiting: BTreeMap<u64, (Claim, Signals)>,
    next: u64,
}

impl Queue {
    fn new(most: usize) -> Self {
        Self { places: Places::new(most, SERVING_STAYS), waiting: BTreeMap::new(), next: 0 }
    }

    /// A stream waits from now on, under this number.
    fn wait(&mut self, claim: Claim, signals: Signals) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, (claim, signals));
        number
    }

    /// Gives places to those that are entitled to one by now, and tells them and those that have to leave.
    fn admit(&mut self, now: Instant, standing: StandingOf<'_>) {
        while self.admit_one(now, standing) {}
    }

    fn admit_one(&mut self, now: Instant, standing: StandingOf<'_>) -> bool {
        let waiting: Vec<(u64, Claim)> = self.waiting.iter().map(|(number, (claim, _))| (*number, *claim)).collect();
        let signals =
            |number| self.waiting.get(&number).map(|(_, signals)| signals.evicted.clone()).unwrap_or_default();
        let Some((number, left)) = self.places.enter_one(&waiting, signals, (now, standing)) else { return false };
        left.iter().for_each(|left| left.notify_one());
        let entered = self.waiting.remove(&number);
        entered.iter().for_each(|(_, signals)| signals.entered.notify_one());
        true
    }

    /// A stream has ended, or waits no more.
    fn leave(&mut self, number: u64) {
        self.waiting.remove(&number);
        self.places.leave(number);
    }
}

/// The queue, shared by all streams.
pub(crate) struct ServingPlaces {
    queue: Mutex<Queue>,
    standing: Box<dyn Fn(&PeerId) -> Standing + Send + Sync>,
}

impl ServingPlaces {
    pub(crate) fn new(standing: Box<dyn Fn(&PeerId) -> Standing + Send + Sync>) -> Self {
        Self { queue: Mutex::new(Queue::new(SERVINGS)), standing }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A place is held or not.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how long a place is held")]
    fn admit(&self, queue: &mut Queue) {
        queue.admit(Instant::now(), &*self.standing);
    }

    /// Waits for a place; whoever has to leave for it is told.
    pub(crate) async fn enter(&self, claim: Claim, signals: Signals) -> Place<'_> {
        let place = Place { places: self, number: self.queue().wait(claim, signals.clone()) };
        loop {
            {
                let mut queue = self.queue();
                self.admit(&mut queue);
                if queue.places.has(place.number) {
                    return place;
                }
            }
            // Either way it looks again.
            let _ = tokio::time::timeout(LOOK_AGAIN, signals.entered.notified()).await;
        }
    }
}

/// A place, or the wait for one, until it is dropped.
pub(crate) struct Place<'a> {
    places: &'a ServingPlaces,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.places.queue();
        queue.leave(self.number);
        self.places.admit(&mut queue);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn claim(address: u8) -> Claim {
        Claim { ip: Some(IpAddr::from([192, 0, 2, address])), peer: PeerId::random() }
    }

    #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_free_place_goes_to_whoever_has_least_and_of_equals_to_the_first() {
        let (came, standing) = (now(), |_: &PeerId| Standing::Stranger);
        let (greedy, honest) = (claim(1), [claim(2), claim(3)]);
        let mut queue = Queue::new(6);
        let first = honest.map(|claim| queue.wait(claim, Signals::default()));
        let held = [(); 4].map(|()| queue.wait(greedy, Signals::default()));
        queue.admit(came, &standing);
        let again = queue.wait(greedy, Signals::default());
        let wait = honest.map(|claim| queue.wait(claim, Signals::default()));
        queue.admit(came, &standing);
        assert!(first.iter().chain(&held).all(|number| queue.places.has(*number)), "they have just come");
        let mut after = |number| {
            queue.leave(number);
            queue.admit(came, &standing);
            [again, wait[0], wait[1]].map(|number| queue.places.has(number))
        };
        assert_eq!(after(held[0]), [false, true, false], "the first of two that have least");
        assert_eq!(after(held[1]), [false, true, true]);
        assert_eq!(after(held[2]), [true, true, true]);
    }

    #[test]
    fn who_has_no_place_gets_one_at_once_from_whoever_has_most_and_that_is_told() {
        let (came, standing) = (now(), |_: &PeerId| Standing::Stranger);
        let (greedy, signals) = (claim(1), Signals::default());
        let mut queue = Queue::new(2);
        queue.wait(greedy, Signals::default());
        let last = queue.wait(greedy, signals.clone());
        queue.admit(came, &standing);
        let honest = queue.wait(claim(2), Signals::default());
        queue.admit(came, &standing);
        assert!(queue.places.has(honest) && !queue.places.has(last));
        assert!(futures::FutureExt::now_or_never(signals.evicted.notified()).is_some());
    }

    #[test]
    fn after_a_moment_whoever_has_most_makes_room_and_is_told() {
        let (came, standing) = (now(), |_: &PeerId| Standing::Stranger);
        let (greedy, signals) = (claim(1), Signals::default());
        let mut queue = Queue::new(4);
        let (neighbour, [first, _]) = (claim(2), [(); 2].map(|()| queue.wait(greedy, Signals::default())));
        let last = queue.wait(greedy, signals.clone());
        queue.wait(neighbour, Signals::default());
        queue.admit(came, &standing);
        let honest = queue.wait(neighbour, Signals::default());
        queue.admit(came + SERVING_STAYS, &standing);
        assert!(queue.places.has(honest) && queue.places.has(first) && !queue.places.has(last));
        let told = futures::FutureExt::now_or_never(signals.evicted.notified());
        assert!(told.is_some());
    }
}
