//! Handles libp2p's events. The other half of the actor.

use std::error::Error as _;
use std::io;
use std::time::Instant;

use futures::StreamExt;
use libp2p::core::transport::ListenerId;
use libp2p::gossipsub::{self, MessageAcceptance};
use libp2p::kad::{self, GetProvidersOk, InboundRequest, QueryResult};
use libp2p::request_response::{self, Message};
use libp2p::swarm::{StreamUpgradeError, SwarmEvent};
use libp2p::{Multiaddr, PeerId, identify, ping};

use crate::names::{ModuleId, PeerKey};
use crate::network::connectivity::address_scope::Scope;
use crate::network::connectivity::addresses::{full, with_ports_of};
use crate::network::connectivity::dial_error::DialError;
use crate::network::connectivity::providers::{learn, provider_of};
use crate::network::connectivity::reachability::is_relay;
use crate::network::identity::peer_key;
use crate::network::limits::{
    GOSSIP_BYTES, IDENTIFY_TIMEOUT, LISTEN_TIMEOUT, PROVIDERS_PER_LOOKUP, UNANSWERED_FOR_MEMBERS, UNANSWERED_REQUESTS,
    UNANSWERED_REQUESTS_PER_PEER,
};
use crate::network::protection::offences::{Offence, now_s};
use crate::network::protection::rate_limiter::Pace;
use crate::network::rpc::{CONTROL_PROTOCOL, RequestToken};
use crate::network::standing::{Standing, Verdict};
use crate::network::swarm::actor::{Actor, Asked, Joining, Unanswered};
use crate::network::swarm::behaviour::BehaviourEvent;
use crate::network::swarm::build::{StartError, listen};
use crate::network::swarm::events::NetworkEvent;
use crate::network::swarm::families::{Listening, Wait, listen_on_all, silence};

type ControlEvent = request_response::Event<Vec<u8>, Vec<u8>>;

impl Listening for Actor {
    async fn open(&mut self, address: &Multiaddr, wait: Wait) -> Result<(), StartError> {
        match wait {
            Wait::UntilUp => self.open_and_wait(address).await,
            Wait::No => listen(&mut self.swarm, address).map(drop),
        }
    }
}

impl Actor {
    /// Opens the listening addresses and waits until each is up, so that they can be told to others at once.
    pub(crate) async fn listen(&mut self, addresses: &[Multiaddr], announced: &[Multiaddr]) -> Result<(), StartError> {
        self.announced = announced.to_vec();
        for address in announced {
            self.swarm.add_external_address(address.clone());
        }
        listen_on_all(self, addresses).await
    }

    /// For "any port", reuses the port of an existing listener, so that a user has to open one port in a router or
    /// firewall for both address families.
    async fn open_and_wait(&mut self, address: &Multiaddr) -> Result<(), StartError> {
        let listeners: Vec<Multiaddr> = self.swarm.listeners().cloned().collect();
        let same_port = with_ports_of(&listeners, std::slice::from_ref(address));
        match same_port.first().filter(|same| *same != address).map(|same| listen(&mut self.swarm, same)) {
            Some(Ok(listener)) => self.is_up(listener, address).await,
            _ => {
                let listener = listen(&mut self.swarm, address)?;
                self.is_up(listener, address).await
            }
        }
    }

    async fn is_up(&mut self, listener: ListenerId, address: &Multiaddr) -> Result<(), StartError> {
        let up = async {
            loop {
                match self.swarm.select_next_some().await {
                    SwarmEvent::NewListenAddr { listener_id, address } => {
                        self.queues.listening(full(&address, *self.swarm.local_peer_id()));
                        if listener_id == listener {
                            return Ok(());
                        }
                    }
                    SwarmEvent::ListenerClosed { listener_id, reason: Err(error), .. } if listener_id == listener => {
                        return Err(error.to_string());
                    }
                    other => self.on_swarm_event(other),
                }
            }
        };
        tokio::time::timeout(LISTEN_TIMEOUT, up)
            .await
            .unwrap_or_else(|_| Err(silence(address)))
            .map_err(|reason| StartError::NotListening { address: address.clone(), reason })
    }

    /// Waits a while for a reservation on a relay, if one is needed, so that other peers know of it from the start.
    #[expect(clippy::disallowed_methods, reason = "an edge: when a relay is asked")]
    pub(crate) async fn wait_for_reservation(&mut self) {
        self.register_relays();
        self.request_reservations(Instant::now());
        let settled = async {
            while !self.relays.is_settled() {
                let event = self.swarm.select_next_some().await;
                self.on_swarm_event(event);
            }
        };
        // Without a reservation, it is requested again while the peer runs.
        let _ = tokio::time::timeout(LISTEN_TIMEOUT, settled).await;
    }

    pub(crate) fn on_swarm_event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(BehaviourEvent::Gossip(event)) => self.on_gossip(event),
            SwarmEvent::Behaviour(BehaviourEvent::Control(event)) => self.on_control(event),
            SwarmEvent::Behaviour(BehaviourEvent::Providers(event)) => self.on_providers(event),
            SwarmEvent::Behaviour(BehaviourEvent::Identify(event)) => self.on_identify(event),
            SwarmEvent::Behaviour(BehaviourEvent::Ping(event)) => self.on_ping(&event),
            SwarmEvent::Behaviour(BehaviourEvent::Relay(event)) => self.on_relay_client(&event),
            SwarmEvent::Behaviour(BehaviourEvent::Punching(event)) => self.on_punched(&event),
            SwarmEvent::Behaviour(BehaviourEvent::Prober(event)) => self.on_probed(&event),
            SwarmEvent::Behaviour(BehaviourEvent::Router(event)) => Self::on_router(&event),
            SwarmEvent::Behaviour(BehaviourEvent::Neighbours(event)) => self.on_neighbours(&event),
            SwarmEvent::ConnectionEstablished { peer_id, endpoint, .. } => {
                for purpose in self.connecting.connected(peer_id) {
                    self.proceed(peer_id, purpose);
                }
                if !endpoint.is_relayed() {
                    self.on_direct(peer_id);
                }
            }
            SwarmEvent::ConnectionClosed { peer_id, num_established: 0, cause, .. } => {
                let why = cause.map_or_else(|| "without a reason".to_owned(), |cause| cause.to_string());
                self.on_gone(peer_id, &why);
            }
            SwarmEvent::OutgoingConnectionError { peer_id: Some(peer), connection_id, error } => {
                if let Some(failed) = self.connecting.failed(&mut self.swarm, peer, connection_id, error) {
                    self.on_failed(peer, failed);
                }
                if !self.swarm.is_connected(&peer) {
                    self.on_relay_ready(&peer);
                }
            }
            SwarmEvent::NewListenAddr { address, .. } => {
                self.queues.listening(full(&address, *self.swarm.local_peer_id()));
            }
            SwarmEvent::ExpiredListenAddr { address, .. } => {
                self.queues.not_listening(full(&address, *self.swarm.local_peer_id()));
            }
            SwarmEvent::ListenerClosed { listener_id, addresses, reason } => {
                let why = reason.map_or_else(|error| error.to_string(), |()| "it was closed".to_owned());
                self.on_listener_closed(listener_id, addresses, &why);
            }
            SwarmEvent::NewExternalAddrCandidate { address } => self.on_candidate(address),
            SwarmEvent::ExternalAddrConfirmed { address } => self.on_confirmed(&address),
            SwarmEvent::ExternalAddrExpired { address } => self.on_lost(&address),
            SwarmEvent::IncomingConnectionError { error, .. } => {
                tracing::debug!(%error, "an incoming connection failed");
            }
            _ => {}
        }
    }

    fn on_gossip(&mut self, event: gossipsub::Event) {
        match event {
            gossipsub::Event::Message { propagation_source, message_id, message } => {
                let (verdict, heard) = self.verdict(&propagation_source, &message);
                let acceptance = match verdict {
                    Verdict::Accept => MessageAcceptance::Accept,
                    Verdict::Ignore => MessageAcceptance::Ignore,
                    Verdict::Reject => MessageAcceptance::Reject,
                };
                let gossip = &mut self.swarm.behaviour_mut().gossip;
                gossip.report_message_validation_result(&message_id, &propagation_source, acceptance);
                match heard {
                    Some((module, author)) if verdict == Verdict::Accept => {
                        self.counters.gossip_received.add(message.data.len());
                        let named = message.source.map(|author| self.swarm.behaviour().providers.scope_of(&author));
                        self.queues.gossip(module, author, message.data, named.unwrap_or(Scope::Public));
                    }
                    _ => self.counters.gossip_dropped.add(1),
                }
            }
            gossipsub::Event::Subscribed { peer_id, topic } => {
                if let (Some(module), Some(peer)) = (self.topics.get(&topic), peer_key(&peer_id)) {
                    self.queues.subscribed(*module, peer);
                }
            }
            gossipsub::Event::SlowPeer { peer_id, failed_messages } => {
                let unsent = failed_messages.priority + failed_messages.non_priority;
                tracing::debug!(peer = %peer_id, unsent, "a peer is slow to take gossip");
            }
            _ => {}
        }
    }

    /// Whether a message is forwarded and handled: judged at once, by its form, the rates, and the admission of its author
    /// and of the peer that it came from. Each receiver checks the contents, and the mesh must not wait for that.
    fn verdict(&mut self, from: &PeerId, message: &gossipsub::Message) -> (Verdict, Option<(ModuleId, PeerKey)>) {
        let Some(module) = self.topics.get(&message.topic).copied() else { return (Verdict::Ignore, None) };
        let Some((source, author)) = message.source.and_then(|source| Some((source, peer_key(&source)?))) else {
            return (Verdict::Reject, None);
        };
        if message.data.len() > GOSSIP_BYTES {
            return (Verdict::Reject, None);
        }
        let admitted = peer_key(from).is_some_and(|from| self.access.standing(from).gossips());
        if !admitted || self.scores.is_banned(author, now_s()) {
            return (Verdict::Ignore, None);
        }
        let standing = self.access.standing(author);
        let verdict = match self.gossip_rates.heard(from, &source, standing, self.began.elapsed()) {
            Pace::Fine => self.access.verdict(author, &message.data),
            Pace::TooMuch => Verdict::Ignore,
            Pace::Flood => {
                self.penalize(from, Offence::TooFast);
                Verdict::Ignore
            }
        };
        if verdict == Verdict::Reject {
            self.penalize(&source, Offence::Unreadable);
        }
        (verdict, Some((module, author)))
    }

    fn on_control(&mut self, event: ControlEvent) {
        match event {
            ControlEvent::Message { peer, message: Message::Request { request_id, request, channel }, .. } => {
                self.on_request(peer, request, Unanswered { peer, request: request_id, channel });
            }
            ControlEvent::Message { peer, message: Message::Response { request_id, response }, .. } => {
                self.counters.control_received.add(response.len());
                if let Some(Asked { id, to, slot }) = self.asked.remove(&request_id) {
                    let may_name = self.swarm.behaviour().providers.scope_of(&peer);
                    slot.send(NetworkEvent::Response { id, from: to, result: Ok(response), may_name });
                }
            }
            ControlEvent::OutboundFailure { request_id, error, .. } => {
                if let Some(Asked { id, to, slot }) = self.asked.remove(&request_id) {
                    slot.send(NetworkEvent::failed(id, to, error.into()));
                }
            }
            ControlEvent::InboundFailure { request_id, .. } => {
                self.unanswered.retain(|_, unanswered| unanswered.request != request_id);
            }
            ControlEvent::ResponseSent { .. } => {}
        }
    }

    /// Dropping the channel closes the stream, which tells the requester at once.
    fn on_request(&mut self, peer: PeerId, bytes: Vec<u8>, unanswered: Unanswered) {
        self.counters.control_received.add(bytes.len());
        let Some(from) = peer_key(&peer) else { return };
        if !self.request_rates.allows(&peer) {
            return self.penalize(&peer, Offence::TooFast);
        }
        let of_this_peer = self.unanswered.values().filter(|unanswered| unanswered.peer == peer).count();
        let token = RequestToken(self.next_token);
        let most = match self.access.standing(from) {
            Standing::Member => UNANSWERED_REQUESTS,
            _ => UNANSWERED_REQUESTS - UNANSWERED_FOR_MEMBERS,
        };
        if of_this_peer >= UNANSWERED_REQUESTS_PER_PEER
            || self.unanswered.len() >= most
            || !self.queues.request(from, token, bytes)
        {
            return;
        }
        self.next_token += 1;
        self.unanswered.insert(token, unanswered);
    }

    fn on_providers(&mut self, event: kad::Event) {
        let local = *self.swarm.local_peer_id();
        let providers = &mut self.swarm.behaviour_mut().providers;
        match event {
            kad::Event::InboundRequest { request: InboundRequest::AddProvider { record: Some(record) } } => {
                self.provider_records.keep(providers, record);
            }
            kad::Event::OutboundQueryProgressed { id, result: QueryResult::GetProviders(result), step, .. } => {
                if let Some(lookup) = self.lookups.get_mut(&id)
                    && let Ok(GetProvidersOk::FoundProviders { providers: peers, .. }) = result
                {
                    for peer in peers.into_iter().filter(|peer| *peer != local) {
                        let Some(provider) = provider_of(providers, &lookup.key, peer) else { continue };
                        let known = lookup.found.get(&provider.peer);
                        let better = known.is_none_or(|known| known.addresses.len() < provider.addresses.len());
                        if better && (known.is_some() || lookup.found.len() < PROVIDERS_PER_LOOKUP) {
                            lookup.found.insert(provider.peer, provider);
                        }
                    }
                    if lookup.found.len() >= PROVIDERS_PER_LOOKUP
                        && let Some(mut query) = providers.query_mut(&id)
                    {
                        query.finish();
                    }
                }
                if step.last
                    && let Some(lookup) = self.lookups.remove(&id)
                {
                    let providers = lookup.found.into_values().collect();
                    lookup.slot.send(NetworkEvent::Providers { id: lookup.id, providers });
                }
            }
            _ => {}
        }
    }

    fn on_identify(&mut self, event: identify::Event) {
        match event {
            identify::Event::Received { peer_id, info, connection_id } if self.swarm.is_connected(&peer_id) => {
                if !info.protocols.contains(&CONTROL_PROTOCOL) {
                    self.on_stranger(peer_id, &info.agent_version);
                    return;
                }
                self.on_seen(&peer_id, connection_id, &info);
                let relay = is_relay(&info);
                match relay {
                    true => self.on_relay(peer_id, info.listen_addrs),
                    false => learn(&mut self.swarm.behaviour_mut().providers, peer_id, info.listen_addrs),
                }
                self.on_identified(peer_id, relay);
            }
            identify::Event::Error { peer_id, connection_id, error } if !self.is_identified(&peer_id) => {
                tracing::debug!(peer = %peer_id, %error, "a peer did not identify itself");
                if is_broken(&error) {
                    // It says nothing of the peer, which may have another connection: that of a punched hole, say.
                    self.swarm.close_connection(connection_id);
                } else {
                    self.on_stranger(peer_id, "unknown: it does not identify itself");
                }
            }
            _ => {}
        }
    }

    fn is_identified(&self, peer: &PeerId) -> bool {
        self.identified.contains(peer) || self.connected_relays.contains(peer)
    }

    /// A relay is a node for Kademlia, but not a peer of the run.
    fn on_identified(&mut self, peer: PeerId, relay: bool) {
        let Some(key) = peer_key(&peer) else { return };
        let first = match relay {
            true => self.connected_relays.insert(peer) && self.identified.is_empty(),
            false => self.identified.insert(peer) && self.identified.len() == 1,
        };
        if !relay {
            self.queues.connected(key, true);
        }
        if first {
            self.provide_again();
        }
        if relay {
            self.on_relay_ready(&peer);
        }
        let joined = self.leave_joining(|joining| joining.peer == peer);
        if !joined.is_empty() {
            // Fails only if no peer is known, and then there is none to ask.
            let _ = self.swarm.behaviour_mut().providers.bootstrap();
        }
        for Joining { reply, .. } in joined {
            drop(reply.send(Ok(key)));
        }
    }

    /// A peer with another protocol version only takes up a connection.
    fn on_stranger(&mut self, peer: PeerId, agent: &str) {
        let found: String = agent.chars().take(80).collect();
        tracing::debug!(%peer, agent = found, "a peer has another protocol version");
        for Joining { address, reply, .. } in self.leave_joining(|joining| joining.peer == peer) {
            drop(reply.send(Err(DialError::AnotherVersion { address, found: found.clone() })));
        }
        let _ = self.swarm.disconnect_peer_id(peer);
    }

    fn on_gone(&mut self, peer: PeerId, why: &str) {
        self.connected_relays.remove(&peer);
        self.round_trips.remove(&peer);
        self.end_waiting(peer);
        if self.identified.remove(&peer)
            && let Some(key) = peer_key(&peer)
        {
            self.queues.connected(key, false);
        }
        for Joining { address, asked, reply, .. } in self.leave_joining(|joining| joining.peer == peer) {
            let reason = format!("the connection was closed {why}");
            drop(reply.send(Err(DialError::Failed { address, waited: asked.elapsed(), reason })));
        }
    }

    /// libp2p reports a failed ping but does not close the connection, so a dead one would stay until it is written to.
    fn on_ping(&mut self, event: &ping::Event) {
        match &event.result {
            Ok(took) => self.on_round_trip(event.peer, *took),
            Err(ping::Failure::Unsupported) => {}
            Err(error) => {
                tracing::debug!(peer = %event.peer, %error, "a connection is dead");
                self.swarm.close_connection(event.connection);
            }
        }
    }

    pub(crate) fn give_up_joining(&mut self, now: Instant) {
        for Joining { address, asked, reply, .. } in
            self.leave_joining(|joining| now.duration_since(joining.connected) >= IDENTIFY_TIMEOUT)
        {
            let reason = "it did not list its protocols".to_owned();
            drop(reply.send(Err(DialError::Failed { address, waited: asked.elapsed(), reason })));
        }
    }

    fn leave_joining(&mut self, which: impl Fn(&Joining) -> bool) -> Vec<Joining> {
        let (left, stay) = std::mem::take(&mut self.joining).into_iter().partition(which);
        self.joining = stay;
        left
    }
}

/// Whether identification failed with the connection or its stream, and not by what the peer speaks.
fn is_broken(error: &StreamUpgradeError<identify::UpgradeError>) -> bool {
    use identify::UpgradeError::{Codec, Io, StreamClosed};
    match error {
        StreamUpgradeError::Io(_) | StreamUpgradeError::Timeout => true,
        StreamUpgradeError::Apply(Io(_) | StreamClosed) => true,
        // The codec also says what befell its stream, and what cannot be decoded is invalid data.
        StreamUpgradeError::Apply(Codec(error)) => {
            let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
            cause.is_some_and(|cause| cause.kind() != io::ErrorKind::InvalidData)
        }
        StreamUpgradeError::Apply(_) | StreamUpgradeError::NegotiationFailed => false,
    }
}
