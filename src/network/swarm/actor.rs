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

use crate::names::{ModuleId, PeerKey, RunId};
use crate::network::blobs::fetch::Fetcher;
use crate::network::blobs::rate_limiter::{Cap, Way};
use crate::network::blobs::serve::{Offer, serve_all};
use crate::network::blobs::{BLOB_PROTOCOL, BlobAccess};
use crate::network::connectivity::connect::{Connecting, Purpose};
use crate::network::connectivity::dial_error::DialError;
use crate::network::connectivity::hole_punching::Punching;
use crate::network::connectivity::observed_address::Sights;
use crate::network::connectivity::providers::{Kept, ProvideError, Provider, module_key};
use crate::network::gossip::{PublishError, Published, SubscribeError, topic};
use crate::network::identity::{peer_id, peer_key};
use crate::network::limits::{GOSSIP_BYTES, TOPICS_PER_PEER};
use crate::network::protection::rate_limiter;
use crate::network::protection::rate_limiter::{GossipRates, Rates};
use crate::network::protection::score::{Ban, Conduct};
use crate::network::relay::relay_connect::Meetings;
use crate::network::relay::relays::Relaying;
use crate::network::rpc::RequestToken;
use crate::network::swarm::behaviour::Behaviour;
use crate::network::swarm::build::StartError;
use crate::network::swarm::commands::Command;
use crate::network::swarm::events::{EventQueues, NetworkEvent, Slot};
use crate::network::swarm::handle::Bandwidth;
use crate::network::traffic::Counters;

pub(in crate::network) struct Actor {
    pub(in crate::network) swarm: Swarm<Behaviour>,
    mailbox: mpsc::Receiver<Command>,
    pub(in crate::network) queues: EventQueues,
    pub(in crate::network) counters: Arc<Counters>,
    run: Option<RunId>,
    pub(in crate::network) topics: BTreeMap<TopicHash, ModuleId>,
    pub(in crate::network) provided: BTreeSet<ModuleId>,
    pub(in crate::network) kept: Kept,
    pub(in crate::network) connecting: Connecting,
    /// Connected, and known to speak our version.
    pub(in crate::network) identified: BTreeSet<PeerId>,
    /// Relays that are connected: for Kademlia as good as anybody.
    pub(in crate::network) relays_met: BTreeSet<PeerId>,
    /// Connected, and somebody waits to hear what they speak.
    pub(in crate::network) joining: Vec<Joining>,
    pub(in crate::network) asked: HashMap<OutboundRequestId, Asked>,
    pub(in crate::network) unanswered: BTreeMap<RequestToken, Unanswered>,
    pub(in crate::network) next_token: u64,
    pub(in crate::network) lookups: HashMap<QueryId, Lookup>,
    pub(in crate::network) relaying: Relaying,
    pub(in crate::network) punching: Punching,
    pub(in crate::network) meetings: Meetings,
    pub(in crate::network) gossip_rates: GossipRates,
    pub(in crate::network) request_rates: Rates<PeerId>,
    pub(in crate::network) conduct: Conduct,
    /// For whoever shows or keeps them.
    pub(in crate::network) bans: watch::Sender<Vec<Ban>>,
    /// Where others say that they see us.
    pub(in crate::network) seen: BTreeSet<Multiaddr>,
    /// Who says so.
    pub(in crate::network) sights: Sights,
    /// Peers that could not be connected to lately, and why.
    pub(in crate::network) failures: VecDeque<(PeerId, String)>,
    /// Whoever runs the machine has said where others reach it.
    pub(in crate::network) announced: Vec<Multiaddr>,
    pub(in crate::network) fetcher: Arc<Fetcher>,
    /// Fetches, and the one that accepts streams. Dropped with the actor, which ends them.
    pub(in crate::network) transfers: JoinSet<()>,
}

/// A caller of `dial` whose peer is connected but has not said what it speaks.
pub(in crate::network) struct Joining {
    pub peer: PeerId,
    pub address: Multiaddr,
    pub asked: Instant,
    pub connected: Instant,
    pub reply: oneshot::Sender<Result<PeerKey, DialError>>,
}

/// A request of ours that is under way.
pub(in crate::network) struct Asked {
    pub id: u64,
    pub to: PeerKey,
    pub slot: Slot,
}

/// A request of another peer that the application has not answered.
pub(in crate::network) struct Unanswered {
    pub peer: PeerId,
    pub request: InboundRequestId,
    pub channel: ResponseChannel<Vec<u8>>,
}

/// A lookup under way.
pub(in crate::network) struct Lookup {
    pub id: u64,
    pub module: ModuleId,
    pub key: RecordKey,
    pub found: BTreeMap<PeerKey, Provider>,
    pub slot: Slot,
}

impl Actor {
    pub(in crate::network) fn new(
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
            request_rates: rate_limiter::requests(),
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
    pub(in crate::network) async fn run(mut self) {
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
    pub(in crate::network) fn provide_again(&mut self) {
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
