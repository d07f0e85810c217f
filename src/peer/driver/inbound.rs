//! Translates events of the network to events of the node. A message that does not decode, or an update without its
//! owner's signature, is dropped here and penalized.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::access::authentication::{AccessNotice, AuthenticationRequest, AuthenticationResponse};
use crate::names::{ModuleId, PeerKey};
use crate::network::{Multiaddr, NetworkEvent, Offence, RequestToken, Scope, with_peer, worth_telling};
use crate::peer::access::signatures::{signature_holds, signatures_hold, start_holds};
use crate::peer::driver::access::AccessState;
use crate::peer::driver::{Driver, PeerError};
use crate::peer::respond::respond;
use crate::protocol::limits::MAX_ADDRESSES;
use crate::protocol::wire::encoding;
use crate::protocol::wire::encoding::WireError;
use crate::protocol::wire::message::{Evidence, FraudProof};
use crate::protocol::{Event, Message, ReplyToken, Request, RequestId, Response};

/// Requests of other peers that the node has not answered yet.
#[derive(Default)]
pub(crate) struct Requests {
    tokens: BTreeMap<ReplyToken, RequestToken>,
    next_token: u64,
}

impl Driver {
    pub(crate) fn handle_network_event(&mut self, event: NetworkEvent) -> Result<(), PeerError> {
        match event {
            NetworkEvent::Gossip { module, author, bytes, may_name } => self.gossip(module, author, &bytes, may_name),
            NetworkEvent::Request { from, token, bytes } => self.requested(from, token, &bytes),
            NetworkEvent::Response { id, from, result, .. } if AccessState::is_authentication(id) => {
                self.authentication_answered(id, from, result)
            }
            NetworkEvent::Response { id, from, result, may_name } => {
                if matches!(&result, Ok(bytes) if encoding::is_a::<AuthenticationResponse>(bytes)) {
                    self.access.authenticate_again(from);
                }
                let response = result
                    .inspect_err(|error| tracing::debug!(peer = %from.short(), %error, "a request failed"))
                    .ok()
                    .and_then(|bytes| encoding::decode::<Response>(&bytes).ok())
                    .filter(signatures_hold)
                    .map(|response| without_others_addresses(response, may_name));
                let id = RequestId(id);
                self.events.push_back(Event::Answered { id, response });
            }
            NetworkEvent::Fetched { id, blob, donors, result } => self.fetched(id, blob, donors, result)?,
            NetworkEvent::Listening(address) => self.listens_at(vec![address]),
            NetworkEvent::NotListening(address) => self.listens_no_longer_at(&address),
            NetworkEvent::Providers { providers, .. } => {
                for provider in providers {
                    self.learn(provider.peer, provider.addresses);
                }
            }
            NetworkEvent::Connected(peer) => {
                self.observed.heard_anybody = true;
                self.redial.connected(peer);
                self.connected(peer);
                let node = &self.node;
                self.addresses.met(peer, |peer| node.knows(peer));
                tracing::debug!(peer = %peer.short(), "connected");
            }
            // Its first heartbeat follows within a second, with more information.
            NetworkEvent::Subscribed { module, peer } => {
                tracing::debug!(%module, peer = %peer.short(), "a member");
                self.access.must_hear(module);
            }
            NetworkEvent::Disconnected(peer) => {
                self.access.disconnected(peer);
                tracing::debug!(peer = %peer.short(), "disconnected");
                if self.node.knows(peer) {
                    self.redial.lost(self.now(), peer, self.access.is_member(peer));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn reconnect(&mut self) {
        for peer in self.redial.due(self.now()) {
            let addresses = self.addresses.of(peer);
            if self.network.dial_peer(peer, addresses).is_err() {
                tracing::debug!(peer = %peer.short(), "too many pending operations to redial");
            }
        }
    }

    pub(crate) fn learn(&mut self, peer: PeerKey, addresses: Vec<Multiaddr>) {
        if peer == self.node.me() || addresses.is_empty() {
            return;
        }
        if self.network.dial_peer(peer, addresses.clone()).is_err() {
            tracing::warn!(peer = %peer.short(), "too many pending operations to connect to a peer");
        }
        let node = &self.node;
        self.addresses.learn(peer, addresses, |peer| node.knows(peer));
    }

    fn gossip(&mut self, module: ModuleId, author: PeerKey, bytes: &[u8], may_name: Scope) {
        if self.is_suspended() {
            return;
        }
        if encoding::is_a::<AccessNotice>(bytes) {
            return self.handle_notice(author, bytes);
        }
        if !self.access.hears(author) {
            return tracing::debug!(%module, author = %author.short(), "not known to be invited");
        }
        match encoding::decode::<Message>(bytes) {
            Ok(Message::Update(signed) | Message::FraudProof(FraudProof { what: Evidence::Update(signed), .. }))
                if !self.access.hears(signed.update.owner) =>
            {
                tracing::debug!(%module, owner = %signed.update.owner.short(), "an update of a peer that is not \
                    invited");
            }
            Ok(Message::Update(signed) | Message::FraudProof(FraudProof { what: Evidence::Update(signed), .. }))
                if !signature_holds(&signed) =>
            {
                tracing::warn!(%module, author = %author.short(), "an update without its owner's signature");
                self.report_offence(author, Offence::Unsigned);
            }
            Ok(Message::Heartbeat(mut heartbeat)) => {
                let me = self.node.me();
                // A forged notice could otherwise stop this peer.
                heartbeat.copied.retain(|named| named.peer != me || start_holds(me, &named.start));
                heartbeat.addresses.retain(|address| is_named(address, may_name));
                self.claims.check(module, &mut heartbeat);
                if heartbeat.owner.is_some_and(|(_, owner)| !self.access.hears(owner)) {
                    heartbeat.claim.clear();
                }
                self.events.push_back(Event::Heard {
                    module,
                    author,
                    message: Arc::new(Message::Heartbeat(heartbeat)),
                });
            }
            Ok(message) => self.events.push_back(Event::Heard { module, author, message: Arc::new(message) }),
            Err(error) => {
                tracing::debug!(%module, author = %author.short(), %error, "not a message");
                self.report_unreadable(author, &error);
            }
        }
    }

    fn requested(&mut self, from: PeerKey, token: RequestToken, bytes: &[u8]) {
        if encoding::is_a::<AuthenticationRequest>(bytes) {
            respond(&self.network, token, &self.answer_authentication(from, bytes));
            return self.presented(from);
        }
        if let Some(refusal) = self.access.refusal(from) {
            return respond(&self.network, token, &refusal);
        }
        match encoding::decode::<Request>(bytes) {
            Ok(Request::Manifest) => self.respond(token, &Response::Manifest(self.manifest_bytes.to_vec())),
            Ok(Request::Query(question)) => self.answer_query(from, token, question),
            Ok(Request::Status) => self.tell_status(from, token),
            // Answers from the node's present state, without waking it.
            Ok(request) if self.is_suspended() => self.respond(token, &self.node.answer(&request)),
            Ok(request) => {
                let ours = ReplyToken(self.requests.next_token);
                self.requests.next_token += 1;
                self.requests.tokens.insert(ours, token);
                self.events.push_back(Event::Asked { from, token: ours, request });
            }
            Err(error) => {
                self.respond(token, &Response::Refused(error.to_string()));
                self.report_unreadable(from, &error);
            }
        }
    }

    /// Penalizes a peer for its own action.
    pub(crate) fn report_offence(&self, peer: PeerKey, offence: Offence) {
        if peer != self.node.me() && self.network.penalize(peer, offence).is_err() {
            tracing::debug!(peer = %peer.short(), ?offence, "too many pending operations to record an offence");
        }
    }

    /// A message of another version is not an offence.
    fn report_unreadable(&self, peer: PeerKey, error: &WireError) {
        if !matches!(error, WireError::Version { .. }) {
            self.report_offence(peer, Offence::Unreadable);
        }
    }

    pub(crate) fn reply(&mut self, token: ReplyToken, response: &Response) {
        if let Some(token) = self.requests.tokens.remove(&token) {
            self.respond(token, response);
        }
    }

    fn respond(&self, token: RequestToken, response: &Response) {
        respond(&self.network, token, response);
    }

    /// Addresses of this peer, possibly known: the network reports each as it appears, and all on request.
    pub(crate) fn listens_at(&mut self, addresses: Vec<Multiaddr>) {
        add_new(&mut self.listening, addresses, self.node.me());
        self.report_addresses();
    }

    fn listens_no_longer_at(&mut self, address: &Multiaddr) {
        let gone = with_peer(address, self.node.me());
        self.listening.retain(|address| *address != gone);
        self.report_addresses();
    }

    fn report_addresses(&mut self) {
        let told = worth_telling(self.listening.clone(), MAX_ADDRESSES);
        self.events.push_back(Event::Listening(told.iter().map(ToString::to_string).collect()));
    }
}

/// Whether an address can be read, and whoever is within this scope may name it.
fn is_named(address: &str, may_name: Scope) -> bool {
    address.parse().is_ok_and(|address| may_name.may_name(&address))
}

/// The response without addresses that its sender may not name.
fn without_others_addresses(mut response: Response, may_name: Scope) -> Response {
    if let Response::Directory(entries) = &mut response {
        entries.iter_mut().for_each(|entry| entry.addresses.retain(|address| is_named(address, may_name)));
    }
    response
}

/// Adds addresses with this peer's key, without duplicates.
fn add_new(known: &mut Vec<Multiaddr>, addresses: Vec<Multiaddr>, me: PeerKey) {
    for address in addresses.iter().map(|address| with_peer(address, me)) {
        if !known.contains(&address) {
            known.push(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Identity;

    #[test]
    fn an_address_that_is_told_twice_is_known_once() {
        let me = Identity::generate().key();
        let [quic, tcp]: [Multiaddr; 2] =
            ["/ip4/127.0.0.1/udp/4001/quic-v1", "/ip4/127.0.0.1/tcp/4001"].map(|address| address.parse().unwrap());
        let mut known = Vec::new();
        add_new(&mut known, vec![with_peer(&quic, me), with_peer(&tcp, me)], me);
        add_new(&mut known, vec![quic.clone()], me);
        add_new(&mut known, vec![with_peer(&tcp, me)], me);
        assert_eq!(known, [with_peer(&quic, me), with_peer(&tcp, me)]);
    }
}
