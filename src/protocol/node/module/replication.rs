//! Replication: every module gets a second holder as soon as there is a second peer.
//!
//! The only living holder of a module names in its heartbeats the peer that it asks. That peer joins the module as a
//! replica, a full member although none of its paths goes through the module. It leaves again once two other peers hold
//! the module lastingly.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Millis;
use crate::names::{ModuleId, PeerKey};
use crate::protocol::Node;
use crate::protocol::action::Action;
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{
    MAX_REPLICAS, MAX_REPLICAS_FOR_ONE, MAX_WANTED, REPLICA_ANSWER_MS, REPLICA_RELEASE_MS, REPLICA_TIMEOUT_MS,
    STATES_KEPT, VERSIONS_KEPT,
};
use crate::protocol::node::module::election::rank;
use crate::protocol::wire::message::Wanted;

/// The replicas held here, and those wanted from others.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Replicas {
    /// Modules held only as replicas: no path here goes through them.
    held: BTreeMap<ModuleId, Option<PeerKey>>,
    /// Modules whose replica here is not needed, and since when.
    spare_since: BTreeMap<ModuleId, Millis>,
    /// Modules that no other peer has, and since when.
    alone_since: BTreeMap<ModuleId, Millis>,
    asked: BTreeMap<ModuleId, Asked>,
    /// The disk space for replicas, if it is limited.
    room_bytes: Option<u64>,
}

impl Replicas {
    pub(in crate::protocol) fn held(&self) -> impl ExactSizeIterator<Item = ModuleId> {
        self.held.keys().copied()
    }

    /// How many are held at the request of one peer.
    fn held_for(&self, peer: PeerKey) -> usize {
        self.held.values().filter(|by| **by == Some(peer)).count()
    }

    pub(in crate::protocol) fn holds(&self, module: ModuleId) -> bool {
        self.held.contains_key(&module)
    }

    pub(in crate::protocol) fn hold(&mut self, module: ModuleId, by: Option<PeerKey>) {
        self.held.insert(module, by);
    }

    pub(in crate::protocol) fn release(&mut self, module: ModuleId) {
        self.held.remove(&module);
    }
}

/// The peer that was asked to replicate a module.
#[derive(Debug)]
struct Asked {
    peer: PeerKey,
    at: Millis,
    /// Peers that were asked without success.
    tried: BTreeSet<PeerKey>,
}

impl Node {
    /// Limits the disk space for replicas of modules that none of this peer's paths needs.
    pub fn replicating_within(mut self, room_bytes: u64) -> Self {
        self.replicas.room_bytes = Some(room_bytes);
        self
    }

    /// Finds a second holder for every module that has none.
    pub(in crate::protocol) fn watch_replicas(&mut self) {
        let now = self.now;
        let alone: BTreeSet<ModuleId> = self
            .modules
            .iter()
            .filter(|(module, state)| {
                state.history.chain().is_some() && self.membership.roster().heads(now, **module).next().is_none()
            })
            .map(|(module, _)| *module)
            .collect();
        self.replicas.alone_since.retain(|module, _| alone.contains(module));
        self.replicas.asked.retain(|module, _| alone.contains(module));
        for module in alone {
            let since = *self.replicas.alone_since.entry(module).or_insert(now);
            // A member may be about to fetch it.
            let comes = self.membership.roster().living(now, module).next().is_some();
            let timeout_ms = match (comes, self.lifecycle.is_leaving()) {
                (true, _) => self.fetch_ms(module),
                (false, false) => REPLICA_TIMEOUT_MS,
                (false, true) => 0,
            };
            if now.since(since) >= timeout_ms || self.replicas.asked.contains_key(&module) {
                self.ask_for_replica(module);
            }
        }
    }

    /// A member that has joined a module and has no state by then is passed over.
    pub(in crate::protocol) fn fetch_ms(&self, module: ModuleId) -> u64 {
        self.membership.response_times().transfer_ms(self.plan.genesis.get(&module).map_or(0, |state| state.bytes))
    }

    fn ask_for_replica(&mut self, module: ModuleId) {
        let (now, fetch_ms) = (self.now, self.fetch_ms(module));
        let waits = |asked: &Asked| {
            let alive = self
                .membership
                .roster()
                .member(asked.peer)
                .is_some_and(|member| self.membership.roster().alive(now, member));
            let joined = self.membership.roster().lives(now, module, asked.peer);
            alive && now.since(asked.at) < if joined { fetch_ms } else { REPLICA_ANSWER_MS }
        };
        if self.replicas.asked.get(&module).is_some_and(waits) || self.wanted().len() >= MAX_WANTED {
            return;
        }
        let mut tried = BTreeSet::new();
        if let Some(before) = self.replicas.asked.remove(&module) {
            tried = before.tried;
            tried.insert(before.peer);
        }
        // Once every peer was asked without success, all are asked again.
        let helper = self.replica_helper(module, &tried).or_else(|| {
            tried.clear();
            self.replica_helper(module, &tried)
        });
        if let Some(peer) = helper {
            self.replicas.asked.insert(module, Asked { peer, at: now, tried });
        }
    }

    /// The known living peer with the fewest replicas, then by rank.
    fn replica_helper(&self, module: ModuleId, tried: &BTreeSet<PeerKey>) -> Option<PeerKey> {
        let load = |peer: PeerKey, replicas: u32| {
            let asked = self.replicas.asked.iter().filter(|(module, asked)| {
                asked.peer == peer && !self.membership.roster().lives(self.now, **module, peer)
            });
            replicas as usize + asked.count()
        };
        self.membership
            .roster()
            .everybody(self.now)
            .map(|(peer, member)| (load(peer, member.replicas), Reverse(rank(module, peer)), peer))
            .filter(|(load, _, peer)| *load < MAX_REPLICAS && !tried.contains(peer))
            .min()
            .map(|(_, _, peer)| peer)
    }

    /// The replicas wanted, for heartbeats. A peer that has joined is not asked again.
    pub(in crate::protocol) fn wanted(&self) -> Vec<Wanted> {
        let open = |(module, asked): (&ModuleId, &Asked)| {
            let joined = self.membership.roster().lives(self.now, *module, asked.peer);
            (!joined).then_some(Wanted { module: *module, helper: asked.peer })
        };
        self.replicas.asked.iter().filter_map(open).take(MAX_WANTED).collect()
    }

    /// Joins the modules that this node is asked to replicate, if the limits allow it.
    pub(in crate::protocol) fn hear_wanted(&mut self, author: PeerKey, wanted: &[Wanted]) {
        for Wanted { module, helper } in wanted {
            // One of many may not fill this node's disk. Where there is no other peer, nobody else can replicate.
            let others = self.membership.roster().everybody(self.now).any(|(peer, _)| peer != author);
            if others && self.replicas.held_for(author) >= MAX_REPLICAS_FOR_ONE {
                return;
            }
            let exists = self.plan.genesis.contains_key(module);
            if *helper == self.me && exists && !self.modules.contains_key(module) && self.has_room_for(*module) {
                self.hold_replica(*module, Some(author));
                self.enter(*module);
                self.send_heartbeat(*module);
            }
        }
    }

    /// Whether one more replica, with the versions kept, fits within the limits.
    fn has_room_for(&self, module: ModuleId) -> bool {
        let bytes = |module: &ModuleId| {
            let state_bytes = self.plan.genesis.get(module).map_or(0, |state| state.bytes);
            STATES_KEPT as u64 * state_bytes + VERSIONS_KEPT * self.plan.average_bytes(*module)
        };
        let Replicas { held, room_bytes, .. } = &self.replicas;
        let fits = |room_bytes: u64| held.keys().map(bytes).sum::<u64>() + bytes(&module) <= room_bytes;
        held.len() < MAX_REPLICAS && room_bytes.is_none_or(fits)
    }

    fn hold_replica(&mut self, module: ModuleId, by: Option<PeerKey>) {
        self.act(Action::Persist(Record::Replica(module)));
        self.replicas.hold(module, by);
    }

    /// Whether a module that no path here goes through stays as a replica. It stays until two other peers have had it
    /// for a while. Only peers whose paths go through it, or that rank higher, count, so that not all replicas leave at
    /// once.
    pub(in crate::protocol) fn stays_as_replica(&mut self, module: ModuleId) -> bool {
        let now = self.now;
        let has_state = self.modules.get(&module).is_some_and(|state| state.history.chain().is_some());
        let is_held = self.replicas.holds(module);
        let others = self.staying_holders(module);
        let had = self.membership.roster().heads(now, module).next().is_some();
        let of_use = has_state || (is_held && had);
        let spare = others >= 2 || !of_use;
        if !spare {
            self.replicas.spare_since.remove(&module);
            if !is_held && self.replicas.held.len() < MAX_REPLICAS {
                self.hold_replica(module, None);
            }
            return self.replicas.holds(module);
        }
        let since = *self.replicas.spare_since.entry(module).or_insert(now);
        is_held && now.since(since) < REPLICA_RELEASE_MS
    }

    fn staying_holders(&self, module: ModuleId) -> usize {
        let mine = rank(module, self.me);
        let stays = |peer: PeerKey| {
            let Some(member) = self.membership.roster().member(peer).filter(|member| !member.leaves()) else {
                return false;
            };
            let needs = member.leases.iter().any(|lease| self.plan.needs(lease.path, lease.phase, module));
            needs || rank(module, peer) > mine
        };
        self.membership.roster().heads(self.now, module).filter(|(peer, _)| stays(*peer)).count()
    }

    /// A module that a path here goes through, or that was left, is no longer a replica.
    pub(in crate::protocol) fn prune_replicas(&mut self, needed: &BTreeSet<ModuleId>) {
        let modules = &self.modules;
        let Replicas { held, spare_since, .. } = &mut self.replicas;
        held.retain(|module, _| modules.contains_key(module) && !needed.contains(module));
        spare_since.retain(|module, _| modules.contains_key(module) && !needed.contains(module));
    }
}
