//! Peer scores: what peers have contributed, and their faults.
//!
//! Each node judges by itself, from what it has seen or audited. One fault may be an accident, or may only look like
//! one. So penalties add up, and a contribution that is counted in full takes some back. A peer whose penalties reach a
//! threshold is *quarantined*: for a while its offers are not taken, its paths count as unheld, and it is not accepted
//! as an owner. `status` shows the reason. A peer whose update was proven wrong stays quarantined.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::names::{BlobHash, PathId, PeerKey, Version};
use crate::protocol::limits::{FAILED_OWNER_MS, MAX_DOUBLINGS, MAX_FAULTS_TOLD, MAX_MEMBERS};
use crate::protocol::wire::message::ContributionKey;

/// A fault adds two points. A fault that cannot be an accident adds all points at once. A contribution that is counted
/// in full takes one back. Three faults in a row thus quarantine a peer. If two peers offer the same bytes, the second
/// one heard has copied them, or its first offer was lost. That adds one point to it, and takes one from the other.
const QUARANTINE_POINTS: u32 = 6;
/// The points that remain, so that the next fault quarantines it again.
const LEFT: u32 = QUARANTINE_POINTS - 1;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The norm of its contribution was many times that of others.
    Overlong,
    /// It offered bytes that are no valid contribution: not a frame, or with values that are not finite.
    Broken,
    /// It offered the bytes of another path.
    Copied,
    /// It offered earlier bytes again, for another version.
    Stale,
    /// It published a fraud proof that was false.
    FalseProof,
    /// Its update counts a contribution that no peer has offered and that it does not have.
    Withheld,
    /// Its update is not the result of its contributions.
    WrongUpdate,
}

impl Fault {
    /// A description for users.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Overlong => "contributed outer gradients many times as long as those of others",
            Self::Broken => "offered bytes that are no valid contribution",
            Self::Copied => "offered the contribution of another path",
            Self::Stale => "offered a contribution again that was made for an earlier version",
            Self::FalseProof => "published a false fraud proof",
            Self::Withheld => "counted contributions that no peer had offered, and did not deliver them",
            Self::WrongUpdate => "signed an update that is not the result of its contributions",
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

/// The score of a peer.
#[derive(Clone, Debug, Default)]
pub(in crate::protocol) struct PeerScore {
    /// Contributions of it that updates have counted in full.
    pub(in crate::protocol) counted: u64,
    /// Number of faults of each kind.
    pub(in crate::protocol) faults: BTreeMap<Fault, u64>,
    /// The reason for its current or last quarantine.
    pub(in crate::protocol) reason: Option<Fault>,
    points: u32,
    times: u32,
    until: Millis,
    /// It was quarantined, and none of its contributions has been counted in full since.
    unproven: bool,
    /// Contributions for which it was already penalized. Offers are repeated.
    told: BTreeSet<ContributionKey>,
}

/// The scores of all known peers.
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

    /// A contribution of the peer was counted in full.
    pub(in crate::protocol) fn counted(&mut self, peer: PeerKey) {
        let score = self.of(peer);
        (score.counted, score.unproven) = (score.counted + 1, false);
        self.excuse(peer);
    }

    /// Takes back one point of the peer's penalty.
    pub(in crate::protocol) fn excuse(&mut self, peer: PeerKey) {
        let score = self.of(peer);
        score.points = score.points.saturating_sub(1);
    }

    /// Penalizes a peer. If a contribution is given, the peer is penalized for it once. Returns whether this
    /// quarantines the peer.
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

    /// Whether the peer was already penalized for this contribution.
    pub(in crate::protocol) fn is_told(&self, peer: PeerKey, key: ContributionKey) -> bool {
        self.peers.get(&peer).is_some_and(|score| score.told.contains(&key))
    }

    /// Whether the peer was penalized for a contribution of a path to a version, in any module.
    pub(in crate::protocol) fn has_failed(&self, peer: PeerKey, path: PathId, parent: Version) -> bool {
        let (first, last) = ((path, parent, BlobHash([0; 32])), (path, parent, BlobHash([255; 32])));
        self.peers.get(&peer).is_some_and(|score| score.told.range(first..=last).next().is_some())
    }

    /// Whether the peer was penalized for these bytes, whatever it offered them as.
    pub(in crate::protocol) fn has_told(&self, peer: PeerKey, blob: BlobHash) -> bool {
        self.peers.get(&peer).is_some_and(|score| score.told.iter().any(|(_, _, told)| *told == blob))
    }

    /// Whether a peer is quarantined now.
    pub(in crate::protocol) fn is_quarantined(&self, now: Millis, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|score| now < score.until)
    }

    /// Whether a peer is quarantined now, or was and has had no contribution counted in full since.
    pub(in crate::protocol) fn is_doubted(&self, now: Millis, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|score| now < score.until || score.unproven)
    }

    /// All known scores.
    pub(in crate::protocol) fn all(&self) -> impl Iterator<Item = (PeerKey, &PeerScore)> {
        self.peers.iter().map(|(peer, score)| (*peer, score))
    }

    /// Number of known scores.
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
    fn three_faults_in_a_row_quarantine_a_peer_and_the_time_doubles() {
        let mut scores = PeerScores::default();
        assert!(!penalized(&mut scores, 0, Fault::Overlong, 1));
        assert!(!penalized(&mut scores, 0, Fault::Overlong, 1), "a repeated offer");
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
    fn a_peer_is_doubted_after_its_quarantine_until_a_contribution_is_counted_in_full() {
        let mut scores = PeerScores::default();
        penalized(&mut scores, 0, Fault::Broken, 1);
        let later = Millis(10 * FAILED_OWNER_MS);
        assert!(!scores.is_quarantined(later, PEER) && scores.is_doubted(later, PEER));
        scores.counted(PEER);
        assert!(!scores.is_doubted(later, PEER) && scores.is_doubted(Millis(1), PEER), "it is quarantined until then");
    }

    #[test]
    fn occasional_faults_do_not_quarantine_a_peer_and_invalid_bytes_do_at_once() {
        let mut scores = PeerScores::default();
        for version in 0..100 {
            scores.counted(PEER);
            scores.counted(PEER);
            assert!(!penalized(&mut scores, 0, Fault::Overlong, version));
        }
        assert!(penalized(&mut scores, 0, Fault::Broken, 100));
        assert!(scores.penalize(Millis(1 << 40), PEER, Fault::WrongUpdate, None));
        assert!(scores.is_quarantined(Millis(u64::MAX - 1), PEER), "permanently");
    }

    #[test]
    fn a_flood_of_unknown_peers_neither_grows_the_table_nor_evicts_a_quarantined_peer() {
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
