//! Access control in the driver: it presents this peer's credential to peers that have not seen it, checks the
//! credentials of others, and drops requests of peers that are not admitted. Gossip with a peer begins when each of the
//! two has admitted the other. In an open run it only notes which peers have been members for a while.

mod presentations;
mod revocations;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::access::authentication::{AccessNotice, AuthenticationRequest, AuthenticationResponse};
use crate::access::invitation::{NO_EXPIRY_S, Revocation};
use crate::clock::Millis;
use crate::names::{ModuleId, PeerKey};
use crate::network::{RequestError, Standing, now_s};
use crate::peer::access::access_control::AccessControl;
use crate::peer::access::known_members::KnownMembers;
use crate::peer::driver::Driver;
use crate::peer::driver::access::presentations::{MayPresent, Presentations};
use crate::peer::driver::events::PeerEvent;
use crate::peer::status::Invited;
use crate::protocol::wire::encoding;
use crate::protocol::{Event, RequestId};

/// Time after which a connected peer without a credential is disconnected.
const STRANGER_MS: u64 = 20_000;

/// Interval at which the credential is published on each topic, for members that joined unnoticed: members that do not
/// know a peer neither hear nor forward it.
const ANNOUNCE_EVERY_MS: u64 = 10_000;

/// Time for which a peer of an open run must have sent heartbeats without a break to come before strangers.
const STEADY_MS: u64 = 10_000;

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
    presentations: Presentations,
    /// Our last heartbeat on each of our modules, and the modules where a new subscriber has not heard it.
    heartbeats: BTreeMap<ModuleId, Vec<u8>>,
    unheard: BTreeSet<ModuleId>,
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
    looked: Option<Millis>,
    /// In an open run, who comes first where there is not enough for all.
    members: KnownMembers,
    /// Why other peers do not admit us.
    pub(crate) refused: Option<String>,
}

impl AccessState {
    /// `accepted` are peers that have accepted our credential while this peer joined.
    pub(crate) fn new(
        access_control: Option<Arc<AccessControl>>,
        members: KnownMembers,
        accepted: BTreeSet<PeerKey>,
    ) -> Self {
        Self { access_control, members, presentations: Presentations::new(accepted), ..Self::default() }
    }

    /// Our heartbeat on a module, for members with which gossip begins later.
    pub(crate) fn said_heartbeat(&mut self, module: ModuleId, bytes: &[u8]) {
        if self.access_control.is_some() && self.said.contains_key(&module) {
            self.heartbeats.insert(module, bytes.to_vec());
        }
    }

    pub(crate) fn is_authentication(id: u64) -> bool {
        Presentations::is_authentication(id)
    }

    /// Whether a peer's messages on topics count.
    pub(crate) fn hears(&self, author: PeerKey) -> bool {
        self.access_control.as_ref().is_none_or(|access_control| access_control.takes_part(author))
    }

    /// Whether a peer is invited or, in an open run, a member of our modules.
    pub(crate) fn is_member(&self, peer: PeerKey) -> bool {
        match &self.access_control {
            Some(access_control) => access_control.admits(peer),
            None => self.members.contains(peer),
        }
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
        self.heartbeats.remove(&module);
        self.unheard.remove(&module);
    }

    /// A module has a new subscriber.
    pub(crate) fn must_hear(&mut self, module: ModuleId) {
        if self.said.contains_key(&module) {
            self.due.insert(module);
            self.unheard.insert(module);
        }
    }

    pub(crate) fn disconnected(&mut self, peer: PeerKey) {
        self.connected_since.remove(&peer);
        self.presentations.disconnected(peer);
    }

    /// A peer refused us though it had seen our credential: it has restarted, or has changed its mind.
    pub(crate) fn authenticate_again(&mut self, peer: PeerKey) {
        self.presentations.forget_answer(peer);
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
        shows && !self.access.presentations.is_answered(to)
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
        let addresses = self.addresses.of(to);
        if self.network.request(id.0, to, addresses, bytes).is_err() {
            self.events.push_back(Event::Answered { id, response: None });
        }
    }

    /// Sends our credential. Returns whether it is on its way.
    fn authenticate(&mut self, to: PeerKey) -> bool {
        let (now, admitted) = (self.now(), self.access.is_member(to));
        match self.access.presentations.may_present(to, admitted, now) {
            MayPresent::Now => {}
            MayPresent::UnderWay => return true,
            MayPresent::Later => return false,
        }
        let Some(credential) = self.access.access_control.as_ref().and_then(|access_control| access_control.own())
        else {
            return false;
        };
        let Ok(bytes) = encoding::encode(&AuthenticationRequest::Present(credential)) else { return false };
        let id = self.access.presentations.next_id();
        let addresses = self.addresses.of(to);
        let sent = self.network.introduce(id, to, addresses, bytes).is_ok();
        if sent {
            self.access.presentations.sent(id, to, admitted, now);
        }
        sent
    }

    /// A peer has connected.
    pub(crate) fn connected(&mut self, peer: PeerKey) {
        if self.access.access_control.is_some() {
            self.access.connected_since.insert(peer, self.now());
            self.access.presentations.forget_answer(peer);
            self.authenticate(peer);
        }
    }

    /// The response to our credential.
    pub(crate) fn authentication_answered(&mut self, id: u64, from: PeerKey, result: Result<Vec<u8>, RequestError>) {
        let answer = result.ok().and_then(|bytes| encoding::decode::<AuthenticationResponse>(&bytes).ok());
        let answered = answer.is_some();
        let accepted = answer.as_ref().map(|answer| matches!(answer, AuthenticationResponse::Accepted { .. }));
        self.access.presentations.answered(id, from, accepted);
        match answer {
            Some(AuthenticationResponse::Accepted { revocations, .. }) => {
                self.access.refused = None;
                self.take_revocations(revocations);
                self.gossip_with(vec![from]);
            }
            Some(AuthenticationResponse::NotInvited(reason)) => self.report_refused(from, reason),
            None => tracing::debug!(peer = %from.short(), "our credential was not answered"),
        }
        for (id, bytes) in self.access.held.remove(&from).unwrap_or_default() {
            match answered {
                true => self.ask(id, from, bytes),
                false => self.events.push_back(Event::Answered { id, response: None }),
            }
        }
    }

    /// A peer has presented something, which was answered: a credential, if it takes part now.
    pub(crate) fn presented(&mut self, from: PeerKey) {
        let Some(access_control) = &self.access.access_control else { return };
        let takes_part = access_control.takes_part(from);
        if self.access.presentations.is_due_in_return(from, takes_part, self.now()) {
            self.access.presentations.forget_answer(from);
            self.authenticate(from);
        }
        self.gossip_with(vec![from]);
    }

    /// Begins gossip with those of these peers that have accepted our credential, and whose own is valid.
    fn gossip_with(&self, mut peers: Vec<PeerKey>) {
        let Some(access_control) = &self.access.access_control else { return };
        peers.retain(|peer| self.access.presentations.is_accepted(*peer) && access_control.takes_part(*peer));
        if !peers.is_empty() && self.network.gossip_with(peers).is_err() {
            tracing::debug!("too many pending operations to begin gossip: tried again in a second");
        }
    }

    fn report_refused(&mut self, by: PeerKey, reason: String) {
        tracing::warn!(peer = %by.short(), reason, "a peer does not admit this peer");
        if self.access.refused.as_ref() != Some(&reason) {
            (self.event_sink)(PeerEvent::NotInvited(reason.clone()));
            self.access.refused = Some(reason);
        }
    }

    fn disconnect(&self, peer: PeerKey) {
        if self.network.disconnect(peer).is_err() {
            tracing::debug!(peer = %peer.short(), "too many pending operations to disconnect a peer");
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
        let now = self.now();
        let Some(access_control) = self.access.access_control.clone() else {
            if self.access.looked.is_none_or(|looked| now.since(looked) >= SAY_EVERY_MS) {
                self.access.looked = Some(now);
                self.access.members.set(self.node.steady_peers(now, STEADY_MS).collect());
            }
            return;
        };
        self.announce_credential(&access_control, now).await;
        // The next one would follow within a second, but a peer that leaves does not wait for one that it never heard.
        for module in std::mem::take(&mut self.access.unheard) {
            let Some(bytes) = self.access.heartbeats.get(&module).cloned() else { continue };
            if let Err(error) = self.network.publish(module, bytes).await {
                tracing::debug!(%module, %error, "a heartbeat was not repeated");
            }
        }
        if now.since(self.access.said_revocation) >= SAY_EVERY_MS
            && let Some(revocation) = self.access.to_say.pop_front()
        {
            self.access.said_revocation = now;
            for module in self.access.topics() {
                self.say(module, &AccessNotice::Revoked(revocation.clone())).await;
            }
        }
        if self.access.looked.is_none_or(|looked| now.since(looked) >= SAY_EVERY_MS) {
            self.access.looked = Some(now);
            self.look_after_connections(&access_control, now).await;
        }
    }

    /// Also of those that were made before this peer knew that the run is by invitation.
    async fn look_after_connections(&mut self, access_control: &AccessControl, now: Millis) {
        let Ok(connected) = self.network.connections().await else { return };
        for peer in &connected {
            let since = *self.access.connected_since.entry(*peer).or_insert(now);
            if now.since(since) >= STRANGER_MS && !access_control.admits(*peer) {
                self.disconnect(*peer);
            } else if self.access.presentations.is_due(*peer, now)
                && access_control.standing(*peer) != Standing::Visitor
            {
                self.authenticate(*peer);
            }
        }
        self.gossip_with(connected);
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
}
