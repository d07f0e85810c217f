//! How peers have behaved: what they contributed, and what was wrong with it.
//!
//! Each node judges by itself, from what it has seen or checked. One fault may be an accident, or look like one of
//! another's; so faults add up, and what is counted in full takes some of it back. A peer whose faults add up is *quarantined*:
//! for a while its offers are not taken, its paths count as held by nobody, it is not believed to be an owner, and
//! `status` says why. One whose update was proven wrong stays quarantined.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::names::{BlobHash, PathId, PeerKey, Version};
use crate::protocol::limits::{FAILED_OWNER_MS, MAX_DOUBLINGS, MAX_FAULTS_TOLD, MAX_MEMBERS};
use crate::protocol::wire::message::ContributionKey;

/// A fault adds two, one that cannot be an accident all that is needed, and a contribution counted in full takes one back:
/// three faults in a row name a peer. Of two that offer the same, the one that is heard second has copied it, or its word
/// was lost the first time: that adds one, and takes one from the other.
const QUARANTINE_POINTS: u32 = 6;
/// What is left of it: the next fault names it again.
const LEFT: u32 = QUARANTINE_POINTS - 1;

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It contributed what is many times as long as what others do.
    Overlong,
    /// It offered bytes that are no contribution: not a frame, or with values that are no numbers.
    Broken,
    /// It offered what another path had offered.
    Copied,
    /// It offered again, for another version, what had been offered before.
    Stale,
    /// It reported another, and was wrong.
    FalseProof,
    /// It counted in an update what nobody has offered, and did not have it.
    Withheld,
    /// Its update is not what its contributions make.
    WrongUpdate,
}

impl Fault {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Overlong => "contributed what is many times as long as what others contribute",
            Self::Broken => "offered bytes that are no contribution",
            Self::Copied => "offered what another path had offered",
            Self::Stale => "offered again what had been offered for an earlier version",
            Self::FalseProof => "reported others, and was wrong",
            Self::Withheld => "counted contributions that nobody has offered, and did not deliver them",
            Self::WrongUpdate => "signed an update that is not what its contributions make",
        }
    }

    fn adds(self) -> u32 {
        match self {
            Self::Broken | Self::WrongUpdate => QUARANTINE_POINTS,
            Self::Copied => 1,
            Self::Overlong | Self::Stale | Self::FalseProof | Self::Withheld => 2,
        }
    }
}

/// One peer's.
#[derive(Clone, Debug, Default)]
pub(in crate::protocol) struct PeerScore {
    /// Contributions that updates have counted in full.
    pub(in crate::protocol) counted: u64,
    /// How often it was wrong, and in what.
    pub(in crate::protocol) faults: BTreeMap<Fault, u64>,
    /// Why it is, or was last, quarantined.
    pub(in crate::protocol) reason: Option<Fault>,
    points: u32,
    times: u32,
    until: Millis,
    /// It was quarantined, and has contributed nothing since that was counted in full.
    unproven: bool,
    /// What it was blamed for already: offers are said again and again.
    told: BTreeSet<ContributionKey>,
}

/// All that are known.
#[derive(Clone, Debug, Default)]
pub(in crate::protocol) struct PeerScores {
    peers: BTreeMap<PeerKey, PeerScore>,
}

impl PeerScores {
    fn of(&mut self, peer: PeerKey) -> &mut PeerScore {
        if self.peers.len() >= MAX_MEMBERS && !self.peers.contains_key(&peer) {
            let least = self.peers.iter().min_by_key(|(_, score)| (score.times, score.points, score.counted));
            let least = least.map(|(peer, _)| *peer);
            least.map(|peer| self.peers.remove(&peer));
        }
        self.peers.entry(peer).or_default()
    }

    /// What it contributed was counted in full.
    pub(in crate::protocol) fn counted(&mut self, peer: PeerKey) {
        let score = self.of(peer);
        (score.counted, score.unproven) = (score.counted + 1, false);
        self.excuse(peer);
    }

    /// Something speaks for it.
    pub(in crate::protocol) fn excuse(&mut self, peer: PeerKey) {
        let score = self.of(peer);
        score.points = score.points.saturating_sub(1);
    }

    /// It was wrong; with a contribution, if one is said, for which it is blamed once. Says whether this names it.
    pub(in crate::protocol) fn penalize(
        &mut self,
        now: Millis,
        peer: PeerKey,
        fault: Fault,
        contribution: Option<ContributionKey>,
    ) -> bool {
        let score = self.of(peer);
        if let Some(key) = contribution {
            if !score.told.insert(key) {
                return false;
            }
            if score.told.len() > MAX_FAULTS_TOLD {
                score.told.pop_first();
            }
        }
        *score.faults.entry(fault).or_default() += 1;
        score.points = (score.points + fault.adds()).min(QUARANTINE_POINTS);
        if score.points < QUARANTINE_POINTS {
            return false;
        }
        let quarantined = now < score.until;
        score.points = LEFT;
        score.reason = Some(fault);
        score.until = score.until.max(match fault {
            Fault::WrongUpdate => Millis(u64::MAX),
            _ => now + (FAILED_OWNER_MS << score.times.min(MAX_DOUBLINGS)),
        });
        score.times += 1;
        score.unproven = true;
        !quarantined
    }

    /// Whether it was blamed for this contribution already.
    pub(in crate::protocol) fn is_told(&self, peer: PeerKey, key: ContributionKey) -> bool {
        self.peers.get(&peer).is_some_and(|score| score.told.contains(&key))
    }

    /// Whether it was blamed for what it has contributed for a path to a version, to whichever module.
    pub(in crate::protocol) fn has_failed(&self, peer: PeerKey, path: PathId, parent: Version) -> bool {
        let (first, last) = ((path, parent, BlobHash([0; 32])), (path, parent, BlobHash([255; 32])));
        self.peers.get(&peer).is_some_and(|score| score.told.range(first..=last).next().is_some())
    }

    /// Whether it was blamed for offering these bytes, whatever it said that they were.
    pub(in crate::protocol) fn has_told(&self, peer: PeerKey, blob: BlobHash) -> bool {
        self.peers.get(&peer).is_some_and(|score| score.told.iter().any(|(_, _, told)| *told == blob))
    }

    /// Whether a peer is quarantined now.
    pub(in crate::protocol) fn is_quarantined(&self, now: Millis, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|score| now < score.until)
    }

    /// Whether a peer is quarantined now, or was and has contributed nothing since that was counted in full.
    pub(in crate::protocol) fn is_doubted(&self, now: Millis, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|score| now < score.until || score.unproven)
    }

    /// Those that have done anything.
    pub(in crate::protocol) fn all(&self) -> impl Iterator<Item = (PeerKey, &PeerScore)> {
        self.peers.iter().map(|(peer, score)| (*peer, score))
    }

    /// How many are remembered.
    pub(in crate::protocol) fn count(&self) -> usize {
        self.peers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey([1; 32]);

    fn penalized(scores: &mut PeerScores, now: u64, fault: Fault, version: u64) -> bool {
        let key = (PathId(0), Version(version), BlobHash([0; 32]));
        scores.penalize(Millis(now), PEER, fault, Some(key))
    }

    #[test]
    fn three_faults_in_a_row_name_a_peer_for_a_while_and_the_next_time_one_for_twice_as_long() {
        let mut scores = PeerScores::default();
        assert!(!penalized(&mut scores, 0, Fault::Overlong, 1));
        assert!(!penalized(&mut scores, 0, Fault::Overlong, 1), "said again");
        assert!(!penalized(&mut scores, 0, Fault::Stale, 2));
        assert!(!penalized(&mut scores, 0, Fault::Copied, 3));
        assert!(penalized(&mut scores, 0, Fault::Copied, 4));
        let failed = [4, 5].map(|version| scores.has_failed(PEER, PathId(0), Version(version)));
        assert_eq!(failed, [true, false]);
        assert!(
            scores.is_quarantined(Millis(FAILED_OWNER_MS - 1), PEER)
                && !scores.is_quarantined(Millis(FAILED_OWNER_MS), PEER)
        );
        assert!(penalized(&mut scores, FAILED_OWNER_MS, Fault::Stale, 5));
        assert!(scores.is_quarantined(Millis(3 * FAILED_OWNER_MS - 1), PEER));
    }

    #[test]
    fn who_was_named_is_doubted_until_something_of_it_is_counted_in_full() {
        let mut scores = PeerScores::default();
        penalized(&mut scores, 0, Fault::Broken, 1);
        let later = Millis(10 * FAILED_OWNER_MS);
        assert!(!scores.is_quarantined(later, PEER) && scores.is_doubted(later, PEER));
        scores.counted(PEER);
        assert!(!scores.is_doubted(later, PEER) && scores.is_doubted(Millis(1), PEER), "it is quarantined until then");
    }

    #[test]
    fn who_is_mostly_right_is_not_named_and_who_sends_garbage_is_at_once() {
        let mut scores = PeerScores::default();
        for version in 0..100 {
            scores.counted(PEER);
            scores.counted(PEER);
            assert!(!penalized(&mut scores, 0, Fault::Overlong, version));
        }
        assert!(penalized(&mut scores, 0, Fault::Broken, 100));
        assert!(scores.penalize(Millis(1 << 40), PEER, Fault::WrongUpdate, None));
        assert!(scores.is_quarantined(Millis(u64::MAX - 1), PEER), "for good");
    }

    #[test]
    fn a_flood_of_strangers_does_not_grow_the_table_nor_push_out_who_was_named() {
        let mut scores = PeerScores::default();
        scores.penalize(Millis(0), PEER, Fault::WrongUpdate, None);
        for number in 0..2 * MAX_MEMBERS as u32 {
            let mut key = [9; 32];
            key[..4].copy_from_slice(&number.to_le_bytes());
            scores.counted(PeerKey(key));
        }
        assert_eq!(scores.count(), MAX_MEMBERS);
        assert!(scores.is_quarantined(Millis(5), PEER));
    }
}
