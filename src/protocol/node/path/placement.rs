//! Placement: which peer trains which path.
//!
//! A path is held by a lease that its holder's heartbeats carry. A newcomer asks the peers that it can reach for their
//! leases. For each of its trainers it takes a path without a trainer, or else one from a peer that trains several in
//! turn. If there is none, it
//! becomes one more trainer of a path, or a standby if each path has as many as it may have. If two peers hold the same
//! worker slot, the one with more of them yields it, or else the one with the lower rank.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::names::{ModuleId, PathId, PeerKey, Phase};
use crate::protocol::action::{Action, Report};
use crate::protocol::event::{Contact, RequestId};
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{MAX_DIRECTORY, MEMBER_LEASE_MS};
use crate::protocol::membership::roster::well_formed;
use crate::protocol::node::module::election::path_rank;
use crate::protocol::wire::message::{DirectoryEntry, Lease, Request, Stage, trainers_of};
use crate::protocol::{Held, Node, Replica};

pub(in crate::protocol) fn active_leases(leases: &[Lease]) -> usize {
    leases.iter().filter(|lease| lease.stage.is_active()).count()
}

/// How many paths each trainer of a peer with these leases trains in turn, rounded up.
pub(in crate::protocol) fn turns(leases: &[Lease]) -> usize {
    active_leases(leases).div_ceil(trainers_of(leases))
}

/// Whether a peer with these leases has more trainers than paths for them.
pub(in crate::protocol) fn has_free_trainer(leases: &[Lease]) -> bool {
    active_leases(leases) < trainers_of(leases)
}

impl Node {
    /// The creator of the run holds everything until others come.
    pub(in crate::protocol) fn create(&mut self) {
        self.start_timers();
        for module in self.plan.slots.grid().modules() {
            if !self.modules.contains_key(&module) {
                self.enter_at_genesis(module);
            }
            self.take_ownership(module);
        }
        let paths: Vec<PathId> = self.plan.slots.first_trainers().take(self.most_paths()).collect();
        for path in paths {
            self.take_path(path, Stage::Waiting);
        }
        self.send_heartbeats();
    }

    fn enter_at_genesis(&mut self, module: ModuleId) {
        let Some(state) = self.plan.genesis.get(&module).copied() else { return };
        self.act(Action::Persist(Record::Genesis { module, state }));
        self.act(Action::Subscribe(module));
        self.modules.insert(module, Replica::at_genesis(state));
    }

    /// Starts a newcomer, or a peer that returns with the state of its journal.
    pub(in crate::protocol) fn join(&mut self, contacts: Vec<Contact>) {
        self.start_timers();
        for contact in &contacts {
            self.act(Action::Learn { peer: contact.peer, addresses: contact.addresses.clone() });
        }
        let alone = contacts.is_empty();
        self.search.set_contacts(contacts);
        let modules: Vec<ModuleId> = self.modules.keys().copied().collect();
        for module in modules {
            self.act(Action::Subscribe(module));
        }
        self.lifecycle.listen_until(self.now + MEMBER_LEASE_MS);
        if self.paths.held().is_empty() {
            self.begin_search();
        } else if !alone {
            self.lifecycle.rest_until(self.now + self.membership.response_times().settle_ms());
            // This peer needs no path, but others learn that it has started.
            self.search.ask_contacts();
            self.ask_more();
        }
    }

    fn begin_search(&mut self) {
        if self.lifecycle.is_leaving() {
            return;
        }
        let known: Vec<DirectoryEntry> = self.membership.roster().directory(self.now).collect();
        self.search.begin(known);
        self.ask_more();
    }

    fn ask_more(&mut self) {
        while let Some(peer) = self.search.next_to_ask(self.me) {
            let id = self.ask(peer, Request::Directory { start: Some(self.membership.start().clone()) });
            self.search.asked(self.now, id, peer);
        }
    }

    pub(in crate::protocol) fn directory_answered(
        &mut self,
        id: RequestId,
        entries: Option<Vec<DirectoryEntry>>,
    ) -> bool {
        if !self.search.answered(id) {
            return false;
        }
        for entry in entries.unwrap_or_default().into_iter().take(MAX_DIRECTORY) {
            if entry.peer == self.me || !self.search.has_capacity() || !well_formed(&entry.leases, &entry.addresses) {
                continue;
            }
            self.act(Action::Learn { peer: entry.peer, addresses: entry.addresses.clone() });
            self.search.add(entry);
        }
        self.ask_more();
        self.decide();
        true
    }

    /// Times out pending requests, and starts again if no peer was found.
    pub(in crate::protocol) fn search_on(&mut self) {
        if !self.search.is_active() {
            return;
        }
        self.search.time_out(self.now, self.membership.response_times().request_ms());
        self.decide();
        if self.search.is_active() && self.search.is_answered() {
            self.begin_search();
        }
    }

    /// Takes a path once every request was answered or timed out.
    fn decide(&mut self) {
        if self.lifecycle.is_leaving() || !self.search.end() {
            return;
        }
        if !self.paths.held().is_empty() {
            self.take_paths_for_free_trainers();
            return self.move_where_of_more_use();
        }
        let (path, stage) = self.choose_path();
        self.take_path(path, stage);
        if stage == Stage::Joining {
            self.begin_hand_off(path, self.leases_found());
            self.take_paths_for_free_trainers();
        }
    }

    /// A node with several trainers takes a path for each, as long as there are paths that are not trained or trained in
    /// turn.
    fn take_paths_for_free_trainers(&mut self) {
        while self.trainers.count() > 1 && self.has_free_trainer() {
            let Some(path) = self.path_to_train() else { return };
            self.adopt_path(path, self.leases_found());
        }
    }

    /// The leases of the peers that a search has found.
    fn leases_found(&self) -> Vec<(PeerKey, Lease)> {
        let valid = |lease: &&Lease| lease.path.0 < self.plan.slots.count();
        let leases = |entry: &DirectoryEntry| -> Vec<(PeerKey, Lease)> {
            entry.leases.iter().filter(valid).map(|lease| (entry.peer, *lease)).collect()
        };
        self.search.found().flat_map(leases).collect()
    }

    /// From time to time, asks for the trainers of all paths, if this node's path has another trainer. Peers that join or
    /// leave at the same time may leave paths with more trainers than others, and a node knows only those of its modules.
    /// A node with a trainer to spare asks, too.
    pub(in crate::protocol) fn reconsider(&mut self) {
        let trains = self.active_paths() == 1 && self.modules_not_done().next().is_some();
        let one = self.plan.slots.trainers() > 1 && trains;
        let free = self.trainers.count() > 1 && self.has_free_trainer() && !self.paths.held().is_empty();
        if (one || free) && self.search.is_to_reconsider(self.now) && !self.lifecycle.is_leaving() {
            self.search.reconsiders(self.now);
            if free || !self.spared_slots().is_empty() {
                self.begin_search();
            }
        }
    }

    /// Takes a worker slot of the path with the fewest trainers for its shard, if this node's own path has more.
    fn move_where_of_more_use(&mut self) {
        if self.spared_slots().is_empty() {
            return;
        }
        let found = self.leases_found();
        let theirs = found.iter().filter(|(_, lease)| lease.stage.is_active()).map(|(_, lease)| lease.path);
        let mut trained: Vec<PathId> = theirs.chain(self.active_slots()).collect();
        trained.sort_unstable();
        let slot = self.vacancy(&trained.iter().copied().collect());
        if let Some(slot) = slot.filter(|slot| self.is_of_more_use(&trained, *slot)) {
            self.adopt_path(slot, found);
            // Directories that lie must not keep it moving.
            self.search.reconsiders(self.now);
        }
    }

    fn choose_path(&self) -> (PathId, Stage) {
        if let Some(path) = self.path_to_train() {
            return (path, Stage::Joining);
        }
        let found = self.leases_found();
        let standbys = found.iter().filter(|(_, lease)| lease.stage == Stage::Standby);
        let standbys: Vec<PathId> = standbys.map(|(_, lease)| lease.path).collect();
        (self.path_to_stand_by(&standbys, self.phase_about()), Stage::Standby)
    }

    /// The holders of each path, as a search has found them, and this node: how many paths each of their trainers trains
    /// in turn, and what they do with the path. The paths that this node has just taken count for it alone.
    fn holders_found(&self) -> BTreeMap<PathId, Vec<(usize, Stage)>> {
        let mut holders: BTreeMap<PathId, Vec<(usize, Stage)>> = BTreeMap::new();
        for entry in self.search.found() {
            let is_left = |lease: &&Lease| !self.paths.holds(lease.path) || self.paths.stands_by(lease.path);
            let leases: Vec<Lease> = entry.leases.iter().filter(is_left).copied().collect();
            let load = turns(&leases);
            for lease in leases.iter().filter(|lease| lease.path.0 < self.plan.slots.count()) {
                if !matches!(lease.stage, Stage::Standby | Stage::Leaving) {
                    holders.entry(lease.path).or_default().push((load, lease.stage));
                }
            }
        }
        for path in self.active_slots() {
            holders.entry(path).or_default().push((self.turns_here(), Stage::Waiting));
        }
        holders
    }

    /// The path that a free trainer takes.
    fn path_to_train(&self) -> Option<PathId> {
        let holders = self.holders_found();
        // Newcomers that know of the same holders choose different paths.
        let mine = |path: &PathId| path_rank(*path, self.me);
        let slots = &self.plan.slots;
        let trained = |path: PathId| slots.of_same_path(path).any(|slot| holders.contains_key(&slot));
        let unserved = slots.first_trainers().filter(|path| !trained(*path));
        let unserved = unserved.max_by_key(|path| (!self.search.has_lost(*path), mine(path)));
        if unserved.is_some() {
            return unserved;
        }
        // A path that only one peer trains, in turn with others: of the busiest peer, the highest path, which it trains
        // last.
        let spare = holders
            .iter()
            .filter(|(_, holders)| holders.iter().all(|(load, stage)| *load > 1 && *stage != Stage::Joining))
            .max_by_key(|(path, holders)| (holders.iter().map(|(load, _)| *load).max(), **path));
        if let Some((path, _)) = spare {
            return Some(*path);
        }
        self.vacancy(&holders.into_keys().collect())
    }

    /// A free worker slot, of the path with the fewest trainers for its shard. Of a path's slots it is the first free
    /// one, so that newcomers that choose the same path at the same time meet, and one of them chooses again.
    fn vacancy(&self, held: &BTreeSet<PathId>) -> Option<PathId> {
        let slots = &self.plan.slots;
        if slots.trainers() == 1 {
            return None;
        }
        let vacancy = |first: PathId| {
            // Whoever has yielded a slot knows of its holder before others name it.
            let is_taken = |slot: &PathId| held.contains(slot) || self.search.has_lost(*slot);
            let (taken, free): (Vec<_>, Vec<_>) = slots.of_same_path(first).partition(is_taken);
            let served = self.plan.trainers_for_shard(first, taken.len());
            Some((served, Reverse(path_rank(first, self.me)), *free.first()?))
        };
        slots.first_trainers().filter_map(vacancy).min().map(|(.., slot)| slot)
    }

    /// The path to become a standby of. A standby can take any path whose modules it has. So it goes where these
    /// modules have the fewest standbys in total, and then where the path itself has the fewest.
    pub(in crate::protocol) fn path_to_stand_by(&self, standbys: &[PathId], phase: Phase) -> PathId {
        let slots = &self.plan.slots;
        let mut in_module: BTreeMap<ModuleId, usize> = BTreeMap::new();
        let mut of_path: BTreeMap<PathId, usize> = BTreeMap::new();
        for path in standbys {
            *of_path.entry(*path).or_default() += 1;
            slots.modules(*path, phase).into_iter().for_each(|module| *in_module.entry(module).or_default() += 1);
        }
        let near = |path: PathId| {
            let modules = slots.modules(path, phase).into_iter();
            modules.map(|module| in_module.get(&module).copied().unwrap_or(0)).sum::<usize>()
        };
        let first = |path: &PathId| (near(*path), of_path.get(path).copied().unwrap_or(0), path_rank(*path, self.me));
        slots.first_trainers().min_by_key(first).unwrap_or(PathId(0))
    }

    pub(in crate::protocol) fn take_path(&mut self, path: PathId, stage: Stage) {
        self.search.taken(self.now, path);
        self.act(Action::Persist(Record::Lease { path, held: true, standby: stage == Stage::Standby }));
        self.act(Action::Report(Report::PathTaken(path)));
        let near = self.phase_about();
        self.paths.take(path, Held::new(stage, near));
        self.lifecycle.note_move();
        for module in self.modules_around(path) {
            self.enter(module);
            self.send_heartbeat(module);
        }
        self.close_gaps();
    }

    pub(in crate::protocol) fn yield_path(&mut self, path: PathId, search: bool) {
        // The contribution of the phase in training is offered all the same.
        let modules = self.modules_around(path);
        if !self.paths.give_up(path) {
            return;
        }
        self.act(Action::Persist(Record::Lease { path, held: false, standby: false }));
        self.act(Action::Report(Report::PathYielded(path)));
        self.trainers.forget(path);
        if let Some(trainer) = self.paths.remove_trainer(path) {
            self.release(trainer.hash);
        }
        self.release_checkpoint(path);
        self.release_base_states(path);
        self.cancel_hand_off(path);
        for module in modules {
            self.send_heartbeat(module);
        }
        if self.paths.held().is_empty() && search {
            self.begin_search();
        }
    }

    /// Handles another peer's leases. If both hold the same path, one of them yields it.
    pub(in crate::protocol) fn settle_leases(&mut self, peer: PeerKey, leases: &[Lease]) {
        let (mine, theirs) = (self.turns_here(), turns(leases));
        for lease in leases {
            let Some(held) = self.paths.held().get(&lease.path).copied() else { continue };
            if self.is_not_contributing(lease.path, peer) {
                continue;
            }
            let active = held.stage().is_active() && lease.stage.is_active();
            if active && self.is_passed_over(lease.path) {
                return self.yield_path(lease.path, true);
            }
            let ranks_lower = path_rank(lease.path, self.me) < path_rank(lease.path, peer);
            let comes_after = mine > theirs || (mine == theirs && ranks_lower);
            let yields = match (held.stage(), lease.stage) {
                (Stage::Standby | Stage::Done | Stage::Leaving, _) => false,
                (_, Stage::Standby | Stage::Done | Stage::Leaving) => false,
                (Stage::Joining, Stage::Joining) => comes_after,
                (Stage::Joining, _) => theirs <= 1,
                (_, Stage::Joining) => false,
                (_, _) => comes_after,
            };
            if yields {
                self.search.lost(lease.path);
                return self.yield_path(lease.path, true);
            }
        }
    }
}
