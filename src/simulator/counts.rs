//! Counts of a drill: faults, and the times of recovery.

use std::collections::BTreeMap;

use crate::names::ModuleId;
use crate::simulator::scenario::byzantine::Byzantine;
use crate::simulator::scenario::faults::Kind;

/// Of one seed, or of several seeds together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events handled by nodes.
    pub events: u64,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Bytes of gossip published.
    pub said_bytes: u64,
    /// Bytes of gossip sent to peers, lost or not.
    pub heard_bytes: u64,
    /// Bytes of requests and responses.
    pub asked_bytes: u64,
    /// Peers times phases.
    pub peer_phases: u64,
    /// The mean duration of a phase, from one update to the next, of each seed.
    pub phases_ms: Vec<u64>,
    /// Changes of ownership that peers saw.
    pub ownership_changes: u64,
    /// Chains abandoned for heavier ones, or for ones too far ahead to replay.
    pub switches: u64,
    /// Chains that were rolled back to before an invalidated update.
    pub went_back: u64,
    /// Updates that do not match their contributions, and how many of them remain in the final chains.
    pub wrong_updates: (u64, u64),
    /// Byzantine peers that an honest peer has quarantined, by behaviour.
    pub quarantined: BTreeMap<&'static str, u64>,
    /// From each crash of an owner to the election of another.
    pub takeovers_ms: Vec<u64>,
    /// From an owner's hand-off of its module to the new owner.
    pub hand_offs_ms: Vec<u64>,
    /// Elections while the owner was up, not frozen and not cut off.
    pub needless: u64,
    /// From each crash of an owner to the next applied update.
    pub recoveries_ms: Vec<u64>,
    /// Contributions counted a version or more late.
    pub late: u64,
    /// Paths that nobody holds at the end, or has trained to it and left.
    pub unheld: u64,
    /// Modules whose owner is down, with the time.
    vacant: BTreeMap<ModuleId, (u64, usize)>,
    left: BTreeMap<ModuleId, u64>,
    stalled: BTreeMap<ModuleId, u64>,
    /// Time of peers in phases, and their whole time from the first phase to the last.
    pub trained_ms: (u64, u64),
    /// For each peer: time in phases, start, and end.
    in_phases: BTreeMap<usize, (u64, u64, u64)>,
    /// Times of the first and the last new head.
    advances_ms: Option<(u64, u64)>,
}

impl Counts {
    /// Counts a fault.
    pub fn fault(&mut self, kind: Kind) {
        *self.faults.entry(kind.name()).or_default() += 1;
    }

    /// Counts a Byzantine peer.
    pub fn byzantine(&mut self, behaviour: Byzantine) {
        *self.faults.entry(behaviour.name()).or_default() += 1;
    }

    /// Counts a Byzantine peer that is quarantined for the first time.
    pub fn names(&mut self, behaviour: Byzantine) {
        *self.quarantined.entry(behaviour.name()).or_default() += 1;
    }

    /// A module's owner has crashed, while other peers have the module.
    pub fn owner_crashed(&mut self, now_ms: u64, module: ModuleId, owner: usize) {
        self.vacant.entry(module).or_insert((now_ms, owner));
        self.stalled.entry(module).or_insert(now_ms);
    }

    /// A module's owner leaves cleanly.
    pub fn owner_leaves(&mut self, now_ms: u64, module: ModuleId) {
        self.left.insert(module, now_ms);
    }

    /// A peer reports that it owns a module.
    pub fn owner_claims(&mut self, now_ms: u64, module: ModuleId, owner: usize) {
        self.hand_offs_ms.extend(self.left.remove(&module).map(|since_ms| now_ms - since_ms));
        // An owner that returns before it is missed continues.
        let crashed = self.vacant.remove(&module).filter(|(_, before)| *before != owner);
        self.takeovers_ms.extend(crashed.map(|(since_ms, _)| now_ms - since_ms));
    }

    /// A module has a new head at a peer.
    pub fn advanced(&mut self, now_ms: u64, module: ModuleId) {
        self.recoveries_ms.extend(self.stalled.remove(&module).map(|since_ms| now_ms - since_ms));
        let (first_ms, _) = self.advances_ms.unwrap_or((now_ms, now_ms));
        self.advances_ms = Some((first_ms, now_ms));
    }

    /// A peer has trained a phase, or a part of one.
    pub fn trained(&mut self, peer: usize, since_ms: u64, until_ms: u64) {
        let (spent_ms, _, last_ms) = self.in_phases.entry(peer).or_insert((0, since_ms, until_ms));
        (*spent_ms, *last_ms) = (*spent_ms + until_ms - since_ms, until_ms);
    }

    /// The share of their time that peers have spent in phases, in percent.
    pub fn trained_percent(&self) -> f64 {
        100.0 * self.trained_ms.0 as f64 / self.trained_ms.1.max(1) as f64
    }

    /// The swarm has finished.
    pub fn ended(&mut self, peers: usize, phases: u64) {
        self.peer_phases += peers as u64 * phases;
        for (spent_ms, first_ms, last_ms) in std::mem::take(&mut self.in_phases).into_values() {
            self.trained_ms.0 += spent_ms;
            self.trained_ms.1 += last_ms - first_ms;
        }
        let took = self.advances_ms.take().filter(|_| phases > 1);
        self.phases_ms.extend(took.map(|(first_ms, last_ms)| (last_ms - first_ms) / (phases - 1)));
    }

    /// Bytes of gossip, requests and responses of a peer in a phase, without blobs.
    pub fn control_bytes_per_phase(&self) -> u64 {
        (self.said_bytes + self.heard_bytes + self.asked_bytes) / self.peer_phases.max(1)
    }

    /// Adds the counts of another seed.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        for (name, times) in &other.faults {
            *self.faults.entry(name).or_default() += times;
        }
        self.said_bytes += other.said_bytes;
        self.heard_bytes += other.heard_bytes;
        self.asked_bytes += other.asked_bytes;
        self.peer_phases += other.peer_phases;
        self.phases_ms.extend(&other.phases_ms);
        self.trained_ms.0 += other.trained_ms.0;
        self.trained_ms.1 += other.trained_ms.1;
        self.ownership_changes += other.ownership_changes;
        self.switches += other.switches;
        self.went_back += other.went_back;
        self.wrong_updates.0 += other.wrong_updates.0;
        self.wrong_updates.1 += other.wrong_updates.1;
        for (name, times) in &other.quarantined {
            *self.quarantined.entry(name).or_default() += times;
        }
        self.takeovers_ms.extend(&other.takeovers_ms);
        self.hand_offs_ms.extend(&other.hand_offs_ms);
        self.needless += other.needless;
        self.recoveries_ms.extend(&other.recoveries_ms);
        self.late += other.late;
        self.unheld += other.unheld;
    }
}

/// The median; `None` for none.
pub fn median(numbers: &[u64]) -> Option<u64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_takeover_counts_from_the_crash_to_the_first_claim() {
        let module = ModuleId { level: 0, expert: 1 };
        let mut counts = Counts::default();
        counts.owner_crashed(1_000, module, 0);
        counts.owner_claims(3_500, module, 1);
        counts.owner_claims(4_500, module, 2);
        counts.advanced(9_000, module);
        counts.advanced(15_000, module);
        counts.trained(0, 1_000, 3_000);
        counts.trained(0, 6_000, 9_000);
        counts.ended(5, 4);
        assert_eq!((counts.peer_phases, counts.phases_ms.as_slice()), (20, &[2_000][..]));
        assert_eq!((counts.takeovers_ms.as_slice(), counts.recoveries_ms.as_slice()), (&[2_500][..], &[8_000][..]));
        assert_eq!(counts.trained_percent(), 62.5, "5 of 8 seconds");
        assert_eq!(median(&[5, 1, 3]), Some(3));
        assert_eq!(median(&[]), None);
    }
}
