//! Getting blobs: one table for all purposes, so that a blob is fetched once, from all that may have it at the same time.

use std::collections::BTreeSet;

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey};
use crate::protocol::Node;
use crate::protocol::action::Action;
use crate::protocol::limits::{FETCH_RETRY_MS, FETCH_ROUNDS, MAX_DONORS, MAX_MEMBERS};

/// What a blob is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::protocol) enum Purpose {
    /// To add it to the module's sum.
    Contribution(ModuleId),
    /// To count it again.
    Audit(ModuleId),
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
pub(in crate::protocol) struct Fetching {
    /// Each with the size that it was heard with: who lies about it holds up nobody else.
    holders: Vec<(PeerKey, BlobRef)>,
    attempts: usize,
    purposes: BTreeSet<Purpose>,
    retry_at: Option<Millis>,
    /// When the present attempt began.
    began: Millis,
}

impl Fetching {
    /// What is asked for now, and of whom: all who named the blob with the same size. Each attempt begins with another.
    fn ask(&self) -> (BlobRef, Vec<PeerKey>) {
        let sizes = self.sizes();
        let blob = sizes[self.attempts % sizes.len()];
        let named = self.holders.iter().filter(|(_, named)| *named == blob);
        let mut from: Vec<PeerKey> = named.map(|(holder, _)| *holder).collect();
        let first = self.attempts / sizes.len() % from.len();
        from.rotate_left(first);
        from.truncate(MAX_DONORS);
        (blob, from)
    }

    /// One for each size, in the order in which they were heard; at least one.
    fn sizes(&self) -> Vec<BlobRef> {
        let mut sizes = Vec::new();
        for (_, blob) in &self.holders {
            if !sizes.contains(blob) {
                sizes.push(*blob);
            }
        }
        sizes
    }
}

impl Node {
    pub(in crate::protocol) fn fetch(&mut self, blob: BlobRef, holder: PeerKey, purpose: Purpose) {
        self.fetch_from(blob, &[holder], purpose);
    }

    /// The same where several have the blob, or soon will: the surest first.
    pub(in crate::protocol) fn fetch_from(&mut self, blob: BlobRef, holders: &[PeerKey], purpose: Purpose) {
        let begins = !self.fetching.contains_key(&blob.hash);
        let fetching = self.fetching.entry(blob.hash).or_insert_with(|| Fetching {
            holders: Vec::new(),
            attempts: 0,
            purposes: BTreeSet::new(),
            retry_at: None,
            began: self.now,
        });
        fetching.purposes.insert(purpose);
        for holder in holders {
            self.another_holder(blob, *holder);
        }
        if begins && let Some(fetching) = self.fetching.get(&blob.hash) {
            let (blob, from) = fetching.ask();
            self.act(Action::Fetch { blob, from });
        }
    }

    /// Members of a module in the order of their keys, those after this node first: so not all ask the same ones.
    pub(in crate::protocol) fn after_me(&self, mut members: Vec<PeerKey>) -> Vec<PeerKey> {
        members.sort_unstable();
        let after = members.partition_point(|member| *member < self.me);
        members.rotate_left(after);
        members
    }

    /// Somebody else has a blob that may be on its way.
    pub(in crate::protocol) fn another_holder(&mut self, blob: BlobRef, holder: PeerKey) {
        if let Some(fetching) = self.fetching.get_mut(&blob.hash)
            && fetching.holders.len() < MAX_MEMBERS
            && !fetching.holders.contains(&(holder, blob))
        {
            fetching.holders.push((holder, blob));
        }
    }

    pub(in crate::protocol) fn fetched(&mut self, blob: BlobHash, found: bool) {
        let Some(fetching) = self.fetching.get_mut(&blob) else { return };
        if found {
            let (asked, _) = fetching.ask();
            // What a module begins with is made here, and says nothing of how fast bytes come.
            let first = |purpose: &Purpose| match purpose {
                Purpose::State(module) => self.plan.genesis.get(module).is_some_and(|state| state.hash == blob),
                _ => false,
            };
            if !fetching.purposes.iter().any(first) {
                self.membership.transferred(asked.bytes, self.now.since(fetching.began));
            }
        } else {
            fetching.attempts += 1;
            if fetching.attempts < FETCH_ROUNDS * fetching.sizes().len() {
                fetching.retry_at = Some(self.now + FETCH_RETRY_MS);
                return;
            }
        }
        let Some(fetching) = self.fetching.remove(&blob) else { return };
        for purpose in fetching.purposes {
            match purpose {
                Purpose::Contribution(module) => self.contribution_fetched(module, blob, found),
                Purpose::Audit(_) => self.audit_fetched(blob, found),
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

    pub(in crate::protocol) fn retry_fetches(&mut self) {
        let now = self.now;
        let mut again = Vec::new();
        for fetching in self.fetching.values_mut() {
            if fetching.retry_at.is_some_and(|at| now >= at) {
                (fetching.retry_at, fetching.began) = (None, now);
                let (blob, from) = fetching.ask();
                again.push(Action::Fetch { blob, from });
            }
        }
        self.out.extend(again);
    }
}
