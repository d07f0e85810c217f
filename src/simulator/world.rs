//! The swarm itself: peers, time, and what happens next.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;

use super::disk::Disk;
use super::faults::{Crash, Partition, within};
use super::invariants::{counted_once::CountedOnce, none_lost::NoneLost, one_state::OneState};
use super::{Failure, Outcome, Scenario};
use crate::clock::Millis;
use crate::config::{Codec, OuterConfig};
use crate::grid::Grid;
use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey, Version};
use crate::outer::exact_sum::ExactSum;
use crate::outer::state::ModuleState;
use crate::protocol::limits::FULL_WEIGHT;
use crate::protocol::{Action, Contact, Event, Node, ReplyToken, RequestId, RunPlan};
use crate::seed::Seed;

/// How often it is looked whether everything is done.
const LOOK_MS: u64 = 100;

/// Something that will happen.
#[derive(Clone, Debug)]
pub(super) enum Due {
    /// To a node.
    Event(Event),
    /// A worker gets to what its node has asked for.
    Work(Action),
    /// A blob has come over the network.
    Arrived(Vec<u8>),
    /// A peer crashes, perhaps for good.
    Crash { for_good: bool },
    /// A crashed peer comes back.
    Back,
}

pub(super) struct Peer {
    pub(super) key: PeerKey,
    pub(super) node: Node,
    pub(super) disk: Disk,
    pub(super) topics: BTreeSet<ModuleId>,
    pub(super) sums: BTreeMap<ModuleId, (Version, ExactSum)>,
    /// When its combiner has done what it was asked so far.
    pub(super) combiner_free_ms: u64,
    /// Counts restarts: what one life caused does not reach the next.
    pub(super) life: u64,
    pub(super) up: bool,
    /// Crashed for good.
    pub(super) gone: bool,
    /// It crashes after so many more actions.
    dies_after: Option<u64>,
    /// Its clock is this far from the world's.
    skew_ms: u64,
}

/// Everything.
pub struct World {
    pub(super) scenario: Scenario,
    seed: u64,
    pub(super) plan: RunPlan,
    pub(super) outer: OuterConfig,
    pub(super) dice: ChaCha8Rng,
    pub(super) now_ms: u64,
    order: u64,
    /// By time and order: which peer, in which of its lives, and what.
    due: BTreeMap<(u64, u64), (usize, u64, Due)>,
    faults_left: usize,
    pub(super) peers: Vec<Peer>,
    pub(super) partitions: Vec<Partition>,
    /// Who asked what: a reply finds its way back.
    pub(super) asked: BTreeMap<ReplyToken, (usize, u64, RequestId)>,
    pub(super) next_token: u64,
    /// What gossip has carried, and when.
    pub(super) carried: BTreeMap<BlobHash, u64>,
    pub(super) one_state: OneState,
    pub(super) counted_once: CountedOnce,
    pub(super) none_lost: NoneLost,
    events: u64,
    pub(super) trace: blake3::Hasher,
    pub(super) ownership_changes: u64,
    pub(super) switches: u64,
}

pub(super) fn peer_key(index: usize) -> PeerKey {
    PeerKey(*blake3::hash(format!("simulated peer {index}").as_bytes()).as_bytes())
}

fn genesis_states(grid: &Grid, values: usize) -> BTreeMap<ModuleId, Vec<u8>> {
    let state = |module: ModuleId| {
        let zeros = vec![0.0; values];
        let state = ModuleState { module, version: Version(0), parameters: zeros.clone(), momentum: zeros };
        (module, state.encode())
    };
    grid.modules().into_iter().map(state).collect()
}

impl World {
    /// A world in which nothing has happened yet.
    ///
    /// # Panics
    /// If the scenario's levels make no grid: scenarios are written by developers.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let grid = Grid::new(scenario.levels.clone()).expect("a scenario's levels make a grid");
        let genesis = genesis_states(&grid, scenario.values);
        let plan = RunPlan {
            weights: grid.paths().map(|path| FULL_WEIGHT - 1000 * (path.0 % 3)).collect(),
            genesis: genesis.iter().map(|(module, bytes)| (*module, BlobRef::of(bytes))).collect(),
            frame_bytes: vec![crate::compress::frame::max_bytes(Codec::Int4, scenario.values); grid.levels()],
            phases: scenario.phases,
            grid,
        };
        let mut dice = Seed::root(seed).child("world").generator();
        let mut founder = Disk::default();
        for bytes in genesis.into_values() {
            founder.put(bytes);
        }
        let disks = std::iter::once(founder).chain(std::iter::repeat_with(Disk::default));
        let peers = disks.take(scenario.peers).enumerate();
        let peers =
            peers.map(|(index, disk)| Peer::new(index, disk, &plan, within(&mut dice, &(0..1_000_000)))).collect();
        let mut world = Self {
            seed,
            plan,
            outer: OuterConfig { codec: Codec::Int4, ..OuterConfig::default() },
            dice,
            now_ms: 0,
            order: 0,
            due: BTreeMap::new(),
            faults_left: 0,
            peers,
            partitions: Vec::new(),
            asked: BTreeMap::new(),
            next_token: 0,
            carried: BTreeMap::new(),
            one_state: OneState::default(),
            counted_once: CountedOnce::default(),
            none_lost: NoneLost::default(),
            events: 0,
            trace: blake3::Hasher::new(),
            ownership_changes: 0,
            switches: 0,
            scenario,
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        self.event_at(0, 0, Event::Found);
        for index in 1..self.peers.len() {
            let after_ms = within(&mut self.dice, &(500..3_000));
            let contacts = vec![Contact { peer: peer_key(0), addresses: vec!["0".to_owned()] }];
            self.event_at(index, after_ms, Event::Join(contacts));
        }
        for Crash { peer, at_ms, back_ms } in self.scenario.faults.crashes(self.peers.len(), &mut self.dice) {
            self.faults_left += 1 + usize::from(back_ms.is_some());
            self.schedule(at_ms, (peer, 0), Due::Crash { for_good: back_ms.is_none() });
            if let Some(back_ms) = back_ms {
                self.schedule(back_ms, (peer, 0), Due::Back);
            }
        }
        self.partitions = self.scenario.faults.partitions(self.peers.len(), &mut self.dice);
    }

    pub(super) fn schedule(&mut self, at_ms: u64, (peer, life): (usize, u64), due: Due) {
        self.order += 1;
        self.due.insert((at_ms, self.order), (peer, life, due));
    }

    /// To a peer, if it is still in the life in which this was caused.
    pub(super) fn later(&mut self, peer: usize, after_ms: u64, due: Due) {
        let life = self.peers[peer].life;
        self.schedule(self.now_ms + after_ms, (peer, life), due);
    }

    pub(super) fn event_at(&mut self, peer: usize, after_ms: u64, event: Event) {
        self.later(peer, after_ms, Due::Event(event));
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first invariant that broke.
    pub fn run(mut self) -> Result<Outcome, Failure> {
        let mut looked_ms = 0;
        loop {
            if self.now_ms >= looked_ms + LOOK_MS {
                looked_ms = self.now_ms;
                if self.faults_over() && self.all_done() && self.disagreement().is_none() {
                    return self.outcome();
                }
            }
            if self.now_ms > self.scenario.deadline_ms {
                // Two halves may each have made the last version; then the lighter one has to give way in time.
                return Err(match self.disagreement().filter(|_| self.all_done()) {
                    Some(detail) => self.failure("agreement", detail),
                    None => self.failure("progress", self.why_stuck()),
                });
            }
            self.next()?;
        }
    }

    fn faults_over(&self) -> bool {
        self.faults_left == 0 && self.partitions.iter().all(|partition| self.now_ms >= partition.when_ms.end)
    }

    fn outcome(self) -> Result<Outcome, Failure> {
        let tally = self.tally()?;
        Ok(Outcome {
            finished_ms: self.now_ms,
            events: self.events,
            trace: BlobHash(*self.trace.finalize().as_bytes()),
            ownership_changes: self.ownership_changes,
            switches: self.switches,
            unheld: self.unheld(),
            tally,
        })
    }

    /// The next thing that is due: a scheduled one, or a node's own deadline.
    fn next(&mut self) -> Result<(), Failure> {
        let tick = |(index, peer): (usize, &Peer)| {
            Some((peer.node.next_deadline()?.0.saturating_sub(peer.skew_ms), index)).filter(|_| peer.up)
        };
        let tick = self.peers.iter().enumerate().filter_map(tick).min();
        let scheduled = self.due.first_key_value().map(|(key, _)| *key);
        if let Some((at_ms, peer)) = tick
            && scheduled.is_none_or(|(due_ms, _)| at_ms < due_ms)
        {
            self.now_ms = self.now_ms.max(at_ms);
            return self.handle(peer, Event::Tick);
        }
        let Some(((due_ms, _), (index, life, due))) = self.due.pop_first() else {
            return Err(self.failure("progress", "nothing is left to happen".to_owned()));
        };
        self.now_ms = self.now_ms.max(due_ms);
        let peer = &mut self.peers[index];
        let lives = peer.up && peer.life == life;
        match due {
            Due::Crash { for_good } => self.crash_soon(index, for_good),
            Due::Back => self.come_back(index),
            Due::Event(event) if lives => return self.handle(index, event),
            Due::Work(action) if lives => return self.work(index, action),
            Due::Arrived(bytes) if lives => {
                peer.disk.put(bytes);
            }
            Due::Event(_) | Due::Work(_) | Due::Arrived(_) => {}
        }
        Ok(())
    }

    /// In the middle of what the peer does next; one that alone has some module stays.
    fn crash_soon(&mut self, index: usize, for_good: bool) {
        if for_good && !self.can_be_spared(index) {
            self.faults_left -= 1;
            return;
        }
        self.peers[index].gone |= for_good;
        let actions = within(&mut self.dice, &(0..6));
        self.peers[index].dies_after = Some(actions);
    }

    fn crash(&mut self, index: usize) {
        self.faults_left -= 1;
        let peer = &mut self.peers[index];
        peer.dies_after = None;
        peer.up = false;
        peer.life += 1;
        peer.topics.clear();
        peer.sums.clear();
        peer.combiner_free_ms = 0;
    }

    fn come_back(&mut self, index: usize) {
        if self.peers[index].up {
            self.crash(index);
        }
        self.faults_left -= 1;
        let plan = self.plan.clone();
        let peer = &mut self.peers[index];
        peer.up = true;
        peer.node = Node::restore(peer.key, plan, peer.disk.journal.clone());
        let mut kept = peer.node.referenced_blobs();
        kept.extend(self.plan.genesis.values().map(|blob| blob.hash));
        peer.disk.remove_all_but(|blob| kept.contains(&blob));
        let others = (0..self.peers.len()).filter(|other| *other != index);
        let contacts = others.map(|other| Contact { peer: peer_key(other), addresses: vec![] }).collect();
        self.event_at(index, 0, Event::Join(contacts));
    }

    fn handle(&mut self, index: usize, event: Event) -> Result<(), Failure> {
        self.events += 1;
        let peer = &mut self.peers[index];
        let now = Millis(self.now_ms + peer.skew_ms);
        self.trace.update(format!("{} {index} {event:?}\n", self.now_ms).as_bytes());
        let actions = peer.node.handle(now, event);
        for action in actions {
            if let Some(left) = self.peers[index].dies_after {
                if left == 0 {
                    self.crash(index);
                    return Ok(());
                }
                self.peers[index].dies_after = Some(left - 1);
            }
            self.trace.update(format!("  {action:?}\n").as_bytes());
            self.carry_out(index, action)?;
        }
        Ok(())
    }

    pub(super) fn failure(&self, invariant: &'static str, detail: String) -> Failure {
        Failure { seed: self.seed, invariant, at_ms: self.now_ms, detail }
    }
}

impl Peer {
    fn new(index: usize, disk: Disk, plan: &RunPlan, skew_ms: u64) -> Self {
        let key = peer_key(index);
        Self {
            key,
            node: Node::restore(key, plan.clone(), vec![]),
            disk,
            topics: BTreeSet::new(),
            sums: BTreeMap::new(),
            combiner_free_ms: 0,
            life: 0,
            up: true,
            gone: false,
            dies_after: None,
            skew_ms,
        }
    }
}
