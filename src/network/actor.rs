//! The task that owns the swarm. It takes commands and libp2p's events in turn, answers or remembers who waits for what,
//! and never waits for anything but the next of them: application code hears of things through bounded queues.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use libp2p::gossipsub::{self, TopicHash};
use libp2p::kad::{QueryId, RecordKey};
use libp2p::request_response::{InboundRequestId, OutboundRequestId, ResponseChannel};
use libp2p::{Multiaddr, PeerId, Swarm};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::behaviour::Behaviour;
use super::blobs::{BLOB_PROTOCOL, BlobAccess};
use super::cap::{Cap, Way};
use super::commands::Command;
use super::conduct::{Ban, Conduct};
use super::connecting::{Connecting, Purpose};
use super::control::RequestToken;
use super::dial_error::DialError;
use super::events::{EventQueues, NetworkEvent, Slot};
use super::fetching::Fetcher;
use super::gossip::{PublishError, Published, SubscribeError, topic};
use super::handle::Bandwidth;
use super::identity::{peer_id, peer_key};
use super::limits::{GOSSIP_BYTES, TOPICS_PER_PEER};
use super::meeting::Meetings;
use super::outside::Sights;
use super::providers::{Kept, ProvideError, Provider, module_key};
use super::punching::Punching;
use super::rates::{self, GossipRates, Rates};
use super::relaying::Relaying;
use super::serving::{Offer, serve_all};
use super::swarm::StartError;
use super::traffic::Counters;
use crate::names::{ModuleId, PeerKey, RunId};

pub(super) struct Actor {
    pub(super) swarm: Swarm<Behaviour>,
    mailbox: mpsc::Receiver<Command>,
    pub(super) queues: EventQueues,
    pub(super) counters: Arc<Counters>,
    run: Option<RunId>,
    pub(super) topics: BTreeMap<TopicHash, ModuleId>,
    pub(super) provided: BTreeSet<ModuleId>,
    pub(super) kept: Kept,
    pub(super) connecting: Connecting,
    /// Connected, and known to speak our version.
    pub(super) identified: BTreeSet<PeerId>,
    /// Relays that are connected: for Kademlia as good as anybody.
    pub(super) relays_met: BTreeSet<PeerId>,
    /// Connected, and somebody waits to hear what they speak.
    pub(super) joining: Vec<Joining>,
    pub(super) asked: HashMap<OutboundRequestId, Asked>,
    pub(super) unanswered: BTreeMap<RequestToken, Unanswered>,
    pub(super) next_token: u64,
    pub(super) lookups: HashMap<QueryId, Lookup>,
    pub(super) relaying: Relaying,
    pub(super) punching: Punching,
    pub(super) meetings: Meetings,
    pub(super) gossip_rates: GossipRates,
    pub(super) request_rates: Rates<PeerId>,
    pub(super) conduct: Conduct,
    /// For whoever shows or keeps them.
    pub(super) bans: watch::Sender<Vec<Ban>>,
    /// Where others say that they see us.
    pub(super) seen: BTreeSet<Multiaddr>,
    /// Who says so.
    pub(super) sights: Sights,
    /// Peers that could not be connected to lately, and why.
    pub(super) failures: VecDeque<(PeerId, String)>,
    /// Whoever runs the machine has said where others reach it.
    pub(super) announced: Vec<Multiaddr>,
    pub(super) fetcher: Arc<Fetcher>,
    /// Fetches, and the one that accepts streams. Dropped with the actor, which ends them.
    pub(super) transfers: JoinSet<()>,
}

/// A caller of `dial` whose peer is connected but has not said what it speaks.
pub(super) struct Joining {
    pub peer: PeerId,
    pub address: Multiaddr,
    pub asked: Instant,
    pub connected: Instant,
    pub reply: oneshot::Sender<Result<PeerKey, DialError>>,
}

/// A request of ours that is under way.
pub(super) struct Asked {
    pub id: u64,
    pub to: PeerKey,
    pub slot: Slot,
}

/// A request of another peer that the application has not answered.
pub(super) struct Unanswered {
    pub peer: PeerId,
    pub request: InboundRequestId,
    pub channel: ResponseChannel<Vec<u8>>,
}

/// A lookup under way.
pub(super) struct Lookup {
    pub id: u64,
    pub module: ModuleId,
    pub key: RecordKey,
    pub found: BTreeMap<PeerKey, Provider>,
    pub slot: Slot,
}

impl Actor {
    pub(super) fn new(
        swarm: Swarm<Behaviour>,
        mailbox: mpsc::Receiver<Command>,
        queues: EventQueues,
        relaying: Relaying,
        blobs: Arc<dyn BlobAccess>,
        counters: Arc<Counters>,
        (bandwidth, bans): (Bandwidth, watch::Sender<Vec<Ban>>),
    ) -> Result<Self, StartError> {
        let mut control = swarm.behaviour().streams.0.new_control();
        let incoming = control
            .accept(BLOB_PROTOCOL)
            .map_err(|error| StartError::NotBuilt { part: "blob streams", reason: error.to_string() })?;
        let mut transfers = JoinSet::new();
        let [up, down] = [(bandwidth.upload_bytes_per_s, Way::Up), (bandwidth.download_bytes_per_s, Way::Down)]
            .map(|(bytes_per_s, way)| Cap::new(bytes_per_s, way, counters.clone()));
        let offer = Offer { access: blobs.clone(), counters: counters.clone(), cap: up };
        transfers.spawn(serve_all(incoming, Arc::new(offer)));
        Ok(Self {
            swarm,
            mailbox,
            queues,
            fetcher: Arc::new(Fetcher::new(control, blobs, counters.clone(), down)),
            counters,
            run: None,
            topics: BTreeMap::new(),
            provided: BTreeSet::new(),
            kept: Kept::default(),
            connecting: Connecting::default(),
            identified: BTreeSet::new(),
            relays_met: BTreeSet::new(),
            joining: Vec::new(),
            asked: HashMap::new(),
            unanswered: BTreeMap::new(),
            next_token: 0,
            lookups: HashMap::new(),
            relaying,
            punching: Punching::default(),
            meetings: Meetings::default(),
            gossip_rates: GossipRates::default(),
            request_rates: rates::requests(),
            conduct: Conduct::default(),
            bans,
            seen: BTreeSet::new(),
            sights: Sights::new(),
            failures: VecDeque::new(),
            announced: Vec::new(),
            transfers,
        })
    }

    /// Until the last handle is dropped.
    pub(super) async fn run(mut self) {
        let mut tick = tokio::time::interval(std::time::Duration::from_millis(500));
        loop {
            tokio::select! {
                command = self.mailbox.recv() => match command {
                    Some(command) => self.carry_out(command),
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

    fn carry_out(&mut self, command: Command) {
        // A reply whose asker has gone is of no interest to anybody: hence the `let _`.
        match command {
            Command::JoinRun { run, done } => {
                self.join_run(run);
                let _ = done.send(());
            }
            Command::Subscribe { module, reply } => {
                let _ = reply.send(self.subscribe(module));
            }
            Command::Unsubscribe { module, done } => {
                self.unsubscribe(module);
                let _ = done.send(());
            }
            Command::Publish { module, bytes, reply } => {
                let _ = reply.send(self.publish(module, bytes));
            }
            Command::Request { id, to, addresses, bytes, slot } => {
                self.connect(to, addresses, Purpose::Request { id, to, bytes, slot });
            }
            Command::Respond { token, bytes } => self.respond(token, bytes),
            Command::Fetch { id, blob, from, slot } => self.fetch(id, blob, from, slot),
            Command::Dial { address, reply } => self.dial(address, reply),
            Command::DialPeer { peer, addresses } => self.dial_peer(peer, addresses),
            Command::Disconnect { peer } => self.disconnect(peer),
            Command::Blame { peer, offence } => {
                if let Some(peer) = peer_id(peer) {
                    self.blame(&peer, offence);
                }
            }
            Command::RestoreBans { bans } => self.restore_bans(bans),
            Command::Provide { module, reply } => {
                let _ = reply.send(self.provide(module));
            }
            Command::StopProviding { module } => self.stop_providing(module),
            Command::FindProviders { id, module, slot } => self.find_providers(id, module, slot),
            Command::Listeners { reply } => {
                let _ = reply.send(self.addresses());
            }
            Command::Outside { reply } => {
                let _ = reply.send(self.outside());
            }
            Command::Outlook { reply } => {
                let _ = reply.send(self.outlook());
            }
            Command::Connections { reply } => {
                let _ = reply.send(self.identified.iter().filter_map(peer_key).collect());
            }
        }
    }

    fn disconnect(&mut self, peer: PeerKey) {
        if let Some(peer) = peer_id(peer) {
            // There may be none.
            let _ = self.swarm.disconnect_peer_id(peer);
        }
    }

    fn join_run(&mut self, run: RunId) {
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

    fn subscribe(&mut self, module: ModuleId) -> Result<(), SubscribeError> {
        let topic = topic(self.run.ok_or(SubscribeError::NoRun(module))?, module);
        if self.topics.len() >= TOPICS_PER_PEER && !self.topics.contains_key(&topic.hash()) {
            return Err(SubscribeError::TooMany(module));
        }
        // The filter knows all our topics, and nothing else can fail.
        self.swarm.behaviour_mut().gossip.subscribe(&topic).map_err(|_| SubscribeError::TooMany(module))?;
        let hash = topic.hash();
        for (peer, topics) in self.swarm.behaviour().gossip.all_peers() {
            if let (true, Some(peer)) = (topics.contains(&&hash), peer_key(peer)) {
                self.queues.subscribed(module, peer);
            }
        }
        self.topics.insert(hash, module);
        Ok(())
    }

    fn unsubscribe(&mut self, module: ModuleId) {
        let Some(run) = self.run else { return };
        let topic = topic(run, module);
        self.swarm.behaviour_mut().gossip.unsubscribe(&topic);
        self.topics.remove(&topic.hash());
    }

    fn publish(&mut self, module: ModuleId, bytes: Vec<u8>) -> Result<Published, PublishError> {
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
            Err(gossipsub::PublishError::Duplicate) => Ok(Published::Repeated),
            Err(gossipsub::PublishError::AllQueuesFull(peers)) => Err(PublishError::QueuesFull { module, peers }),
            Err(error) => Err(PublishError::NotMade { module, reason: error.to_string() }),
        }
    }

    fn respond(&mut self, token: RequestToken, bytes: Vec<u8>) {
        let Some(Unanswered { channel, .. }) = self.unanswered.remove(&token) else { return };
        let length = bytes.len();
        if self.swarm.behaviour_mut().control.send_response(channel, bytes).is_ok() {
            self.counters.control_sent.add(length);
        }
    }

    fn provide(&mut self, module: ModuleId) -> Result<(), ProvideError> {
        let run = self.run.ok_or(ProvideError::NoRun(module))?;
        if self.provided.len() >= TOPICS_PER_PEER && !self.provided.contains(&module) {
            return Err(ProvideError::TooMany(module));
        }
        let announced = self.swarm.behaviour_mut().providers.start_providing(module_key(run, module));
        announced.map_err(|_| ProvideError::TooMany(module))?;
        self.provided.insert(module);
        Ok(())
    }

    /// What was announced while there was nobody to hear it is announced again.
    pub(super) fn provide_again(&mut self) {
        for module in self.provided.clone() {
            if let Err(error) = self.provide(module) {
                tracing::debug!(%error, "not announced again");
            }
        }
    }

    fn stop_providing(&mut self, module: ModuleId) {
        let Some(run) = self.run else { return };
        self.swarm.behaviour_mut().providers.stop_providing(&module_key(run, module));
        self.provided.remove(&module);
    }

    fn find_providers(&mut self, id: u64, module: ModuleId, slot: Slot) {
        let Some(run) = self.run else {
            // Without a run nobody provides anything.
            drop(slot.send(NetworkEvent::Providers { id, module, providers: Vec::new() }));
            return;
        };
        let key = module_key(run, module);
        let query = self.swarm.behaviour_mut().providers.get_providers(key.clone());
        self.lookups.insert(query, Lookup { id, module, key, found: BTreeMap::new(), slot });
    }
}
