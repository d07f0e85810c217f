//! Takeover: paths and worker slots that nobody trains are taken by a living peer.
//!
//! A path that nobody trains is taken by a standby; without one, by a peer whose own path has another trainer, and which
//! gives its own worker slot up for it; and without one, by a peer that then trains several paths in turn. Standbys and
//! such peers also relieve a peer that trains several paths in turn. A worker slot of a path that others train is taken by a
//! standby, or by a trainer of a path that has more trainers for its shard.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::names::{ModuleId, PathId, PeerKey, Phase};
use crate::protocol::Node;
use crate::protocol::limits::{ELECTION_STAGGER_MS, PATH_LEASE_MOST_MS, PATH_LEASE_MS, PATH_LEASE_PHASE_SHARE};
use crate::protocol::node::module::election::path_rank;
use crate::protocol::node::path::placement::turns;
use crate::protocol::wire::message::{Lease, Stage, trainers_of};

impl Node {
    /// Takes paths whose holders are dead, when it is this node's turn.
    pub(in crate::protocol) fn watch_paths(&mut self) {
        if self.paths.held().is_empty() {
            return;
        }
        let trained = self.trained_slots();
        let mut near = self.untrained(&trained);
        near.extend(self.trained_in_turn(&trained));
        self.search.retain_unheld(&near);
        // Paths that nobody trains come first. Of them, those of which this node is a standby do, because it stops being a
        // standby when it takes another.
        let mut near: Vec<(PathId, Phase)> = near.into_iter().collect();
        let is_more = |slot| self.has_another_trainer(&trained, slot);
        near.sort_by_key(|(slot, _)| (is_more(*slot), !self.paths.stands_by(*slot), *slot));
        for (path, phase) in near {
            // A path adopted just now may have been the only one.
            if self.paths.held().get(&path).is_some_and(|held| held.stage().is_active())
                || self.paths.held().len() >= self.most_paths()
                || !self.may_move_to(&trained, path)
            {
                continue;
            }
            let since = self.search.note_unheld(self.now, path);
            let given = self.is_given(&trained, path);
            // A peer that trains other paths may not know every standby, so it lets them go first.
            let busy = usize::from(!self.has_free_trainer());
            let lease_ms = if given { 0 } else { self.path_lease_ms(path) };
            let timeout_ms = |turns: usize| ELECTION_STAGGER_MS * turns as u64 + lease_ms;
            let waited_ms = self.now.since(since);
            if waited_ms >= timeout_ms(busy) && waited_ms >= timeout_ms(busy + self.before_me(&trained, path, phase)) {
                self.adopt_path(path, Vec::new());
            }
        }
    }

    /// Whether this node is free to take a worker slot. If others train its path, it must be a standby. If a peer is to
    /// be relieved of it, a node will do whose own paths have other trainers.
    fn may_move_to(&self, trained: &[PathId], slot: PathId) -> bool {
        let idle = self.has_free_trainer();
        if trained.binary_search(&slot).is_ok() {
            return idle || self.active_paths() == self.spared_slots().len();
        }
        idle || !self.has_another_trainer(trained, slot) || self.is_of_more_use(trained, slot)
    }

    /// Whether a path would have no more trainers for its shard with this node than the node's present path without it.
    pub(in crate::protocol) fn is_of_more_use(&self, trained: &[PathId], slot: PathId) -> bool {
        let trainers = |slot: PathId| {
            let slots = self.plan.slots.of_same_path(slot);
            slots.filter(|slot| trained.binary_search(slot).is_ok()).count()
        };
        let mut mine = self.active_slots();
        let other = |own| self.plan.slots.first_trainer(own) != self.plan.slots.first_trainer(slot);
        match (mine.next(), mine.next()) {
            (Some(own), None) if other(own) && self.is_spared(trained, own) => {
                let without = self.plan.trainers_for_shard(own, trainers(own).saturating_sub(1));
                without > 0 && self.plan.trainers_for_shard(slot, trainers(slot) + 1) <= without
            }
            _ => false,
        }
    }

    /// Of each peer that trains several paths in turn, the one that it trains last, unless another peer trains or joins it.
    fn trained_in_turn(&self, trained: &[PathId]) -> BTreeMap<PathId, Phase> {
        let trainers = |lease: &Lease| {
            let slots = self.plan.slots.of_same_path(lease.path);
            slots.map(|slot| trained.iter().filter(|other| **other == slot).count()).sum::<usize>()
        };
        // Only of paths through a module that is here is it known who trains them. A lease may name any number.
        let here: Vec<(ModuleId, Phase)> = self.modules_not_done().collect();
        let known = |lease: &Lease| {
            here.iter().any(|(module, phase)| self.plan.slots.goes_through(lease.path, *phase, *module))
        };
        let last = |leases: &[Lease]| {
            let active = leases.iter().filter(|lease| lease.stage.is_active());
            let several = turns(leases) > 1;
            let spare = active.filter(|lease| known(lease) && Self::trains(lease.stage) && trainers(lease) == 1);
            spare.max_by_key(|lease| lease.path).filter(|_| several).map(|lease| (lease.path, lease.phase))
        };
        self.membership.roster().everybody(self.now).filter_map(|(_, member)| last(&member.leases)).collect()
    }

    /// Whether a path can be taken without waiting, because its holder leaves, is doubted, or trains in vain.
    fn is_given(&self, trained: &[PathId], path: PathId) -> bool {
        let others = !self.has_another_trainer(trained, path);
        let slots = self.plan.slots.of_same_path(path).filter(|slot| others || *slot == path);
        let mut holders = slots.flat_map(|slot| self.membership.roster().holders(self.now, slot));
        holders.any(|(peer, _, lease)| {
            lease.stage == Stage::Leaving
                || self.reputation.scores().is_doubted(self.now, peer)
                || self.reputation.is_passed_over(lease.path, peer)
        })
    }

    /// How long a path waits for its holder to return. It follows from the phase durations of the modules here.
    fn path_lease_ms(&self, path: PathId) -> u64 {
        let here = self.modules_of(path).into_iter().filter_map(|module| self.modules.get(&module));
        let phase_ms = here.filter_map(|state| state.history.phases().quicker_ms()).min().unwrap_or(0);
        (phase_ms / PATH_LEASE_PHASE_SHARE).clamp(PATH_LEASE_MS, PATH_LEASE_MOST_MS)
    }

    /// A worker slot of each path through local modules that no living peer trains, or in which this node is of more use;
    /// with the phase in which the path goes through the modules.
    fn untrained(&self, trained: &[PathId]) -> BTreeMap<PathId, Phase> {
        let is_trained = |slot: &PathId| trained.binary_search(slot).is_ok();
        let idle = self.has_free_trainer();
        let mut untrained = BTreeMap::new();
        for (module, phase) in self.modules_not_done() {
            for first in self.plan.slots.first_trainers_through(module, phase) {
                let (taken, free): (Vec<_>, Vec<_>) = self.plan.slots.of_same_path(first).partition(is_trained);
                let slot = self
                    .slot_to_take(free)
                    .filter(|slot| taken.is_empty() || idle || self.is_of_more_use(trained, *slot));
                untrained.extend(slot.map(|slot| (slot, phase)));
            }
        }
        untrained
    }

    /// Of the free worker slots of a path, the one whose trainer's state can be had.
    fn slot_to_take(&self, free: Vec<PathId>) -> Option<PathId> {
        let has_state = |slot: &PathId| {
            let leaves = |(_, _, lease): (PeerKey, _, Lease)| lease.stage == Stage::Leaving;
            self.paths.stands_by(*slot) || self.membership.roster().holders(self.now, *slot).any(leaves)
        };
        free.iter().copied().find(has_state).or(free.first().copied())
    }

    /// The worker slots that a living peer trains, including this node, in order.
    fn trained_slots(&self) -> Vec<PathId> {
        let mine = self.active_slots();
        let theirs = self.membership.roster().everybody(self.now).flat_map(|(peer, member)| {
            let trains = move |lease: &&Lease| {
                let valid = lease.path.0 < self.plan.slots.count();
                valid && lease.stage.is_active() && !self.is_not_contributing(lease.path, peer)
            };
            member.leases.iter().filter(trains).map(|lease| lease.path)
        });
        let mut trained: Vec<PathId> = mine.chain(theirs).collect();
        trained.sort_unstable();
        trained
    }

    /// Whether a path has a trainer besides one of its worker slots.
    fn has_another_trainer(&self, trained: &[PathId], slot: PathId) -> bool {
        self.plan.slots.of_same_path(slot).any(|other| other != slot && trained.binary_search(&other).is_ok())
    }

    /// Whether a path would keep a trainer without the one of this slot. The first of its trainers is always kept, so that
    /// they do not all leave it at the same time. They are members of the same modules, and agree on which that is.
    fn is_spared(&self, trained: &[PathId], slot: PathId) -> bool {
        let mut before = self.plan.slots.of_same_path(slot).filter(|other| *other < slot);
        before.any(|other| trained.binary_search(&other).is_ok())
    }

    /// How many of these leases are of paths that need them.
    fn depended_on(&self, trained: &[PathId], leases: &[PathId]) -> usize {
        leases.iter().filter(|slot| !self.is_spared(trained, **slot)).count()
    }

    /// The worker slots that this node trains although their paths have a trainer before it.
    pub(in crate::protocol) fn spared_slots(&self) -> Vec<PathId> {
        let trained = self.trained_slots();
        self.active_slots().filter(|slot| self.is_spared(&trained, *slot)).collect()
    }

    pub(in crate::protocol) fn active_slots(&self) -> impl Iterator<Item = PathId> {
        self.paths.held().iter().filter(|(_, held)| held.stage().is_active()).map(|(slot, _)| *slot)
    }

    /// How many living members go before this one: those on which fewer paths depend, then those with fewer paths, so
    /// standbys first, then by rank.
    fn before_me(&self, trained: &[PathId], path: PathId, phase: Phase) -> usize {
        let place = |peer: PeerKey, trainers: usize, slots: Vec<PathId>| {
            // A trainer without a path is as good as a peer without one.
            let depended_on = self.depended_on(trained, &slots) / trainers;
            (depended_on, slots.len() / trainers, Reverse(path_rank(path, peer)))
        };
        let mine = place(self.me, self.trainers.count(), self.active_slots().collect());
        let modules = self.plan.slots.modules(path, phase);
        let neighbours = modules.iter().flat_map(|module| self.membership.roster().living(self.now, *module));
        let stay = neighbours.filter(|(_, member)| !member.leaves());
        let theirs =
            |leases: &[Lease]| leases.iter().filter(|lease| lease.stage.is_active()).map(|it| it.path).collect();
        let goes_first = |peer, leases: &[Lease]| place(peer, trainers_of(leases), theirs(leases)) < mine;
        let before = stay.filter(|(peer, member)| goes_first(*peer, &member.leases)).map(|(peer, _)| peer);
        before.collect::<BTreeSet<PeerKey>>().len()
    }

    pub(in crate::protocol) fn adopt_path(&mut self, path: PathId, found: Vec<(PeerKey, Lease)>) {
        // A node with a trainer to spare keeps its paths.
        let spared = if self.has_free_trainer() { Vec::new() } else { self.spared_slots() };
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
        self.begin_hand_off(path, found);
        for slot in spared {
            self.yield_path(slot, false);
        }
    }
}
