//! The members of this peer's modules in an open run, for the network's tasks.
//!
//! In an open run keys are free, so being known is no merit; but a peer that has sent heartbeats for a while comes before
//! one that has just been made up.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use crate::names::PeerKey;

/// Shared with the driver, which knows them. Cheap to clone.
#[derive(Clone, Default)]
pub struct KnownMembers(Arc<RwLock<BTreeSet<PeerKey>>>);

impl KnownMembers {
    /// Replaces the members.
    pub(in crate::peer) fn set(&self, members: BTreeSet<PeerKey>) {
        // A set is complete at any moment.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// Whether a peer is one of them.
    pub(in crate::peer) fn contains(&self, peer: PeerKey) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&peer)
    }
}
