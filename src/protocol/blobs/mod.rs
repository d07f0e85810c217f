//! Blobs: which are fetched, and which can go.

mod fetch;
mod release;

pub(super) use self::fetch::{Fetched, Purpose};

use self::fetch::Fetches;
use self::release::Releases;
use super::action::Action;
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, PeerKey};

/// A node's blobs, as far as they come or go.
#[derive(Debug, Default)]
pub(super) struct Blobs {
    fetches: Fetches,
    releases: Releases,
}

impl Blobs {
    /// A blob is wanted for this purpose; these may have it, the surest first. What to do, unless it is on its way already.
    pub(super) fn fetch(
        &mut self,
        now: Millis,
        blob: BlobRef,
        holders: &[PeerKey],
        purpose: Purpose,
    ) -> Option<Action> {
        self.fetches.fetch(now, blob, holders, purpose)
    }

    /// Another peer has a blob that may be on its way.
    pub(super) fn another_holder(&mut self, blob: BlobRef, holder: PeerKey) {
        self.fetches.another_holder(blob, holder);
    }

    /// An attempt has ended. Nothing while there are further ones.
    pub(super) fn fetch_ended(&mut self, now: Millis, blob: BlobHash, found: bool) -> Option<Fetched> {
        self.fetches.ended(now, blob, found)
    }

    /// The attempts that are due.
    pub(super) fn retries(&mut self, now: Millis) -> Vec<Action> {
        self.fetches.retries(now)
    }

    /// The blobs that are being fetched.
    pub(super) fn being_fetched(&self) -> impl ExactSizeIterator<Item = BlobHash> {
        self.fetches.blobs()
    }

    /// Nothing here needs this blob for what it was: it can go once nothing refers to it.
    pub(super) fn release(&mut self, blob: BlobHash) {
        self.releases.add(blob);
    }

    /// A reference has gone, of a blob that may have been released already.
    pub(super) fn look_again(&mut self) {
        self.releases.look_again();
    }

    /// Nothing is to be released.
    pub(super) fn release_nothing(&mut self) {
        self.releases.clear();
    }

    /// The released blobs, taken out to see which can go; give them back with [`Self::put_back`].
    pub(super) fn take_releases(&mut self) -> Releases {
        std::mem::take(&mut self.releases)
    }

    pub(super) fn put_back(&mut self, releases: Releases) {
        self.releases = releases;
    }
}
