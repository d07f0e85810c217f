//! Connects to a relay before a peer is dialled through it.
//!
//! Hole punching needs the observed addresses of this peer. They are known only once a relay has identified itself.
//! libp2p sends them to the other side only at the moment at which a relayed connection is made. So an address through
//! a relay waits until the relay has identified itself; direct addresses of the same peer do not wait.

use std::time::Instant;

use libp2p::multiaddr::Protocol;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::{Multiaddr, PeerId, Swarm};

use crate::network::connectivity::addresses::{is_relayed, without_peer};
use crate::network::connectivity::connect::{Failed, Priority};
use crate::network::limits::{CONNECT_TIMEOUT, IDENTIFY_TIMEOUT};
use crate::network::swarm::actor::Actor;
use crate::network::swarm::actor::dial::{Purpose, give_up};
use crate::network::swarm::behaviour::Behaviour;

/// Addresses that wait for a relay, with the purposes of the connection.
struct PendingRelay {
    relay: PeerId,
    peer: PeerId,
    addresses: Vec<Multiaddr>,
    waiting: Vec<Purpose>,
    until: Instant,
    priority: Priority,
}

/// Pending connections to relays, the oldest first: with the pending dials at most as many as peers may be dialled.
#[derive(Default)]
pub(crate) struct PendingRelays(Vec<PendingRelay>);

impl PendingRelays {
    pub(crate) fn pending(&self) -> usize {
        self.0.len()
    }

    /// The one that gives way to one of this priority, the oldest of the least, and where it is.
    pub(crate) fn gives_way_to(&self, priority: Priority) -> Option<(Priority, usize)> {
        let all = self.0.iter().enumerate().map(|(at, pending)| (pending.priority, at));
        all.filter(|(least, _)| *least < priority).min()
    }
}

/// The relay in a circuit's address, with its own address.
fn relay_of(circuit: &Multiaddr) -> Option<(PeerId, Multiaddr)> {
    let outer: Multiaddr = circuit.iter().take_while(|part| !matches!(part, Protocol::P2pCircuit)).collect();
    match outer.iter().last() {
        Some(Protocol::P2p(relay)) => Some((relay, without_peer(&outer))),
        _ => None,
    }
}

/// Dials from the listening port, libp2p's default, so that the relay observes that port.
fn dial(swarm: &mut Swarm<Behaviour>, relay: PeerId, addresses: Vec<Multiaddr>) {
    let options = DialOpts::peer_id(relay).condition(PeerCondition::DisconnectedAndNotDialing).addresses(addresses);
    if let Err(error) = swarm.dial(options.build()) {
        tracing::debug!(%relay, %error, "a relay is not dialled");
    }
}

impl Actor {
    /// Returns the addresses of a peer that can be dialled now. The others wait for their relays, with the purposes if
    /// no other address leads to the peer.
    #[expect(clippy::disallowed_methods, reason = "an edge: when a relay is dialled")]
    pub(crate) fn connect_relay_first(
        &mut self,
        peer: PeerId,
        addresses: Vec<Multiaddr>,
        purpose: Option<Purpose>,
    ) -> Option<(Vec<Multiaddr>, Option<Purpose>)> {
        let is_ready = |address: &Multiaddr| match relay_of(address) {
            Some((relay, _)) if is_relayed(address) => self.connected_relays.contains(&relay),
            _ => true,
        };
        let (now, later): (Vec<_>, Vec<_>) = addresses.into_iter().partition(is_ready);
        let Some((relay, _)) = later.first().and_then(relay_of) else { return Some((now, purpose)) };
        let priority = self.priority(&peer, purpose.as_ref());
        let is_same = |pending: &PendingRelay| pending.relay == relay && pending.peer == peer;
        if now.is_empty()
            && let Some(pending) = self.pending_relays.0.iter_mut().find(|pending| is_same(pending))
        {
            pending.waiting.extend(purpose);
            pending.priority = pending.priority.max(priority);
            return None;
        }
        if self.pending_relays.0.iter().any(is_same) || !self.make_place(priority) {
            return Some((now, purpose));
        }
        let addresses = later.iter().filter_map(relay_of).filter(|(other, _)| *other == relay);
        dial(&mut self.swarm, relay, addresses.map(|(_, address)| address).collect());
        let (waiting, rest) = match now.is_empty() {
            true => (Vec::from_iter(purpose), None),
            false => (Vec::new(), Some((now, purpose))),
        };
        let until = Instant::now() + CONNECT_TIMEOUT.min(IDENTIFY_TIMEOUT);
        self.pending_relays.0.push(PendingRelay { relay, peer, addresses: later, waiting, until, priority });
        rest
    }

    /// A relay has identified itself or failed: dials the addresses that waited for it.
    pub(crate) fn on_relay_ready(&mut self, relay: &PeerId) {
        self.proceed_with(|pending| pending.relay == *relay);
    }

    /// Stops waiting for relays that do not identify themselves.
    pub(crate) fn give_up_relays(&mut self, now: Instant) {
        self.proceed_with(|pending| pending.until <= now);
    }

    fn proceed_with(&mut self, which: impl Fn(&PendingRelay) -> bool) {
        let (over, stay) = std::mem::take(&mut self.pending_relays.0).into_iter().partition(which);
        self.pending_relays.0 = stay;
        let over: Vec<PendingRelay> = over;
        for PendingRelay { peer, addresses, waiting, .. } in over {
            let connected = self.swarm.is_connected(&peer);
            if !connected && waiting.is_empty() {
                self.begin(peer, addresses.clone(), None);
            }
            for purpose in waiting {
                match connected {
                    true => self.proceed(peer, purpose),
                    false => self.begin(peer, addresses.clone(), Some(purpose)),
                }
            }
        }
    }

    /// Gives up a pending relay, to which nothing else leads, for another dial.
    pub(crate) fn abandon_relay(&mut self, at: usize) {
        let PendingRelay { relay, addresses, waiting, .. } = self.pending_relays.0.remove(at);
        let is_wanted = self.relays.is_relay(&relay) || self.pending_relays.0.iter().any(|other| other.relay == relay);
        if !is_wanted && !self.swarm.is_connected(&relay) {
            // There is no connection to end, but the dial.
            let _ = self.swarm.disconnect_peer_id(relay);
        }
        give_up(Failed::busy(addresses, waiting));
    }

    pub(crate) fn begin(&mut self, peer: PeerId, addresses: Vec<Multiaddr>, purpose: Option<Purpose>) {
        let priority = self.priority(&peer, purpose.as_ref());
        if !self.connecting.is_dialling(&peer) && !self.make_place(priority) {
            return self.on_failed(peer, Failed::busy(addresses, Vec::from_iter(purpose)));
        }
        if let Err(failed) = self.connecting.begin(&mut self.swarm, peer, addresses, purpose, priority) {
            self.on_failed(peer, *failed);
        }
    }

    /// A connection failed. Its purposes wait for a relay, if one is still being connected.
    pub(crate) fn on_failed(&mut self, peer: PeerId, mut failed: Failed<Purpose>) {
        let error = failed.unreachable();
        tracing::debug!(%peer, %error, "no connection");
        self.note_failure(peer, &error);
        match self.pending_relays.0.iter_mut().find(|pending| pending.peer == peer) {
            Some(pending) => pending.waiting.append(&mut failed.waiting),
            None => give_up(failed),
        }
    }
}
