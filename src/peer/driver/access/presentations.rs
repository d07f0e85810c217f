//! To which peers this peer has presented its credential, and what they answered.
//!
//! A peer that nobody has invited can connect, present anything and answer nothing. So one presentation at a time is
//! under way to a peer that is not admitted, and only an accepted credential is answered by presenting ours again.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Millis;
use crate::names::PeerKey;
use crate::network::limits::{INCOMING_CONNECTIONS, REQUESTS_PER_PEER};

/// Marks the ids of authentication requests; the node counts its own from 0.
const AUTHENTICATION_BIT: u64 = 1 << 63;

/// Pause before our credential is presented again to a connected peer that did not answer, or that presents its own
/// again: it has restarted. Two peers that present theirs at the same time do not answer each other without end.
const PRESENT_AGAIN_MS: u64 = 5_000;

/// The same, if the peer has refused it.
const REFUSED_AGAIN_MS: u64 = 30_000;

/// Time within which a peer that takes part and is near answers. Further away, our credential is sent twice.
const ANSWERED_WITHIN_MS: u64 = 50;

/// Presentations under way to one peer that is admitted: it did not answer while it joined, and did not get what was
/// sent before it restarted. The other half of [`REQUESTS_PER_PEER`] is the node's.
const MOST_TO_ONE: usize = REQUESTS_PER_PEER / 2;

/// Presentations under way to all peers that are not admitted: to each that may have connected. The other places for
/// authentication requests are for admitted peers.
const MOST_TO_STRANGERS: usize = INCOMING_CONNECTIONS as usize;

/// Whether our credential may be presented to a peer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayPresent {
    Now,
    /// It has been, and the peer may still answer.
    UnderWay,
    /// Too many are under way to peers that are not admitted.
    Later,
}

/// A presentation that was not answered yet.
struct Presentation {
    to: PeerKey,
    /// Whether the peer was admitted at that time.
    admitted: bool,
}

#[derive(Default)]
pub(super) struct Presentations {
    /// Peers that have answered our credential since they connected.
    introduced: BTreeSet<PeerKey>,
    /// Those of them that have accepted it.
    accepted: BTreeSet<PeerKey>,
    /// When it was last presented to each connected peer.
    presented: BTreeMap<PeerKey, Millis>,
    under_way: BTreeMap<u64, Presentation>,
    next: u64,
}

impl Presentations {
    /// `accepted` are peers that have accepted our credential while this peer joined.
    pub(super) fn new(accepted: BTreeSet<PeerKey>) -> Self {
        Self { accepted, ..Self::default() }
    }

    pub(super) fn is_authentication(id: u64) -> bool {
        id & AUTHENTICATION_BIT != 0
    }

    pub(super) fn is_answered(&self, by: PeerKey) -> bool {
        self.introduced.contains(&by)
    }

    pub(super) fn is_accepted(&self, by: PeerKey) -> bool {
        self.accepted.contains(&by)
    }

    pub(super) fn disconnected(&mut self, peer: PeerKey) {
        self.presented.remove(&peer);
        self.forget_answer(peer);
    }

    pub(super) fn forget_answer(&mut self, of: PeerKey) {
        self.introduced.remove(&of);
        self.accepted.remove(&of);
    }

    /// Whether a peer should have answered our credential by now, if it has got it. A newcomer does not answer before it
    /// has joined, and the request itself would wait much longer.
    fn is_unanswered(&self, by: PeerKey, now: Millis) -> bool {
        let is_late = |at: &Millis| now.since(*at) >= ANSWERED_WITHIN_MS;
        !self.introduced.contains(&by) && self.presented.get(&by).is_some_and(is_late)
    }

    /// Whether it is time to present our credential to a connected peer again.
    pub(super) fn is_due(&self, to: PeerKey, now: Millis) -> bool {
        let pause_ms = if self.introduced.contains(&to) { REFUSED_AGAIN_MS } else { PRESENT_AGAIN_MS };
        match self.presented.get(&to) {
            None => true,
            Some(at) => !self.accepted.contains(&to) && now.since(*at) >= pause_ms,
        }
    }

    /// The same for a peer that has just presented its own. If it has restarted, it has not seen ours; if it has just
    /// joined, it did not answer while it did. A peer that does not take part gets ours when it connects, and whenever
    /// it is due.
    pub(super) fn is_due_in_return(&self, to: PeerKey, takes_part: bool, now: Millis) -> bool {
        let is_old = |at: &Millis| now.since(*at) >= PRESENT_AGAIN_MS;
        takes_part && (self.presented.get(&to).is_none_or(is_old) || self.is_unanswered(to, now))
    }

    pub(super) fn may_present(&self, to: PeerKey, admitted: bool, now: Millis) -> MayPresent {
        let to_it = self.under_way.values().filter(|presentation| presentation.to == to).count();
        let to_strangers = self.under_way.values().filter(|presentation| !presentation.admitted).count();
        match (to_it, admitted) {
            (0, false) if to_strangers >= MOST_TO_STRANGERS => MayPresent::Later,
            (0, _) => MayPresent::Now,
            (1..MOST_TO_ONE, true) if self.is_unanswered(to, now) => MayPresent::Now,
            _ => MayPresent::UnderWay,
        }
    }

    /// The id of the next request.
    pub(super) fn next_id(&mut self) -> u64 {
        let id = AUTHENTICATION_BIT | self.next;
        self.next += 1;
        id
    }

    /// Our credential is on its way.
    pub(super) fn sent(&mut self, id: u64, to: PeerKey, admitted: bool, now: Millis) {
        self.under_way.insert(id, Presentation { to, admitted });
        self.presented.insert(to, now);
    }

    /// The outcome of a presentation: whether our credential was accepted, or nothing if it was not answered. The answer
    /// of a peer that has gone since is not remembered.
    pub(super) fn answered(&mut self, id: u64, by: PeerKey, accepted: Option<bool>) {
        self.under_way.remove(&id);
        if !self.presented.contains_key(&by) {
            return;
        }
        match accepted {
            Some(true) => {
                self.introduced.insert(by);
                self.accepted.insert(by);
            }
            // It will refuse each request, too, with the same reason.
            Some(false) => {
                self.introduced.insert(by);
                self.accepted.remove(&by);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey([1; 32]);

    /// Presents to a peer if it may. Returns whether it has.
    fn presents(state: &mut Presentations, to: PeerKey, admitted: bool, now_ms: u64) -> bool {
        let may = state.may_present(to, admitted, Millis(now_ms)) == MayPresent::Now;
        if may {
            let id = state.next_id();
            state.sent(id, to, admitted, Millis(now_ms));
        }
        may
    }

    fn stranger(number: u32) -> PeerKey {
        let mut key = [9; 32];
        key[..4].copy_from_slice(&number.to_le_bytes());
        PeerKey(key)
    }

    #[test]
    fn a_stranger_that_never_answers_and_presents_without_end_has_one_request_of_ours() {
        let mut state = Presentations::default();
        assert!(presents(&mut state, PEER, false, 0));
        for now_ms in (0..10_000).step_by(50) {
            assert!(!state.is_due_in_return(PEER, false, Millis(now_ms)));
            assert!(!presents(&mut state, PEER, false, now_ms));
        }
        assert_eq!(state.under_way.len(), 1);
    }

    #[test]
    fn strangers_leave_places_for_members() {
        let mut state = Presentations::default();
        let sent = (0..1_000).filter(|number| presents(&mut state, stranger(*number), false, 0)).count();
        assert_eq!(sent, MOST_TO_STRANGERS);
        assert!(presents(&mut state, PEER, true, 0));
        assert_eq!(state.may_present(stranger(999), false, Millis(0)), MayPresent::Later);
    }

    #[test]
    fn a_newcomer_that_answers_nothing_while_it_joins_sees_our_credential_when_it_has() {
        let mut state = Presentations::default();
        assert!(presents(&mut state, PEER, false, 0), "it has connected");
        // It authenticates to join, and again when it has joined; the first request waits for 10 s.
        for now_ms in [400, 3_000] {
            assert!(state.is_due_in_return(PEER, true, Millis(now_ms)));
            assert!(presents(&mut state, PEER, true, now_ms));
        }
        let id = *state.under_way.keys().last().unwrap();
        state.answered(id, PEER, Some(true));
        assert!(state.is_accepted(PEER) && !state.is_due_in_return(PEER, true, Millis(3_100)));
    }

    #[test]
    fn a_member_that_never_answers_leaves_the_node_half_of_the_requests_to_it() {
        let mut state = Presentations::default();
        let sent = (0..10_000).step_by(50).filter(|now_ms| presents(&mut state, PEER, true, *now_ms)).count();
        assert_eq!(sent, MOST_TO_ONE);
    }

    #[test]
    fn who_has_refused_our_credential_sees_it_again_after_a_while_and_who_has_restarted_at_once() {
        let mut state = Presentations::default();
        assert!(presents(&mut state, PEER, false, 0));
        state.answered(AUTHENTICATION_BIT, PEER, Some(false));
        assert!(!state.is_due(PEER, Millis(PRESENT_AGAIN_MS)) && state.is_due(PEER, Millis(REFUSED_AGAIN_MS)));
        assert!(!state.is_due_in_return(PEER, true, Millis(100)), "two do not answer each other without end");
        assert!(state.is_due_in_return(PEER, true, Millis(PRESENT_AGAIN_MS)), "it has restarted");
        state.disconnected(PEER);
        assert!(state.is_due(PEER, Millis(100)) && presents(&mut state, PEER, false, 100));
        state.disconnected(PEER);
        state.answered(AUTHENTICATION_BIT | 1, PEER, Some(true));
        assert!(!state.is_answered(PEER), "those that come, answer and go are not remembered");
    }
}
