//! How far catching up has come for one module: whom it has asked, and which chain's state is being fetched.

use super::chain::Chain;
use crate::clock::Millis;
use crate::names::{BlobHash, PeerKey};
use crate::protocol::event::RequestId;
use crate::protocol::wire::message::UpdateHash;

/// Catching up with members that are ahead.
#[derive(Debug, Default)]
pub(in crate::protocol) struct CatchUp {
    /// Since when a better head than ours is known.
    behind_since: Option<Millis>,
    /// A request under way.
    asked: Option<(RequestId, PeerKey, Millis)>,
    /// How many donors have failed: the next one is asked.
    failures: usize,
    /// What was to be replayed could not be had: a whole state is asked for.
    whole: bool,
    /// A chain whose state is being fetched.
    installing: Option<Chain>,
}

impl CatchUp {
    /// Nobody is ahead.
    pub(in crate::protocol) fn is_level(&mut self) {
        self.behind_since = None;
    }

    /// Somebody is ahead. Since when.
    pub(in crate::protocol) fn is_behind(&mut self, now: Millis) -> Millis {
        *self.behind_since.get_or_insert(now)
    }

    pub(in crate::protocol) fn behind_since(&self) -> Option<Millis> {
        self.behind_since
    }

    /// Gives up on a request that takes too long.
    pub(in crate::protocol) fn time_out(&mut self, now: Millis, timeout_ms: u64) {
        if self.asked.take_if(|(_, _, at)| now.since(*at) >= timeout_ms).is_some() {
            self.failures += 1;
        }
    }

    pub(in crate::protocol) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    pub(in crate::protocol) fn asked(&mut self, now: Millis, id: RequestId, donor: PeerKey) {
        self.asked = Some((id, donor, now));
    }

    /// Whom this request went to, if it is the one under way, which it is no longer.
    pub(in crate::protocol) fn take_asked(&mut self, id: RequestId) -> Option<PeerKey> {
        self.asked.take_if(|(expected, ..)| *expected == id).map(|(_, donor, _)| donor)
    }

    /// Of several donors, the one whose turn it is.
    pub(in crate::protocol) fn donor(&self, donors: &[PeerKey]) -> Option<PeerKey> {
        let turn = self.failures.checked_rem(donors.len())?;
        donors.get(turn).copied()
    }

    /// Something failed: another donor is asked.
    pub(in crate::protocol) fn failed(&mut self) {
        self.failures += 1;
    }

    /// Updates alone do not do: a whole state is asked for.
    pub(in crate::protocol) fn need_whole(&mut self) {
        self.whole = true;
    }

    pub(in crate::protocol) fn needs_whole(&self) -> bool {
        self.whole
    }

    /// There is a new head.
    pub(in crate::protocol) fn advanced(&mut self) {
        self.whole = false;
    }

    /// Another chain is followed.
    pub(in crate::protocol) fn switched(&mut self) {
        (self.failures, self.whole) = (0, false);
    }

    pub(in crate::protocol) fn install(&mut self, chain: Chain) {
        self.installing = Some(chain);
    }

    pub(in crate::protocol) fn installing(&self) -> Option<&Chain> {
        self.installing.as_ref()
    }

    /// The chain whose state these bytes are.
    pub(in crate::protocol) fn take_installing(&mut self, state: BlobHash) -> Option<Chain> {
        self.installing.take_if(|chain| chain.head().state.hash == state)
    }

    /// A chain with this update is not to be installed. Which.
    pub(in crate::protocol) fn refuse(&mut self, update: UpdateHash) -> Option<Chain> {
        self.installing.take_if(|chain| chain.contains(update))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_another_donors_turn() {
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
        assert_eq!(catch_up.take_asked(RequestId(1)), None, "nobody waits for it any more");
    }
}
