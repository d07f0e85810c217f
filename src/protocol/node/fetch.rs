//! Blobs that the node fetches, and what follows when one has arrived or cannot be had.

use crate::names::{BlobHash, BlobRef, PeerKey};
use crate::protocol::Node;
use crate::protocol::blobs::Purpose;

impl Node {
    pub(in crate::protocol) fn fetch(&mut self, blob: BlobRef, holder: PeerKey, purpose: Purpose) {
        self.fetch_from(blob, &[holder], purpose);
    }

    /// Fetches a blob that several peers have or will soon have, the most certain first.
    pub(in crate::protocol) fn fetch_from(&mut self, blob: BlobRef, holders: &[PeerKey], purpose: Purpose) {
        if let Some(action) = self.blobs.fetch(self.now, blob, holders, purpose) {
            self.act(action);
        }
    }

    /// Members of a module in the order of their keys, beginning after this node, so that nodes do not all ask the same
    /// ones.
    pub(in crate::protocol) fn after_me(&self, mut members: Vec<PeerKey>) -> Vec<PeerKey> {
        members.sort_unstable();
        let after = members.partition_point(|member| *member < self.me);
        members.rotate_left(after);
        members
    }

    pub(in crate::protocol) fn fetched(&mut self, blob: BlobHash, found: bool) {
        let Some(fetched) = self.blobs.fetch_ended(self.now, blob, found) else { return };
        // A genesis state is made here, and does not measure bandwidth.
        let first = |purpose: &Purpose| match purpose {
            Purpose::State(module) => self.plan.genesis.get(module).is_some_and(|state| state.hash == blob),
            _ => false,
        };
        if found && !fetched.purposes.iter().any(first) {
            self.reputation.note_fetch(self.now);
            self.membership.transferred(fetched.bytes, self.now.since(fetched.began));
        }
        for purpose in fetched.purposes {
            match purpose {
                Purpose::Contribution(module) => self.contribution_fetched(module, blob, found),
                Purpose::List(module) => self.list_fetched(module, blob, found),
                Purpose::Audit(_) => self.audit_fetched(blob, found),
                Purpose::Average(module) => self.average_fetched(module, blob, found),
                Purpose::State(module) => self.state_fetched(module, blob, found),
                Purpose::Amendment => self.amendment_fetched(blob, found),
                Purpose::HandOff(path) => self.hand_off_fetched(path, blob, found),
                Purpose::Trainer(path) => self.trainer_fetched(path, blob, found),
            }
        }
        // Nothing may need the blob any more.
        if !self.modules.values().any(|state| state.has_in_hand(blob)) {
            self.release(blob);
        }
    }

    pub(in crate::protocol) fn retry_fetches(&mut self) {
        let retries = self.blobs.retries(self.now);
        self.out.extend(retries);
    }
}
