//! The task that owns the swarm. It handles commands and libp2p's events in turn, answers them or remembers the pending
//! reply, and never waits for anything else: the application learns of events through bounded queues.
//!
//! Each file here is one part of its work, in the order of a peer's life: `swarm_events` handles libp2p's events;
//! `reachability` and `reservations` make this peer findable; `dial`, `relay_connect` and `hole_punching` lead from a
//! purpose to a connection; `bans` disconnects peers with too many penalty points, `links`
//! shows the connections.

mod bans;
mod dial;
mod hole_punching;
mod links;
mod reachability;
mod relay_connect;
mod reservations;
mod swarm_events;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use libp2p::gossipsub::{self, TopicHash};
use libp2p::kad::{QueryId, RecordKey};
use libp2p::request_response::{InboundRequestId, OutboundRequestId, ResponseChannel};
use libp2p::{Multiaddr, PeerId, Swarm};
use libp2p_stream::AlreadyRegistered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::failpoints::failpoint;
use crate::names::{ModuleId, PeerKey, RunId};
use crate::network::blobs::fetch::Fetcher;
use crate::network::blobs::offer::Offer;
use crate::network::blobs::serve::serve_all;
use crate::network::blobs::transfer::Streams;
use crate::network::blobs::{BLOB_PROTOCOL, BlobAccess, FORWARD_PROTOCOL};
use crate::network::connectivity::connect::Connecting;
use crate::network::connectivity::dial_error::DialError;
use crate::network::connectivity::links::Links;
use crate::network::connectivity::observed_address::Sights;
use crate::network::connectivity::providers::{Provider, ProviderRecords, module_key};
use crate::network::connectivity::relays::Relays;
use crate::network::gossip::{PublishError, Published, TopicError, topic};
use crate::network::identity::{peer_id, peer_key};
use crate::network::limits::{GOSSIP_BYTES, TOPICS_PER_PEER};
use crate::network::protection::bandwidth_limiter::{Bandwidth, BandwidthLimiter};
use crate::network::protection::offences::{Ban, PeerScores};
use crate::network::protection::rate_limiter;
use crate::network::protection::rate_limiter::{GossipRateLimiter, KeyedRateLimiter, NamedRateLimiter};
use crate::network::rpc::RequestToken;
use crate::network::standing::PeerAccess;
pub(crate) use crate::network::swarm::actor::dial::Purpose;
use crate::network::swarm::actor::hole_punching::Punching;
use crate::network::swarm::actor::relay_connect::PendingRelays;
use crate::network::swarm::behaviour::Behaviour;
use crate::network::swarm::build::StartError;
use crate::network::swarm::events::{EventQueues, NetworkEvent, Slot};
use crate::network::traffic::{Counters, Direction};

/// A command to the task: a handle's method runs as a method of the task.
pub(crate) type Command = Box<dyn FnOnce(&mut Actor) + Send>;

pub(crate) struct Actor {
    pub(crate) swarm: Swarm<Behaviour>,
    mailbox: mpsc::Receiver<Command>,
    pub(crate) queues: EventQueues,
    pub(crate) began: Instant,
    pub(crate) counters: Arc<Counters>,
    run: Option<RunId>,
    pub(crate) topics: BTreeMap<TopicHash, ModuleId>,
    pub(crate) provided: BTreeSet<ModuleId>,
    pub(crate) provider_records: ProviderRecords,
    pub(crate) connecting: Connecting<Purpose>,
    /// Connected peers with the same protocol version.
    pub(crate) identified: BTreeSet<PeerId>,
    /// Connected relays, which are nodes for Kademlia.
    pub(crate) connected_relays: BTreeSet<PeerId>,
    /// Dials whose peer is connected but has not identified itself.
    pub(crate) joining: Vec<Joining>,
    pub(crate) asked: HashMap<OutboundRequestId, Asked>,
    pub(crate) unanswered: BTreeMap<RequestToken, Unanswered>,
    pub(crate) next_token: u64,
    pub(crate) lookups: HashMap<QueryId, Lookup>,
    pub(crate) relays: Relays,
    pub(crate) punching: Punching,
    pub(crate) pending_relays: PendingRelays,
    pub(crate) gossip_rates: GossipRateLimiter,
    pub(crate) request_rates: KeyedRateLimiter<PeerId>,
    pub(crate) named_rates: NamedRateLimiter,
    /// The same for members.
    pub(crate) member_rates: NamedRateLimiter,
    pub(crate) scores: PeerScores,
    pub(crate) access: Arc<dyn PeerAccess>,
    /// For the application, which shows and stores them.
    pub(crate) bans: watch::Sender<Vec<Ban>>,
    pub(crate) links: watch::Sender<Links>,
    /// The last answered ping of each connected peer.
    pub(crate) round_trips: BTreeMap<PeerId, Duration>,
    /// A relay has tried to reach this peer at its newest address, and has failed.
    pub(crate) was_not_reached: bool,
    /// Observed addresses of this peer.
    pub(crate) seen: BTreeSet<Multiaddr>,
    /// The latest observation of each peer.
    pub(crate) sights: Sights,
    /// Recent failures to connect, with their reasons.
    pub(crate) failures: VecDeque<(PeerId, String)>,
    /// The addresses that the machine's owner has announced.
    pub(crate) announced: Vec<Multiaddr>,
    pub(crate) fetcher: Arc<Fetcher>,
    /// Fetches, and the task that accepts streams. Dropped with the actor, which ends them.
    pub(crate) transfers: JoinSet<()>,
}

/// A caller of `dial` whose peer is connected but has not identified itself.
pub(crate) struct Joining {
    pub peer: PeerId,
    pub address: Multiaddr,
    pub asked: Instant,
    pub connected: Instant,
    pub reply: oneshot::Sender<Result<PeerKey, DialError>>,
}

/// An own pending request.
pub(crate) struct Asked {
    pub id: u64,
    pub to: PeerKey,
    pub slot: Slot,
}

/// A request of another peer that the application has not answered.
pub(crate) struct Unanswered {
    pub peer: PeerId,
    pub request: InboundRequestId,
    pub channel: ResponseChannel<Vec<u8>>,
}

/// A pending lookup.
pub(crate) struct Lookup {
    pub id: u64,
    pub key: RecordKey,
    pub found: BTreeMap<PeerKey, Provider>,
    pub slot: Slot,
}

impl Actor {
    #[expect(clippy::disallowed_methods, reason = "an edge: where the seconds of budgets begin")]
    pub(crate) fn new(
        swarm: Swarm<Behaviour>,
        mailbox: mpsc::Receiver<Command>,
        queues: EventQueues,
        relays: Relays,
        blobs: Arc<dyn BlobAccess>,
        counters: Arc<Counters>,
        (bandwidth, bans, links): (Bandwidth, watch::Sender<Vec<Ban>>, watch::Sender<Links>),
    ) -> Result<Self, StartError> {
        let mut control = swarm.behaviour().streams.0.new_control();
        let not_built =
            |error: AlreadyRegistered| StartError::NotBuilt { part: "blob streams", reason: error.to_string() };
        let incoming = control.accept(BLOB_PROTOCOL).map_err(not_built)?;
        let to_forward = control.accept(FORWARD_PROTOCOL).map_err(not_built)?;
        let mut transfers = JoinSet::new();
        let [up, down] =
            [(bandwidth.upload_bytes_per_s, Direction::Up), (bandwidth.download_bytes_per_s, Direction::Down)]
                .map(|(bytes_per_s, direction)| BandwidthLimiter::new(bytes_per_s, direction, counters.clone()));
        let origins = swarm.behaviour().routes.origins();
        let streams = Arc::new(Streams::new(control, counters.clone(), down));
        let limit_bytes_per_s = bandwidth.download_bytes_per_s;
        let fetcher = Fetcher::new(streams.clone(), blobs.clone(), origins.clone(), limit_bytes_per_s);
        let (access, counted) = (blobs.clone(), counters.clone());
        let offer = Offer { access, origins, counters: counted, limiter: up, streams };
        transfers.spawn(serve_all(incoming, to_forward, Arc::new(offer)));
        Ok(Self {
            swarm,
            mailbox,
            queues,
            began: Instant::now(),
            fetcher: Arc::new(fetcher),
            counters,
            run: None,
            topics: BTreeMap::new(),
            provided: BTreeSet::new(),
            provider_records: ProviderRecords::default(),
            connecting: Connecting::default(),
            identified: BTreeSet::new(),
            connected_relays: BTreeSet::new(),
            joining: Vec::new(),
            asked: HashMap::new(),
            unanswered: BTreeMap::new(),
            next_token: 0,
            lookups: HashMap::new(),
            relays,
            punching: Punching::default(),
            pending_relays: PendingRelays::default(),
            gossip_rates: GossipRateLimiter::default(),
            request_rates: rate_limiter::requests(),
            named_rates: NamedRateLimiter::default(),
            member_rates: NamedRateLimiter::default(),
            scores: PeerScores::default(),
            access: blobs.clone(),
            bans,
            links,
            round_trips: BTreeMap::new(),
            was_not_reached: false,
            seen: BTreeSet::new(),
            sights: Sights::new(),
            failures: VecDeque::new(),
            announced: Vec::new(),
            transfers,
        })
    }

    /// Until the last handle is dropped.
    pub(crate) async fn run(mut self) {
        let mut tick = tokio::time::interval(Duration::from_millis(500));
        loop {
            failpoint("network");
            tokio::select! {
                command = self.mailbox.recv() => match command {
                    Some(command) => command(&mut self),
                    None => return,
                },
                event = self.swarm.select_next_some() => self.on_swarm_event(event),
                () = self.queues.tell() => {}
                Some(ended) = self.transfers.join_next() => if let Err(error) = ended {
                    tracing::error!(%error, "a transfer failed in a way that it should not");
                },
                _ = tick.tick() => self.look_after(),
            }
        }
    }

    pub(crate) fn disconnect(&mut self, peer: PeerKey) {
        if let Some(peer) = peer_id(peer) {
            // There may be no connection.
            let _ = self.swarm.disconnect_peer_id(peer);
        }
    }

    pub(crate) fn gossip_with(&mut self, peers: Vec<PeerKey>) {
        for peer in peers.into_iter().filter_map(peer_id) {
            self.swarm.behaviour_mut().gossip.begin_with(peer);
        }
    }

    pub(crate) fn join_run(&mut self, run: RunId) {
        if self.run == Some(run) {
            return;
        }
        let modules: BTreeSet<ModuleId> = self.topics.values().chain(&self.provided).copied().collect();
        for module in modules {
            self.unsubscribe(module);
            self.stop_providing(module);
        }
        self.run = Some(run);
    }

    pub(crate) fn subscribe(&mut self, module: ModuleId) -> Result<(), TopicError> {
        let topic = topic(self.run.ok_or(TopicError::NoRun(module))?, module);
        if self.topics.len() >= TOPICS_PER_PEER && !self.topics.contains_key(&topic.hash()) {
            return Err(TopicError::TooMany(module));
        }
        // The filter allows all our topics, and nothing else can fail.
        self.swarm.behaviour_mut().gossip.subscribe(&topic).map_err(|_| TopicError::TooMany(module))?;
        let hash = topic.hash();
        for (peer, topics) in self.swarm.behaviour().gossip.all_peers() {
            if let (true, Some(peer)) = (topics.contains(&&hash), peer_key(peer)) {
                self.queues.subscribed(module, peer);
            }
        }
        self.topics.insert(hash, module);
        Ok(())
    }

    pub(crate) fn unsubscribe(&mut self, module: ModuleId) {
        let Some(run) = self.run else { return };
        let topic = topic(run, module);
        self.swarm.behaviour_mut().gossip.unsubscribe(&topic);
        self.topics.remove(&topic.hash());
    }

    pub(crate) fn publish(&mut self, module: ModuleId, bytes: Vec<u8>) -> Result<Published, PublishError> {
        let topic = topic(self.run.ok_or(PublishError::NoRun(module))?, module);
        let length = bytes.len();
        if length > GOSSIP_BYTES {
            return Err(PublishError::TooLarge { module, bytes: length });
        }
        match self.swarm.behaviour_mut().gossip.publish(topic.hash(), bytes) {
            Ok(_) => {
                self.counters.gossip_sent.add(length);
                Ok(Published::Sent)
            }
            Err(gossipsub::PublishError::NoPeersSubscribedToTopic) => Ok(Published::NobodyListens),
            Err(gossipsub::PublishError::AllQueuesFull(peers)) => Err(PublishError::QueuesFull { module, peers }),
            Err(error) => Err(PublishError::NotMade { module, reason: error.to_string() }),
        }
    }

    pub(crate) fn respond(&mut self, token: RequestToken, bytes: Vec<u8>) {
        let Some(Unanswered { channel, .. }) = self.unanswered.remove(&token) else { return };
        let length = bytes.len();
        if self.swarm.behaviour_mut().control.send_response(channel, bytes).is_ok() {
            self.counters.control_sent.add(length);
        }
    }

    pub(crate) fn provide(&mut self, module: ModuleId) -> Result<(), TopicError> {
        let run = self.run.ok_or(TopicError::NoRun(module))?;
        if self.provided.len() >= TOPICS_PER_PEER && !self.provided.contains(&module) {
            return Err(TopicError::TooMany(module));
        }
        let announced = self.swarm.behaviour_mut().providers.start_providing(module_key(run, module));
        announced.map_err(|_| TopicError::TooMany(module))?;
        self.provided.insert(module);
        Ok(())
    }

    /// Repeats announcements made while no peer was connected.
    pub(crate) fn provide_again(&mut self) {
        for module in self.provided.clone() {
            if let Err(error) = self.provide(module) {
                tracing::debug!(%error, "not announced again");
            }
        }
    }

    pub(crate) fn stop_providing(&mut self, module: ModuleId) {
        let Some(run) = self.run else { return };
        self.swarm.behaviour_mut().providers.stop_providing(&module_key(run, module));
        self.provided.remove(&module);
    }

    pub(crate) fn find_providers(&mut self, id: u64, module: ModuleId, slot: Slot) {
        let Some(run) = self.run else {
            // Without a run there are no providers.
            drop(slot.send(NetworkEvent::Providers { id, providers: Vec::new() }));
            return;
        };
        let key = module_key(run, module);
        let query = self.swarm.behaviour_mut().providers.get_providers(key.clone());
        self.lookups.insert(query, Lookup { id, key, found: BTreeMap::new(), slot });
    }
}
