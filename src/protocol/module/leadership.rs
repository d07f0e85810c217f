//! The owner of a module, as one member knows it: its term, and how well it does its work.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::{PeerKey, Term};
use crate::protocol::limits::{MAX_CLAIMANTS, MAX_TERMS_IN_VAIN};
use crate::protocol::wire::message::Update;

/// The owner of a module and its term.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Leadership {
    term: Term,
    owner: Option<PeerKey>,
    /// The owner's signature over its claim of the term; empty if it was not heard.
    claim: Vec<u8>,
    /// Since when this peer is the owner, over all its terms.
    owner_since: Millis,
    /// Peers that have claimed terms since the head came: the last term of each, and how many further ones.
    claimed: BTreeMap<PeerKey, (Term, u32)>,
    /// The term whose owner has left, was proven wrong, or is this node without a journal record of it.
    stepped_down: Option<Term>,
    /// Since when this node sees no living owner.
    vacant_since: Option<Millis>,
    /// Since when there is an offer for the next update.
    offered_since: Option<Millis>,
    /// Whether another member has been heard since this node started.
    has_heard_members: bool,
}

impl Leadership {
    pub(in crate::protocol) fn term(&self) -> Term {
        self.term
    }

    /// The next term, unless this is the last possible one.
    pub(in crate::protocol) fn next_term(&self) -> Option<Term> {
        self.term.0.checked_add(1).map(Term)
    }

    pub(in crate::protocol) fn owner(&self) -> Option<PeerKey> {
        self.owner
    }

    pub(in crate::protocol) fn is_owner(&self, peer: PeerKey) -> bool {
        self.owner == Some(peer)
    }

    /// Whether the present owner has signed an update in its present term.
    pub(in crate::protocol) fn has_signed(&self, update: &Update) -> bool {
        update.term == self.term && self.is_owner(update.owner)
    }

    pub(in crate::protocol) fn owner_since(&self) -> Millis {
        self.owner_since
    }

    /// Adopts a new term, or another owner of the same term.
    pub(in crate::protocol) fn adopt(&mut self, now: Millis, term: Term, owner: PeerKey) {
        self.term = term;
        self.claim.clear();
        if self.owner.replace(owner) != Some(owner) {
            self.owner_since = now;
        }
        self.stepped_down = None;
        self.vacant_since = None;
    }

    /// Restores a term from the journal, and its owner if that is another peer.
    pub(in crate::protocol) fn restore(&mut self, term: Term, owner: Option<PeerKey>) {
        (self.term, self.owner) = (term, owner);
    }

    /// This node, the owner, leaves and names no successor.
    pub(in crate::protocol) fn vacate(&mut self) {
        self.owner = None;
    }

    /// The owner's signature over its claim of the term; empty if it was not heard.
    pub(in crate::protocol) fn claim(&self) -> &[u8] {
        &self.claim
    }

    /// The owner's claim was heard, with its signature. Nothing of another claim is kept.
    pub(in crate::protocol) fn note_claim(&mut self, term: Term, owner: PeerKey, claim: &[u8]) {
        if (self.term, self.owner) == (term, Some(owner)) && self.claim.is_empty() {
            self.claim = claim.to_vec();
        }
    }

    /// The owner of the current term steps down.
    pub(in crate::protocol) fn step_down(&mut self) {
        self.stepped_down = Some(self.term);
    }

    /// Whether the owner of the current term has stepped down.
    pub(in crate::protocol) fn has_stepped_down(&self) -> bool {
        self.stepped_down == Some(self.term)
    }

    /// Whether an owner has stepped down since one was last adopted.
    pub(in crate::protocol) fn knows_of_step_down(&self) -> bool {
        self.stepped_down.is_some()
    }

    /// Counts a term that a peer has claimed itself. Returns whether it has claimed too many without a new head, whoever
    /// owned the module in between. Its first term, and one that it claims again, do not count.
    pub(in crate::protocol) fn count_term(&mut self, peer: PeerKey, term: Term) -> bool {
        if self.claimed.len() >= MAX_CLAIMANTS && !self.claimed.contains_key(&peer) {
            return false;
        }
        let (last, further) = self.claimed.entry(peer).or_insert((term, 0));
        if term > *last {
            (*last, *further) = (term, *further + 1);
        }
        *further >= MAX_TERMS_IN_VAIN
    }

    /// There is a new head. The owner has done its work, and nothing is offered for the next update yet.
    pub(in crate::protocol) fn head_moved(&mut self) {
        self.offered_since = None;
        self.claimed.clear();
    }

    /// There is no living owner. Returns since when.
    pub(in crate::protocol) fn note_vacant(&mut self, now: Millis) -> Millis {
        *self.vacant_since.get_or_insert(now)
    }

    /// There is a living owner.
    pub(in crate::protocol) fn note_alive(&mut self) {
        self.vacant_since = None;
    }

    pub(in crate::protocol) fn offered_since(&self) -> Option<Millis> {
        self.offered_since
    }

    pub(in crate::protocol) fn note_offered(&mut self, since: Millis) {
        self.offered_since = Some(since);
    }

    /// Another member was heard.
    pub(in crate::protocol) fn note_member(&mut self) {
        self.has_heard_members = true;
    }

    pub(in crate::protocol) fn has_heard_members(&self) -> bool {
        self.has_heard_members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey([1; 32]);

    #[test]
    fn a_step_down_applies_to_its_own_term() {
        let mut leadership = Leadership::default();
        leadership.adopt(Millis(5), Term(2), PEER);
        leadership.step_down();
        assert!(leadership.has_stepped_down() && leadership.knows_of_step_down());
        leadership.restore(Term(3), Some(PEER));
        assert!(!leadership.has_stepped_down() && leadership.knows_of_step_down());
        leadership.adopt(Millis(9), Term(4), PEER);
        assert!(!leadership.knows_of_step_down());
        assert_eq!((leadership.owner_since(), leadership.next_term()), (Millis(5), Some(Term(5))));
    }

    #[test]
    fn terms_without_an_update_are_counted_whoever_owns_the_module_in_between() {
        let mut leadership = Leadership::default();
        let mut claims = |terms: &[u64]| {
            let mut too_many = false;
            for term in terms {
                leadership.adopt(Millis(0), Term(*term), PEER);
                too_many |= leadership.count_term(PEER, Term(*term));
                leadership.adopt(Millis(0), Term(*term + 1), PeerKey([2; 32]));
            }
            too_many
        };
        assert!(!claims(&[1, 3, 3, 7]), "two further ones");
        assert!(claims(&[100]));
        leadership.head_moved();
        assert!(!leadership.count_term(PEER, Term(200)));
    }

    #[test]
    fn a_claim_is_kept_for_the_term_and_owner_that_it_is_of() {
        let mut leadership = Leadership::default();
        leadership.adopt(Millis(0), Term(2), PEER);
        leadership.note_claim(Term(1), PEER, &[1]);
        assert!(leadership.claim().is_empty());
        leadership.note_claim(Term(2), PEER, &[2]);
        assert_eq!(leadership.claim(), [2]);
        leadership.adopt(Millis(0), Term(3), PEER);
        assert!(leadership.claim().is_empty());
    }
}
