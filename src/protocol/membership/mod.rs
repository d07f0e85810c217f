//! Who is there: this peer's own start, what its heartbeats say of it, and everybody that it hears.
//!
//! [`roster`] holds the members of this node's modules; [`failure_detector`] measures from each one's heartbeats when it is to be
//! taken for dead, [`probe`] remembers which silent owners were asked whether they live, [`response_times`] sets the time-outs of
//! requests and transfers, and [`incarnation`] tells two machines with one identity apart.

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
use crate::names::{ModuleId, PeerKey};

/// A node's view of the peers around it, and of itself as one of them.
#[derive(Debug, Default)]
pub(super) struct Membership {
    start: Start,
    addresses: Vec<String>,
    roster: Roster,
    probes: Probes,
    response_times: ResponseTimes,
    /// Peers of which two machines were heard.
    copies: BTreeMap<PeerKey, Noticed>,
}

impl Membership {
    /// Which start of this peer speaks.
    pub(super) fn start(&self) -> &Start {
        &self.start
    }

    /// The journal tells of this many starts, or more.
    pub(super) fn has_started(&mut self, times: u64) {
        self.start.incarnation = self.start.incarnation.max(times);
    }

    /// One start more; says which.
    pub(super) fn start_again(&mut self) -> u64 {
        self.start.incarnation += 1;
        self.start.incarnation
    }

    pub(super) fn set_start(&mut self, start: Start) {
        self.start = start;
    }

    /// Where this peer can be reached.
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

    /// Takes in a heartbeat. If two starts of its author live at once, says so.
    pub(super) fn hear(
        &mut self,
        now: Millis,
        module: ModuleId,
        author: PeerKey,
        heartbeat: &Heartbeat,
    ) -> (Heard, Option<Copy>) {
        self.roster.hear(now, module, author, heartbeat)
    }

    /// A peer that is known speaks on a connection of its own.
    pub(super) fn hear_start(&mut self, now: Millis, peer: PeerKey, start: &Start) -> Option<Copy> {
        self.roster.hear_start(now, peer, start)
    }

    /// This node stood still until now: a peer that it has not heard may have spoken.
    pub(super) fn wake(&mut self, now: Millis) {
        self.roster.wake(now);
    }

    /// Peers that were on no module since then are forgotten.
    pub(super) fn prune_before(&mut self, time: Millis) {
        self.roster.prune_before(time);
    }

    pub(super) fn response_times(&self) -> &ResponseTimes {
        &self.response_times
    }

    /// A request leaves.
    pub(super) fn requested(&mut self, now: Millis, id: RequestId) {
        self.response_times.requested(now, id);
    }

    /// It has a response, or word that there will be none.
    pub(super) fn responded(&mut self, now: Millis, id: RequestId, answers: bool) {
        self.response_times.responded(now, id, answers);
    }

    /// A blob has come.
    pub(super) fn transferred(&mut self, bytes: u64, took_ms: u64) {
        self.response_times.transferred(bytes, took_ms);
    }

    pub(super) fn probes(&self) -> &Probes {
        &self.probes
    }

    pub(super) fn probes_mut(&mut self) -> &mut Probes {
        &mut self.probes
    }

    /// Two starts of one key live at once. Whether that is to be reported: nothing of it was before.
    pub(super) fn note_copy(&mut self, now: Millis, peer: PeerKey, copy: Copy) -> bool {
        if self.copies.len() >= MAX_COPIED && !self.copies.contains_key(&peer) {
            return false;
        }
        let before = self.copies.insert(peer, Noticed { copy: copy.clone(), at: now });
        before.is_none_or(|noticed| noticed.copy.pair() != copy.pair())
    }

    /// Copies that were not noticed again for a while are forgotten.
    pub(super) fn prune_copies(&mut self, now: Millis) {
        self.copies.retain(|_, noticed| now.since(noticed.at) < COPY_NAMED_MS);
    }

    /// What heartbeats say of copies of others.
    pub(super) fn copied(&self, me: PeerKey) -> Vec<Copied> {
        let named = |(peer, noticed): (&PeerKey, &Noticed)| Copied { peer: *peer, start: noticed.copy.start.clone() };
        self.copies.iter().filter(|(peer, _)| **peer != me).map(named).collect()
    }

    /// Peers of which two machines were heard, and where either can be reached.
    pub(super) fn copies(&self) -> impl ExactSizeIterator<Item = (PeerKey, &[String])> {
        self.copies.iter().map(|(peer, noticed)| (*peer, noticed.copy.addresses.as_slice()))
    }
}
