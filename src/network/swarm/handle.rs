//! The handle of the network, and its start.

use std::sync::Arc;

use libp2p::Multiaddr;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::Link;
use crate::names::{BlobRef, ModuleId, PeerKey, RunId};
use crate::network::blobs::BlobAccess;
use crate::network::connectivity::addresses::{is_loopback, is_relay_address};
use crate::network::connectivity::dial_error::DialError;
use crate::network::connectivity::links::Links;
use crate::network::connectivity::observed_address::Outside;
use crate::network::connectivity::relays::Relays;
use crate::network::gossip::{PublishError, Published, TopicError};
use crate::network::identity::{Identity, peer_key};
use crate::network::limits::{COMMANDS, CONTROL_BYTES};
use crate::network::protection::bandwidth_limiter::Bandwidth;
use crate::network::protection::offences::{Ban, Offence};
use crate::network::rpc::RequestToken;
use crate::network::swarm::actor::{Actor, Command, Purpose};
use crate::network::swarm::behaviour::Optional;
use crate::network::swarm::build::{StartError, build};
use crate::network::swarm::events::{NetworkEvent, NetworkEvents, Slot, event_queues};
use crate::network::traffic::{Counters, Traffic};

/// Configuration of the network.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    pub identity: Identity,
    /// Where to listen, such as `/ip4/0.0.0.0/udp/4001/quic-v1` and `/ip4/0.0.0.0/tcp/4001`; port 0 for any.
    pub listen: Vec<Multiaddr>,
    /// Further addresses at which others reach this peer: a public address or name, a port forwarded by a router.
    pub announce: Vec<Multiaddr>,
    /// Relays through which others reach this peer if they cannot reach it directly; each with `/p2p/` at its end.
    pub relays: Vec<Multiaddr>,
    pub bandwidth: Bandwidth,
    /// An emulated link for experiments. It uses only TCP, without DNS.
    pub link: Option<Link>,
    /// Whether mDNS discovers peers on the LAN. Not with only loopback addresses.
    pub mdns: bool,
    /// Whether the router is asked to open ports (UPnP). Not with only loopback addresses.
    pub upnp: bool,
}

impl NetworkConfig {
    /// A peer that accepts no connections: it has no listening address and no relay.
    pub fn visitor(identity: Identity) -> Self {
        Self {
            identity,
            listen: Vec::new(),
            announce: Vec::new(),
            relays: Vec::new(),
            bandwidth: Bandwidth::default(),
            link: None,
            mdns: false,
            upnp: false,
        }
    }

    /// Whether other peers should find this one.
    fn is_host(&self) -> bool {
        !(self.listen.is_empty() && self.announce.is_empty() && self.relays.is_empty())
    }

    fn optional(&self) -> Optional {
        let outside = self.listen.iter().any(|address| !is_loopback(address));
        Optional { mdns: self.mdns && outside, upnp: self.upnp && outside }
    }
}

/// Why an operation was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// Too many results wait to be taken, or too many commands to be handled.
    #[error("too many operations are pending: handle what has arrived, then try again")]
    Busy,
    #[error("{0} bytes are too many to send: a request or response has at most {CONTROL_BYTES}, send a blob")]
    TooLarge(usize),
    #[error("the network has stopped")]
    Stopped,
}

/// The network has stopped: all other handles are gone, or it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the network has stopped")]
pub struct Stopped;

/// Sends commands to the network. Cheap to clone; the network stops when the last one is dropped.
///
/// Methods that are not `async` never wait: they return an error if a queue is full. The `async` ones wait for the
/// task's next turn, which never depends on application code. Only `dial` waits for another peer, at most
/// [`CONNECT_TIMEOUT`](crate::network::limits::CONNECT_TIMEOUT) +
/// [`IDENTIFY_TIMEOUT`](crate::network::limits::IDENTIFY_TIMEOUT).
#[derive(Clone)]
pub struct NetworkHandle {
    me: PeerKey,
    commands: mpsc::Sender<Command>,
    slots: mpsc::WeakSender<NetworkEvent>,
    /// For authentication requests.
    introductions: mpsc::WeakSender<NetworkEvent>,
    counters: Arc<Counters>,
    bans: watch::Receiver<Vec<Ban>>,
    links: watch::Receiver<Links>,
}

/// Starts the network. Returns once it listens on all addresses and, if it has relays, one of them has granted a
/// reservation or [`LISTEN_TIMEOUT`](crate::network::limits::LISTEN_TIMEOUT) has passed. Must be called within a tokio
/// runtime.
pub async fn start(
    config: NetworkConfig,
    blobs: Arc<dyn BlobAccess>,
) -> Result<(NetworkHandle, NetworkEvents), StartError> {
    let counters = Arc::new(Counters::default());
    let (commands, mailbox) = mpsc::channel(COMMANDS);
    let (queues, (slots, introductions), events) = event_queues(counters.clone());
    if let Some(wrong) = config.relays.iter().find(|relay| !is_relay_address(relay)) {
        return Err(StartError::NotARelay(wrong.clone()));
    }
    let swarm = build(&config.identity, config.optional(), config.link, blobs.clone())?;
    let relays = Relays::new(*swarm.local_peer_id(), &config.relays, config.is_host());
    let (told, bans) = watch::channel(Vec::new());
    let (shown, links) = watch::channel(Links::default());
    let edges = (config.bandwidth, told, shown);
    let mut actor = Actor::new(swarm, mailbox, queues, relays, blobs, counters.clone(), edges)?;
    actor.listen(&config.listen, &config.announce).await?;
    actor.wait_for_reservation().await;
    tokio::spawn(actor.run());
    Ok((NetworkHandle { me: config.identity.key(), commands, slots, introductions, counters, bans, links }, events))
}

impl NetworkHandle {
    /// The key of this peer.
    pub fn me(&self) -> PeerKey {
        self.me
    }

    /// Sets the run of topics and keys. The topics of another run are left.
    pub async fn join_run(&self, run: RunId) -> Result<(), Stopped> {
        self.ask(move |actor| actor.join_run(run)).await
    }

    /// Subscribes to the topic of a module.
    pub async fn subscribe(&self, module: ModuleId) -> Result<(), TopicError> {
        self.ask(move |actor| actor.subscribe(module)).await.unwrap_or(Err(TopicError::Stopped))
    }

    /// Unsubscribes from the topic of a module.
    pub async fn unsubscribe(&self, module: ModuleId) -> Result<(), Stopped> {
        self.ask(move |actor| actor.unsubscribe(module)).await
    }

    /// Publishes to all members of a module. No subscribed peer is an outcome, not an error.
    pub async fn publish(&self, module: ModuleId, bytes: Vec<u8>) -> Result<Published, PublishError> {
        self.ask(move |actor| actor.publish(module, bytes)).await.unwrap_or(Err(PublishError::Stopped))
    }

    /// Sends a request to a peer; [`NetworkEvent::Response`] with this id always follows. The addresses are tried if
    /// there is no connection yet.
    pub fn request(&self, id: u64, to: PeerKey, addresses: Vec<Multiaddr>, bytes: Vec<u8>) -> Result<(), NotSent> {
        self.request_with(slot(&self.slots)?, id, to, addresses, bytes)
    }

    /// Sends a request that introduces this peer to another, in a run by invitation; [`NetworkEvent::Response`] with this
    /// id always follows. It has a place of its own ([`INTRODUCTIONS`](crate::network::limits::INTRODUCTIONS)), so peers
    /// that are not admitted, and do not answer, take no place of what members are asked.
    pub fn introduce(&self, id: u64, to: PeerKey, addresses: Vec<Multiaddr>, bytes: Vec<u8>) -> Result<(), NotSent> {
        self.request_with(slot(&self.introductions)?, id, to, addresses, bytes)
    }

    fn request_with(
        &self,
        slot: Slot,
        id: u64,
        to: PeerKey,
        addresses: Vec<Multiaddr>,
        bytes: Vec<u8>,
    ) -> Result<(), NotSent> {
        fits(&bytes)?;
        self.tell(move |actor| actor.connect(to, addresses, Purpose::Request { id, to, bytes, slot }))
    }

    /// Answers a request. Does nothing if the requester has gone, or the request was answered already.
    pub fn respond(&self, token: RequestToken, bytes: Vec<u8>) -> Result<(), NotSent> {
        fits(&bytes)?;
        self.tell(move |actor| actor.respond(token, bytes))
    }

    /// Fetches a blob into the store from all of these peers that have some of it, the most likely holder first and at
    /// most [`DONORS`](crate::network::limits::DONORS); [`NetworkEvent::Fetched`] with this id always follows.
    pub fn fetch(&self, id: u64, blob: BlobRef, from: Vec<(PeerKey, Vec<Multiaddr>)>) -> Result<(), NotSent> {
        let slot = slot(&self.slots)?;
        self.tell(move |actor| actor.fetch(id, blob, from, slot))
    }

    /// Joins the peer at a full address (`…/p2p/<peer>`), and asks it for its neighbours in Kademlia.
    pub async fn dial(&self, address: Multiaddr) -> Result<PeerKey, DialError> {
        let (reply, answer) = oneshot::channel();
        let told = self.commands.send(Box::new(move |actor| actor.dial(address, reply))).await;
        told.map_err(|_| DialError::Stopped)?;
        answer.await.unwrap_or(Err(DialError::Stopped))
    }

    /// Connects to a peer whose addresses the application has learnt. Does nothing if there is a connection or a
    /// pending dial; [`NetworkEvent::Connected`] reports success.
    pub fn dial_peer(&self, peer: PeerKey, addresses: Vec<Multiaddr>) -> Result<(), NotSent> {
        self.tell(move |actor| actor.dial_peer(peer, addresses))
    }

    /// Records an offence of a peer; too many lead to a ban. Only for what the peer itself has signed or sent on its
    /// own connection, never for what it has forwarded.
    pub fn penalize(&self, peer: PeerKey, offence: Offence) -> Result<(), NotSent> {
        self.tell(move |actor| actor.penalize_key(peer, offence))
    }

    /// Restores the bans of an earlier start.
    pub fn restore_bans(&self, bans: Vec<Ban>) -> Result<(), NotSent> {
        self.tell(move |actor| actor.restore_bans(bans))
    }

    /// The peers that are or were banned. Never waits.
    pub fn bans(&self) -> Vec<Ban> {
        self.bans.borrow().clone()
    }

    /// The same, to wait for a change. Ends with the network.
    pub fn watch_bans(&self) -> watch::Receiver<Vec<Ban>> {
        self.bans.clone()
    }

    /// How this peer is connected, at most half a second old. Never waits.
    pub fn links(&self) -> Links {
        self.links.borrow().clone()
    }

    /// Begins gossip with connected peers, in a run by invitation: they have admitted this peer, and this peer them.
    /// Those with which it has begun are left as they are. In an open run, gossip begins with the connection.
    pub fn gossip_with(&self, peers: Vec<PeerKey>) -> Result<(), NotSent> {
        self.tell(move |actor| actor.gossip_with(peers))
    }

    /// Ends all connections to a peer, which may connect again.
    pub fn disconnect(&self, peer: PeerKey) -> Result<(), NotSent> {
        self.tell(move |actor| actor.disconnect(peer))
    }

    /// Announces this peer as a member of a module, repeatedly until [`Self::stop_providing`].
    pub async fn provide(&self, module: ModuleId) -> Result<(), TopicError> {
        self.ask(move |actor| actor.provide(module)).await.unwrap_or(Err(TopicError::Stopped))
    }

    /// Stops announcing. The records of others expire within half an hour.
    pub fn stop_providing(&self, module: ModuleId) -> Result<(), NotSent> {
        self.tell(move |actor| actor.stop_providing(module))
    }

    /// Looks for members of a module; [`NetworkEvent::Providers`] with this id always follows, within
    /// [`LOOKUP_TIMEOUT`](crate::network::limits::LOOKUP_TIMEOUT).
    pub fn find_providers(&self, id: u64, module: ModuleId) -> Result<(), NotSent> {
        let slot = slot(&self.slots)?;
        self.tell(move |actor| actor.find_providers(id, module, slot))
    }

    /// Listening and announced addresses: loopback included but last, QUIC before TCP.
    pub async fn listeners(&self) -> Result<Vec<Multiaddr>, Stopped> {
        self.ask(|actor| actor.addresses()).await
    }

    /// The same in full (`…/p2p/<peer>`), as another peer needs them to join.
    pub async fn join_addresses(&self) -> Result<Vec<Multiaddr>, Stopped> {
        let listeners = self.listeners().await?;
        Ok(listeners.iter().map(|address| crate::network::with_peer(address, self.me)).collect())
    }

    /// The connected peers with the same protocol version.
    pub async fn connections(&self) -> Result<Vec<PeerKey>, Stopped> {
        self.ask(|actor| actor.identified.iter().filter_map(peer_key).collect()).await
    }

    /// The report of a peer that is alone, line by line: failed connections with their reasons, and the state of
    /// relays, the LAN and reachability.
    pub async fn outlook(&self) -> Result<Vec<String>, Stopped> {
        self.ask(|actor| actor.outlook()).await
    }

    /// The observed addresses of this peer, and whether others reach it.
    pub async fn outside(&self) -> Result<Outside, Stopped> {
        self.ask(|actor| actor.outside()).await
    }

    /// Payload bytes so far. Never waits.
    pub fn traffic(&self) -> Traffic {
        self.counters.read()
    }

    /// Runs a job on the network's task. A reply without a receiver is dropped.
    async fn ask<T: Send + 'static>(&self, job: impl FnOnce(&mut Actor) -> T + Send + 'static) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        let command: Command = Box::new(move |actor| drop(reply.send(job(actor))));
        self.commands.send(command).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }

    fn tell(&self, job: impl FnOnce(&mut Actor) + Send + 'static) -> Result<(), NotSent> {
        self.commands.try_send(Box::new(job)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotSent::Busy,
            mpsc::error::TrySendError::Closed(_) => NotSent::Stopped,
        })
    }
}

fn slot(slots: &mpsc::WeakSender<NetworkEvent>) -> Result<Slot, NotSent> {
    let slots = slots.upgrade().ok_or(NotSent::Stopped)?;
    slots.try_reserve_owned().map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => NotSent::Busy,
        mpsc::error::TrySendError::Closed(_) => NotSent::Stopped,
    })
}

fn fits(bytes: &[u8]) -> Result<(), NotSent> {
    if bytes.len() > CONTROL_BYTES {
        return Err(NotSent::TooLarge(bytes.len()));
    }
    Ok(())
}
