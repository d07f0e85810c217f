//! Holes: from a relayed connection to a direct one.
//!
//! As soon as two peers are connected through a relay, libp2p's DCUtR tells each where the other was last seen, and both
//! dial in the same moment, so that each one's router takes the other's packets for answers. Where routers give every
//! connection a port of its own, that fails, and the two keep to the relay. Whoever needs a direct connection waits here
//! for what comes of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use libp2p::{PeerId, dcutr};

use crate::network::blobs::FetchError;
use crate::network::limits::{CONNECT_TIMEOUT, FETCHES_WAITING, PUNCHING_PAUSE, PUNCHING_WAIT};
use crate::network::swarm::actor::Actor;
use crate::network::swarm::actor::dial::Purpose;

/// A fetch from a peer to which all connections go through relays.
struct Waiting {
    until: Instant,
    fetch: Purpose,
}

/// The fetches that wait for a direct connection, and the peers to which none could be made.
#[derive(Default)]
pub(crate) struct Punching {
    waiting: Vec<(PeerId, Waiting)>,
    /// No attempt before this moment.
    failed: BTreeMap<PeerId, Instant>,
}

impl Punching {
    /// Whether a direct connection has been tried in vain a short while ago.
    pub(crate) fn has_failed(&self, peer: &PeerId, now: Instant) -> bool {
        self.failed.get(peer).is_some_and(|until| *until > now)
    }

    fn expire(&mut self, now: Instant) {
        self.failed.retain(|_, until| *until > now);
    }

    /// Those that wait for this peer.
    fn leave(&mut self, which: impl Fn(&PeerId, &Waiting) -> bool) -> Vec<(PeerId, Purpose)> {
        let (left, stay) = std::mem::take(&mut self.waiting).into_iter().partition(|(peer, one)| which(peer, one));
        self.waiting = stay;
        let left: Vec<(PeerId, Waiting)> = left;
        left.into_iter().map(|(peer, Waiting { fetch, .. })| (peer, fetch)).collect()
    }
}

impl Actor {
    /// A fetch has to wait for a direct connection, or ends.
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

    /// A direct connection: what waited for it goes on.
    pub(crate) fn on_direct(&mut self, peer: PeerId) {
        self.punching.failed.remove(&peer);
        for (peer, fetch) in self.punching.leave(|waiting, _| *waiting == peer) {
            self.proceed(peer, fetch);
        }
    }

    /// What came of punching, as far as this side hears it: the other one learns of a failure by waiting.
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

    /// The last connection has ended, and with it all hope of a direct one.
    pub(crate) fn end_waiting(&mut self, peer: PeerId) {
        for (_, fetch) in self.punching.leave(|waiting, _| *waiting == peer) {
            only_relayed(fetch);
        }
    }

    /// Ends what has waited long enough.
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
