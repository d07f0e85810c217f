//! The cloneable way to tell the network what to do, and how it is started.

use std::sync::Arc;

use libp2p::Multiaddr;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::Link;
use crate::names::{BlobRef, ModuleId, PeerKey, RunId};
use crate::network::blobs::BlobAccess;
use crate::network::connectivity::addresses::{is_loopback, is_relay_address};
use crate::network::connectivity::dial_error::DialError;
use crate::network::connectivity::observed_address::Outside;
use crate::network::connectivity::relays::Relays;
use crate::network::gossip::{PublishError, Published, TopicError};
use crate::network::identity::Identity;
use crate::network::limits::{COMMANDS, CONTROL_BYTES};
use crate::network::protection::bandwidth_limiter::Bandwidth;
use crate::network::protection::score::{Ban, Offence};
use crate::network::rpc::RequestToken;
use crate::network::swarm::actor::{Actor, Command, Purpose};
use crate::network::swarm::behaviour::Optional;
use crate::network::swarm::build::{StartError, build};
use crate::network::swarm::events::{NetworkEvent, NetworkEvents, Slot, event_queues};
use crate::network::traffic::{Counters, Traffic};

/// What the network needs to know before it starts.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// The identity of this peer.
    pub identity: Identity,
    /// Where to listen, such as `/ip4/0.0.0.0/udp/4001/quic-v1` and `/ip4/0.0.0.0/tcp/4001`; port 0 for any.
    pub listen: Vec<Multiaddr>,
    /// Where others reach this peer besides: a public address or name, a port forwarded by a router.
    pub announce: Vec<Multiaddr>,
    /// Relays through which others reach this peer if they do not reach it otherwise; each with `/p2p/` at its end.
    pub relays: Vec<Multiaddr>,
    /// How fast it may send and receive.
    pub bandwidth: Bandwidth,
    /// A link that it is made to have, to try out what others' are like. It speaks TCP alone then, and looks up no names.
    pub link: Option<Link>,
    /// Whether peers on the LAN are found by mDNS. Not where it listens on loopback alone.
    pub mdns: bool,
    /// Whether the router is asked to open ports (UPnP). Not where it listens on loopback alone.
    pub upnp: bool,
}

impl NetworkConfig {
    /// A peer that others do not come to: it listens nowhere and is known to no relay.
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

    /// Whether other peers are to find this one.
    fn is_host(&self) -> bool {
        !(self.listen.is_empty() && self.announce.is_empty() && self.relays.is_empty())
    }

    fn optional(&self) -> Optional {
        let outside = self.listen.iter().any(|address| !is_loopback(address));
        Optional { mdns: self.mdns && outside, upnp: self.upnp && outside }
    }
}

/// Why something was not even sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// Too many results wait to be taken, or too many commands to be carried out.
    #[error("too many operations are pending: handle what has arrived, then try again")]
    Busy,
    #[error("{0} bytes are too many to send: a request or response has at most {CONTROL_BYTES}, send a blob")]
    TooLarge(usize),
    #[error("the network has stopped")]
    Stopped,
}

/// The network has stopped: all its handles but this one are gone, or it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the network has stopped")]
pub struct Stopped;

/// Tells the network what to do. Cheap to clone; when the last one is dropped, the network stops.
///
/// Methods that are not `async` never wait: they return an error if there is no room. The `async` ones wait for the
/// task's next turn, which never depends on application code; `dial` alone waits for another peer, at most
/// [`CONNECT_TIMEOUT`](crate::network::limits::CONNECT_TIMEOUT) +
/// [`IDENTIFY_TIMEOUT`](crate::network::limits::IDENTIFY_TIMEOUT).
#[derive(Clone)]
pub struct NetworkHandle {
    me: PeerKey,
    commands: mpsc::Sender<Command>,
    slots: mpsc::WeakSender<NetworkEvent>,
    counters: Arc<Counters>,
    bans: watch::Receiver<Vec<Ban>>,
}

/// Starts the network, and returns once it listens on all addresses and, if it has relays, one of them has given it a
/// place or has not done so in [`LISTEN_TIMEOUT`](crate::network::limits::LISTEN_TIMEOUT). Must be called within a
/// tokio runtime.
pub async fn start(
    config: NetworkConfig,
    blobs: Arc<dyn BlobAccess>,
) -> Result<(NetworkHandle, NetworkEvents), StartError> {
    let counters = Arc::new(Counters::default());
    let (commands, mailbox) = mpsc::channel(COMMANDS);
    let (queues, slots, events) = event_queues(counters.clone());
    if let Some(wrong) = config.relays.iter().find(|relay| !is_relay_address(relay)) {
        return Err(StartError::NotARelay(wrong.clone()));
    }
    let swarm = build(&config.identity, config.optional(), config.link)?;
    let relays = Relays::new(*swarm.local_peer_id(), &config.relays, config.is_host());
    let (told, bans) = watch::channel(Vec::new());
    let edges = (config.bandwidth, told);
    let mut actor = Actor::new(swarm, mailbox, queues, relays, blobs, counters.clone(), edges)?;
    actor.listen(&config.listen, &config.announce).await?;
    actor.wait_for_reservation().await;
    tokio::spawn(actor.run());
    Ok((NetworkHandle { me: config.identity.key(), commands, slots, counters, bans }, events))
}

impl NetworkHandle {
    /// This peer.
    pub fn me(&self) -> PeerKey {
        self.me
    }

    /// Names the run that topics and keys belong to. Another run's topics are left.
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

    /// Publishes to all members of a module. That no peer has subscribed yet is an outcome, not an error.
    pub async fn publish(&self, module: ModuleId, bytes: Vec<u8>) -> Result<Published, PublishError> {
        self.ask(move |actor| actor.publish(module, bytes)).await.unwrap_or(Err(PublishError::Stopped))
    }

    /// Asks a peer; [`NetworkEvent::Response`] with this id follows for certain. The addresses are tried if there is
    /// no connection yet.
    pub fn request(&self, id: u64, to: PeerKey, addresses: Vec<Multiaddr>, bytes: Vec<u8>) -> Result<(), NotSent> {
        fits(&bytes)?;
        let slot = self.slot()?;
        self.tell(move |actor| actor.connect(to, addresses, Purpose::Request { id, to, bytes, slot }))
    }

    /// Answers a request. If its asker has gone, or a response was given already, nothing happens.
    pub fn respond(&self, token: RequestToken, bytes: Vec<u8>) -> Result<(), NotSent> {
        fits(&bytes)?;
        self.tell(move |actor| actor.respond(token, bytes))
    }

    /// Fetches a blob into the store, from all of these peers that have some of it, the surest first and at most
    /// [`DONORS`](crate::network::limits::DONORS); [`NetworkEvent::Fetched`] with this id follows for certain.
    pub fn fetch(&self, id: u64, blob: BlobRef, from: Vec<(PeerKey, Vec<Multiaddr>)>) -> Result<(), NotSent> {
        let slot = self.slot()?;
        self.tell(move |actor| actor.fetch(id, blob, from, slot))
    }

    /// Joins the peer at a full address (`…/p2p/<peer>`), and asks it for its neighbours.
    pub async fn dial(&self, address: Multiaddr) -> Result<PeerKey, DialError> {
        let (reply, answer) = oneshot::channel();
        let told = self.commands.send(Box::new(move |actor| actor.dial(address, reply))).await;
        told.map_err(|_| DialError::Stopped)?;
        answer.await.unwrap_or(Err(DialError::Stopped))
    }

    /// Connects to a peer whose addresses the application has learnt. Nothing happens if there is a connection or a
    /// dial already; [`NetworkEvent::Connected`] tells of success.
    pub fn dial_peer(&self, peer: PeerKey, addresses: Vec<Multiaddr>) -> Result<(), NotSent> {
        self.tell(move |actor| actor.dial_peer(peer, addresses))
    }

    /// Says that a peer has done something that no honest peer does; one that does too much of that is banned for a while.
    /// Only for what it has signed, or sent on its own connection: never for what it has passed on.
    pub fn penalize(&self, peer: PeerKey, offence: Offence) -> Result<(), NotSent> {
        self.tell(move |actor| actor.penalize_key(peer, offence))
    }

    /// Bans of an earlier start go on.
    pub fn restore_bans(&self, bans: Vec<Ban>) -> Result<(), NotSent> {
        self.tell(move |actor| actor.restore_bans(bans))
    }

    /// The peers that are banned, or were lately. Never waits.
    pub fn bans(&self) -> Vec<Ban> {
        self.bans.borrow().clone()
    }

    /// The same, to wait for a change. Ends with the network.
    pub fn watch_bans(&self) -> watch::Receiver<Vec<Ban>> {
        self.bans.clone()
    }

    /// Ends all connections to a peer, which may come again.
    pub fn disconnect(&self, peer: PeerKey) -> Result<(), NotSent> {
        self.tell(move |actor| actor.disconnect(peer))
    }

    /// Announces this peer as a member of a module, again and again until [`Self::stop_providing`].
    pub async fn provide(&self, module: ModuleId) -> Result<(), TopicError> {
        self.ask(move |actor| actor.provide(module)).await.unwrap_or(Err(TopicError::Stopped))
    }

    /// Announces this peer no longer. Others forget it within half an hour.
    pub fn stop_providing(&self, module: ModuleId) -> Result<(), NotSent> {
        self.tell(move |actor| actor.stop_providing(module))
    }

    /// Looks for members of a module; [`NetworkEvent::Providers`] with this id follows for certain, within
    /// [`LOOKUP_TIMEOUT`](crate::network::limits::LOOKUP_TIMEOUT).
    pub fn find_providers(&self, id: u64, module: ModuleId) -> Result<(), NotSent> {
        let slot = self.slot()?;
        self.tell(move |actor| actor.find_providers(id, module, slot))
    }

    /// Where this peer listens, and what it announces: loopback included but last, QUIC before TCP.
    pub async fn listeners(&self) -> Result<Vec<Multiaddr>, Stopped> {
        self.ask(|actor| actor.addresses()).await
    }

    /// The same in full (`…/p2p/<peer>`): what another peer needs to join.
    pub async fn join_addresses(&self) -> Result<Vec<Multiaddr>, Stopped> {
        let listeners = self.listeners().await?;
        Ok(listeners.iter().map(|address| crate::network::with_peer(address, self.me)).collect())
    }

    /// The peers that are connected and speak our version.
    pub async fn connections(&self) -> Result<Vec<PeerKey>, Stopped> {
        self.ask(|actor| actor.connections()).await
    }

    /// The report of a peer that is alone: connections that failed and why, and what is known of relays, the LAN and whether
    /// others reach this peer. A line each.
    pub async fn outlook(&self) -> Result<Vec<String>, Stopped> {
        self.ask(|actor| actor.outlook()).await
    }

    /// Where connected peers see this one, and where others come in.
    pub async fn outside(&self) -> Result<Outside, Stopped> {
        self.ask(|actor| actor.outside()).await
    }

    /// Payload bytes so far. Never waits.
    pub fn traffic(&self) -> Traffic {
        self.counters.read()
    }

    /// Runs this on the network's task; a reply whose asker has gone is of no interest to anybody.
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

    fn slot(&self) -> Result<Slot, NotSent> {
        let results = self.slots.upgrade().ok_or(NotSent::Stopped)?;
        results.try_reserve_owned().map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotSent::Busy,
            mpsc::error::TrySendError::Closed(_) => NotSent::Stopped,
        })
    }
}

fn fits(bytes: &[u8]) -> Result<(), NotSent> {
    if bytes.len() > CONTROL_BYTES {
        return Err(NotSent::TooLarge(bytes.len()));
    }
    Ok(())
}
