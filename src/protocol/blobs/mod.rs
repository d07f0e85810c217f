//! The blobs of a node: those that are fetched, and those that can be released.

mod fetch;
mod lists;
mod release;

pub(super) use self::fetch::{Fetched, Purpose};
pub(super) use self::lists::{Unread, Waiting};

use self::fetch::Fetches;
use self::lists::Lists;
use self::release::Releases;
use super::action::Action;
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, PeerKey};

/// A node's fetches and releases.
#[derive(Debug, Default)]
pub(super) struct Blobs {
    fetches: Fetches,
    lists: Lists,
    releases: Releases,
}

impl Blobs {
    /// Fetches a blob for this purpose from these holders, the most certain first. Returns an action unless the blob is
    /// already being fetched.
    pub(super) fn fetch(
        &mut self,
        now: Millis,
        blob: BlobRef,
        holders: &[PeerKey],
        purpose: Purpose,
    ) -> Option<Action> {
        self.fetches.fetch(now, blob, holders, purpose)
    }

    /// Adds a holder of a blob that may be being fetched.
    pub(super) fn another_holder(&mut self, blob: BlobRef, holder: PeerKey) {
        self.fetches.another_holder(blob, holder);
    }

    /// An attempt has ended. Returns nothing while another attempt follows.
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

    /// What waits for lists of contributions.
    pub(super) fn lists(&self) -> &Lists {
        &self.lists
    }

    pub(super) fn lists_mut(&mut self) -> &mut Lists {
        &mut self.lists
    }

    /// One use of this blob has ended. It can go once nothing refers to it.
    pub(super) fn release(&mut self, blob: BlobHash) {
        self.releases.add(blob);
    }

    /// A reference to a blob has gone, which may already be released.
    pub(super) fn look_again(&mut self) {
        self.releases.look_again();
    }

    /// Cancels all releases.
    pub(super) fn release_nothing(&mut self) {
        self.releases.clear();
    }

    /// Takes the released blobs out, to check which can go. Give them back with [`Self::put_back`].
    pub(super) fn take_releases(&mut self) -> Releases {
        std::mem::take(&mut self.releases)
    }

    pub(super) fn put_back(&mut self, releases: Releases) {
        self.releases = releases;
    }
}
