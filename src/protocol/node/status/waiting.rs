//! Why a path, or a whole peer, is not training now.

use std::collections::BTreeSet;

use crate::clock::Millis;
use crate::config::OuterMode;
use crate::names::{ModuleId, PathId};
use crate::protocol::Node;
use crate::protocol::module::collection::Open;
use crate::protocol::node::path::phase::Readiness;
use crate::protocol::status::waiting::Waiting;
use crate::protocol::wire::message::Stage;

fn left_s(until: Millis, now: Millis) -> u64 {
    until.since(now).div_ceil(1000)
}

impl Node {
    /// Why this peer trains nothing: the cause before it has a path, else that of the first path that waits.
    pub fn waits(&self) -> Option<Waiting> {
        if self.trainers.are_at_work() {
            return None;
        }
        let search = self.search.waits().filter(|_| self.paths.held().is_empty());
        search.or_else(|| self.paths.held().keys().find_map(|path| self.waits_for(*path)))
    }

    /// Why a path is not training.
    pub fn waits_for(&self, path: PathId) -> Option<Waiting> {
        let held = self.paths.held().get(&path)?;
        if matches!(held.stage(), Stage::Training | Stage::Done | Stage::Standby | Stage::Leaving) {
            return None;
        }
        match self.readiness(path) {
            Readiness::Done => None,
            Readiness::Fetching(modules) => Some(Waiting::Modules {
                modules: modules.iter().map(ToString::to_string).collect(),
                members: modules.iter().map(|module| self.membership.roster().living(self.now, *module).count()).sum(),
            }),
            Readiness::Textless(path) => Some(Waiting::Text { path: path.0 }),
            Readiness::AwaitingHandOff(from) => Some(Waiting::Trainer { from }),
            Readiness::Ready(_) if self.is_promised(path) => Some(Waiting::Taker),
            Readiness::Ready(_) => Some(match self.lifecycle.rests_until(self.now) {
                Some(until) => Waiting::Return { left_s: left_s(until, self.now) },
                None => Waiting::Turn,
            }),
            Readiness::NotUpdated(modules) => modules.first().map(|module| self.why_not_updated(*module)),
            Readiness::Skipping(module) => Some(Waiting::Skipping { module: module.to_string() }),
        }
    }

    fn why_not_updated(&self, id: ModuleId) -> Waiting {
        let (state, module) = (&self.modules[&id], id.to_string());
        if state.applying.next().is_some() {
            return Waiting::Applying { module };
        }
        let Some(owner) = state.leadership.owner() else { return Waiting::Unowned { module } };
        if owner != self.me {
            return Waiting::Owner { module, owner, alive: self.membership.roster().lives(self.now, id, owner) };
        }
        let Some(collection) = state.aggregation.collection() else {
            return Waiting::Collecting { module, complete: false };
        };
        let counted = collection.counted();
        if collection.is_closing() {
            return Waiting::Combining { module, contributions: counted };
        }
        let expected = self.expected(id);
        match collection.state(self.now, &expected) {
            Err(Open::Missing(paths)) => Waiting::Contributions {
                module,
                counted,
                expected: expected.len(),
                missing: {
                    let paths = paths.iter().map(|slot| self.plan.slots.first_trainer(*slot).0);
                    paths.collect::<BTreeSet<u32>>().into_iter().collect()
                },
                left_s: collection.deadline().map(|deadline| left_s(deadline, self.now)),
            },
            Err(Open::Arriving) => Waiting::Arriving { module },
            Err(Open::Settling) if self.plan.mode == OuterMode::Asynchronous => {
                Waiting::Pausing { module, counted, left_s: left_s(collection.settled(), self.now) }
            }
            Err(Open::Settling) => Waiting::Settling { module },
            Ok(()) => Waiting::Collecting { module, complete: true },
        }
    }
}
