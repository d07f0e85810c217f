//! Fetches of blobs. One table serves all purposes, so that a blob is fetched once, from all peers that may have it.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey};
use crate::protocol::action::Action;
use crate::protocol::limits::{FETCH_RETRY_MS, FETCH_ROUNDS, MAX_DONORS, MAX_MEMBERS};

/// Why a blob is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::protocol) enum Purpose {
    /// To add it to the module's sum.
    Contribution(ModuleId),
    /// To read an update that names it as the list of its contributions.
    List(ModuleId),
    /// To audit an update or a contribution.
    Audit(ModuleId),
    /// To apply it.
    Average(ModuleId),
    /// To install it.
    State(ModuleId),
    /// To resume a path that was taken from another peer.
    HandOff(PathId),
    /// To read it as an amendment of the run.
    Amendment,
    /// To resume a path, as its standby, if its holder fails.
    Trainer(PathId),
}

/// A blob that is being fetched.
#[derive(Debug)]
struct Fetching {
    /// Each holder with the size that it announced. A holder that announces a false size does not delay the others.
    holders: Vec<(PeerKey, BlobRef)>,
    attempts: usize,
    purposes: BTreeSet<Purpose>,
    retry_at: Option<Millis>,
    /// When the current attempt began.
    began: Millis,
}

impl Fetching {
    /// The blob to request now and the peers to request it from: all that announced the same size. Each attempt begins
    /// with another peer.
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

    /// The announced sizes, in the order in which they were heard; at least one.
    fn sizes(&self) -> Vec<BlobRef> {
        let mut sizes = Vec::new();
        for (_, blob) in &self.holders {
            if !sizes.contains(blob) {
                sizes.push(*blob);
            }
        }
        sizes
    }

    fn another_holder(&mut self, blob: BlobRef, holder: PeerKey) {
        if self.holders.len() < MAX_MEMBERS && !self.holders.contains(&(holder, blob)) {
            self.holders.push((holder, blob));
        }
    }

    fn action(&self) -> Action {
        let (blob, from) = self.ask();
        Action::Fetch { blob, from }
    }
}

/// The result of a fetch that has ended.
#[derive(Debug)]
pub(in crate::protocol) struct Fetched {
    /// Why the blob was fetched.
    pub(in crate::protocol) purposes: BTreeSet<Purpose>,
    /// The number of bytes requested.
    pub(in crate::protocol) bytes: u64,
    /// When the last attempt began.
    pub(in crate::protocol) began: Millis,
}

/// All blobs that are being fetched.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Fetches(BTreeMap<BlobHash, Fetching>);

impl Fetches {
    /// Fetches a blob for this purpose from these holders, the most certain first. Returns an action unless the blob is
    /// already being fetched.
    pub(in crate::protocol) fn fetch(
        &mut self,
        now: Millis,
        blob: BlobRef,
        holders: &[PeerKey],
        purpose: Purpose,
    ) -> Option<Action> {
        let begins = !self.0.contains_key(&blob.hash);
        let fetching = self.0.entry(blob.hash).or_insert_with(|| Fetching {
            holders: Vec::new(),
            attempts: 0,
            purposes: BTreeSet::new(),
            retry_at: None,
            began: now,
        });
        fetching.purposes.insert(purpose);
        holders.iter().for_each(|holder| fetching.another_holder(blob, *holder));
        begins.then(|| fetching.action())
    }

    /// Adds a holder of a blob that may be being fetched.
    pub(in crate::protocol) fn another_holder(&mut self, blob: BlobRef, holder: PeerKey) {
        if let Some(fetching) = self.0.get_mut(&blob.hash) {
            fetching.another_holder(blob, holder);
        }
    }

    /// An attempt has ended. Returns nothing while another attempt follows.
    pub(in crate::protocol) fn ended(&mut self, now: Millis, blob: BlobHash, found: bool) -> Option<Fetched> {
        let fetching = self.0.get_mut(&blob)?;
        if !found {
            fetching.attempts += 1;
            if fetching.attempts < FETCH_ROUNDS * fetching.sizes().len() {
                fetching.retry_at = Some(now + FETCH_RETRY_MS);
                return None;
            }
        }
        let fetching = self.0.remove(&blob)?;
        // After the last failed attempt there is no next one to ask for.
        let bytes = if found { fetching.ask().0.bytes } else { 0 };
        Some(Fetched { bytes, began: fetching.began, purposes: fetching.purposes })
    }

    /// The attempts that are due.
    pub(in crate::protocol) fn retries(&mut self, now: Millis) -> Vec<Action> {
        let due = self.0.values_mut().filter(|fetching| fetching.retry_at.is_some_and(|at| now >= at));
        due.map(|fetching| {
            (fetching.retry_at, fetching.began) = (None, now);
            fetching.action()
        })
        .collect()
    }

    /// The blobs that are being fetched.
    pub(in crate::protocol) fn blobs(&self) -> impl ExactSizeIterator<Item = BlobHash> {
        self.0.keys().copied()
    }
}
