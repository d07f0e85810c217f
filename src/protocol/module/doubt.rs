//! An update that counts contributions which nobody has offered, as far as this node can tell.
//!
//! An owner could make up the contributions that it counts, and no audit would find it: the arithmetic is right. But
//! each member hears the offers.

use crate::clock::Millis;
use crate::names::PeerKey;
use crate::protocol::limits::MOST_UNHEARD;
use crate::protocol::wire::message::SignedUpdate;

/// The doubt about a module's next update.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Doubt {
    /// Since when this node hears the offers of the module.
    listens_since: Option<Millis>,
    /// The update, since when it is doubted, and the owner that is on it.
    held: Option<(SignedUpdate, Millis, PeerKey)>,
}

impl Doubt {
    /// This node hears the module's offers.
    pub(in crate::protocol) fn listen(&mut self, now: Millis) {
        self.listens_since.get_or_insert(now);
    }

    /// This node was suspended, or cut off.
    pub(in crate::protocol) fn missed_offers(&mut self) {
        self.listens_since = None;
    }

    /// For how long this node has heard the module's members, ms.
    pub(in crate::protocol) fn listened_ms(&self, now: Millis) -> u64 {
        self.listens_since.map_or(0, |since| now.since(since))
    }

    /// Holds an update back, unless one is held already.
    pub(in crate::protocol) fn hold(&mut self, now: Millis, signed: &SignedUpdate, owner: PeerKey) {
        self.held.get_or_insert_with(|| (signed.clone(), now, owner));
    }

    /// The update that is held back, since when, and the owner that is on it.
    pub(in crate::protocol) fn held(&self) -> Option<(&SignedUpdate, Millis, PeerKey)> {
        self.held.as_ref().map(|(signed, since, owner)| (signed, *since, *owner))
    }

    /// The doubt is over: there is another head, or another owner.
    pub(in crate::protocol) fn end(&mut self) -> Option<SignedUpdate> {
        self.held.take().map(|(signed, ..)| signed)
    }
}

/// Whether an update is doubted that counts so many contributions, and so many of them unheard. Gossip may lose an
/// offer.
pub(in crate::protocol) fn is_doubtful(counted: usize, unheard: usize) -> bool {
    unheard * MOST_UNHEARD > counted
}

#[cfg(test)]
mod tests {
    use super::super::chain::Chain;
    use super::super::chain::made_up::next;
    use super::*;
    use crate::names::BlobRef;

    #[test]
    fn only_a_node_that_has_listened_can_tell_what_was_not_offered() {
        let mut doubt = Doubt::default();
        assert_eq!(doubt.listened_ms(Millis(5)), 0);
        doubt.listen(Millis(5));
        doubt.listen(Millis(900));
        assert_eq!(doubt.listened_ms(Millis(1_005)), 1_000);
        doubt.missed_offers();
        assert_eq!(doubt.listened_ms(Millis(1_005)), 0);
    }

    #[test]
    fn the_first_doubted_update_is_held_until_the_doubt_ends() {
        let chain = Chain::genesis(BlobRef::of(b"genesis"));
        let (first, second) = (next(&chain, 0, 1), next(&chain, 1, 1));
        let mut doubt = Doubt::default();
        let owner = PeerKey([1; 32]);
        doubt.hold(Millis(1), &first, owner);
        doubt.hold(Millis(2), &second, owner);
        assert_eq!(doubt.held(), Some((&first, Millis(1), owner)));
        assert_eq!((doubt.end(), doubt.held()), (Some(first), None));
    }

    #[test]
    fn one_lost_offer_of_many_is_no_reason_to_doubt() {
        assert!(!is_doubtful(16, 4) && is_doubtful(16, 5));
        assert!(is_doubtful(2, 1) && !is_doubtful(0, 0));
    }
}
