//! What the living members' heads say about a chain that one of them sent.
//!
//! A weight and a signature prove little: every member can sign a chain of its own. So a chain counts as much as the
//! members that are on it.

use crate::names::{PeerKey, Version};
use crate::protocol::module::chain::Chain;
use crate::protocol::wire::message::Head;

/// A member of the module that was heard lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Attester {
    pub(in crate::protocol) peer: PeerKey,
    pub(in crate::protocol) head: Head,
    /// It is the module's owner.
    pub(in crate::protocol) owner: bool,
}

/// How far the members are on a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Attestation {
    /// Whether the chain extends this node's own.
    pub(in crate::protocol) extends: bool,
    /// The versions of the heads on it, the latest first.
    on_it: Vec<Version>,
    /// How many are not on it.
    opposing: usize,
    /// The version of the owner's head, if it is on it.
    owner: Option<Version>,
}

impl Attestation {
    /// Counts the heads of the other members. `mine` is this node's head, if it has a valid one.
    ///
    /// A member attests the chain up to its head, and opposes it if its head is not on it. Where the chain extends this
    /// node's own, only what follows is asked for, and a member also attests what it has signed. Where it does not, this
    /// node opposes it as well.
    pub(in crate::protocol) fn of(
        chain: &Chain,
        mine: Option<Head>,
        members: impl IntoIterator<Item = Attester>,
    ) -> Self {
        let extends = mine.is_some_and(|mine| chain.update_of(mine.version) == Some(mine.update));
        let since = mine.filter(|_| extends).map(|mine| mine.version);
        let opposing = usize::from(mine.is_some() && !extends);
        let mut counted = Self { extends, on_it: Vec::new(), opposing, owner: None };
        for Attester { peer, head, owner } in members {
            let is_on_it = chain.update_of(head.version) == Some(head.update);
            let signed = chain.recent().filter(|_| extends).rfind(|signed| signed.update.owner == peer);
            let signed = signed.map(|signed| signed.update.version);
            let attests = is_on_it.then_some(head.version).max(signed).filter(|version| since < Some(*version));
            let Some(version) = attests else {
                counted.opposing += 1;
                continue;
            };
            counted.on_it.push(version);
            counted.owner = counted.owner.or(owner.then_some(version));
        }
        counted.on_it.sort_unstable_by(|one, other| other.cmp(one));
        counted
    }

    /// The latest version that at least as many members attest as do not.
    pub(in crate::protocol) fn half(&self) -> Option<Version> {
        self.latest(|attesting, opposing| attesting >= opposing)
    }

    /// The latest version that more members attest than do not.
    pub(in crate::protocol) fn majority(&self) -> Option<Version> {
        self.latest(|attesting, opposing| attesting > opposing)
    }

    /// How many members attest the chain up to a version.
    pub(in crate::protocol) fn at_least(&self, version: Version) -> usize {
        self.on_it.iter().filter(|attested| **attested >= version).count()
    }

    /// The version up to which the owner attests the chain.
    pub(in crate::protocol) fn by_owner(&self) -> Option<Version> {
        self.owner
    }

    fn latest(&self, are_enough: impl Fn(usize, usize) -> bool) -> Option<Version> {
        let all = self.on_it.len() + self.opposing;
        let mut attested = (1..).zip(&self.on_it);
        attested.find(|(attesting, _)| are_enough(*attesting, all - attesting)).map(|(_, version)| *version)
    }
}

/// Whether most of the members are on other chains than this node.
pub(in crate::protocol) fn is_outvoted(chain: &Chain, members: impl IntoIterator<Item = Attester>) -> bool {
    let (mut with, mut against) = (1, 0);
    for Attester { head, .. } in members {
        match contradicts(chain, head) {
            true => against += 1,
            false => with += usize::from(head.version <= chain.head().version),
        }
    }
    against > with
}

/// How many members are on a chain, as far as the kept updates tell.
pub(in crate::protocol) fn on_chain(chain: &Chain, members: impl IntoIterator<Item = Attester>) -> usize {
    members.into_iter().filter(|it| chain.update_of(it.head.version) == Some(it.head.update)).count()
}

/// Whether a head lies on another chain, as far as the kept updates tell.
pub(in crate::protocol) fn contradicts(chain: &Chain, head: Head) -> bool {
    match chain.update_of(head.version) {
        Some(update) => update != head.update,
        None => head.version > chain.head().version && !head.outweighs(&chain.head()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::made_up::next;
    use super::*;
    use crate::names::BlobRef;

    /// A chain of so many updates that count this path.
    fn chain(versions: u64, path: u32) -> Chain {
        let mut chain = Chain::genesis(BlobRef::of(b"genesis"));
        for _ in 0..versions {
            let update = next(&chain, path, 1);
            chain.push(update);
        }
        chain
    }

    fn at(chain: &Chain) -> Attester {
        Attester { peer: PeerKey([9; 32]), head: chain.head(), owner: false }
    }

    fn attested(candidate: &Chain, mine: Option<&Chain>, members: &[Attester]) -> Option<u64> {
        let attestation = Attestation::of(candidate, mine.map(Chain::head), members.iter().copied());
        attestation.half().map(|version| version.0)
    }

    #[test]
    fn one_member_does_not_move_members_that_agree() {
        let (mine, false_one) = (chain(3, 0), chain(9, 1));
        assert_eq!(attested(&false_one, Some(&mine), &[at(&false_one), at(&mine)]), None);
        let longer = chain(4, 0);
        let members = [at(&longer), at(&mine), at(&mine)];
        assert_eq!(attested(&longer, Some(&mine), &members), None, "nor an extension of their own");
        assert_eq!(attested(&false_one, Some(&mine), &[at(&false_one)]), Some(9), "of two, the heavier");
    }

    #[test]
    fn members_attest_a_chain_up_to_their_heads() {
        let (mine, longer, longest) = (chain(3, 0), chain(5, 0), chain(6, 0));
        let members = [at(&longest), at(&longer), at(&longer)];
        assert_eq!(attested(&longest, Some(&mine), &members), Some(5));
        assert_eq!(attested(&longest, None, &members), Some(5), "also for a newcomer");
        let other = chain(3, 1);
        assert_eq!(attested(&longest, Some(&other), &members), Some(5), "also from another chain");
    }

    #[test]
    fn who_signs_an_update_attests_it_whatever_head_it_announces() {
        let (mine, longer, elsewhere) = (chain(3, 0), chain(4, 0), chain(9, 1));
        let signer = Attester { peer: longer.signer().unwrap().1, ..at(&elsewhere) };
        assert_eq!(attested(&longer, Some(&mine), &[signer, at(&mine)]), Some(4));
        assert_eq!(attested(&longer, Some(&mine), &[at(&elsewhere), at(&mine)]), None);
    }

    #[test]
    fn the_owner_attests_the_chain_up_to_its_head() {
        let (mine, longer) = (chain(3, 0), chain(4, 0));
        let owner = Attester { owner: true, ..at(&longer) };
        let attestation = Attestation::of(&longer, Some(mine.head()), [owner, at(&mine)]);
        assert_eq!((attestation.extends, attestation.by_owner()), (true, Some(Version(4))));
    }

    #[test]
    fn a_newcomer_follows_the_majority() {
        let (right, false_one) = (chain(3, 0), chain(9, 1));
        let members = [at(&right), at(&right), at(&false_one)];
        assert_eq!(attested(&right, None, &members), Some(3));
        assert_eq!(attested(&false_one, None, &members), None);
    }

    #[test]
    fn a_minority_is_outvoted_and_a_member_ahead_on_the_same_chain_is_no_opponent() {
        let (mine, other) = (chain(3, 0), chain(2, 1));
        assert!(is_outvoted(&mine, [at(&other), at(&other)]));
        assert!(!is_outvoted(&mine, [at(&other), at(&mine)]));
        assert!(!is_outvoted(&mine, [at(&chain(4, 0)), at(&chain(5, 0))]));
        let majority = Attestation::of(&other, Some(mine.head()), [at(&other), at(&other)]);
        assert_eq!(majority.majority(), Some(Version(2)));
    }
}
