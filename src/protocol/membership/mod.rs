//! Membership: this peer's own start, the content of its heartbeats, and the peers that it hears.
//!
//! [`roster`] holds the members of this node's modules. [`failure_detector`] decides from heartbeats when a member is
//! dead, and [`probe`] remembers which silent owners were probed. [`response_times`] sets the time-outs of requests and
//! transfers. [`incarnation`] distinguishes two machines with one identity.

pub mod failure_detector;
pub mod incarnation;
pub(super) mod probe;
pub(super) mod response_times;
pub mod roster;

use std::collections::BTreeMap;

use self::incarnation::{Copy, Noticed};
use self::probe::Probes;
use self::response_times::ResponseTimes;
use self::roster::{Heard, Roster};
use super::event::RequestId;
use super::limits::{COPY_NAMED_MS, MAX_ADDRESSES, MAX_COPIED};
use super::wire::message::{Copied, Heartbeat, Start};
use crate::clock::Millis;
use crate::names::{ModuleId, PeerKey, Term};

/// A node's view of the peers around it and of itself.
#[derive(Debug, Default)]
pub(super) struct Membership {
    start: Start,
    addresses: Vec<String>,
    roster: Roster,
    probes: Probes,
    response_times: ResponseTimes,
    /// Peers that were heard from two machines.
    copies: BTreeMap<PeerKey, Noticed>,
    /// The last known terms of modules that this node has left. It may have signed an update in them.
    left: BTreeMap<ModuleId, Term>,
}

impl Membership {
    /// This peer's current start.
    pub(super) fn start(&self) -> &Start {
        &self.start
    }

    /// The journal records at least this many starts.
    pub(super) fn has_started(&mut self, times: u64) {
        self.start.incarnation = self.start.incarnation.max(times);
    }

    /// Counts one more start. Returns its incarnation.
    pub(super) fn start_again(&mut self) -> u64 {
        self.start.incarnation += 1;
        self.start.incarnation
    }

    pub(super) fn set_start(&mut self, start: Start) {
        self.start = start;
    }

    /// This node leaves a module in this term.
    pub(super) fn leaves(&mut self, module: ModuleId, term: Term) {
        if term > Term(0) {
            let known = self.left.entry(module).or_default();
            *known = term.max(*known);
        }
    }

    /// The last term of a module in which this node may have signed an update before it left.
    pub(super) fn left_in(&self, module: ModuleId) -> Term {
        self.left.get(&module).copied().unwrap_or_default()
    }

    /// The modules that this node has left, with their last known terms.
    pub(super) fn left(&self) -> impl Iterator<Item = (ModuleId, Term)> {
        self.left.iter().map(|(module, term)| (*module, *term))
    }

    /// The addresses of this peer.
    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    pub(super) fn set_addresses(&mut self, mut addresses: Vec<String>) {
        addresses.truncate(MAX_ADDRESSES);
        self.addresses = addresses;
    }

    pub(super) fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Handles a heartbeat. Returns a copy if two starts of its author are alive at once.
    pub(super) fn hear(
        &mut self,
        now: Millis,
        module: ModuleId,
        author: PeerKey,
        heartbeat: &Heartbeat,
    ) -> (Heard, Option<Copy>) {
        self.roster.hear(now, module, author, heartbeat)
    }

    /// A known peer sends a request on its own connection.
    pub(super) fn hear_start(&mut self, now: Millis, peer: PeerKey, start: &Start) -> Option<Copy> {
        self.roster.hear_start(now, peer, start)
    }

    /// This node was suspended until now, so peers may have sent heartbeats that it did not hear.
    pub(super) fn wake(&mut self, now: Millis) {
        self.roster.wake(now);
    }

    /// Forgets peers that were not heard on any module since then.
    pub(super) fn prune_before(&mut self, time: Millis) {
        self.roster.prune_before(time);
    }

    pub(super) fn response_times(&self) -> &ResponseTimes {
        &self.response_times
    }

    /// A request is sent.
    pub(super) fn requested(&mut self, now: Millis, id: RequestId) {
        self.response_times.requested(now, id);
    }

    /// A request has a response, or has failed.
    pub(super) fn responded(&mut self, now: Millis, id: RequestId, answers: bool) {
        self.response_times.responded(now, id, answers);
    }

    /// A blob has arrived.
    pub(super) fn transferred(&mut self, bytes: u64, took_ms: u64) {
        self.response_times.transferred(bytes, took_ms);
    }

    pub(super) fn probes(&self) -> &Probes {
        &self.probes
    }

    pub(super) fn probes_mut(&mut self) -> &mut Probes {
        &mut self.probes
    }

    /// Notes two starts of one key that are alive at once. Returns whether to report them, because this pair is new.
    pub(super) fn note_copy(&mut self, now: Millis, peer: PeerKey, copy: Copy) -> bool {
        if self.copies.len() >= MAX_COPIED && !self.copies.contains_key(&peer) {
            return false;
        }
        let before = self.copies.insert(peer, Noticed { copy: copy.clone(), at: now });
        before.is_none_or(|noticed| noticed.copy.pair() != copy.pair())
    }

    /// Forgets copies that were not noticed again for a while.
    pub(super) fn prune_copies(&mut self, now: Millis) {
        self.copies.retain(|_, noticed| now.since(noticed.at) < COPY_NAMED_MS);
    }

    /// The copies of other peers, for heartbeats.
    pub(super) fn copied(&self, me: PeerKey) -> Vec<Copied> {
        let named = |(peer, noticed): (&PeerKey, &Noticed)| Copied { peer: *peer, start: noticed.copy.start.clone() };
        self.copies.iter().filter(|(peer, _)| **peer != me).map(named).collect()
    }

    /// Peers that were heard from two machines, with the addresses of both.
    pub(super) fn copies(&self) -> impl ExactSizeIterator<Item = (PeerKey, &[String])> {
        self.copies.iter().map(|(peer, noticed)| (*peer, noticed.copy.addresses.as_slice()))
    }
}
