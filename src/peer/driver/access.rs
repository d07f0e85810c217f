//! What the driver does about who may take part: it shows this peer's own credential to whoever has not seen it, hears the credentials
//! of others, and neither hears nor answers anybody else. In an open run there is nothing to do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::access::authentication::{AccessNotice, AuthenticationRequest, AuthenticationResponse};
use crate::access::invitation::{NO_EXPIRY_S, Revocation};
use crate::clock::Millis;
use crate::names::{ModuleId, PeerKey};
use crate::network::{Offence, RequestError, now_s};
use crate::peer::access::access_control::{AccessChange, AccessControl};
use crate::peer::driver::Driver;
use crate::peer::driver::control_socket::Order;
use crate::peer::driver::events::News;
use crate::peer::driver::status::Invited;
use crate::protocol::{Event, RequestId, wire};

/// Requests with this bit are knocks; the node counts its own from 0.
const AUTHENTICATIONS: u64 = 1 << 63;

/// A connected peer that has shown nothing for so long is let go.
const STRANGER_MS: u64 = 20_000;

/// A credential is said again on each topic after so long: to whoever came unnoticed.
const CREDENTIAL_EVERY_MS: u64 = 30_000;

/// But no sooner than this, however many come.
const CREDENTIAL_LEAST_MS: u64 = 2_000;

/// What waits until its receiver has seen our credential: no more than the network takes.
const MOST_HELD: usize = 256;

/// Revocations that wait to be passed on, one a second: what does not fit is told to whoever connects.
const MOST_TO_SAY: usize = 64;

/// Between two of them.
const SAY_EVERY_MS: u64 = 1_000;

/// What the driver remembers of doors, its own and others'.
#[derive(Default)]
pub(in crate::peer) struct Admitting {
    pub(in crate::peer) access_control: Option<Arc<AccessControl>>,
    /// Who has taken our credential since it was connected.
    introduced: BTreeSet<PeerKey>,
    authenticating: BTreeMap<u64, PeerKey>,
    next_authentication: u64,
    /// What the node asks.
    held: BTreeMap<PeerKey, Vec<(RequestId, Vec<u8>)>>,
    /// Since when.
    connected: BTreeMap<PeerKey, Millis>,
    /// Our modules, and when our credential was last said there.
    said: BTreeMap<ModuleId, Option<Millis>>,
    /// Somebody new listens there.
    due: BTreeSet<ModuleId>,
    to_say: VecDeque<Revocation>,
    said_revocation: Millis,
    looked: Millis,
    /// Why others do not let us in.
    pub(in crate::peer) refused: Option<String>,
}

impl Admitting {
    pub(in crate::peer) fn new(access_control: Option<Arc<AccessControl>>) -> Self {
        Self { access_control, ..Self::default() }
    }

    pub(in crate::peer) fn is_authentication(id: u64) -> bool {
        id & AUTHENTICATIONS != 0
    }

    /// Whether what a peer says on a topic counts.
    pub(in crate::peer) fn hears(&self, author: PeerKey) -> bool {
        self.access_control.as_ref().is_none_or(|access_control| access_control.takes_part(author))
    }

    /// What somebody hears who asks without being invited.
    pub(in crate::peer) fn turned_away(&self, from: PeerKey) -> Option<AuthenticationResponse> {
        self.access_control
            .as_ref()
            .filter(|access_control| !access_control.admits(from))
            .map(|access_control| access_control.turn_away())
    }

    pub(in crate::peer) fn joined(&mut self, module: ModuleId) {
        self.said.entry(module).or_default();
        self.due.insert(module);
    }

    pub(in crate::peer) fn left(&mut self, module: ModuleId) {
        self.said.remove(&module);
        self.due.remove(&module);
    }

    /// Somebody listens there from now on.
    pub(in crate::peer) fn must_hear(&mut self, module: ModuleId) {
        if self.said.contains_key(&module) {
            self.due.insert(module);
        }
    }

    pub(in crate::peer) fn went(&mut self, peer: PeerKey) {
        self.connected.remove(&peer);
        self.introduced.remove(&peer);
    }

    /// It has turned us away, though it had seen our credential: it has started again, or thinks otherwise by now.
    pub(in crate::peer) fn forgotten_by(&mut self, peer: PeerKey) {
        self.introduced.remove(&peer);
    }

    /// For `status`.
    pub(in crate::peer) fn invited(&self) -> Option<Invited> {
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

    fn pass_on(&mut self, revocation: Option<Revocation>) {
        if self.to_say.len() < MOST_TO_SAY {
            self.to_say.extend(revocation);
        }
    }
}

impl Driver {
    /// Whether a peer has to see our credential before it hears anything else of us.
    pub(in crate::peer) fn must_authenticate(&self, to: PeerKey) -> bool {
        let shows = self.admitting.access_control.as_ref().is_some_and(|access_control| access_control.own().is_some());
        shows && !self.admitting.introduced.contains(&to)
    }

    /// Shows our credential first.
    pub(in crate::peer) fn hold_back(&mut self, to: PeerKey, id: RequestId, bytes: Vec<u8>) {
        if self.admitting.held.values().map(Vec::len).sum::<usize>() >= MOST_HELD || !self.authenticate(to) {
            return self.events.push_back(Event::Answered { id, response: None });
        }
        self.admitting.held.entry(to).or_default().push((id, bytes));
    }

    /// Shows our credential to a peer that has not seen it, and does not wait.
    pub(in crate::peer) fn introduce(&mut self, to: PeerKey) {
        if to != self.node.me() && self.must_authenticate(to) {
            self.authenticate(to);
        }
    }

    pub(in crate::peer) fn ask(&mut self, id: RequestId, to: PeerKey, bytes: Vec<u8>) {
        let addresses = self.addresses.get(&to).cloned().unwrap_or_default();
        if self.network.request(id.0, to, addresses, bytes).is_err() {
            self.events.push_back(Event::Answered { id, response: None });
        }
    }

    /// Whether our credential is on its way to a peer.
    fn authenticate(&mut self, to: PeerKey) -> bool {
        if self.admitting.authenticating.values().any(|peer| *peer == to) {
            return true;
        }
        let Some(credential) = self.admitting.access_control.as_ref().and_then(|access_control| access_control.own())
        else {
            return false;
        };
        let Ok(bytes) = wire::encode(&AuthenticationRequest::Present(credential)) else { return false };
        let id = AUTHENTICATIONS | self.admitting.next_authentication;
        self.admitting.next_authentication += 1;
        let addresses = self.addresses.get(&to).cloned().unwrap_or_default();
        let sent = self.network.request(id, to, addresses, bytes).is_ok();
        if sent {
            self.admitting.authenticating.insert(id, to);
        }
        sent
    }

    /// A peer is connected.
    pub(in crate::peer) fn came(&mut self, peer: PeerKey) {
        if self.admitting.access_control.is_some() {
            self.admitting.connected.insert(peer, self.now());
            self.admitting.introduced.remove(&peer);
            self.authenticate(peer);
        }
    }

    /// What came of showing our credential.
    pub(in crate::peer) fn authenticated(&mut self, id: u64, from: PeerKey, result: Result<Vec<u8>, RequestError>) {
        self.admitting.authenticating.remove(&id);
        let answer = result.ok().and_then(|bytes| wire::decode::<AuthenticationResponse>(&bytes).ok());
        let answered = answer.is_some();
        match answer {
            Some(AuthenticationResponse::Accepted { revocations, .. }) => {
                self.admitting.introduced.insert(from);
                self.admitting.refused = None;
                self.sent_away(revocations);
            }
            Some(AuthenticationResponse::NotInvited(reason)) => {
                // It is turned away with each question then, too; the reason is the same.
                self.admitting.introduced.insert(from);
                self.tell_refused(from, reason);
            }
            None => tracing::debug!(peer = %from.short(), "our credential was not looked at"),
        }
        for (id, bytes) in self.admitting.held.remove(&from).unwrap_or_default() {
            match answered {
                true => self.ask(id, from, bytes),
                false => self.events.push_back(Event::Answered { id, response: None }),
            }
        }
    }

    fn tell_refused(&mut self, by: PeerKey, reason: String) {
        tracing::warn!(peer = %by.short(), reason, "a peer does not let this one in");
        if self.admitting.refused.as_ref() != Some(&reason) {
            (self.newsroom)(News::NotInvited(reason.clone()));
            self.admitting.refused = Some(reason);
        }
    }

    fn sent_away(&mut self, revocations: Vec<Revocation>) {
        let Some(access_control) = self.admitting.access_control.clone() else { return };
        for of in access_control.learn(revocations) {
            self.admitting.pass_on(access_control.revocation_of(of));
            self.part_with(of);
        }
    }

    fn part_with(&mut self, peer: PeerKey) {
        tracing::warn!(peer = %peer.short(), "a peer was sent away");
        if peer == self.node.me() {
            let reason = "this peer was sent away by one in whose name it was invited".to_owned();
            return self.tell_refused(peer, reason);
        }
        self.let_go(peer);
    }

    fn let_go(&self, peer: PeerKey) {
        if self.network.disconnect(peer).is_err() {
            tracing::debug!(peer = %peer.short(), "too much under way to let go of a peer");
        }
    }

    /// Somebody has said on a topic who it is, or who is none of us any more.
    pub(in crate::peer) fn noticed(&mut self, author: PeerKey, bytes: &[u8]) {
        let Some(access_control) = self.admitting.access_control.clone() else { return };
        let Ok(notice) = wire::decode::<AccessNotice>(bytes) else {
            tracing::debug!(author = %author.short(), "not a notice");
            return self.blame(author, Offence::Unreadable);
        };
        match access_control.hear(author, notice) {
            AccessChange::Nothing => {}
            AccessChange::Forged => self.blame(author, Offence::Unreadable),
            AccessChange::Admitted => tracing::debug!(author = %author.short(), "a peer that is invited"),
            AccessChange::Revoked(of) => {
                self.admitting.pass_on(access_control.revocation_of(of));
                self.part_with(of);
            }
        }
    }

    /// Somebody shows a credential.
    pub(in crate::peer) fn answer_authentication(&self, from: PeerKey, bytes: &[u8]) -> AuthenticationResponse {
        let Some(access_control) = &self.admitting.access_control else {
            return AuthenticationResponse::Accepted { credential: None, revocations: Vec::new() };
        };
        match wire::decode::<AuthenticationRequest>(bytes) {
            Ok(request) => access_control.answer(from, request),
            Err(error) => AuthenticationResponse::NotInvited(error.to_string()),
        }
    }

    /// What is to be said and done about the door by now.
    pub(in crate::peer) async fn attend_access(&mut self) {
        let Some(access_control) = self.admitting.access_control.clone() else { return };
        let now = self.now();
        self.publish_credential(&access_control, now).await;
        if now.since(self.admitting.said_revocation) >= SAY_EVERY_MS
            && let Some(revocation) = self.admitting.to_say.pop_front()
        {
            self.admitting.said_revocation = now;
            for module in self.admitting.topics() {
                self.say(module, &AccessNotice::Revoked(revocation.clone())).await;
            }
        }
        if now.since(self.admitting.looked) >= SAY_EVERY_MS {
            self.admitting.looked = now;
            let patience = |since: &Millis| now.since(*since) >= STRANGER_MS;
            let strangers = self.admitting.connected.iter().filter(|(_, since)| patience(since)).map(|(peer, _)| *peer);
            let strangers: Vec<PeerKey> = strangers.filter(|peer| !access_control.admits(*peer)).collect();
            strangers.into_iter().for_each(|peer| self.let_go(peer));
        }
    }

    async fn publish_credential(&mut self, access_control: &AccessControl, now: Millis) {
        let waits = |since: &Millis, least: u64| now.since(*since) < least;
        let due = |module: &ModuleId, said: &Option<Millis>| match said {
            None => true,
            Some(said) if self.admitting.due.contains(module) => !waits(said, CREDENTIAL_LEAST_MS),
            Some(said) => !waits(said, CREDENTIAL_EVERY_MS),
        };
        let due: Vec<ModuleId> =
            self.admitting.said.iter().filter(|(module, said)| due(module, said)).map(|(module, _)| *module).collect();
        if due.is_empty() {
            return;
        }
        let Some(credential) = access_control.own().filter(|credential| !credential.0.is_empty()) else { return };
        // The clock goes on between two: each is said with a number of its own, after a restart as well.
        let notice = AccessNotice::Present { credential, sequence: now_s() };
        for module in due {
            self.admitting.said.insert(module, Some(now));
            self.admitting.due.remove(&module);
            self.say(module, &notice).await;
        }
    }

    async fn say(&self, module: ModuleId, notice: &AccessNotice) {
        let Ok(bytes) = wire::encode(notice) else { return };
        if let Err(error) = self.network.publish(module, bytes).await {
            tracing::debug!(%module, %error, "a notice was not said");
        }
    }

    /// The user wants it.
    pub(in crate::peer) fn carry_out_order(&mut self, order: Order) -> Result<String, String> {
        let Some(access_control) = self.admitting.access_control.clone() else {
            return Err("this run is open: whoever knows an address takes part".to_owned());
        };
        let revocation = match order {
            Order::SendAway(peer) => access_control.send_away(peer).map(Some),
            Order::TakeBack(one) => access_control.take_back(&one),
        };
        let Some(revocation) = revocation.map_err(|error| error.to_string())? else {
            return Ok("the invitation was not used yet, and nobody can use it any more".to_owned());
        };
        let of = revocation.of;
        self.admitting.pass_on(Some(revocation));
        self.part_with(of);
        Ok(format!("peer {of} is sent away, with all whom it has invited; the others hear of it"))
    }
}
