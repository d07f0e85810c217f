//! The progress of catch-up for one module: the pending request, and the chain whose state is being fetched.

use std::collections::{BTreeMap, BTreeSet};

use super::chain::{Chain, ChainIndex};
use crate::clock::Millis;
use crate::names::{BlobHash, PeerKey};
use crate::protocol::event::RequestId;
use crate::protocol::limits::{GAP_TIMEOUT_MS, MAX_SHOWN};
use crate::protocol::wire::message::UpdateHash;

/// The catch-up with members that are ahead.
#[derive(Debug, Default)]
pub(in crate::protocol) struct CatchUp {
    /// Since when a better head than the local one is known.
    behind_since: Option<Millis>,
    /// The pending request.
    asked: Option<(RequestId, PeerKey, Millis)>,
    /// Number of failed donors. The next donor in turn is asked.
    failures: usize,
    /// The replay failed, so a whole state is requested.
    whole: bool,
    /// A chain whose state is being fetched and decoded.
    installing: Option<Chain>,
    /// No request is sent before this time, because the last answer was not enough.
    pauses_until: Millis,
    /// Since when most members have been on another chain.
    outvoted_since: Option<Millis>,
    /// Since when the owner has been ahead on this node's chain, and had only a state to show.
    leads_since: Option<(PeerKey, Millis)>,
    /// Members whose heads are older than what this node has kept, with the first of those heads.
    far_behind: BTreeMap<PeerKey, ChainIndex>,
    /// What donors have shown of their chains.
    shown: BTreeMap<PeerKey, Vec<ChainIndex>>,
    /// Donors that were asked since this node's head has moved, and have shown nothing.
    silent: BTreeSet<PeerKey>,
}

impl CatchUp {
    /// No member is ahead.
    pub(in crate::protocol) fn is_level(&mut self) {
        self.behind_since = None;
    }

    /// A member is ahead. Returns since when.
    pub(in crate::protocol) fn is_behind(&mut self, now: Millis) -> Millis {
        *self.behind_since.get_or_insert(now)
    }

    pub(in crate::protocol) fn behind_since(&self) -> Option<Millis> {
        self.behind_since
    }

    /// Times out the pending request.
    pub(in crate::protocol) fn time_out(&mut self, now: Millis, timeout_ms: u64) {
        if let Some((_, donor, _)) = self.asked.take_if(|(_, _, at)| now.since(*at) >= timeout_ms) {
            self.shows_nothing(donor);
        }
    }

    pub(in crate::protocol) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    pub(in crate::protocol) fn asked(&mut self, now: Millis, id: RequestId, donor: PeerKey) {
        self.asked = Some((id, donor, now));
    }

    /// The peer to which this request went, if it is the pending one. Clears it.
    pub(in crate::protocol) fn take_asked(&mut self, id: RequestId) -> Option<PeerKey> {
        self.asked.take_if(|(expected, ..)| *expected == id).map(|(_, donor, _)| donor)
    }

    /// The donor whose turn it is.
    pub(in crate::protocol) fn donor(&self, donors: &[PeerKey]) -> Option<PeerKey> {
        let turn = self.failures.checked_rem(donors.len())?;
        donors.get(turn).copied()
    }

    /// The other members do not attest what a donor sent. The next donor is asked after a pause.
    pub(in crate::protocol) fn unattested(&mut self, now: Millis) {
        self.failures += 1;
        self.pauses_until = now + GAP_TIMEOUT_MS;
    }

    pub(in crate::protocol) fn pauses(&self, now: Millis) -> bool {
        now < self.pauses_until
    }

    /// Notes whether most members are on another chain.
    pub(in crate::protocol) fn note_outvoted(&mut self, now: Millis, outvoted: bool) {
        self.outvoted_since = outvoted.then(|| self.outvoted_since.unwrap_or(now));
    }

    /// A donor that was asked has shown nothing. The next donor is asked.
    pub(in crate::protocol) fn shows_nothing(&mut self, donor: PeerKey) {
        self.failures += 1;
        if self.silent.len() < MAX_SHOWN {
            self.silent.insert(donor);
        }
    }

    /// Whether a member was asked since this node's head has moved, and has shown nothing.
    pub(in crate::protocol) fn is_silent(&self, member: PeerKey) -> bool {
        self.silent.contains(&member)
    }

    /// A donor has shown its newest updates.
    pub(in crate::protocol) fn note_shown(&mut self, donor: PeerKey, newest: Vec<ChainIndex>) {
        self.silent.remove(&donor);
        self.shown.insert(donor, newest);
        if self.shown.len() > MAX_SHOWN {
            self.shown.pop_first();
        }
    }

    /// A member's head is older than what this node has kept. If it has moved since, no member on this node's chain has told
    /// it how: it is on another.
    pub(in crate::protocol) fn note_far_behind(&mut self, member: PeerKey, head: ChainIndex) {
        if *self.far_behind.entry(member).or_insert(head) != head {
            self.note_shown(member, vec![head]);
        }
        if self.far_behind.len() > MAX_SHOWN {
            self.far_behind.pop_first();
        }
    }

    /// What a member has last shown of its chain.
    pub(in crate::protocol) fn shown_by(&self, member: PeerKey) -> &[ChainIndex] {
        self.shown.get(&member).map_or(&[], Vec::as_slice)
    }

    /// The owner is ahead on this node's chain, and has only a state to show. Returns for how long, ms.
    pub(in crate::protocol) fn leads_ms(&mut self, now: Millis, owner: PeerKey) -> u64 {
        let (_, since) = self.leads_since.take_if(|(leads, _)| *leads == owner).unwrap_or((owner, now));
        self.leads_since = Some((owner, since));
        now.since(since)
    }

    /// For how long most members have been on another chain, ms.
    pub(in crate::protocol) fn outvoted_ms(&self, now: Millis) -> Option<u64> {
        self.outvoted_since.map(|since| now.since(since))
    }

    /// Something failed. The next donor is asked.
    pub(in crate::protocol) fn failed(&mut self) {
        self.failures += 1;
    }

    /// A replay is not enough: a whole state is requested.
    pub(in crate::protocol) fn need_whole(&mut self) {
        self.whole = true;
    }

    pub(in crate::protocol) fn needs_whole(&self) -> bool {
        self.whole
    }

    /// The head has advanced.
    pub(in crate::protocol) fn advanced(&mut self) {
        self.whole = false;
        self.leads_since = None;
        self.silent.clear();
    }

    /// Another chain is now followed.
    pub(in crate::protocol) fn switched(&mut self) {
        (self.failures, self.whole, self.outvoted_since) = (0, false, None);
        self.shown.clear();
        self.far_behind.clear();
        self.silent.clear();
        self.leads_since = None;
    }

    pub(in crate::protocol) fn install(&mut self, chain: Chain) {
        self.installing = Some(chain);
    }

    pub(in crate::protocol) fn installing(&self) -> Option<&Chain> {
        self.installing.as_ref()
    }

    /// The chain being installed, if its state has this hash.
    pub(in crate::protocol) fn installs(&self, state: BlobHash) -> Option<&Chain> {
        self.installing.as_ref().filter(|chain| chain.head().state.hash == state)
    }

    /// Takes the chain whose state has this hash.
    pub(in crate::protocol) fn take_installing(&mut self, state: BlobHash) -> Option<Chain> {
        self.installing.take_if(|chain| chain.head().state.hash == state)
    }

    /// Refuses to install a chain that contains this update. Returns that chain.
    pub(in crate::protocol) fn refuse(&mut self, update: UpdateHash) -> Option<Chain> {
        self.installing.take_if(|chain| chain.contains(update))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_moves_on_to_the_next_donor() {
        let (a, b) = (PeerKey([1; 32]), PeerKey([2; 32]));
        let mut catch_up = CatchUp::default();
        assert_eq!(catch_up.donor(&[]), None);
        assert_eq!(catch_up.donor(&[a, b]), Some(a));
        catch_up.asked(Millis(0), RequestId(1), a);
        catch_up.time_out(Millis(99), 100);
        assert!(catch_up.is_asking());
        catch_up.time_out(Millis(100), 100);
        assert!(!catch_up.is_asking());
        assert_eq!(catch_up.donor(&[a, b]), Some(b));
        assert_eq!(catch_up.take_asked(RequestId(1)), None, "the request timed out");
    }
}
