//! The peers that a node knows: the members of its own modules, from their heartbeats.

mod admission;
mod by_peer;
pub mod small_list;

use std::cmp::Reverse;

use crate::protocol::membership::roster::admission::{Admission, Rank};
use crate::protocol::membership::roster::by_peer::ByPeer;
use crate::protocol::membership::roster::small_list::SmallList;

use crate::clock::Millis;
use crate::names::{ModuleId, PathId, PeerKey};
use crate::protocol::limits::{
    ADMIT_AT_ONCE, LEASE_MOST_MS, MAX_ADDRESS_BYTES, MAX_ADDRESSES, MAX_COPIED, MAX_LEASES, MAX_MEMBERS, MAX_WANTED,
    SIGNATURE_BYTES, STILL_HEARD_MS,
};
use crate::protocol::membership::failure_detector::ArrivalWindow;
use crate::protocol::membership::incarnation::{Copy, Starts};
use crate::protocol::wire::message::{Copied, DirectoryEntry, Head, Heartbeat, Lease, Stage, Start};

/// One module of another peer, as last heard.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it was heard, on this node's clock.
    pub at: Millis,
    /// The head of the peer's chain.
    pub head: Option<Head>,
}

/// Another peer.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Heartbeats on all topics.
    arrivals: ArrivalWindow,
    topics: SmallList<Topic>,
    /// The start that is accepted.
    start: (u64, u64),
    starts: Starts,
    newest: u64,
    /// The sequence number of the heartbeat that last changed the leases or the pace.
    changed: u64,
    /// The paths that it holds.
    pub leases: SmallList<Lease>,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Inner steps that each of its paths makes in 1000 s; 0 if unknown.
    pub pace: u32,
    /// How many modules it replicates.
    pub replicas: u32,
}

/// What was heard of a peer on the topic of one module.
#[derive(Clone, Debug)]
struct Topic {
    module: ModuleId,
    /// The sequence number of the newest heartbeat. Gossip may reorder heartbeats.
    sequence: u64,
    /// Nothing once the peer has left the module.
    seen: Option<Seen>,
}

impl Member {
    /// One of its modules, as last heard.
    pub fn seen(&self, module: ModuleId) -> Option<&Seen> {
        self.topics.iter().find(|topic| topic.module == module)?.seen.as_ref()
    }

    /// Its modules, as last heard.
    pub fn modules(&self) -> impl Iterator<Item = (ModuleId, &Seen)> {
        self.topics.iter().filter_map(|topic| Some((topic.module, topic.seen.as_ref()?)))
    }

    /// Whether it is a member of any module.
    pub fn is_anywhere(&self) -> bool {
        self.topics.iter().any(|topic| topic.seen.is_some())
    }

    fn topic(&mut self, module: ModuleId) -> &mut Topic {
        let known = self.topics.iter().position(|topic| topic.module == module);
        let place = known.unwrap_or_else(|| {
            let last = self.topics.len();
            self.topics.insert(last, Topic { module, sequence: 0, seen: None });
            last
        });
        &mut self.topics[place]
    }

    /// Whether it has sent nothing newer on any topic. A delayed heartbeat may list outdated paths.
    pub fn last_said(&self, sequence: u64) -> bool {
        sequence >= self.newest
    }

    /// Whether it is leaving.
    pub fn leaves(&self) -> bool {
        self.leases.iter().any(|lease| lease.stage == Stage::Leaving)
    }
}

/// The effect of a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Ignored, because it is old, malformed or beyond a bound.
    Ignored,
    /// Only a sign of life: nothing has changed.
    Same,
    /// A change of a known peer.
    Known,
    /// A new peer or new addresses: connect to it.
    New,
}

/// All peers that a node knows.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    members: ByPeer<Member>,
    /// Who may become known when nearly as many peers are known as may be.
    admission: Admission,
    /// Since when this node has been running without a suspension.
    awake: Millis,
}

/// Topics of one peer that are remembered after it left them.
const MAX_LEFT: usize = 64;

/// Whether what a peer announces is within bounds.
pub fn well_formed(leases: &[Lease], addresses: &[String]) -> bool {
    leases.len() <= MAX_LEASES
        && addresses.len() <= MAX_ADDRESSES
        && addresses.iter().all(|address| address.len() <= MAX_ADDRESS_BYTES)
}

fn starts_well_formed(start: &Start, copied: &[Copied]) -> bool {
    let fits = |start: &Start| start.signature.len() <= SIGNATURE_BYTES;
    fits(start) && copied.len() <= MAX_COPIED && copied.iter().all(|named| fits(&named.start))
}

impl Roster {
    /// This node was suspended until now, so peers may have sent heartbeats that it did not hear.
    pub fn wake(&mut self, now: Millis) {
        self.awake = now;
    }

    /// Handles a heartbeat. Returns a copy if two starts of its author are alive at once; the lower one is ignored.
    pub fn hear(
        &mut self,
        now: Millis,
        module: ModuleId,
        author: PeerKey,
        heartbeat: &Heartbeat,
    ) -> (Heard, Option<Copy>) {
        let starts =
            starts_well_formed(&heartbeat.start, &heartbeat.copied) && heartbeat.claim.len() <= SIGNATURE_BYTES;
        let wants = heartbeat.wanted.len() <= MAX_WANTED;
        let is_valid = well_formed(&heartbeat.leases, &heartbeat.addresses) && starts && wants;
        if !is_valid || !self.has_room_for(now, author, heartbeat) {
            return (Heard::Ignored, None);
        }
        let (member, known) = self.members.get_or_begin(author);
        let start = heartbeat.start.order();
        let copy = member.starts.hear(now, &heartbeat.start, Some(heartbeat.sequence), Some(&heartbeat.addresses));
        let outlived = copy.is_none() && member.starts.has_outlived(now, start, member.start);
        let begins = start > member.start || !known || outlived;
        if begins {
            member.start = start;
            member.topics.iter_mut().for_each(|topic| topic.sequence = 0);
            member.newest = 0;
            member.changed = 0;
            member.arrivals = ArrivalWindow::new(now);
        }
        let is_earlier = start < member.start;
        let topic = member.topic(module);
        if is_earlier || heartbeat.sequence <= topic.sequence {
            return (Heard::Ignored, copy);
        }
        let before = std::mem::replace(&mut topic.sequence, heartbeat.sequence);
        let had = topic.seen.as_ref().map(|seen| seen.head);
        let is_there = had == Some(heartbeat.head) && !heartbeat.leaving;
        topic.seen = (!heartbeat.leaving).then_some(Seen { at: now, head: heartbeat.head });
        let lived = member.arrivals.lives(now, self.awake);
        member.arrivals.hear(now, self.awake);
        let moved = member.addresses != heartbeat.addresses;
        if heartbeat.sequence > member.newest {
            member.newest = heartbeat.sequence;
            if *member.leases != *heartbeat.leases || member.pace != heartbeat.pace {
                member.changed = heartbeat.sequence;
                member.leases.set(&heartbeat.leases);
                member.pace = heartbeat.pace;
            }
            member.addresses.clone_from(&heartbeat.addresses);
            member.replicas = heartbeat.replicas;
        }
        let heard = match known && !moved {
            true if is_there && lived && !begins && before >= member.changed && copy.is_none() => Heard::Same,
            true => Heard::Known,
            false => Heard::New,
        };
        (heard, copy)
    }

    /// Whether a peer is known or may become known, for which the least useful member may have to go.
    fn has_room_for(&mut self, now: Millis, author: PeerKey, heartbeat: &Heartbeat) -> bool {
        if self.members.len() < ADMIT_AT_ONCE || self.members.get(author).is_some() {
            return true;
        }
        // Such a heartbeat would leave an entry that says nothing.
        if heartbeat.leaving || heartbeat.sequence == 0 || !self.admission.is_due(now, author) {
            return false;
        }
        let room = self.members.len() < MAX_MEMBERS || self.make_room(now);
        if room {
            self.admission.admitted(now, author);
        }
        room
    }

    /// Forgets the least useful member. Whoever was here first must not keep newcomers out for good, and newcomers must
    /// not drive out who has been here for long, or who came just before them.
    fn make_room(&mut self, now: Millis) -> bool {
        let steady = |peer, member: &Member| (member.arrivals.steady_ms(now), Reverse(peer));
        let mut all: Vec<_> = self.members.iter().map(|(peer, member)| steady(peer, member)).collect();
        let middle = all.len() / 2;
        let long = *all.select_nth_unstable(middle).1;
        let rank = |(peer, member): (PeerKey, &Member)| {
            let heard = member.topics.iter().filter_map(|topic| topic.seen.as_ref().map(|seen| seen.at)).max();
            let lives = self.alive(now, member);
            let speaks = lives && heard.is_some_and(|heard| now.since(heard.max(self.awake)) < STILL_HEARD_MS);
            let is_old = steady(peer, member) > long;
            Some((Rank::of(is_old, member.arrivals.steady_ms(now), (lives, speaks))?, heard, peer))
        };
        let least = self.members.iter().filter_map(rank).min();
        least.inspect(|(.., peer)| self.members.remove(*peer)).is_some()
    }

    /// A known peer sends a request on its own connection.
    pub fn hear_start(&mut self, now: Millis, peer: PeerKey, start: &Start) -> Option<Copy> {
        let member = self.members.get_mut(peer).filter(|_| starts_well_formed(start, &[]))?;
        member.starts.hear(now, start, None, None)
    }

    /// Forgets peers that were not heard on any module since then.
    pub fn prune_before(&mut self, time: Millis) {
        self.admission.prune_before(time);
        self.members.retain(|member| {
            for topic in member.topics.iter_mut() {
                topic.seen.take_if(|seen| seen.at < time);
            }
            // A remembered sequence number keeps a delayed heartbeat from bringing the member back.
            if member.topics.len() > MAX_LEFT {
                member.topics.retain(|topic| topic.seen.is_some());
            }
            member.is_anywhere()
        });
    }

    /// Number of known peers.
    pub fn peers(&self) -> usize {
        self.members.len()
    }

    /// Number of peers that wait to become known.
    pub fn newcomers(&self) -> usize {
        self.admission.len()
    }

    /// The state of a peer.
    pub fn member(&self, peer: PeerKey) -> Option<&Member> {
        self.members.get(peer)
    }

    /// Whether a peer is alive on a module.
    pub fn lives(&self, now: Millis, module: ModuleId, peer: PeerKey) -> bool {
        self.members.get(peer).is_some_and(|member| self.lives_on(now, module, member))
    }

    /// A peer heard on any topic is alive, unless it has not been heard on this one for much longer.
    fn lives_on(&self, now: Millis, module: ModuleId, member: &Member) -> bool {
        let seen = member.seen(module);
        let lately = |seen: &Seen| now.since(seen.at.max(self.awake)) < LEASE_MOST_MS;
        member.arrivals.lives(now, self.awake) && seen.is_some_and(lately)
    }

    /// When a peer was last heard, if it has been silent for longer than usual.
    pub fn silent_since(&self, now: Millis, peer: PeerKey) -> Option<Millis> {
        self.members.get(peer)?.arrivals.silent_since(now, self.awake)
    }

    /// How long a peer has been present without a restart.
    pub fn steady_ms(&self, now: Millis, peer: PeerKey) -> u64 {
        self.members.get(peer).map_or(0, |member| member.arrivals.steady_ms(now))
    }

    /// The living members of a module, in the order of their keys.
    pub fn living(&self, now: Millis, module: ModuleId) -> impl Iterator<Item = (PeerKey, &Member)> {
        self.members.iter().filter(move |(_, member)| self.lives_on(now, module, member))
    }

    /// The living members of a module that have its state, with their heads.
    pub fn heads(&self, now: Millis, module: ModuleId) -> impl Iterator<Item = (PeerKey, Head)> {
        self.living(now, module).filter_map(move |(peer, member)| Some((peer, member.seen(module)?.head?)))
    }

    /// The members of a module that have its state and were heard there lately, also those that are silent since, with
    /// their heads.
    pub fn heads_lately(&self, now: Millis, module: ModuleId, lately_ms: u64) -> impl Iterator<Item = (PeerKey, Head)> {
        self.members.iter().filter_map(move |(peer, member)| {
            let seen = member.seen(module)?;
            let lately = now.since(seen.at.max(self.awake)) < lately_ms;
            Some((peer, seen.head.filter(|_| lately)?))
        })
    }

    /// The living members of a module that do not have its state yet.
    pub fn stateless(&self, now: Millis, module: ModuleId) -> impl Iterator<Item = PeerKey> {
        let stateless = move |(peer, member): (PeerKey, &Member)| member.seen(module)?.head.is_none().then_some(peer);
        self.living(now, module).filter_map(stateless)
    }

    /// Whether a peer is alive on any module.
    pub fn alive(&self, now: Millis, member: &Member) -> bool {
        member.arrivals.lives(now, self.awake) && member.is_anywhere()
    }

    /// Whether any living peer is not leaving.
    pub fn anybody_stays(&self, now: Millis) -> bool {
        self.members.iter().any(|(_, member)| self.alive(now, member) && !member.leaves())
    }

    /// The living peers that hold a path, with their leases of it.
    pub fn holders(&self, now: Millis, path: PathId) -> impl Iterator<Item = (PeerKey, &Member, Lease)> {
        self.members.iter().filter(move |(_, member)| self.alive(now, member)).filter_map(move |(peer, member)| {
            let lease = member.leases.iter().find(|lease| lease.path == path)?;
            Some((peer, member, *lease))
        })
    }

    /// All living peers, in the order of their keys.
    pub fn everybody(&self, now: Millis) -> impl Iterator<Item = (PeerKey, &Member)> {
        self.members.iter().filter(move |(_, member)| self.alive(now, member))
    }

    /// The directory of the living peers, in the order of their keys.
    pub fn directory(&self, now: Millis) -> impl Iterator<Item = DirectoryEntry> {
        self.everybody(now).map(entry)
    }

    /// The directory of at most so many living peers, for a newcomer: those that have been here for longest, since keys
    /// are free.
    pub fn steadiest(&self, now: Millis, most: usize) -> impl Iterator<Item = DirectoryEntry> {
        let mut peers: Vec<(PeerKey, &Member)> = self.everybody(now).collect();
        if peers.len() > most {
            peers.sort_by_key(|(peer, member)| (Reverse(member.arrivals.steady_ms(now)), *peer));
            peers.truncate(most);
            peers.sort_by_key(|(peer, _)| *peer);
        }
        peers.into_iter().map(entry)
    }
}

fn entry((peer, member): (PeerKey, &Member)) -> DirectoryEntry {
    DirectoryEntry { peer, addresses: member.addresses.clone(), leases: member.leases.to_vec() }
}

#[cfg(test)]
mod tests;
