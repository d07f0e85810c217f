//! The starts of a peer, which reveal a copied identity. A key is used by one start at a time, and a peer that restarts
//! was silent before.
//!
//! Gossip does not return a message to its author, and two endpoints with one key cannot connect to each other, so
//! other peers must notice the copy. Their heartbeats name the highest start that they hear, with its signature. A copy
//! that hears of a higher start than its own stops. Nobody else could have signed that start, so a Byzantine peer
//! cannot stop anyone.

use crate::clock::Millis;
use crate::protocol::limits::{MAX_ADDRESSES, MAX_STARTS, MEMBER_LEASE_MS};
use crate::protocol::membership::roster::small_list::SmallList;
use crate::protocol::wire::message::Start;

/// The recent starts of one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// In order of incarnation and nonce.
    lives: SmallList<Life>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Life {
    start: Start,
    first: Millis,
    last: Millis,
    sequence: u64,
    addresses: Vec<String>,
}

/// Two starts of one key that are alive at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The higher start.
    pub start: Start,
    /// The lower start.
    pub lower: (u64, u64),
    /// The addresses that either of them announces.
    pub addresses: Vec<String>,
}

impl Starts {
    /// Notes a start: its newest heartbeat or, without a sequence number, a request on its own connection. Returns a
    /// copy if another start is alive at the same time. Both must have been heard a lease after the other one's first
    /// message, because by then all messages that gossip had delayed have arrived.
    pub fn hear(
        &mut self,
        now: Millis,
        start: &Start,
        sequence: Option<u64>,
        addresses: Option<&[String]>,
    ) -> Option<Copy> {
        let mine = self.place(now, start);
        let life = &mut self.lives[mine];
        if sequence.is_some_and(|sequence| sequence <= life.sequence) {
            return None;
        }
        life.sequence = sequence.unwrap_or(life.sequence);
        life.last = now;
        if let Some(addresses) = addresses.filter(|addresses| *addresses != life.addresses) {
            life.addresses = addresses.to_vec();
        }
        if self.lives.len() == 1 {
            return None;
        }
        let life = &self.lives[mine];
        let highest = self.lives.len() - 1;
        let mut others = self.lives.iter().enumerate().rev().filter(|(other, _)| *other != mine);
        let (_, other) = others.find(|(other, it)| {
            let one_is_highest = *other == highest || mine == highest;
            let each_after_the_other =
                now.since(it.first) >= MEMBER_LEASE_MS && it.last.since(life.first) >= MEMBER_LEASE_MS;
            one_is_highest && each_after_the_other && now.since(it.last) < 2 * MEMBER_LEASE_MS
        })?;
        let (higher, lower) = if mine == highest { (life, other) } else { (other, life) };
        let mut addresses = other.addresses.clone();
        addresses.extend(life.addresses.iter().cloned());
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(2 * MAX_ADDRESSES);
        Some(Copy { start: higher.start.clone(), lower: lower.start.order(), addresses })
    }

    /// The index of a start. When the list is full, a new start replaces the one that has been silent longest.
    fn place(&mut self, now: Millis, start: &Start) -> usize {
        let by_order = |life: &Life| life.start.order();
        if let Ok(place) = self.lives.binary_search_by_key(&start.order(), by_order) {
            return place;
        }
        if self.lives.len() >= MAX_STARTS {
            let silent = self.lives.iter().enumerate().min_by_key(|(_, life)| life.last).map(|(place, _)| place);
            silent.and_then(|place| self.lives.remove(place));
        }
        let place = self.lives.partition_point(|life| by_order(life) < start.order());
        let begun = Life { start: start.clone(), first: now, last: now, sequence: 0, addresses: Vec::new() };
        self.lives.insert(place, begun);
        place
    }

    /// Whether a start that is heard now has replaced another that was accepted and has been silent for a lease. This
    /// happens to a peer whose store was emptied, because it counts its starts from 1 again.
    pub fn has_outlived(&self, now: Millis, start: (u64, u64), other: (u64, u64)) -> bool {
        let life = |order| self.lives.iter().find(|life| life.start.order() == order);
        let silent = life(other).is_none_or(|other| now.since(other.last) >= MEMBER_LEASE_MS);
        let speaks = life(start).is_some_and(|life| life.last == now);
        start != other && speaks && silent
    }
}

impl Copy {
    /// The two starts.
    pub(super) fn pair(&self) -> ((u64, u64), (u64, u64)) {
        (self.start.order(), self.lower)
    }
}

/// A copy that was noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Noticed {
    pub(super) copy: Copy,
    pub(super) at: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = MEMBER_LEASE_MS;

    fn start(incarnation: u64, nonce: u64) -> Start {
        Start { incarnation, nonce, signature: vec![] }
    }

    fn speaks(starts: &mut Starts, at: u64, from: &Start, sequence: u64) -> bool {
        starts.hear(Millis(at), from, Some(sequence), None).is_some()
    }

    #[test]
    fn two_starts_heard_in_turn_are_a_copy_whatever_their_incarnations() {
        for (low, high) in [(start(3, 7), start(3, 9)), (start(2, 9), start(6, 1))] {
            let mut starts = Starts::default();
            let noticed: Vec<u64> = (1..=10)
                .filter(|second| {
                    let by_high = speaks(&mut starts, 1_000 * second, &high, *second);
                    let by_low = speaks(&mut starts, 1_000 * second + 500, &low, *second);
                    by_high || by_low
                })
                .collect();
            assert_eq!(noticed, [7, 8, 9, 10], "once each is heard a lease after the other's first message");
        }
    }

    #[test]
    fn a_restart_is_no_copy_even_if_delayed_messages_of_the_earlier_start_arrive() {
        let mut starts = Starts::default();
        for sequence in 1..100 {
            assert!(!speaks(&mut starts, sequence * 1_000, &start(1, 9), sequence));
        }
        assert!(!speaks(&mut starts, 101_000, &start(2, 1), 1));
        assert!(!speaks(&mut starts, 101_000 + LEASE - 1, &start(1, 9), 100));
        assert!(!speaks(&mut starts, 110_000, &start(2, 1), 2));
        assert!(!speaks(&mut starts, 111_000, &start(1, 9), 99), "a repeated message");
    }

    #[test]
    fn a_start_that_is_silent_is_no_copy_of_the_next() {
        let mut starts = Starts::default();
        assert!(!speaks(&mut starts, 0, &start(5, 1), 1));
        // Its folder was emptied, so it counts from 1 again.
        assert!(!speaks(&mut starts, 2 * LEASE, &start(1, 2), 1));
    }

    #[test]
    fn a_peer_whose_store_was_emptied_is_no_copy_of_its_earlier_start() {
        let mut starts = Starts::default();
        for sequence in 1..100 {
            speaks(&mut starts, sequence * 1_000, &start(6, 9), sequence);
        }
        // Its folder was emptied, so it counts from 1 again, below the start that was just heard.
        let noticed = (1..60).any(|second| {
            if second == 9 {
                assert!(!speaks(&mut starts, 100_000 + LEASE - 1, &start(6, 9), 100), "a delayed message");
            }
            speaks(&mut starts, 100_000 + 500 * second, &start(1, 2), second)
        });
        assert!(!noticed);
        speaks(&mut starts, 105_000 + LEASE, &start(1, 2), 60);
        assert!(starts.has_outlived(Millis(105_000 + LEASE), (1, 2), (6, 9)));
    }

    #[test]
    fn the_number_of_remembered_starts_is_bounded() {
        let mut starts = Starts::default();
        for number in 0..1_000 {
            speaks(&mut starts, number, &start(number, 0), 1);
        }
        assert_eq!(starts.lives.len(), MAX_STARTS);
    }
}
