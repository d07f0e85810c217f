//! The reputation of peers, in one place.
//!
//! [`score`] adds up penalties for wrong contributions and updates, and quarantines a peer. [`owner_trust`] remembers
//! peers that failed as owners, [`not_contributing`] holders that do not train. [`norm_cap`] bounds the influence of
//! one contribution. [`audit_queue`] keeps the claims to verify and those that were proven.

pub(super) mod audit_queue;
pub mod norm_cap;
mod not_contributing;
mod owner_trust;
pub mod score;
mod unfetchable;

use self::audit_queue::Audits;
use self::not_contributing::NotContributing;
use self::owner_trust::OwnerTrust;
use self::score::{Fault, PeerScores};
use self::unfetchable::Unfetchable;
use super::wire::message::ContributionKey;
use crate::clock::Millis;
use crate::names::{ModuleId, PathId, PeerKey, Version};

/// What a node holds against other peers.
#[derive(Debug, Default)]
pub(super) struct Reputation {
    owners: OwnerTrust,
    scores: PeerScores,
    not_contributing: NotContributing,
    unfetchable: Unfetchable,
    audits: Audits,
}

impl Reputation {
    pub(super) fn audits(&self) -> &Audits {
        &self.audits
    }

    pub(super) fn audits_mut(&mut self) -> &mut Audits {
        &mut self.audits
    }

    pub(super) fn scores(&self) -> &PeerScores {
        &self.scores
    }

    /// Penalizes a peer. If a contribution is given, the peer is penalized for it once. Returns whether this
    /// quarantines the peer.
    pub(super) fn penalize(
        &mut self,
        now: Millis,
        peer: PeerKey,
        fault: Fault,
        contribution: Option<ContributionKey>,
    ) -> bool {
        self.scores.penalize(now, peer, fault, contribution)
    }

    /// A contribution of the peer was counted in full.
    pub(super) fn counted(&mut self, peer: PeerKey) {
        self.scores.counted(peer);
    }

    /// Takes back one point of the peer's penalty.
    pub(super) fn excuse(&mut self, peer: PeerKey) {
        self.scores.excuse(peer);
    }

    /// Whether a peer is accepted as an owner.
    pub(super) fn is_believed(&self, now: Millis, peer: PeerKey) -> bool {
        !self.owners.has(now, peer) && !self.scores.is_quarantined(now, peer)
    }

    /// A peer has failed as the owner of a module.
    pub(super) fn owner_failed(&mut self, now: Millis, module: ModuleId, owner: PeerKey) {
        self.owners.failed(now, owner);
        self.not_contributing.failed_owner(module, owner);
    }

    /// How many peers have failed as owners.
    pub(super) fn failed_owners(&self) -> usize {
        self.owners.count()
    }

    /// Whether a peer that has a lease of a path is not contributing, given the modules of the path.
    pub(super) fn is_not_contributing(
        &self,
        now: Millis,
        path: PathId,
        peer: PeerKey,
        goes_through: impl Fn(ModuleId) -> bool,
    ) -> bool {
        self.scores.is_doubted(now, peer) || self.not_contributing.has(path, peer, goes_through)
    }

    /// A peer has offered a contribution of a path.
    pub(super) fn contributes(&mut self, module: ModuleId, path: PathId, peer: PeerKey) {
        self.not_contributing.contributes(module, path, peer);
    }

    /// A module has a new version. `holders` tells, for each holder, whether the update counts its path.
    pub(super) fn note_counted(
        &mut self,
        module: ModuleId,
        version: Version,
        holders: impl Iterator<Item = (PathId, PeerKey, bool)>,
    ) {
        self.not_contributing.note_counted(module, version, holders);
    }

    /// A holder's contributions to several versions were offered, and none is counted.
    pub(super) fn passed_over(&mut self, path: PathId, peer: PeerKey) {
        self.not_contributing.passed_over(path, peer);
    }

    /// Whether owners pass over the contributions that the peer offers for the path.
    pub(super) fn is_passed_over(&self, path: PathId, peer: PeerKey) -> bool {
        self.not_contributing.is_passed_over(path, peer)
    }

    /// A contribution that the peer offered for the path is counted.
    pub(super) fn is_counted(&mut self, path: PathId, peer: PeerKey) {
        self.not_contributing.is_counted(path, peer);
    }

    /// In every sweep: notes the holders whose contributions are long overdue, and forgets the holders that are not
    /// alive.
    pub(super) fn note_overdue(
        &mut self,
        now: Millis,
        holders: Vec<(PathId, PeerKey)>,
        alive: impl Fn(PeerKey) -> bool,
    ) {
        self.not_contributing.overdue(holders);
        self.unfetchable.retain(&alive);
        self.not_contributing.retain(|peer| self.owners.has(now, peer), alive);
    }

    /// A contribution of the peer could not be fetched.
    pub(super) fn not_fetched(&mut self, now: Millis, peer: PeerKey) {
        self.unfetchable.failed(now, peer);
    }

    /// A contribution of the peer was fetched.
    pub(super) fn fetched(&mut self, now: Millis, peer: PeerKey) {
        self.unfetchable.succeeded(now, peer);
    }

    /// Some blob was fetched from another peer.
    pub(super) fn note_fetch(&mut self, now: Millis) {
        self.unfetchable.note_fetch(now);
    }

    /// Whether this node could fetch anything lately.
    pub(super) fn own_link_works(&self, now: Millis) -> bool {
        self.unfetchable.own_link_works(now)
    }

    /// Whether owners do not wait for the peer's contributions, as they could not be fetched.
    pub(super) fn is_unfetchable(&self, now: Millis, peer: PeerKey) -> bool {
        self.unfetchable.has(now, peer)
    }

    /// How many peers could not be fetched from.
    pub(super) fn unfetchable(&self) -> usize {
        self.unfetchable.count()
    }

    /// Number of entries about holders that are not contributing.
    pub(super) fn not_contributing(&self) -> usize {
        self.not_contributing.count()
    }
}
