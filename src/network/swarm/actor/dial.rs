//! Dials peers, and continues with the purpose of each connection.

use std::time::Instant;

use libp2p::core::Endpoint;
use libp2p::swarm::{ConnectionId, NetworkBehaviour};
use libp2p::{Multiaddr, PeerId};
use tokio::sync::oneshot;

use crate::names::{BlobRef, PeerKey};
use crate::network::blobs::FetchError;
use crate::network::connectivity::addresses::{dialable, named_peer, usable};
use crate::network::connectivity::connect::{Failed, Priority, Unreachable};
use crate::network::connectivity::dial_error::DialError;
use crate::network::identity::{peer_id, peer_key};
use crate::network::limits::{ADDRESSES_PER_PEER, DIALLED_PEERS, DIALS, DONORS, REQUESTS_PER_PEER};
use crate::network::rpc::RequestError;
use crate::network::standing::Standing;
use crate::network::swarm::actor::{Actor, Asked, Joining};
use crate::network::swarm::events::{NetworkEvent, Slot};

/// The purpose of a connection.
pub(crate) enum Purpose {
    /// A caller waits for [`crate::network::NetworkHandle::dial`].
    Dial { address: Multiaddr, asked: Instant, reply: oneshot::Sender<Result<PeerKey, DialError>> },
    /// A request is sent next.
    Request { id: u64, to: PeerKey, bytes: Vec<u8>, slot: Slot },
    /// A blob is fetched next, by the task that receives this.
    Fetch { from: PeerKey, connected: oneshot::Sender<Result<PeerId, FetchError>> },
}

impl Actor {
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(crate) fn dial(&mut self, address: Multiaddr, reply: oneshot::Sender<Result<PeerKey, DialError>>) {
        let error = match named_peer(&address) {
            _ if !dialable(&address) => DialError::NotSupported(address),
            None => DialError::NoPeer(address),
            Some(peer) if peer == *self.swarm.local_peer_id() => DialError::Myself(address),
            Some(peer) => match peer_key(&peer) {
                None => DialError::NotOurKind(address),
                Some(_) if self.joining.len() >= DIALS => DialError::Busy(address),
                Some(key) => {
                    let purpose = Purpose::Dial { address: address.clone(), asked: Instant::now(), reply };
                    return self.connect(key, vec![address], purpose);
                }
            },
        };
        let _ = reply.send(Err(error));
    }

    pub(crate) fn dial_peer(&mut self, peer: PeerKey, mut addresses: Vec<Multiaddr>) {
        let Some(id) = peer_id(peer).filter(|id| id != self.swarm.local_peer_id()) else { return };
        // What is not dialled anyway takes nothing of what may be.
        if self.swarm.behaviour().routes.is_direct(&id) {
            return;
        }
        let priority = self.priority(&id, None);
        if !self.connecting.is_dialling(&id) && !self.make_place(priority) {
            return tracing::debug!(peer = %id, "not dialled: others are");
        }
        let is_connected = self.swarm.is_connected(&id);
        if is_connected {
            addresses.splice(..0, self.addresses_on_lan(&id));
        }
        // Each has a budget, so that what is said of others takes nothing of what members may name.
        let rates = if priority == Priority::First { &mut self.member_rates } else { &mut self.named_rates };
        let addresses = rates.within(&id, addresses);
        match is_connected {
            true => self.try_direct(id, addresses, priority),
            false => self.connect_or_wait(id, addresses, None),
        }
    }

    /// Who needs a connection to this peer.
    pub(crate) fn priority(&self, peer: &PeerId, purpose: Option<&Purpose>) -> Priority {
        let standing = peer_key(peer).map(|key| self.access.standing(key));
        match purpose {
            _ if standing == Some(Standing::Member) => Priority::First,
            Some(Purpose::Dial { .. }) => Priority::First,
            Some(Purpose::Request { .. } | Purpose::Fetch { .. }) => Priority::Wanted,
            None => Priority::Named,
        }
    }

    /// Whether there is a place for one more dial. If all are taken, one that is needed less gives way.
    pub(crate) fn make_place(&mut self, priority: Priority) -> bool {
        if self.connecting.pending() + self.pending_relays.pending() < DIALLED_PEERS {
            return true;
        }
        match (self.connecting.gives_way_to(priority), self.pending_relays.gives_way_to(priority)) {
            (Some((least, peer)), relay) if relay.is_none_or(|(other, _)| least <= other) => {
                if let Some(failed) = self.connecting.abandon(&mut self.swarm, &peer) {
                    self.on_failed(peer, failed);
                }
                true
            }
            (_, Some((_, at))) => {
                self.abandon_relay(at);
                true
            }
            _ => false,
        }
    }

    /// What mDNS knows of a peer. libp2p adds it to a dial by itself, but not beside a connection.
    fn addresses_on_lan(&mut self, peer: &PeerId) -> Vec<Multiaddr> {
        let Some(neighbours) = self.swarm.behaviour_mut().neighbours.as_mut() else { return Vec::new() };
        let dial = ConnectionId::new_unchecked(0);
        let known = neighbours.handle_pending_outbound_connection(dial, Some(*peer), &[], Endpoint::Dialer);
        // The rest of what is dialled is named by the peer itself.
        known.unwrap_or_default().into_iter().take(ADDRESSES_PER_PEER / 2).collect()
    }

    /// Next to a relayed connection: two peers behind the same router cannot reach each other by hole punching, but by
    /// their local addresses.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    fn try_direct(&mut self, peer: PeerId, addresses: Vec<Multiaddr>, priority: Priority) {
        let relayed = self.swarm.behaviour().routes.relayed_since(&peer).is_some();
        let tries = relayed && !addresses.is_empty() && !self.punching.has_failed(&peer, Instant::now());
        if tries && (self.connecting.is_dialling(&peer) || self.make_place(priority)) {
            self.connecting.begin_beside(&mut self.swarm, peer, addresses, priority);
        }
    }

    pub(crate) fn connect(&mut self, peer: PeerKey, addresses: Vec<Multiaddr>, purpose: Purpose) {
        let Some(id) = peer_id(peer) else {
            let reason = format!("{peer} is not an ed25519 key");
            return unreachable(purpose, Unreachable { reason, ..Unreachable::default() });
        };
        if self.swarm.is_connected(&id) {
            if matches!(purpose, Purpose::Fetch { .. }) {
                let priority = self.priority(&id, Some(&purpose));
                let known = self.addresses_on_lan(&id).into_iter().chain(addresses);
                self.try_direct(id, known.collect(), priority);
            }
            return self.proceed(id, purpose);
        }
        self.connect_or_wait(id, addresses, Some(purpose));
    }

    /// Connects to all possible holders of a blob, and fetches it from those that answer.
    pub(crate) fn fetch(&mut self, id: u64, blob: BlobRef, from: Vec<(PeerKey, Vec<Multiaddr>)>, slot: Slot) {
        let mut holders = Vec::new();
        for (from, addresses) in from.into_iter().take(DONORS) {
            let (connected, word) = oneshot::channel();
            holders.push((from, word));
            self.connect(from, addresses, Purpose::Fetch { from, connected });
        }
        let fetcher = self.fetcher.clone();
        self.transfers.spawn(async move {
            let (donors, result) = fetcher.fetch(blob, holders).await;
            slot.send(NetworkEvent::Fetched { id, blob, donors, result });
        });
    }

    fn connect_or_wait(&mut self, peer: PeerId, addresses: Vec<Multiaddr>, purpose: Option<Purpose>) {
        if let Some((addresses, purpose)) = self.connect_relay_first(peer, usable(addresses, peer), purpose) {
            self.begin(peer, addresses, purpose);
        }
    }

    /// Continues with a purpose, now that there is a connection.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(crate) fn proceed(&mut self, peer: PeerId, purpose: Purpose) {
        match purpose {
            Purpose::Dial { address, asked, reply } => {
                let known = self.identified.contains(&peer) || self.connected_relays.contains(&peer);
                match peer_key(&peer).filter(|_| known) {
                    Some(key) => drop(reply.send(Ok(key))),
                    None => self.joining.push(Joining { peer, address, asked, connected: Instant::now(), reply }),
                }
            }
            Purpose::Request { id, to, slot, .. } if self.requests_to(to) >= REQUESTS_PER_PEER => {
                slot.send(NetworkEvent::failed(id, to, RequestError::Busy));
            }
            Purpose::Request { id, to, bytes, slot } => {
                self.counters.control_sent.add(bytes.len());
                let request = self.swarm.behaviour_mut().control.send_request(&peer, bytes);
                self.asked.insert(request, Asked { id, to, slot });
            }
            Purpose::Fetch { .. } if let Some(since) = self.swarm.behaviour().routes.relayed_since(&peer) => {
                self.wait_for_direct(peer, since, purpose);
            }
            // The fetch may be complete by now.
            Purpose::Fetch { connected, .. } => drop(connected.send(Ok(peer))),
        }
    }

    fn requests_to(&self, peer: PeerKey) -> usize {
        self.asked.values().filter(|asked| asked.to == peer).count()
    }
}

/// Reports a failure to all that waited for a connection.
pub(crate) fn give_up(mut failed: Failed<Purpose>) {
    for purpose in std::mem::take(&mut failed.waiting) {
        match purpose {
            Purpose::Dial { address, asked, reply } => drop(reply.send(Err(failed.dial_error(address, asked)))),
            other => unreachable(other, failed.unreachable()),
        }
    }
}

fn unreachable(purpose: Purpose, error: Unreachable) {
    match purpose {
        Purpose::Dial { address, asked, reply } => {
            let failed = DialError::Failed { address, waited: asked.elapsed(), reason: error.reason };
            drop(reply.send(Err(failed)));
        }
        Purpose::Request { id, to, slot, .. } => {
            drop(slot.send(NetworkEvent::failed(id, to, error.into())));
        }
        Purpose::Fetch { connected, .. } => drop(connected.send(Err(error.into()))),
    }
}
