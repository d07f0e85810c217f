//! One peer of the swarm: its node, its disk, its workers and its clock, and whether it is up.

pub(super) mod carried_state;
pub mod disk;
pub mod learner;
pub(super) mod trainer;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::names::{ModuleId, PathId, PeerKey, Version};
use crate::outer::OpenSum;
use crate::protocol::{Action, Node, RunPlan};
use crate::simulator::peer::disk::Disk;
use crate::simulator::peer::trainer::Trainer;
use crate::simulator::scenario::clocks::OwnClock;

pub(super) fn peer_key(index: usize) -> PeerKey {
    PeerKey(*blake3::hash(format!("simulated peer {index}").as_bytes()).as_bytes())
}

pub(super) struct Peer {
    pub(super) key: PeerKey,
    pub(super) node: Node,
    pub(super) disk: Disk,
    /// Open sums, with the running norm that caps contributions.
    pub(super) sums: BTreeMap<ModuleId, (Version, OpenSum)>,
    /// One for each of its devices.
    pub(super) trainers: Vec<Trainer>,
    /// When its aggregator will be free.
    pub(super) aggregator_free_ms: u64,
    pub(super) up: bool,
    /// Whether it will not return.
    pub(super) gone: bool,
    /// Number of further actions until it crashes.
    pub(super) dies_after: Option<u64>,
    /// End of its freeze.
    pub(super) frozen_until_ms: u64,
    /// End of its disk's pressure.
    pub(super) full_until_ms: u64,
    /// Actions of its node that wait for the disk.
    pub(super) stalled: VecDeque<Action>,
    /// Time of its next tick in the event queue.
    pub(super) tick_ms: Option<u64>,
    pub(super) clock: OwnClock,
}

impl Peer {
    pub(super) fn new(index: usize, disk: Disk, plan: &Arc<RunPlan>, (clock, trainers): (OwnClock, usize)) -> Self {
        let key = peer_key(index);
        Self {
            key,
            node: Node::restore(key, plan.clone(), disk.records()).with_trainers(trainers),
            disk,
            sums: BTreeMap::new(),
            trainers: (0..trainers).map(|_| Trainer::default()).collect(),
            aggregator_free_ms: 0,
            up: true,
            gone: false,
            dies_after: None,
            frozen_until_ms: 0,
            full_until_ms: 0,
            stalled: VecDeque::new(),
            tick_ms: None,
            clock,
        }
    }

    /// Only its disk remains.
    pub(super) fn go_down(&mut self) {
        self.dies_after = None;
        self.up = false;
        self.sums.clear();
        self.trainers.iter_mut().for_each(Trainer::restart);
        self.stalled.clear();
        self.aggregator_free_ms = 0;
        self.tick_ms = None;
        self.frozen_until_ms = 0;
    }

    /// The trainer that works on a path; without one, one that has no work.
    pub(super) fn trainer_of(&self, path: Option<PathId>) -> usize {
        let at_work = path.and_then(|path| self.trainers.iter().position(|trainer| trainer.path() == Some(path)));
        let idle = || self.trainers.iter().position(|trainer| trainer.path().is_none());
        at_work.or_else(idle).unwrap_or(0)
    }

    /// Whether its node waits for space on the disk.
    pub(super) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }
}
