//! Access control in the driver: it presents this peer's credential to peers that have not seen it, checks the
//! credentials of others, and drops messages and requests of peers that are not admitted. In an open run it does
//! nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::access::authentication::{AccessNotice, AuthenticationRequest, AuthenticationResponse};
use crate::access::invitation::{NO_EXPIRY_S, Revocation};
use crate::clock::Millis;
use crate::names::{ModuleId, PeerKey};
use crate::network::{Offence, RequestError, now_s};
use crate::peer::access::access_control::{AccessChange, AccessControl};
use crate::peer::driver::Driver;
use crate::peer::driver::events::PeerEvent;
use crate::peer::driver::handle::Order;
use crate::peer::driver::status::Invited;
use crate::protocol::wire::encoding;
use crate::protocol::{Event, RequestId};

/// Marks the ids of authentication requests; the node counts its own from 0.
const AUTHENTICATION_BIT: u64 = 1 << 63;

/// Time after which a connected peer without a credential is disconnected.
const STRANGER_MS: u64 = 20_000;

/// Interval at which the credential is published on each topic, for members that joined unnoticed.
const ANNOUNCE_EVERY_MS: u64 = 30_000;

/// Least interval, however many peers join.
const ANNOUNCE_LEAST_MS: u64 = 2_000;

/// Requests that wait until their receiver has seen our credential: the network's limit.
const MOST_HELD: usize = 256;

/// Revocations that wait to be published. Further ones reach peers when they connect.
const MOST_TO_SAY: usize = 64;

/// Time between two of them.
const SAY_EVERY_MS: u64 = 1_000;

/// The driver's state of access control.
#[derive(Default)]
pub(crate) struct AccessState {
    pub(crate) access_control: Option<Arc<AccessControl>>,
    /// Peers that have accepted our credential since they connected.
    introduced: BTreeSet<PeerKey>,
    authenticating: BTreeMap<u64, PeerKey>,
    next_authentication: u64,
    /// Requests of the node that wait.
    held: BTreeMap<PeerKey, Vec<(RequestId, Vec<u8>)>>,
    /// Start of each connection.
    connected_since: BTreeMap<PeerKey, Millis>,
    /// Our modules, and when our credential was last published there.
    said: BTreeMap<ModuleId, Option<Millis>>,
    /// Modules with new subscribers.
    due: BTreeSet<ModuleId>,
    to_say: VecDeque<Revocation>,
    said_revocation: Millis,
    looked: Millis,
    /// Why other peers do not admit us.
    pub(crate) refused: Option<String>,
}

impl AccessState {
    pub(crate) fn new(access_control: Option<Arc<AccessControl>>) -> Self {
        Self { access_control, ..Self::default() }
    }

    pub(crate) fn is_authentication(id: u64) -> bool {
        id & AUTHENTICATION_BIT != 0
    }

    /// Whether a peer's messages on topics count.
    pub(crate) fn hears(&self, author: PeerKey) -> bool {
        self.access_control.as_ref().is_none_or(|access_control| access_control.takes_part(author))
    }

    /// The answer to a request of a peer that is not invited.
    pub(crate) fn refusal(&self, from: PeerKey) -> Option<AuthenticationResponse> {
        self.access_control
            .as_ref()
            .filter(|access_control| !access_control.admits(from))
            .map(|access_control| access_control.turn_away())
    }

    pub(crate) fn joined(&mut self, module: ModuleId) {
        self.said.entry(module).or_default();
        self.due.insert(module);
    }

    pub(crate) fn left(&mut self, module: ModuleId) {
        self.said.remove(&module);
        self.due.remove(&module);
    }

    /// A module has a new subscriber.
    pub(crate) fn must_hear(&mut self, module: ModuleId) {
        if self.said.contains_key(&module) {
            self.due.insert(module);
        }
    }

    pub(crate) fn disconnected(&mut self, peer: PeerKey) {
        self.connected_since.remove(&peer);
        self.introduced.remove(&peer);
    }

    /// A peer refused us though it had seen our credential: it has restarted, or has changed its mind.
    pub(crate) fn authenticate_again(&mut self, peer: PeerKey) {
        self.introduced.remove(&peer);
    }

    /// For `status`.
    pub(crate) fn invited(&self) -> Option<Invited> {
        let access_control = self.access_control.as_ref()?;
        let (known, revoked) = access_control.counts();
        let until_s =
            access_control.own().map(|credential| credential.until_s()).filter(|until_s| *until_s != NO_EXPIRY_S);
        let refused = access_control.own_trouble().map(|trouble| trouble.to_string()).or_else(|| self.refused.clone());
        Some(Invited { known, revoked, until_s, refused })
    }

    fn topics(&self) -> Vec<ModuleId> {
        self.said.keys().copied().collect()
    }

    fn queue_revocation(&mut self, revocation: Option<Revocation>) {
        if self.to_say.len() < MOST_TO_SAY {
            self.to_say.extend(revocation);
        }
    }
}

impl Driver {
    /// Whether a peer must see our credential before any request.
    pub(crate) fn must_authenticate(&self, to: PeerKey) -> bool {
        let shows = self.access.access_control.as_ref().is_some_and(|access_control| access_control.own().is_some());
        shows && !self.access.introduced.contains(&to)
    }

    /// Presents our credential before this request.
    pub(crate) fn hold_until_authenticated(&mut self, to: PeerKey, id: RequestId, bytes: Vec<u8>) {
        if self.access.held.values().map(Vec::len).sum::<usize>() >= MOST_HELD || !self.authenticate(to) {
            return self.events.push_back(Event::Answered { id, response: None });
        }
        self.access.held.entry(to).or_default().push((id, bytes));
    }

    /// Presents our credential to a peer that has not seen it, without waiting.
    pub(crate) fn introduce(&mut self, to: PeerKey) {
        if to != self.node.me() && self.must_authenticate(to) {
            self.authenticate(to);
        }
    }

    pub(crate) fn ask(&mut self, id: RequestId, to: PeerKey, bytes: Vec<u8>) {
        let addresses = self.addresses.get(&to).cloned().unwrap_or_default();
        if self.network.request(id.0, to, addresses, bytes).is_err() {
            self.events.push_back(Event::Answered { id, response: None });
        }
    }

    /// Sends our credential. Returns whether it is on its way.
    fn authenticate(&mut self, to: PeerKey) -> bool {
        if self.access.authenticating.values().any(|peer| *peer == to) {
            return true;
        }
        let Some(credential) = self.access.access_control.as_ref().and_then(|access_control| access_control.own())
        else {
            return false;
        };
        let Ok(bytes) = encoding::encode(&AuthenticationRequest::Present(credential)) else { return false };
        let id = AUTHENTICATION_BIT | self.access.next_authentication;
        self.access.next_authentication += 1;
        let addresses = self.addresses.get(&to).cloned().unwrap_or_default();
        let sent = self.network.request(id, to, addresses, bytes).is_ok();
        if sent {
            self.access.authenticating.insert(id, to);
        }
        sent
    }

    /// A peer has connected.
    pub(crate) fn connected(&mut self, peer: PeerKey) {
        if self.access.access_control.is_some() {
            self.access.connected_since.insert(peer, self.now());
            self.access.introduced.remove(&peer);
            self.authenticate(peer);
        }
    }

    /// The response to our credential.
    pub(crate) fn authentication_answered(&mut self, id: u64, from: PeerKey, result: Result<Vec<u8>, RequestError>) {
        self.access.authenticating.remove(&id);
        let answer = result.ok().and_then(|bytes| encoding::decode::<AuthenticationResponse>(&bytes).ok());
        let answered = answer.is_some();
        match answer {
            Some(AuthenticationResponse::Accepted { revocations, .. }) => {
                self.access.introduced.insert(from);
                self.access.refused = None;
                self.take_revocations(revocations);
            }
            Some(AuthenticationResponse::NotInvited(reason)) => {
                // It will refuse each request, too, with the same reason.
                self.access.introduced.insert(from);
                self.report_refused(from, reason);
            }
            None => tracing::debug!(peer = %from.short(), "our credential was not answered"),
        }
        for (id, bytes) in self.access.held.remove(&from).unwrap_or_default() {
            match answered {
                true => self.ask(id, from, bytes),
                false => self.events.push_back(Event::Answered { id, response: None }),
            }
        }
    }

    fn report_refused(&mut self, by: PeerKey, reason: String) {
        tracing::warn!(peer = %by.short(), reason, "a peer does not admit this peer");
        if self.access.refused.as_ref() != Some(&reason) {
            (self.event_sink)(PeerEvent::NotInvited(reason.clone()));
            self.access.refused = Some(reason);
        }
    }

    fn take_revocations(&mut self, revocations: Vec<Revocation>) {
        let Some(access_control) = self.access.access_control.clone() else { return };
        for of in access_control.learn(revocations) {
            self.access.queue_revocation(access_control.revocation_of(of));
            self.revoked(of);
        }
    }

    fn revoked(&mut self, peer: PeerKey) {
        tracing::warn!(peer = %peer.short(), "the access of a peer was revoked");
        if peer == self.node.me() {
            let reason = "the access of this peer was revoked by a peer of its chain of invitations".to_owned();
            return self.report_refused(peer, reason);
        }
        self.disconnect(peer);
    }

    fn disconnect(&self, peer: PeerKey) {
        if self.network.disconnect(peer).is_err() {
            tracing::debug!(peer = %peer.short(), "too many pending operations to disconnect a peer");
        }
    }

    /// An access notice on a topic: a credential or a revocation.
    pub(crate) fn handle_notice(&mut self, author: PeerKey, bytes: &[u8]) {
        let Some(access_control) = self.access.access_control.clone() else { return };
        let Ok(notice) = encoding::decode::<AccessNotice>(bytes) else {
            tracing::debug!(author = %author.short(), "not a notice");
            return self.report_offence(author, Offence::Unreadable);
        };
        match access_control.hear(author, notice) {
            AccessChange::Nothing => {}
            AccessChange::Forged => self.report_offence(author, Offence::Unreadable),
            AccessChange::Admitted => tracing::debug!(author = %author.short(), "a peer was admitted"),
            AccessChange::Revoked(of) => {
                self.access.queue_revocation(access_control.revocation_of(of));
                self.revoked(of);
            }
        }
    }

    /// A peer presents a credential.
    pub(crate) fn answer_authentication(&self, from: PeerKey, bytes: &[u8]) -> AuthenticationResponse {
        let Some(access_control) = &self.access.access_control else {
            return AuthenticationResponse::Accepted { credential: None, revocations: Vec::new() };
        };
        match encoding::decode::<AuthenticationRequest>(bytes) {
            Ok(request) => access_control.answer(from, request),
            Err(error) => AuthenticationResponse::NotInvited(error.to_string()),
        }
    }

    /// Periodic work of access control.
    pub(crate) async fn maintain_access(&mut self) {
        let Some(access_control) = self.access.access_control.clone() else { return };
        let now = self.now();
        self.announce_credential(&access_control, now).await;
        if now.since(self.access.said_revocation) >= SAY_EVERY_MS
            && let Some(revocation) = self.access.to_say.pop_front()
        {
            self.access.said_revocation = now;
            for module in self.access.topics() {
                self.say(module, &AccessNotice::Revoked(revocation.clone())).await;
            }
        }
        if now.since(self.access.looked) >= SAY_EVERY_MS {
            self.access.looked = now;
            let is_overdue = |since: &Millis| now.since(*since) >= STRANGER_MS;
            let strangers =
                self.access.connected_since.iter().filter(|(_, since)| is_overdue(since)).map(|(peer, _)| *peer);
            let strangers: Vec<PeerKey> = strangers.filter(|peer| !access_control.admits(*peer)).collect();
            strangers.into_iter().for_each(|peer| self.disconnect(peer));
        }
    }

    async fn announce_credential(&mut self, access_control: &AccessControl, now: Millis) {
        let within = |since: &Millis, least: u64| now.since(*since) < least;
        let due = |module: &ModuleId, said: &Option<Millis>| match said {
            None => true,
            Some(said) if self.access.due.contains(module) => !within(said, ANNOUNCE_LEAST_MS),
            Some(said) => !within(said, ANNOUNCE_EVERY_MS),
        };
        let due: Vec<ModuleId> =
            self.access.said.iter().filter(|(module, said)| due(module, said)).map(|(module, _)| *module).collect();
        if due.is_empty() {
            return;
        }
        let Some(credential) = access_control.own().filter(|credential| !credential.0.is_empty()) else { return };
        // The clock differs each time, so each notice has its own number, also after a restart.
        let notice = AccessNotice::Present { credential, sequence: now_s() };
        for module in due {
            self.access.said.insert(module, Some(now));
            self.access.due.remove(&module);
            self.say(module, &notice).await;
        }
    }

    async fn say(&self, module: ModuleId, notice: &AccessNotice) {
        let Ok(bytes) = encoding::encode(notice) else { return };
        if let Err(error) = self.network.publish(module, bytes).await {
            tracing::debug!(%module, %error, "a notice was not published");
        }
    }

    /// An order of the user.
    pub(crate) fn carry_out_order(&mut self, order: Order) -> Result<String, String> {
        let Some(access_control) = self.access.access_control.clone() else {
            return Err("this run is open: any peer that knows an address can join, without an invitation".to_owned());
        };
        let revocation = match order {
            Order::SendAway(peer) => access_control.send_away(peer).map(Some),
            Order::TakeBack(one) => access_control.take_back(&one),
        };
        let Some(revocation) = revocation.map_err(|error| error.to_string())? else {
            return Ok("the invitation is revoked; it had not been used".to_owned());
        };
        let of = revocation.of;
        self.access.queue_revocation(Some(revocation));
        self.revoked(of);
        Ok(format!("access of peer {of}, and of all peers that it has invited, is revoked; the other peers are told"))
    }
}
