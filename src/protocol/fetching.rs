//! Getting blobs: one table for all purposes, so that a blob is fetched once, from one holder after another.

use std::collections::BTreeSet;

use super::Node;
use super::action::Action;
use super::limits::{FETCH_RETRY_MS, FETCH_ROUNDS, MAX_MEMBERS};
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey};

/// What a blob is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// To add it to the module's sum.
    Contribution(ModuleId),
    /// To apply it.
    Average(ModuleId),
    /// To install it.
    State(ModuleId),
    /// To go on with a path that was taken from another.
    Inheritance(PathId),
    /// To go on with a path that is stood by, should its holder be gone.
    Trainer(PathId),
}

/// A blob on its way.
#[derive(Debug)]
pub(super) struct Fetching {
    /// Each with the size that it was heard with: who lies about it holds up nobody else.
    holders: Vec<(PeerKey, BlobRef)>,
    attempts: usize,
    purposes: BTreeSet<Purpose>,
    retry_at: Option<Millis>,
    /// When the present attempt began.
    began: Millis,
}

impl Node {
    pub(super) fn fetch(&mut self, blob: BlobRef, holder: PeerKey, purpose: Purpose) {
        if let Some(fetching) = self.fetching.get_mut(&blob.hash) {
            fetching.purposes.insert(purpose);
            return self.another_holder(blob, holder);
        }
        let purposes = BTreeSet::from([purpose]);
        let fetching =
            Fetching { holders: vec![(holder, blob)], attempts: 0, purposes, retry_at: None, began: self.now };
        self.fetching.insert(blob.hash, fetching);
        self.act(Action::Fetch { blob, from: holder });
    }

    /// Somebody else has a blob that may be on its way.
    pub(super) fn another_holder(&mut self, blob: BlobRef, holder: PeerKey) {
        if let Some(fetching) = self.fetching.get_mut(&blob.hash)
            && fetching.holders.len() < MAX_MEMBERS
            && !fetching.holders.contains(&(holder, blob))
        {
            fetching.holders.push((holder, blob));
        }
    }

    pub(super) fn fetched(&mut self, blob: BlobHash, found: bool) {
        let Some(fetching) = self.fetching.get_mut(&blob) else { return };
        if found {
            let (_, asked) = fetching.holders[fetching.attempts % fetching.holders.len()];
            self.patience.came(asked.bytes, self.now.since(fetching.began));
        } else {
            fetching.attempts += 1;
            if fetching.attempts < FETCH_ROUNDS * fetching.holders.len() {
                fetching.retry_at = Some(self.now + FETCH_RETRY_MS);
                return;
            }
        }
        let Some(fetching) = self.fetching.remove(&blob) else { return };
        for purpose in fetching.purposes {
            match purpose {
                Purpose::Contribution(module) => self.contribution_fetched(module, blob, found),
                Purpose::Average(module) => self.average_fetched(module, blob, found),
                Purpose::State(module) => self.state_fetched(module, blob, found),
                Purpose::Inheritance(path) => self.inheritance_fetched(path, blob, found),
                Purpose::Trainer(path) => self.trainer_fetched(path, blob, found),
            }
        }
        // Nobody may want it any more.
        if !self.modules.values().any(|state| state.has_in_hand(blob)) {
            self.forget(blob);
        }
    }

    pub(super) fn retry_fetches(&mut self) {
        let now = self.now;
        let mut again = Vec::new();
        for fetching in self.fetching.values_mut() {
            if fetching.retry_at.is_some_and(|at| now >= at) {
                (fetching.retry_at, fetching.began) = (None, now);
                let (from, blob) = fetching.holders[fetching.attempts % fetching.holders.len()];
                again.push(Action::Fetch { blob, from });
            }
        }
        self.actions.extend(again);
    }
}
