//! The run's amendment: the one in force here, and one that a peer has told of and that is being fetched and read.
//!
//! One amendment is fetched at a time. A peer that has told of one that it does not have, or that is none, is not asked
//! again for a while, so that nobody keeps others from being heard.

use std::collections::VecDeque;

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, PeerKey};
use crate::protocol::limits::{AMENDMENT_RETRY_MS, FALSE_AMENDMENT_MS, MAX_MEMBERS};
use crate::protocol::wire::amended::Amended;

/// How far the amendment that a peer has told of has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fetching,
    Reading,
}

/// What this node knows of amendments.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Amendments {
    in_force: Option<Amended>,
    /// The phases before it. A trainer may still score what was the end then.
    phases_before: Option<u64>,
    told: Option<(PeerKey, Amended, Stage)>,
    /// Peers that are not asked until a time, in the order in which they were noted.
    passed_over: VecDeque<(PeerKey, Millis)>,
}

impl Amendments {
    /// The amendment in force.
    pub(in crate::protocol) fn in_force(&self) -> Option<Amended> {
        self.in_force
    }

    /// Whether the run had so many phases before the amendment.
    pub(in crate::protocol) fn was_the_end(&self, phases: u64) -> bool {
        self.phases_before == Some(phases)
    }

    /// A peer tells of an amendment. Returns the blob to fetch from it, if it outranks the one in force.
    pub(in crate::protocol) fn hear(&mut self, now: Millis, from: PeerKey, told: Amended) -> Option<BlobRef> {
        if self.in_force.is_some_and(|here| here.rank() >= told.rank()) {
            return None;
        }
        if let Some((_, other, stage)) = self.told {
            return (other == told && stage == Stage::Fetching).then_some(told.blob);
        }
        self.passed_over.retain(|(_, until)| now < *until);
        if self.passed_over.iter().any(|(peer, _)| *peer == from) {
            return None;
        }
        self.told = Some((from, told, Stage::Fetching));
        Some(told.blob)
    }

    /// A blob was fetched, or cannot be had. Returns the one to read.
    pub(in crate::protocol) fn fetched(&mut self, now: Millis, blob: BlobHash, found: bool) -> Option<BlobRef> {
        let (from, told, stage) = self.told.as_mut().filter(|(_, told, _)| told.blob.hash == blob)?;
        if found {
            *stage = Stage::Reading;
            return Some(told.blob);
        }
        let from = *from;
        self.told = None;
        self.pass_over(from, now + AMENDMENT_RETRY_MS);
        None
    }

    /// What a peer told of is no amendment of the run's creator. It only passed over for a moment if this may be this
    /// peer's own fault.
    pub(in crate::protocol) fn refused(&mut self, now: Millis, blob: BlobHash, is_false: bool) {
        if let Some((from, ..)) = self.told.take_if(|(_, told, _)| told.blob.hash == blob) {
            self.pass_over(from, now + if is_false { FALSE_AMENDMENT_MS } else { AMENDMENT_RETRY_MS });
        }
    }

    /// An amendment is the run's, and stored. Returns the one that was in force before, or nothing if that one stays.
    pub(in crate::protocol) fn put(
        &mut self,
        now: Millis,
        amended: Amended,
        phases_before: u64,
    ) -> Option<Option<Amended>> {
        let told = self.told.take_if(|(_, told, _)| told.blob.hash == amended.blob.hash);
        if let Some((from, ..)) = told.filter(|(_, told, _)| *told != amended) {
            self.pass_over(from, now + FALSE_AMENDMENT_MS);
        }
        if self.in_force.is_some_and(|here| here.rank() >= amended.rank()) {
            return None;
        }
        self.phases_before = Some(phases_before);
        Some(self.in_force.replace(amended))
    }

    fn pass_over(&mut self, peer: PeerKey, until: Millis) {
        if self.passed_over.len() >= MAX_MEMBERS {
            self.passed_over.pop_front();
        }
        self.passed_over.push_back((peer, until));
    }

    /// How many peers are passed over.
    pub(in crate::protocol) fn passed_over(&self) -> usize {
        self.passed_over.len()
    }

    /// The blobs that are needed.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let told = self.told.map(|(_, told, _)| told);
        self.in_force.into_iter().chain(told).map(|amended| amended.blob.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: PeerKey = PeerKey([1; 32]);
    const BOB: PeerKey = PeerKey([2; 32]);

    fn amended(phases: u64, number: u32) -> Amended {
        Amended { phases, number, blob: BlobRef::of(format!("{phases} {number}").as_bytes()) }
    }

    #[test]
    fn an_amendment_is_fetched_once_and_only_if_it_outranks_the_one_in_force() {
        let (mut amendments, first, second) = (Amendments::default(), amended(5, 1), amended(6, 2));
        assert_eq!(amendments.hear(Millis(0), ANN, first), Some(first.blob));
        assert_eq!(amendments.hear(Millis(1), BOB, first), Some(first.blob), "another holder");
        assert_eq!(amendments.hear(Millis(1), BOB, second), None, "one at a time");
        assert_eq!(amendments.fetched(Millis(2), first.blob.hash, true), Some(first.blob));
        assert_eq!(amendments.hear(Millis(2), BOB, first), None, "it is being read");
        assert_eq!(amendments.put(Millis(3), first, 4), Some(None));
        assert!(amendments.was_the_end(4) && amendments.in_force() == Some(first));
        assert_eq!(amendments.hear(Millis(4), BOB, first), None);
        assert_eq!(amendments.hear(Millis(4), BOB, amended(4, 9)), None, "phases never fall");
        assert_eq!(amendments.hear(Millis(4), BOB, second), Some(second.blob));
    }

    #[test]
    fn in_any_order_the_same_amendment_is_in_force() {
        let all = [amended(5, 1), amended(6, 2), amended(6, 3), amended(4, 4), amended(6, 1)];
        for first in 0..all.len() {
            let mut amendments = Amendments::default();
            for at in 0..all.len() {
                amendments.put(Millis(0), all[(first + at) % all.len()], 3);
            }
            assert_eq!(amendments.in_force(), Some(amended(6, 3)));
        }
    }

    #[test]
    fn who_tells_of_what_is_none_is_passed_over_and_others_are_heard() {
        let (mut amendments, false_one, true_one) = (Amendments::default(), amended(999, 9), amended(6, 1));
        amendments.hear(Millis(0), ANN, false_one);
        amendments.fetched(Millis(1), false_one.blob.hash, true);
        amendments.refused(Millis(2), false_one.blob.hash, true);
        assert_eq!(amendments.hear(Millis(3), ANN, amended(998, 9)), None);
        assert_eq!(amendments.hear(Millis(3), BOB, true_one), Some(true_one.blob));
        assert_eq!(amendments.fetched(Millis(4), true_one.blob.hash, false), None);
        assert_eq!(amendments.hear(Millis(5), BOB, true_one), None, "not at once");
        assert_eq!(amendments.hear(Millis(4 + AMENDMENT_RETRY_MS), BOB, true_one), Some(true_one.blob));
    }

    #[test]
    fn who_tells_more_than_the_creator_has_signed_is_passed_over_but_the_amendment_counts() {
        let (mut amendments, signed) = (Amendments::default(), amended(6, 1));
        let told = Amended { phases: 999, ..signed };
        amendments.hear(Millis(0), ANN, told);
        amendments.fetched(Millis(1), signed.blob.hash, true);
        assert_eq!(amendments.put(Millis(2), signed, 4), Some(None));
        assert_eq!((amendments.hear(Millis(3), ANN, told), amendments.passed_over()), (None, 1));
    }

    #[test]
    fn the_peers_passed_over_are_bounded() {
        let mut amendments = Amendments::default();
        for number in 0..2 * MAX_MEMBERS as u32 {
            let mut peer = ANN;
            peer.0[..4].copy_from_slice(&number.to_le_bytes());
            amendments.pass_over(peer, Millis(9));
        }
        assert_eq!(amendments.passed_over(), MAX_MEMBERS);
    }
}
