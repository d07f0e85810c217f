//! Getting blobs: one table for all purposes, so that a blob is fetched once, from one holder after another.

use std::collections::BTreeSet;

use super::Node;
use super::action::Action;
use super::limits::FETCH_RETRY_MS;
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};

/// How often each holder is tried before a fetch is given up.
const ROUNDS: usize = 3;

/// What a blob is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// To add it to the module's sum.
    Contribution(ModuleId),
    /// To apply it.
    Average(ModuleId),
    /// To install it.
    State(ModuleId),
}

/// A blob on its way.
#[derive(Debug)]
pub(super) struct Fetching {
    blob: BlobRef,
    holders: Vec<PeerKey>,
    attempts: usize,
    purposes: BTreeSet<Purpose>,
    retry_at: Option<Millis>,
}

impl Node {
    pub(super) fn fetch(&mut self, blob: BlobRef, holder: PeerKey, purpose: Purpose) {
        if let Some(fetching) = self.fetching.get_mut(&blob.hash) {
            fetching.purposes.insert(purpose);
            if !fetching.holders.contains(&holder) {
                fetching.holders.push(holder);
            }
            return;
        }
        let purposes = BTreeSet::from([purpose]);
        let fetching = Fetching { blob, holders: vec![holder], attempts: 0, purposes, retry_at: None };
        self.fetching.insert(blob.hash, fetching);
        self.act(Action::Fetch { blob, from: holder });
    }

    pub(super) fn fetched(&mut self, blob: BlobHash, found: bool) {
        let Some(fetching) = self.fetching.get_mut(&blob) else { return };
        if !found {
            fetching.attempts += 1;
            if fetching.attempts < ROUNDS * fetching.holders.len() {
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
            }
        }
    }

    pub(super) fn retry_fetches(&mut self) {
        let now = self.now;
        let mut again = Vec::new();
        for fetching in self.fetching.values_mut() {
            if fetching.retry_at.is_some_and(|at| now >= at) {
                fetching.retry_at = None;
                let holder = fetching.holders[fetching.attempts % fetching.holders.len()];
                again.push(Action::Fetch { blob: fetching.blob, from: holder });
            }
        }
        self.actions.extend(again);
    }
}
