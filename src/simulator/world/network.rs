//! The network between peers: gossip, requests and responses, and blobs, each delayed, duplicated or lost by the links.

use std::sync::Arc;

use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};
use crate::protocol::wire::encoding;
use crate::protocol::wire::message::{Evidence, FraudProof, Heartbeat};
use crate::protocol::{Event, Message, ReplyToken, Request, RequestId, Response};
use crate::simulator::Failure;
use crate::simulator::scenario::byzantine::Byzantine;
use crate::simulator::world::actions::{claim, sign};
use crate::simulator::world::byzantine::{Said, to_all};
use crate::simulator::world::{Due, World};

/// Gossip carries the same bytes on the same topic once in this time.
const SAME_BYTES_MS: u64 = 60_000;

/// Limit of messages that Byzantine peers remember.
const OVERHEARD: usize = 1_000;

/// After this a transfer that was lost is known to have failed.
const LOST_MS: u64 = 200;

impl World {
    /// The delay of a message between two peers; `None` if it is lost.
    fn travel_ms(&mut self, from: usize, to: usize, bytes: u64) -> Option<u64> {
        let travel = self.scenario.links.travel_ms(from, to, bytes, &mut self.rng);
        let now_ms = self.now_ms;
        self.cuts.retain(|(until_ms, _)| now_ms < *until_ms);
        let cut = self.cuts.iter().any(|(_, cut)| cut.between(from, to));
        travel.filter(|_| !cut)
    }

    pub(super) fn publish(&mut self, from: usize, module: ModuleId, message: Message) -> Result<(), Failure> {
        let (author, message) = (self.peers[from].key, Arc::new(message));
        match self.behaviour(from) {
            None => {
                self.note_signed(author, &message)?;
                self.gossip(from, module, to_all(author, message.clone()))?;
            }
            Some(behaviour) => {
                for said in self.told(from, behaviour, module, &message) {
                    // A Byzantine peer's message may be too large.
                    let _ = self.gossip(from, module, said);
                }
            }
        }
        self.overhear(module, author, &message);
        Ok(())
    }

    fn gossip(&mut self, from: usize, module: ModuleId, said: Said) -> Result<(), Failure> {
        let Said { author, message, to_parity } = said;
        let message = without_lists(with_checked_claim(module, author, message));
        let bytes = match encoding::encode(&*message) {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.failure("gossip", error.to_string())),
        };
        let valid = match &*message {
            Message::Update(signed) | Message::FraudProof(FraudProof { what: Evidence::Update(signed), .. }) => {
                sign(&signed.update) == signed.signature
            }
            Message::Heartbeat(_) | Message::Offer(_) | Message::Score(_) | Message::FraudProof(_) => true,
        };
        if !valid || self.carries_already(module, &message, &bytes) {
            return Ok(());
        }
        let size = bytes.len() as u64;
        self.counts.said_bytes += size;
        let hearers: Vec<usize> = self.hearers.get(&module).into_iter().flatten().copied().collect();
        let hears = |hearer: &usize| *hearer != from && to_parity.is_none_or(|parity| hearer % 2 == parity);
        for hearer in hearers.into_iter().filter(hears) {
            let copies = 1 + usize::from(self.rng.chance(self.scenario.links.duplication));
            for _ in 0..copies {
                if let Some(after_ms) = self.travel_ms(from, hearer, size) {
                    self.counts.heard_bytes += size;
                    self.later(hearer, after_ms, Due::Heard { module, author, message: message.clone() });
                }
            }
        }
        Ok(())
    }

    /// Remembers messages for peers that repeat them later.
    fn overhear(&mut self, module: ModuleId, author: PeerKey, message: &Message) {
        if self.byzantine.is_empty() || self.rng.chance(0.5) {
            return;
        }
        if self.overheard.len() >= OVERHEARD {
            self.overheard.pop_front();
        }
        self.overheard.push_back((module, author, message.clone()));
    }

    /// Heartbeats are numbered, so no two are the same.
    fn carries_already(&mut self, module: ModuleId, message: &Message, bytes: &[u8]) -> bool {
        if matches!(message, Message::Heartbeat(_)) {
            return false;
        }
        let name = BlobHash::of(&[format!("{module} ").as_bytes(), bytes].concat());
        let carried = self.gossiped.insert(name, self.now_ms);
        carried.is_some_and(|at_ms| self.now_ms < at_ms + SAME_BYTES_MS)
    }

    fn reachable(&self, key: PeerKey) -> Option<usize> {
        self.index_of.get(&key).copied().filter(|index| self.peers[*index].up)
    }

    pub(super) fn ask(&mut self, from: usize, id: RequestId, to: PeerKey, request: Request) {
        self.counts.asked_bytes += encoding::encode(&request).map_or(0, |bytes| bytes.len() as u64);
        let arrives = self.reachable(to).and_then(|to| Some((to, self.travel_ms(from, to, 500)?)));
        let Some((to, after_ms)) = arrives else {
            return self.event_at(from, 1_000, Event::Answered { id, response: None });
        };
        self.next_token += 1;
        let token = ReplyToken(self.next_token);
        let module = if let Request::CatchUp { module, .. } = &request { Some(*module) } else { None };
        self.asked.insert(token, (from, self.incarnations[from], id, module));
        let event = Event::Asked { from: self.peers[from].key, token, request };
        self.event_at(to, after_ms, event);
    }

    pub(super) fn reply(&mut self, from: usize, token: ReplyToken, response: Response) {
        let Some((peer, incarnation, id, module)) = self.asked.remove(&token) else { return };
        let mut response = self.false_answer(from, module, response);
        response.updates_mut().iter_mut().for_each(|signed| signed.update.contributions.forget());
        self.counts.asked_bytes += encoding::encode(&response).map_or(0, |bytes| bytes.len() as u64);
        let event = match self.travel_ms(from, peer, 2_000) {
            Some(after_ms) => (after_ms, Event::Answered { id, response: Some(response) }),
            None => (10_000, Event::Answered { id, response: None }),
        };
        self.schedule(self.now_ms + event.0, (peer, incarnation), Due::Event(Box::new(event.1)));
    }

    /// Each holder of the blob sends an equal part; it is complete with the last.
    pub(super) fn fetch(&mut self, index: usize, blob: BlobRef, from: &[PeerKey]) {
        let found = |found| Event::Fetched { blob: blob.hash, found };
        if self.peers[index].disk.get(blob.hash).is_some() {
            return self.event_at(index, 0, found(true));
        }
        let now_ms = self.now_ms;
        let gives = |donor: &usize| {
            let peer = &self.peers[*donor];
            let size = peer.disk.get(blob.hash).map(|bytes| bytes.len() as u64);
            let serves = self.behaviour(*donor) != Some(Byzantine::Unfetchable);
            serves && *donor != index && now_ms >= peer.frozen_until_ms && size == Some(blob.bytes)
        };
        let donors: Vec<usize> = from.iter().filter_map(|key| self.reachable(*key)).filter(gives).collect();
        let is_served = !donors.is_empty();
        let part = blob.bytes.div_ceil(donors.len().max(1) as u64);
        let arrive: Vec<(usize, u64)> =
            donors.into_iter().filter_map(|donor| Some((donor, self.travel_ms(donor, index, part)?))).collect();
        let last = arrive.iter().copied().max_by_key(|(_, after_ms)| *after_ms);
        let bytes = last.and_then(|(donor, _)| self.peers[donor].disk.get(blob.hash).cloned());
        match bytes.zip(last) {
            Some((bytes, (_, after_ms))) => {
                self.later(index, after_ms, Due::Arrived(bytes));
                self.event_at(index, after_ms, found(true));
            }
            None => {
                let fails_ms = if is_served { LOST_MS } else { self.rng.draw(self.scenario.links.unserved_ms) };
                self.event_at(index, fails_ms, found(false));
            }
        }
    }
}

/// A message as it is received: lists of contributions are in blobs.
fn without_lists(message: Arc<Message>) -> Arc<Message> {
    if message.updates().iter().all(|signed| signed.update.contributions.list().is_none()) {
        return message;
    }
    let mut received = Arc::unwrap_or_clone(message);
    received.updates_mut().iter_mut().for_each(|signed| signed.update.contributions.forget());
    Arc::new(received)
}

/// A heartbeat whose author signs its own claim. Receivers believe no other claim than a signed one.
fn with_checked_claim(module: ModuleId, author: PeerKey, message: Arc<Message>) -> Arc<Message> {
    let Message::Heartbeat(heartbeat) = &*message else { return message };
    let valid = heartbeat.owner.map_or_else(Vec::new, |owner| claim(module, owner));
    let own = heartbeat.owner.is_some_and(|(_, owner)| owner == author);
    if heartbeat.claim == valid || (!own && heartbeat.claim.is_empty()) {
        return message;
    }
    let claim = if own { valid } else { Vec::new() };
    Arc::new(Message::Heartbeat(Heartbeat { claim, ..heartbeat.clone() }))
}
