//! The chain of updates that a replica follows, the states kept of it, and the durations of its phases.

use std::collections::VecDeque;

use super::chain::Chain;
use super::phase_durations::Durations;
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef};
use crate::protocol::limits::STATES_KEPT;
use crate::protocol::wire::message::{Head, SignedUpdate, UpdateHash};

/// A replica's chain and states.
#[derive(Debug, Default)]
pub(in crate::protocol) struct History {
    /// Nothing while the first state is being fetched.
    chain: Option<Chain>,
    /// The kept states, oldest first. The last is the head's.
    states: VecDeque<BlobRef>,
    /// Since when the chain is known to contain an invalidated update that cannot be rolled back.
    invalidated_since: Option<Millis>,
    /// When this node adopted the head.
    advanced: Millis,
    /// When the phase of the head began; nothing if unknown, because the head is older than its arrival here.
    phase_began: Option<Millis>,
    /// Durations of phases.
    phases: Durations,
}

impl History {
    /// The history of a module that begins with this state.
    pub(in crate::protocol) fn at_genesis(state: BlobRef) -> Self {
        Self { chain: Some(Chain::genesis(state)), states: [state].into(), ..Self::default() }
    }

    pub(in crate::protocol) fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    pub(in crate::protocol) fn head(&self) -> Option<Head> {
        self.chain.as_ref().map(Chain::head)
    }

    /// The running norm at the head; 0 without a chain.
    pub(in crate::protocol) fn running_norm(&self) -> u32 {
        self.chain.as_ref().map_or(0, Chain::running_norm)
    }

    /// The kept states, oldest first.
    pub(in crate::protocol) fn states(&self) -> impl ExactSizeIterator<Item = BlobRef> {
        self.states.iter().copied()
    }

    pub(in crate::protocol) fn advanced(&self) -> Millis {
        self.advanced
    }

    pub(in crate::protocol) fn phase_began(&self) -> Option<Millis> {
        self.phase_began
    }

    pub(in crate::protocol) fn phases(&self) -> &Durations {
        &self.phases
    }

    /// For tests: adds a phase of this duration.
    #[cfg(test)]
    pub(in crate::protocol) fn note_phase(&mut self, took_ms: u64) {
        self.phases.add(took_ms);
    }

    /// Notes a new head. The time between missed updates does not measure a phase.
    pub(in crate::protocol) fn head_moved(&mut self, now: Millis, missed: bool) {
        let before = std::mem::replace(&mut self.phase_began, (!missed).then_some(now));
        if let Some(began) = before.filter(|_| !missed) {
            self.phases.add(now.since(began));
        }
        self.advanced = now;
    }

    /// Appends an update that fits, as the head. Returns the blobs that are no longer kept.
    pub(in crate::protocol) fn push(&mut self, signed: SignedUpdate) -> Vec<BlobHash> {
        let mut released = Vec::new();
        self.states.push_back(signed.update.state);
        released.extend(self.drop_old_states().map(|old| old.hash));
        if let Some(oldest) = self.chain.as_mut().and_then(|chain| chain.push(signed)) {
            released.push(oldest.update.average.hash);
            released.extend(oldest.update.contributions.iter().map(|counted| counted.blob.hash));
            released.extend(oldest.update.contributions.list().map(|list| list.hash));
        }
        released
    }

    /// Replaces the chain. Keeps the states that the new chain has had. Returns the other states and the abandoned
    /// chain.
    pub(in crate::protocol) fn switch(
        &mut self,
        chain: Chain,
        genesis: Option<BlobRef>,
    ) -> (Vec<BlobRef>, Option<Chain>) {
        let head = chain.head().state;
        let stays = |old: &BlobRef| *old != head && genesis.is_some_and(|genesis| chain.has_had(*old, genesis));
        let mut gone: Vec<BlobRef> = self.states.iter().filter(|old| !stays(old)).copied().collect();
        self.states.retain(stays);
        self.states.push_back(head);
        gone.extend(self.drop_old_states());
        self.invalidated_since = None;
        (gone, self.chain.replace(chain))
    }

    fn drop_old_states(&mut self) -> impl Iterator<Item = BlobRef> {
        let surplus = self.states.len().saturating_sub(STATES_KEPT);
        self.states.drain(..surplus)
    }

    /// The chain as it was before an update, if the state there is kept.
    pub(in crate::protocol) fn before(&self, update: UpdateHash, genesis: BlobRef) -> Option<Chain> {
        let before = self.chain.as_ref()?.before(update, genesis)?;
        self.states.contains(&before.head().state).then_some(before)
    }

    /// From the journal: an update of the chain was invalidated. The chain is cut before it where the state there is
    /// kept.
    pub(in crate::protocol) fn restore_before(&mut self, now: Millis, update: UpdateHash, genesis: BlobRef) {
        if !self.contains(update) {
            return;
        }
        match self.before(update, genesis) {
            Some(before) => {
                let kept = self.states.iter().position(|state| *state == before.head().state);
                self.states.truncate(kept.map_or(0, |kept| kept + 1));
                self.chain = Some(before);
            }
            None => self.invalidated_since = Some(now),
        }
    }

    pub(in crate::protocol) fn contains(&self, update: UpdateHash) -> bool {
        self.chain.as_ref().is_some_and(|chain| chain.contains(update))
    }

    /// The chain contains an invalidated update, and the state before it is not kept.
    pub(in crate::protocol) fn invalidate(&mut self, now: Millis) {
        self.invalidated_since = Some(now);
    }

    /// No peer has another chain, so this one stays as it is.
    pub(in crate::protocol) fn accept_as_it_is(&mut self) {
        self.invalidated_since = None;
    }

    pub(in crate::protocol) fn invalidated_since(&self) -> Option<Millis> {
        self.invalidated_since
    }

    /// The head to compare with others' heads; nothing if the chain is invalidated.
    pub(in crate::protocol) fn valid_head(&self) -> Option<Head> {
        self.head().filter(|_| self.invalidated_since.is_none())
    }

    /// Whether another chain is better than this one.
    pub(in crate::protocol) fn gives_way_to(&self, other: &Head) -> bool {
        self.valid_head().is_none_or(|mine| other.outweighs(&mine))
    }

    /// Notes that only the newest average is still here.
    pub(in crate::protocol) fn replay_only_the_newest(&mut self) {
        self.chain.iter_mut().for_each(Chain::replay_only_the_newest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::made_up::next;
    use super::*;

    fn grown(versions: usize) -> (History, Vec<SignedUpdate>) {
        let mut history = History::at_genesis(BlobRef::of(b"genesis"));
        let mut made = Vec::new();
        for _ in 0..versions {
            let signed = next(history.chain().unwrap(), 0, 1);
            history.push(signed.clone());
            made.push(signed);
        }
        (history, made)
    }

    #[test]
    fn the_newest_states_are_kept_and_the_last_is_the_heads() {
        let (history, made) = grown(STATES_KEPT + 2);
        let newest = made[2..].iter().map(|signed| signed.update.state);
        assert!(history.states().eq(newest));
        assert_eq!(history.head().unwrap().state, made.last().unwrap().update.state);
    }

    #[test]
    fn a_rollback_needs_the_state_before_the_invalidated_update() {
        let genesis = BlobRef::of(b"genesis");
        let (mut history, _) = grown(STATES_KEPT + 2);
        let updates: Vec<UpdateHash> = history.chain().unwrap().entries().map(|(hash, _)| hash).collect();
        history.restore_before(Millis(7), updates[STATES_KEPT + 1], genesis);
        assert_eq!(history.head().unwrap().version.0, STATES_KEPT as u64 + 1);
        assert_eq!((history.states().len(), history.invalidated_since()), (STATES_KEPT - 1, None));
        history.restore_before(Millis(7), updates[0], genesis);
        assert_eq!((history.invalidated_since(), history.valid_head()), (Some(Millis(7)), None));
        assert!(history.gives_way_to(&Chain::genesis(genesis).head()), "any other chain is better");
    }

    #[test]
    fn only_whole_phases_are_measured() {
        let (mut history, _) = grown(1);
        history.head_moved(Millis(1_000), true);
        history.head_moved(Millis(5_000), false);
        assert_eq!(history.phases().quicker_ms(), None, "the beginning of the first is unknown");
        history.head_moved(Millis(9_000), false);
        assert_eq!(history.phases().quicker_ms(), Some(4_000));
    }
}
