//! The weights of contributions.
//!
//! A path weighs what its shard weighs, however many trainers it has. They share its weight by the inner steps that they
//! have made, which is by the tokens that they have trained: the sum is the same as if one trainer had contributed the
//! mean of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::OuterMode;
use crate::names::{ModuleId, PathId, Phase, Version};
use crate::protocol::limits::FULL_WEIGHT;
use crate::protocol::module::chain::Chain;
use crate::protocol::module::collection::Collection;
use crate::protocol::reputation::norm_cap;
use crate::protocol::wire::message::{Counted, Offer};
use crate::protocol::{RunPlan, phase_from};

/// A contribution without its bytes: the path, its base version, and its inner steps.
pub(in crate::protocol) type Made = (PathId, Version, u32);

impl RunPlan {
    pub(in crate::protocol) fn full_path_weight(&self, path: PathId, phase: Phase) -> u32 {
        self.weights.get(self.slots.path(path, phase).0 as usize).copied().unwrap_or(1)
    }

    /// How many trainers a path has for its shard, if it has so many: as many as if its shard were a full one.
    pub(in crate::protocol) fn trainers_for_shard(&self, slot: PathId, trainers: usize) -> u64 {
        let weight = u64::from(self.full_path_weight(slot, Phase(0))).max(1);
        trainers as u64 * u64::from(FULL_WEIGHT) / weight
    }

    /// The weight of a path's contributions to a version, if they are counted so many versions late. In asynchronous
    /// runs delayed momentum compensates for the lateness.
    pub fn weight(&self, path: PathId, (parent, module): (Version, ModuleId), staleness: u64) -> u32 {
        let phase = self.contributes_in(path, parent, module).unwrap_or(phase_from(parent));
        let full = self.full_path_weight(path, phase);
        match self.mode {
            OuterMode::Synchronous => {
                let halvings = u32::try_from(staleness).unwrap_or(u32::MAX);
                full.checked_shr(halvings).unwrap_or(0).max(1)
            }
            OuterMode::Asynchronous => full,
        }
    }

    /// The weights, before caps, of contributions that are counted together after a chain's head. What the chain has
    /// counted of the same path and version shares the path's weight too. In asynchronous runs each has its own: there
    /// a round is as much weight as all paths have, whoever contributes it.
    pub(in crate::protocol) fn shared_weights(&self, module: ModuleId, chain: &Chain, made: &[Made]) -> Vec<u32> {
        let first = |path: PathId| self.slots.first_trainer(path);
        let before = |path: PathId, parent| chain.steps_counted(parent, |other| first(other) == first(path));
        let mut steps: BTreeMap<(PathId, Version), u64> = BTreeMap::new();
        for (path, parent, made) in made {
            *steps.entry((first(*path), *parent)).or_insert_with(|| before(*path, *parent)) += u64::from(*made);
        }
        let weight = |(path, parent, made): &Made| {
            let late = chain.head().version.0.saturating_sub(parent.0);
            let full = self.weight(*path, (*parent, module), late);
            match (self.mode, steps.get(&(first(*path), *parent))) {
                (OuterMode::Synchronous, Some(all @ 1..)) => ((u64::from(full) * u64::from(*made) / all) as u32).max(1),
                _ => full,
            }
        };
        made.iter().map(weight).collect()
    }

    /// The weight of an offer if it and one contribution of each other expected trainer of its path are counted.
    pub(in crate::protocol) fn likely_weight<'a>(
        &self,
        module: ModuleId,
        chain: &Chain,
        offer: &Offer,
        expected: impl Iterator<Item = &'a PathId>,
    ) -> u32 {
        let first = self.slots.first_trainer(offer.path);
        let steps = u32::try_from(self.inner_steps).unwrap_or(u32::MAX);
        let beside = expected.filter(|path| **path != offer.path && self.slots.first_trainer(**path) == first);
        let made = [(offer.path, offer.parent, offer.steps)].into_iter();
        let made: Vec<Made> = made.chain(beside.map(|path| (*path, offer.parent, steps))).collect();
        self.shared_weights(module, chain, &made)[0]
    }

    /// The weights of the expected contributions of these worker slots to a version.
    pub fn expected_weights(
        &self,
        (module, version): (ModuleId, Version),
        slots: Vec<PathId>,
    ) -> BTreeMap<PathId, u32> {
        let mut trainers: BTreeMap<PathId, u32> = BTreeMap::new();
        let slots: BTreeSet<PathId> = slots.into_iter().collect();
        slots.iter().for_each(|slot| *trainers.entry(self.slots.first_trainer(*slot)).or_default() += 1);
        let weight = |slot: PathId| {
            let full = self.weight(slot, (version, module), 0);
            (full / trainers[&self.slots.first_trainer(slot)]).max(1)
        };
        slots.iter().map(|slot| (*slot, weight(*slot))).collect()
    }

    /// The contributions that the update after a chain's head lists if its collection closes now.
    pub(in crate::protocol) fn counted(
        &self,
        module: ModuleId,
        chain: &Chain,
        collection: &Collection,
    ) -> Vec<Counted> {
        let mut counted = collection.counted_entries();
        let made: Vec<Made> = counted.iter().map(|it| (it.path, it.parent, it.steps)).collect();
        let reference = norm_cap::reference(chain.running_norm(), counted.iter().map(|it| it.norm));
        for (it, uncapped) in counted.iter_mut().zip(self.shared_weights(module, chain, &made)) {
            it.uncapped = uncapped;
            it.weight = norm_cap::capped_weight(uncapped, it.norm, reference, self.norm_cap);
        }
        counted
    }
}
