//! Events for the application, and their treatment when the application is slow.
//!
//! Five bounded queues, one for each treatment:
//! - *results* (responses, fetched blobs, lookups): never lost. A result's slot is reserved before its request is sent.
//! - *introductions* (responses of peers to which this peer has shown its credential): likewise, apart from what members
//!   are asked.
//! - *changes* (connections, addresses): never lost, but merged: a change that is undone before it is reported is
//!   dropped.
//! - *requests* from others: refused at once if the queue is full, and the other peer is told.
//! - *gossip*: dropped and counted if the queue is full; members repeat what matters.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use libp2p::Multiaddr;
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;

use crate::names::{BlobRef, ModuleId, PeerKey};
use crate::network::blobs::FetchError;
use crate::network::blobs::fetch::Donor;
use crate::network::connectivity::address_scope::Scope;
use crate::network::connectivity::providers::Provider;
use crate::network::limits::{CHANGES, GOSSIP_EVENTS, INTRODUCTIONS, RESULTS, UNANSWERED_REQUESTS};
use crate::network::rpc::{RequestError, RequestToken};
use crate::network::traffic::Counters;

#[derive(Debug)]
pub enum NetworkEvent {
    /// A member has published a message to a module. Its signature has been checked.
    Gossip {
        module: ModuleId,
        /// The peer that signed it, not the one that forwarded it.
        author: PeerKey,
        /// At most [`crate::network::limits::GOSSIP_BYTES`].
        bytes: Vec<u8>,
        /// Which addresses the author may name.
        may_name: Scope,
    },
    /// A connected peer has subscribed to one of our modules: a good moment for a heartbeat. A hint, in the gossip
    /// queue.
    Subscribed { module: ModuleId, peer: PeerKey },
    /// A request of a peer. Answer with [`crate::network::NetworkHandle::respond`].
    Request {
        from: PeerKey,
        /// For the response.
        token: RequestToken,
        /// At most [`crate::network::limits::CONTROL_BYTES`].
        bytes: Vec<u8>,
    },
    /// The outcome of a request.
    Response {
        /// As given with the request.
        id: u64,
        from: PeerKey,
        /// At most [`crate::network::limits::CONTROL_BYTES`].
        result: Result<Vec<u8>, RequestError>,
        /// Which addresses the peer may name.
        may_name: Scope,
    },
    /// The outcome of a fetch. On success, the blob is stored and verified.
    Fetched {
        /// As given with the fetch.
        id: u64,
        blob: BlobRef,
        /// The contribution of each named peer. One that sent wrong bytes failed with [`FetchError::WrongHash`].
        donors: Vec<Donor>,
        result: Result<(), FetchError>,
    },
    /// The peers found that claim to be members of a module; empty if none was found in time.
    Providers {
        /// As given with the lookup.
        id: u64,
        /// At most [`crate::network::limits::PROVIDERS_PER_LOOKUP`], without this peer.
        providers: Vec<Provider>,
    },
    /// This peer can be reached at another address, given in full with `/p2p/`.
    Listening(Multiaddr),
    /// This peer can no longer be reached there: a relay or a network has gone.
    NotListening(Multiaddr),
    /// A connection was made, by either side, and the peer has the same protocol version.
    Connected(PeerKey),
    /// The last connection to such a peer has ended.
    Disconnected(PeerKey),
}

impl NetworkEvent {
    /// A request that has failed.
    pub(crate) fn failed(id: u64, from: PeerKey, error: RequestError) -> Self {
        Self::Response { id, from, result: Err(error), may_name: Scope::Public }
    }
}

/// A reserved slot in the queue of results, or of introductions.
pub(crate) type Slot = OwnedPermit<NetworkEvent>;

/// The receiver of events. Dropping it does not stop the network, but no further operation can be started.
#[derive(Debug)]
pub struct NetworkEvents {
    results: mpsc::Receiver<NetworkEvent>,
    introductions: mpsc::Receiver<NetworkEvent>,
    changes: mpsc::Receiver<NetworkEvent>,
    requests: mpsc::Receiver<NetworkEvent>,
    gossip: mpsc::Receiver<NetworkEvent>,
}

impl NetworkEvents {
    /// The next event: results, introductions and changes before requests before gossip. `None` once the network has
    /// stopped. Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<NetworkEvent> {
        let Self { results, introductions, changes, requests, gossip } = self;
        tokio::select! {
            biased;
            Some(event) = results.recv() => Some(event),
            Some(event) = introductions.recv() => Some(event),
            Some(event) = changes.recv() => Some(event),
            Some(event) = requests.recv() => Some(event),
            Some(event) = gossip.recv() => Some(event),
            else => None,
        }
    }

    /// The next event, if there is one.
    #[cfg(test)]
    fn try_next(&mut self) -> Option<NetworkEvent> {
        let Self { results, introductions, changes, requests, gossip } = self;
        [results, introductions, changes, requests, gossip].into_iter().find_map(|queue| queue.try_recv().ok())
    }
}

/// The task's ends of the queues.
pub(crate) struct EventQueues {
    /// Only kept open: results and introductions go through slots.
    _results: [mpsc::Sender<NetworkEvent>; 2],
    changes: mpsc::Sender<NetworkEvent>,
    requests: mpsc::Sender<NetworkEvent>,
    gossip: mpsc::Sender<NetworkEvent>,
    pending: PendingChanges,
    counters: Arc<Counters>,
}

/// The senders that hand out slots: those of results, and of introductions.
type Slots = (mpsc::WeakSender<NetworkEvent>, mpsc::WeakSender<NetworkEvent>);

/// The queues, and the senders that hand out slots in two of them.
pub(crate) fn event_queues(counters: Arc<Counters>) -> (EventQueues, Slots, NetworkEvents) {
    let (results, results_out) = mpsc::channel(RESULTS);
    let (changes, changes_out) = mpsc::channel(CHANGES);
    let (introductions, introductions_out) = mpsc::channel(INTRODUCTIONS);
    let (requests, requests_out) = mpsc::channel(UNANSWERED_REQUESTS);
    let (gossip, gossip_out) = mpsc::channel(GOSSIP_EVENTS);
    let slots = (results.downgrade(), introductions.downgrade());
    let queues = EventQueues {
        _results: [results, introductions],
        changes,
        requests,
        gossip,
        pending: PendingChanges::default(),
        counters,
    };
    let events = NetworkEvents {
        results: results_out,
        introductions: introductions_out,
        changes: changes_out,
        requests: requests_out,
        gossip: gossip_out,
    };
    (queues, slots, events)
}

impl EventQueues {
    pub(crate) fn gossip(&self, module: ModuleId, author: PeerKey, bytes: Vec<u8>, may_name: Scope) {
        self.offer(NetworkEvent::Gossip { module, author, bytes, may_name });
    }

    pub(crate) fn subscribed(&self, module: ModuleId, peer: PeerKey) {
        self.offer(NetworkEvent::Subscribed { module, peer });
    }

    fn offer(&self, event: NetworkEvent) {
        if self.gossip.try_send(event).is_err() {
            self.counters.gossip_dropped.add(1);
        }
    }

    /// Queues a request. Returns false if the queue is full.
    pub(crate) fn request(&self, from: PeerKey, token: RequestToken, bytes: Vec<u8>) -> bool {
        self.requests.try_send(NetworkEvent::Request { from, token, bytes }).is_ok()
    }

    pub(crate) fn connected(&mut self, peer: PeerKey, connected: bool) {
        self.pending.connected(peer, connected);
    }

    pub(crate) fn listening(&mut self, address: Multiaddr) {
        self.pending.listening(address, true);
    }

    pub(crate) fn not_listening(&mut self, address: Multiaddr) {
        self.pending.listening(address, false);
    }

    /// Reports the next change as soon as there is space. Never returns while there is none.
    pub(crate) async fn tell(&mut self) {
        if self.pending.is_empty() {
            return std::future::pending().await;
        }
        match self.changes.reserve().await {
            Ok(place) => {
                if let Some(event) = self.pending.next() {
                    place.send(event);
                }
            }
            // The receiver is gone.
            Err(_) => self.pending = PendingChanges::default(),
        }
    }
}

/// Changes not yet reported, as the difference between the present state and the reported one: bounded by the number of
/// connections, however often they change.
#[derive(Default)]
struct PendingChanges {
    told: BTreeSet<PeerKey>,
    changed: BTreeSet<PeerKey>,
    /// The newest change of each.
    addresses: VecDeque<(Multiaddr, bool)>,
}

impl PendingChanges {
    fn connected(&mut self, peer: PeerKey, connected: bool) {
        if self.told.contains(&peer) == connected {
            self.changed.remove(&peer);
        } else {
            self.changed.insert(peer);
        }
    }

    fn listening(&mut self, address: Multiaddr, listening: bool) {
        self.addresses.retain(|(other, _)| *other != address);
        if self.addresses.len() == CHANGES {
            self.addresses.pop_front();
        }
        self.addresses.push_back((address, listening));
    }

    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.addresses.is_empty()
    }

    fn next(&mut self) -> Option<NetworkEvent> {
        match self.addresses.pop_front() {
            Some((address, true)) => return Some(NetworkEvent::Listening(address)),
            Some((address, false)) => return Some(NetworkEvent::NotListening(address)),
            None => {}
        }
        let peer = self.changed.pop_first()?;
        if self.told.remove(&peer) {
            return Some(NetworkEvent::Disconnected(peer));
        }
        self.told.insert(peer);
        Some(NetworkEvent::Connected(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey([1; 32]);
    const MODULE: ModuleId = ModuleId { level: 0, expert: 0 };

    #[test]
    fn a_connection_that_came_and_went_untold_is_not_told() {
        let mut pending = PendingChanges::default();
        pending.connected(PEER, true);
        pending.connected(PEER, false);
        assert!(pending.next().is_none());
        pending.connected(PEER, true);
        assert!(matches!(pending.next(), Some(NetworkEvent::Connected(PEER))));
        pending.connected(PEER, false);
        pending.connected(PEER, true);
        assert!(pending.is_empty());
        pending.connected(PEER, false);
        assert!(matches!(pending.next(), Some(NetworkEvent::Disconnected(PEER))));
    }

    #[test]
    fn a_flood_of_gossip_is_dropped_and_counted_and_costs_no_result() {
        let counters = Arc::new(Counters::default());
        let (queues, (slots, _), mut events) = event_queues(counters.clone());
        for _ in 0..GOSSIP_EVENTS + 5 {
            queues.gossip(MODULE, PEER, vec![], Scope::Public);
        }
        assert_eq!(counters.read().gossip_dropped, 5);
        let slot = slots.upgrade().unwrap().try_reserve_owned().unwrap();
        slot.send(NetworkEvent::Response { id: 7, from: PEER, result: Ok(vec![]), may_name: Scope::Public });
        assert!(matches!(events.try_next(), Some(NetworkEvent::Response { id: 7, .. })), "results come first");
    }

    #[test]
    fn results_are_bounded_by_the_slots_reserved_in_advance() {
        let (_queues, (slots, introductions), mut events) = event_queues(Arc::default());
        let take = || slots.upgrade().unwrap().try_reserve_owned();
        let introduce = || introductions.upgrade().unwrap().try_reserve_owned();
        let introduced: Vec<Slot> = (0..INTRODUCTIONS).map(|_| introduce().unwrap()).collect();
        assert!(introduce().is_err(), "and those that introduce this peer by theirs");
        let mut taken: Vec<Slot> = (0..RESULTS).map(|_| take().unwrap()).collect();
        assert!(take().is_err());
        taken.pop().unwrap().send(NetworkEvent::Response {
            id: 0,
            from: PEER,
            result: Ok(vec![]),
            may_name: Scope::Public,
        });
        assert!(take().is_err(), "the place is free only once the application has taken the result");
        assert!(events.try_next().is_some());
        assert!(take().is_ok());
        drop(introduced);
    }
}
