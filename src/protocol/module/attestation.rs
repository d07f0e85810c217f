//! What the living members' heads say about a chain that one of them sent.
//!
//! A weight and a signature prove little: every member can sign a chain of its own. So a chain counts as much as the
//! members that are on it.

use crate::protocol::module::chain::Chain;
use crate::protocol::wire::message::Head;

/// A living member of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Attester {
    pub(in crate::protocol) head: Head,
    /// Neither it nor this node was away lately, so it is not behind for that reason.
    pub(in crate::protocol) steady: bool,
    /// It is the module's owner.
    pub(in crate::protocol) owner: bool,
}

/// The members for and against a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::protocol) struct Attestation {
    attesting: usize,
    opposing: usize,
    by_owner: bool,
    extends: bool,
}

impl Attestation {
    /// Counts the heads of the other members. `mine` is this node's head, if it has a valid one.
    ///
    /// Where the chain extends this node's own, a member attests it by a later head on it, and every other member
    /// opposes it. Where it does not, this node opposes it as well. A member that is not ahead then says nothing if it
    /// may have been away.
    pub(in crate::protocol) fn of(
        chain: &Chain,
        mine: Option<Head>,
        members: impl IntoIterator<Item = Attester>,
    ) -> Self {
        let extends = mine.is_some_and(|mine| chain.update_of(mine.version) == Some(mine.update));
        let mut counted = Self { extends, opposing: usize::from(mine.is_some() && !extends), ..Self::default() };
        for Attester { head, steady, owner } in members {
            let later = mine.is_none_or(|mine| head.version > mine.version);
            let on_it = chain.update_of(head.version) == Some(head.update) && (later || !extends);
            if on_it {
                counted.attesting += 1;
                counted.by_owner |= owner;
            } else if later || steady || extends {
                counted.opposing += 1;
            }
        }
        counted
    }

    /// Whether the chain may replace a lighter one, or extend this node's. For what follows this node's own head, an
    /// owner that is `believed` is enough, because it signs that anyway.
    pub(in crate::protocol) fn suffices(&self, believed: bool) -> bool {
        (self.extends && self.by_owner && believed) || (self.attesting > 0 && self.attesting >= self.opposing)
    }

    /// Whether the chain replaces a heavier one.
    pub(in crate::protocol) fn is_majority(&self) -> bool {
        self.attesting > self.opposing
    }
}

/// Whether most of the living members are on other chains than this node.
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
        Attester { head: chain.head(), steady: true, owner: false }
    }

    fn away(chain: &Chain) -> Attester {
        Attester { steady: false, ..at(chain) }
    }

    fn suffices(candidate: &Chain, mine: &Chain, members: &[Attester]) -> bool {
        Attestation::of(candidate, Some(mine.head()), members.iter().copied()).suffices(true)
    }

    #[test]
    fn one_member_does_not_move_steady_members_that_agree() {
        let (mine, false_one) = (chain(3, 0), chain(9, 1));
        assert!(!suffices(&false_one, &mine, &[at(&false_one), at(&mine)]));
        let longer = chain(4, 0);
        assert!(!suffices(&longer, &mine, &[at(&longer), at(&mine), at(&mine)]), "nor an extension of their own");
    }

    #[test]
    fn the_owner_is_believed_for_what_follows_the_own_head_alone() {
        let (mine, longer, other) = (chain(3, 0), chain(4, 0), chain(4, 1));
        let owner = |chain: &Chain| Attester { owner: true, ..at(chain) };
        assert!(suffices(&longer, &mine, &[owner(&longer), at(&mine), at(&mine)]));
        assert!(!suffices(&other, &mine, &[owner(&other), at(&mine), at(&mine)]));
    }

    #[test]
    fn those_who_were_away_follow_the_one_that_went_on() {
        let (mine, longer) = (chain(3, 0), chain(40, 0));
        assert_eq!(longer.update_of(mine.head().version), None, "no common ground is kept");
        assert!(suffices(&longer, &mine, &[at(&longer), away(&mine), away(&mine)]));
    }

    #[test]
    fn a_newcomer_follows_the_majority() {
        let (right, false_one) = (chain(3, 0), chain(9, 1));
        let members = [at(&right), at(&right), away(&false_one)];
        assert!(Attestation::of(&right, None, members).suffices(true));
        assert!(!Attestation::of(&false_one, None, members).suffices(true));
    }

    #[test]
    fn a_minority_is_outvoted_and_a_member_ahead_on_the_same_chain_is_no_opponent() {
        let (mine, other) = (chain(3, 0), chain(2, 1));
        assert!(is_outvoted(&mine, [at(&other), at(&other)]));
        assert!(!is_outvoted(&mine, [at(&other), at(&mine)]));
        assert!(!is_outvoted(&mine, [at(&chain(4, 0)), at(&chain(5, 0))]));
        let majority = Attestation::of(&other, Some(mine.head()), [at(&other), at(&other)]);
        assert!(majority.is_majority());
    }
}
