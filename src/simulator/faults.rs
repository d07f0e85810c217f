//! Who crashes, who goes for good and who is cut off from whom, when; and the dice.

use std::collections::BTreeSet;
use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// No fault begins before: by then everybody has had the time to join.
const FROM_MS: u64 = 10_000;

/// How much of what goes wrong.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Crashes: the peer loses everything that is not on its disk, in the middle of whatever it does, and comes back.
    pub crashes: usize,
    /// How long a crashed peer is away.
    pub down_ms: Range<u64>,
    /// Peers that crash and never come back. One that alone has some module stays.
    pub gone: usize,
    /// Times at which the network falls into two halves.
    pub partitions: usize,
    /// For how long.
    pub apart_ms: Range<u64>,
    /// None begins after this time; what follows must make progress.
    pub until_ms: u64,
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self { crashes: 0, down_ms: 0..1, gone: 0, partitions: 0, apart_ms: 0..1, until_ms: 0 }
    }
}

/// A peer that is away from one time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Which.
    pub peer: usize,
    /// From.
    pub at_ms: u64,
    /// Back at; nothing if it is gone for good.
    pub back_ms: Option<u64>,
}

/// Two halves that do not hear each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Of the two halves, the one without the founder.
    pub apart: BTreeSet<usize>,
    /// From when to when.
    pub when_ms: Range<u64>,
}

impl Partition {
    /// Whether nothing gets from one peer to the other now.
    pub fn cuts(&self, now_ms: u64, from: usize, to: usize) -> bool {
        self.when_ms.contains(&now_ms) && self.apart.contains(&from) != self.apart.contains(&to)
    }
}

impl Faults {
    /// The crashes of one seed, drawn for this many peers.
    pub fn crashes(&self, peers: usize, dice: &mut ChaCha8Rng) -> Vec<Crash> {
        let mut crashes: Vec<Crash> = Vec::new();
        for number in 0..self.crashes + self.gone {
            let peer = within(dice, &(0..peers as u64)) as usize;
            let at_ms = within(dice, &(FROM_MS..self.until_ms.max(FROM_MS + 1)));
            let back_ms = (number >= self.gone).then(|| at_ms + within(dice, &self.down_ms));
            let overlaps = |crash: &Crash| {
                let over = |one: &Option<u64>, start: u64| one.is_none_or(|end| start <= end);
                crash.peer == peer && over(&crash.back_ms, at_ms) && over(&back_ms, crash.at_ms)
            };
            if !crashes.iter().any(overlaps) {
                crashes.push(Crash { peer, at_ms, back_ms });
            }
        }
        crashes
    }

    /// The partitions of one seed, one after the other.
    pub fn partitions(&self, peers: usize, dice: &mut ChaCha8Rng) -> Vec<Partition> {
        let mut partitions = Vec::new();
        let mut from_ms = FROM_MS;
        for _ in 0..self.partitions {
            from_ms += within(dice, &(0..self.until_ms.saturating_sub(FROM_MS).max(1)));
            let to_ms = from_ms + within(dice, &self.apart_ms);
            let mut apart: BTreeSet<usize> = (1..peers).filter(|_| chance(dice, 0.5)).collect();
            if apart.is_empty() {
                apart.insert(peers - 1);
            }
            partitions.push(Partition { apart, when_ms: from_ms..to_ms });
            from_ms = to_ms;
        }
        partitions
    }
}

/// A number from a range.
pub fn within(dice: &mut ChaCha8Rng, range: &Range<u64>) -> u64 {
    let width = range.end.saturating_sub(range.start).max(1);
    range.start + dice.next_u64() % width
}

/// Whether something of this probability happens.
pub fn chance(dice: &mut ChaCha8Rng, probability: f64) -> bool {
    (dice.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= probability && probability > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn a_partition_cuts_between_its_halves_and_while_it_lasts() {
        let partition = Partition { apart: [2, 3].into(), when_ms: 10..20 };
        assert!(partition.cuts(10, 0, 2) && partition.cuts(19, 3, 1));
        assert!(!partition.cuts(10, 0, 1) && !partition.cuts(10, 2, 3) && !partition.cuts(20, 0, 2));
    }

    #[test]
    fn nobody_crashes_while_away_and_the_gone_do_not_come_back() {
        let faults = Faults { crashes: 20, down_ms: 1_000..9_000, gone: 1, until_ms: 60_000, ..Faults::none() };
        for seed in 0..50 {
            let crashes = faults.crashes(3, &mut Seed::root(seed).generator());
            assert_eq!(crashes.iter().filter(|crash| crash.back_ms.is_none()).count(), 1);
            for (one, other) in crashes.iter().flat_map(|one| crashes.iter().map(move |other| (one, other))) {
                let after = one.peer == other.peer && one.at_ms < other.at_ms;
                assert!(!after || one.back_ms.is_some_and(|back_ms| back_ms < other.at_ms));
            }
        }
    }
}
