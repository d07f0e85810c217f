//! Hole punching: from a relayed connection to a direct one.
//!
//! As soon as two peers are connected through a relay, libp2p's DCUtR tells each the observed address of the other, and
//! both dial at the same moment, so that each router takes the other's packets for answers. If a router gives every
//! connection its own port, this fails, and the two keep to the relay. Operations that need a direct connection wait
//! here for the outcome.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use libp2p::{PeerId, dcutr};

use crate::network::blobs::FetchError;
use crate::network::limits::{CONNECT_TIMEOUT, FETCHES_WAITING, PUNCHING_PAUSE, PUNCHING_WAIT};
use crate::network::swarm::actor::Actor;
use crate::network::swarm::actor::dial::Purpose;

/// A fetch from a peer with only relayed connections.
struct Waiting {
    until: Instant,
    fetch: Purpose,
}

/// The fetches that wait for a direct connection, and the peers for which it failed.
#[derive(Default)]
pub(crate) struct Punching {
    waiting: Vec<(PeerId, Waiting)>,
    /// No attempt before this moment.
    failed: BTreeMap<PeerId, Instant>,
}

impl Punching {
    /// Whether hole punching failed a short while ago.
    pub(crate) fn has_failed(&self, peer: &PeerId, now: Instant) -> bool {
        self.failed.get(peer).is_some_and(|until| *until > now)
    }

    fn expire(&mut self, now: Instant) {
        self.failed.retain(|_, until| *until > now);
    }

    /// Removes and returns the waiting fetches that match.
    fn leave(&mut self, which: impl Fn(&PeerId, &Waiting) -> bool) -> Vec<(PeerId, Purpose)> {
        let (left, stay) = std::mem::take(&mut self.waiting).into_iter().partition(|(peer, one)| which(peer, one));
        self.waiting = stay;
        let left: Vec<(PeerId, Waiting)> = left;
        left.into_iter().map(|(peer, Waiting { fetch, .. })| (peer, fetch)).collect()
    }
}

impl Actor {
    /// Makes a fetch wait for a direct connection, or fail.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(crate) fn wait_for_direct(&mut self, peer: PeerId, relayed_since: Instant, fetch: Purpose) {
        let now = Instant::now();
        let mut until = relayed_since + PUNCHING_WAIT;
        if self.connecting.is_dialling(&peer) {
            until = until.max(now + CONNECT_TIMEOUT);
        }
        if until <= now || self.punching.has_failed(&peer, now) || self.punching.waiting.len() >= FETCHES_WAITING {
            return only_relayed(fetch);
        }
        self.punching.waiting.push((peer, Waiting { until, fetch }));
    }

    /// A direct connection: continues the waiting fetches.
    pub(crate) fn on_direct(&mut self, peer: PeerId) {
        self.punching.failed.remove(&peer);
        for (peer, fetch) in self.punching.leave(|waiting, _| *waiting == peer) {
            self.proceed(peer, fetch);
        }
    }

    /// The outcome of hole punching, if this side learns it. The other side learns of a failure only by its time-out.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(crate) fn on_punched(&mut self, event: &dcutr::Event) {
        let dcutr::Event { remote_peer_id: peer, result } = event;
        match result {
            Ok(_) => tracing::info!(%peer, "connected directly through a hole in the router"),
            Err(error) => {
                tracing::info!(%peer, %error, "no direct connection: only messages go through the relay");
                let rest = if self.connecting.is_dialling(peer) { CONNECT_TIMEOUT } else { Duration::ZERO };
                let until = Instant::now() + rest;
                for (_, waiting) in self.punching.waiting.iter_mut().filter(|(waiting, _)| waiting == peer) {
                    waiting.until = waiting.until.min(until);
                }
            }
        }
    }

    /// The last connection has ended, so no direct one will follow.
    pub(crate) fn end_waiting(&mut self, peer: PeerId) {
        for (_, fetch) in self.punching.leave(|waiting, _| *waiting == peer) {
            only_relayed(fetch);
        }
    }

    /// Fails the fetches that have waited long enough.
    pub(crate) fn give_up_punching(&mut self, now: Instant) {
        self.punching.expire(now);
        for (peer, fetch) in self.punching.leave(|_, waiting| waiting.until <= now) {
            if self.punching.failed.len() < FETCHES_WAITING {
                self.punching.failed.insert(peer, now + PUNCHING_PAUSE);
            }
            only_relayed(fetch);
        }
    }
}

fn only_relayed(fetch: Purpose) {
    if let Purpose::Fetch { from, connected } = fetch {
        drop(connected.send(Err(FetchError::OnlyRelayed { from })));
    }
}
