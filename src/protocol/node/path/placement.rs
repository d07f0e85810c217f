//! Placement: which peer trains which path.
//!
//! A path is held by a lease that its holder's heartbeats carry. A newcomer asks the peers that it can reach for their
//! leases. It takes a path without a holder, or else one from a peer that trains several in turn. If there is none, it
//! becomes a standby. If two peers hold the same path, the one with more paths yields it, or else the one with the
//! lower rank.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{ModuleId, PathId, PeerKey, Phase};
use crate::protocol::action::{Action, Report};
use crate::protocol::event::{Contact, RequestId};
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{
    ELECTION_STAGGER_MS, MAX_DIRECTORY, MAX_LEASES, MEMBER_LEASE_MS, PATH_LEASE_MOST_MS, PATH_LEASE_MS,
    PATH_LEASE_PHASE_SHARE,
};
use crate::protocol::membership::roster::well_formed;
use crate::protocol::node::module::election::path_rank;
use crate::protocol::wire::message::{DirectoryEntry, Lease, Request, Stage};
use crate::protocol::{Held, Node, Replica};

pub(in crate::protocol) fn active_leases(leases: &[Lease]) -> usize {
    leases.iter().filter(|lease| lease.stage.is_active()).count()
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
        let paths: Vec<PathId> = self.plan.slots.all().take(MAX_LEASES).collect();
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
        let (path, stage) = self.choose_path();
        self.take_path(path, stage);
        if stage == Stage::Joining {
            let found = self.search.found().flat_map(|entry| entry.leases.iter().map(|lease| (entry.peer, *lease)));
            self.begin_hand_off(path, found.collect());
        }
    }

    fn choose_path(&self) -> (PathId, Stage) {
        let entries: Vec<&DirectoryEntry> = self.search.found().collect();
        let mut holders: BTreeMap<PathId, Vec<(usize, Stage)>> = BTreeMap::new();
        let mut standbys: Vec<PathId> = Vec::new();
        for entry in &entries {
            let load = active_leases(&entry.leases);
            for lease in entry.leases.iter().filter(|lease| lease.path.0 < self.plan.slots.count()) {
                match lease.stage {
                    Stage::Standby => standbys.push(lease.path),
                    Stage::Leaving => {}
                    stage => holders.entry(lease.path).or_default().push((load, stage)),
                }
            }
        }
        // Newcomers that know of the same holders choose different paths.
        let mine = |path: &PathId| path_rank(*path, self.me);
        let unserved = self.plan.slots.all().filter(|path| !holders.contains_key(path));
        let unserved = unserved.max_by_key(|path| (!self.search.has_lost(*path), mine(path)));
        if let Some(path) = unserved {
            return (path, Stage::Joining);
        }
        // A path that only one peer trains, in turn with others: of the busiest peer, the highest path, which it trains
        // last.
        let spare = holders
            .iter()
            .filter(|(_, holders)| holders.iter().all(|(load, stage)| *load > 1 && *stage != Stage::Joining))
            .max_by_key(|(path, holders)| (holders.iter().map(|(load, _)| *load).max(), **path));
        if let Some((path, _)) = spare {
            return (*path, Stage::Joining);
        }
        (self.path_to_stand_by(&standbys, self.phase_about()), Stage::Standby)
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
        slots.all().min_by_key(first).unwrap_or(PathId(0))
    }

    pub(in crate::protocol) fn take_path(&mut self, path: PathId, stage: Stage) {
        self.search.taken(path);
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
        let (mine, theirs) = (self.active_paths(), active_leases(leases));
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

    /// Takes paths whose holders are dead, when it is this node's turn.
    pub(in crate::protocol) fn watch_paths(&mut self) {
        if self.paths.held().is_empty() {
            return;
        }
        let near = self.untrained_paths();
        self.search.retain_unheld(&near);
        // Paths of which this node is a standby come first, because it stops being a standby when it takes another.
        let (stood_by, others): (Vec<_>, Vec<_>) = near.into_iter().partition(|(path, _)| self.paths.stands_by(*path));
        for (path, phase) in stood_by.into_iter().chain(others) {
            // A path adopted just now may have been the only one.
            if self.paths.held().get(&path).is_some_and(|held| held.stage().is_active())
                || self.paths.held().len() >= MAX_LEASES
            {
                continue;
            }
            let since = self.search.note_unheld(self.now, path);
            let given = self.is_given(path);
            // A peer that trains other paths may not know every standby, so it lets them go first.
            let busy = usize::from(self.active_paths() > 0);
            let lease_ms = if given { 0 } else { self.path_lease_ms(path) };
            let timeout_ms = |turns: usize| ELECTION_STAGGER_MS * turns as u64 + lease_ms;
            let waited_ms = self.now.since(since);
            if waited_ms >= timeout_ms(busy) && waited_ms >= timeout_ms(busy + self.before_me(path, phase)) {
                self.adopt_path(path);
            }
        }
    }

    /// Whether a path can be taken without waiting, because its holder leaves, is doubted, or trains in vain.
    fn is_given(&self, path: PathId) -> bool {
        let mut holders = self.membership.roster().holders(self.now, path);
        holders.any(|(peer, _, lease)| {
            lease.stage == Stage::Leaving
                || self.reputation.scores().is_doubted(self.now, peer)
                || self.reputation.is_passed_over(path, peer)
        })
    }

    /// How long a path waits for its holder to return. It follows from the phase durations of the modules here.
    fn path_lease_ms(&self, path: PathId) -> u64 {
        let here = self.modules_of(path).into_iter().filter_map(|module| self.modules.get(&module));
        let phase_ms = here.filter_map(|state| state.history.phases().quicker_ms()).min().unwrap_or(0);
        (phase_ms / PATH_LEASE_PHASE_SHARE).clamp(PATH_LEASE_MS, PATH_LEASE_MOST_MS)
    }

    /// The paths through local modules that no living peer trains, with the phase in which they go through them.
    fn untrained_paths(&self) -> BTreeMap<PathId, Phase> {
        let trained = self.trained_paths();
        let mut untrained = BTreeMap::new();
        for (module, phase) in self.modules_not_done() {
            let through = self.plan.slots.through(module, phase).into_iter();
            let nobody = through.filter(|path| trained.binary_search(path).is_err());
            untrained.extend(nobody.map(|path| (path, phase)));
        }
        untrained
    }

    /// The paths that a living peer trains, including this node, in order.
    fn trained_paths(&self) -> Vec<PathId> {
        let mine = self.paths.held().iter().filter(|(_, held)| held.stage().is_active()).map(|(path, _)| *path);
        let theirs = self.membership.roster().everybody(self.now).flat_map(|(peer, member)| {
            let trains = move |lease: &&Lease| lease.stage.is_active() && !self.is_not_contributing(lease.path, peer);
            member.leases.iter().filter(trains).map(|lease| lease.path)
        });
        let mut trained: Vec<PathId> = mine.chain(theirs).collect();
        trained.sort_unstable();
        trained
    }

    /// How many living members go before this one: those with fewer paths, so standbys first, then by rank.
    fn before_me(&self, path: PathId, phase: Phase) -> usize {
        let place = |peer: PeerKey, paths: usize| (paths, std::cmp::Reverse(path_rank(path, peer)));
        let mine = place(self.me, self.active_paths());
        let modules = self.plan.slots.modules(path, phase);
        let neighbours = modules.iter().flat_map(|module| self.membership.roster().living(self.now, *module));
        let stay = neighbours.filter(|(_, member)| !member.leaves());
        let before =
            stay.filter(|(peer, member)| place(*peer, active_leases(&member.leases)) < mine).map(|(peer, _)| peer);
        before.collect::<BTreeSet<PeerKey>>().len()
    }

    fn adopt_path(&mut self, path: PathId) {
        // A standby stops being one. It keeps the trainer state of this path for its own use.
        let trainer = self.paths.remove_trainer(path);
        let standby: Vec<PathId> = self
            .paths
            .held()
            .iter()
            .filter(|(_, held)| held.stage() == Stage::Standby)
            .map(|(path, _)| *path)
            .collect();
        for standing in standby {
            self.yield_path(standing, false);
        }
        if let Some(trainer) = trainer {
            self.keep_trainer(path, trainer);
        }
        self.take_path(path, Stage::Joining);
        self.begin_hand_off(path, Vec::new());
    }
}
