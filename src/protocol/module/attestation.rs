//! What the living members' heads say about a chain that one of them sent.
//!
//! A weight and a signature prove little: every member can sign a chain of its own. So a chain counts as much as the
//! members that are on it.

use std::collections::BTreeMap;

use crate::names::{PeerKey, Version};
use crate::protocol::module::chain::{Chain, ChainIndex};
use crate::protocol::wire::message::{Head, UpdateHash};

/// A member of the module that was heard lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Attester<'a> {
    pub(in crate::protocol) peer: PeerKey,
    pub(in crate::protocol) head: Head,
    /// It is the module's owner.
    pub(in crate::protocol) owner: bool,
    /// What it has shown of its chain, oldest first. Its head may have moved since.
    pub(in crate::protocol) shown: &'a [ChainIndex],
    /// It was asked for its chain, and has shown nothing.
    pub(in crate::protocol) silent: bool,
}

impl Attester<'_> {
    /// The latest version up to which it is known to be on this chain.
    pub(in crate::protocol) fn is_on(&self, chain: &Chain) -> Option<Version> {
        let is_there = |(version, update): &ChainIndex| chain.update_of(*version) == Some(*update);
        let head = (self.head.version, self.head.update);
        [head].iter().chain(self.shown.iter().rev()).find(|index| is_there(index)).map(|(version, _)| *version)
    }

    /// Whether it is on another chain, as far as this chain's kept updates tell, and what it has shown of its own.
    pub(in crate::protocol) fn contradicts(&self, chain: &Chain) -> bool {
        let head = chain.head();
        let (oldest, newest) = (self.shown.first(), self.shown.last());
        let reaches_back = oldest.is_none_or(|(oldest, _)| *oldest <= head.version);
        let is_far_behind = newest.is_some_and(|(newest, _)| *newest < chain.base());
        let has_another = |(version, update): &ChainIndex| *version == head.version && *update != head.update;
        let is_there = chain.update_of(self.head.version) == Some(self.head.update);
        contradicts(chain, self.head)
            || (!is_there && (!reaches_back || is_far_behind || self.shown.iter().any(has_another)))
    }
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
    /// Counts the heads of the other members, and those that have no state yet. `mine` is this node's head, if it has a
    /// valid one.
    ///
    /// A member attests the chain up to its head, and opposes it if its head is not on it. Where the chain extends this
    /// node's own, only what follows is asked for, and a member also attests what it has signed. Where it does not, this
    /// node opposes it as well.
    pub(in crate::protocol) fn of<'a>(
        chain: &Chain,
        mine: Option<Head>,
        members: impl IntoIterator<Item = Attester<'a>>,
        stateless: usize,
    ) -> Self {
        let extends = mine.is_some_and(|mine| chain.update_of(mine.version) == Some(mine.update));
        let since = mine.filter(|_| extends).map(|mine| mine.version);
        let opposing = match extends {
            true => stateless,
            false => usize::from(mine.is_some()),
        };
        let mut counted = Self { extends, on_it: Vec::new(), opposing, owner: None };
        for member in members {
            let signed = chain.recent().filter(|_| extends).rfind(|signed| signed.update.owner == member.peer);
            let signed = signed.map(|signed| signed.update.version);
            let attests = member.is_on(chain).max(signed).filter(|version| since < Some(*version));
            let Some(version) = attests else {
                counted.opposing += 1;
                continue;
            };
            counted.on_it.push(version);
            counted.owner = counted.owner.or(member.owner.then_some(version));
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

    /// The latest version that all other members attest, or at least two and more than a third with this node: of so many
    /// one is honest, and it has heard what this node has not.
    pub(in crate::protocol) fn third(&self) -> Option<Version> {
        let this_node = usize::from(self.extends);
        self.latest(|attesting, opposing| {
            let all = attesting + opposing + this_node;
            opposing == 0 || (attesting >= 2 && 3 * attesting > all)
        })
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
pub(in crate::protocol) fn is_outvoted<'a>(
    chain: &Chain,
    members: impl IntoIterator<Item = Attester<'a>>,
    stateless: usize,
) -> bool {
    let (mut with, mut against) = (1 + stateless, 0);
    for member in members {
        match member.contradicts(chain) {
            true => against += 1,
            false => with += usize::from(member.head.version <= chain.head().version),
        }
    }
    against > with
}

/// How the other members stand to a node's chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::protocol) struct Followers {
    /// They have its head, or are ahead and on no other chain as far as is known.
    pub(in crate::protocol) with: usize,
    /// They are ahead, were asked, and have not shown on which chain.
    pub(in crate::protocol) silent: usize,
    /// They are on it, and behind.
    pub(in crate::protocol) behind: usize,
    /// The most that have the same head on another chain.
    pub(in crate::protocol) elsewhere: usize,
}

impl Followers {
    /// Counts the other members.
    pub(in crate::protocol) fn of<'a>(chain: &Chain, members: impl IntoIterator<Item = Attester<'a>>) -> Self {
        let mut counted = Self::default();
        let mut heads: BTreeMap<UpdateHash, usize> = BTreeMap::new();
        for member in members {
            let is_behind = member.head.version < chain.head().version;
            match (member.contradicts(chain), is_behind) {
                (true, _) => *heads.entry(member.head.update).or_default() += 1,
                (false, true) => counted.behind += 1,
                (false, false) if member.silent && member.is_on(chain).is_none() => counted.silent += 1,
                (false, false) => counted.with += 1,
            }
        }
        counted.elsewhere = heads.into_values().max().unwrap_or(0);
        counted
    }
}

/// Whether a head lies on another chain, as far as the kept updates tell.
fn contradicts(chain: &Chain, head: Head) -> bool {
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

    fn at(chain: &Chain) -> Attester<'static> {
        Attester { peer: PeerKey([9; 32]), head: chain.head(), owner: false, shown: &[], silent: false }
    }

    fn attested(candidate: &Chain, mine: Option<&Chain>, members: &[Attester]) -> Option<u64> {
        let attestation = Attestation::of(candidate, mine.map(Chain::head), members.iter().copied(), 0);
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
    fn an_extension_takes_two_members_and_more_than_a_third_or_all() {
        let (mine, longer) = (chain(3, 0), chain(5, 0));
        let third = |ahead: usize, level: usize| {
            let members = vec![at(&longer); ahead].into_iter().chain(vec![at(&mine); level]);
            Attestation::of(&longer, Some(mine.head()), members, 0).third().is_some()
        };
        assert!(!third(1, 1) && third(2, 0) && third(1, 0), "of two others both, the only other one");
        assert!(!third(1, 9) && third(2, 2) && !third(2, 3) && third(3, 4) && !third(3, 5));
        let stateless = |count| Attestation::of(&longer, Some(mine.head()), vec![at(&longer); 2], count).third();
        assert!(stateless(2).is_some() && stateless(3).is_none(), "who has no state yet may be honest");
        let newcomer =
            Attestation::of(&longer, None, [at(&longer), at(&longer), at(&chain(4, 1)), at(&chain(2, 1))], 0);
        assert_eq!((newcomer.majority(), newcomer.third()), (None, Some(Version(5))), "between many heads");
    }

    #[test]
    fn what_a_donor_has_shown_of_its_chain_tells_where_it_is() {
        let (mine, longer, other) = (chain(3, 0), chain(6, 0), chain(6, 1));
        let [same, another] = [&longer, &other].map(|chain| chain.indices().collect::<Vec<_>>());
        let ahead =
            |chain: &Chain, shown| is_outvoted(&mine, [at(chain), at(chain)].map(|it| Attester { shown, ..it }), 0);
        assert!(!ahead(&other, &[]), "they could extend this node's chain");
        assert!(ahead(&other, &another) && !ahead(&longer, &same));
        let shows = Attester { shown: &same, ..at(&longer) };
        let attested = Attestation::of(&mine, None, [shows, at(&mine)], 0);
        assert_eq!(attested.majority(), Some(Version(3)), "who is ahead on a chain attests what it has seen of it");
    }

    #[test]
    fn the_owner_attests_the_chain_up_to_its_head() {
        let (mine, longer) = (chain(3, 0), chain(4, 0));
        let owner = Attester { owner: true, ..at(&longer) };
        let attestation = Attestation::of(&longer, Some(mine.head()), [owner, at(&mine)], 0);
        assert_eq!((attestation.extends, attestation.by_owner()), (true, Some(Version(4))));
    }

    #[test]
    fn who_is_ahead_and_shows_nothing_is_with_nobody() {
        let (mine, longer, other) = (chain(3, 0), chain(5, 0), chain(6, 1));
        let [same, another] = [&longer, &other].map(|chain| chain.indices().collect::<Vec<_>>());
        let shows = |shown| Attester { shown, ..at(&longer) };
        let silent = Attester { silent: true, ..at(&longer) };
        let members = [at(&mine), shows(&same), shows(&[]), silent, shows(&another), at(&chain(2, 0))];
        assert_eq!(Followers::of(&mine, members), Followers { with: 3, silent: 1, behind: 1, elsewhere: 1 });
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
        assert!(is_outvoted(&mine, [at(&other), at(&other)], 0));
        assert!(!is_outvoted(&mine, [at(&other), at(&mine)], 0));
        assert!(!is_outvoted(&mine, [at(&chain(4, 0)), at(&chain(5, 0))], 0));
        let majority = Attestation::of(&other, Some(mine.head()), [at(&other), at(&other)], 0);
        assert_eq!(majority.majority(), Some(Version(2)));
    }
}
