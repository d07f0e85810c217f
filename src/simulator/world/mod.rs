//! The simulated swarm: peers, time, and the next event.

mod actions;
mod amendments;
mod byzantine;
mod checker;
mod event_queue;
mod false_chains;
mod false_gradients;
mod full_disk;
mod lifecycle;
mod network;
mod prefetch;
mod training;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::compress::frame;
use crate::config::{OuterConfig, OuterMode, Stagger};
use crate::grid::Grid;
use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};
use crate::outer::state::ModuleState;
use crate::protocol::limits::FULL_WEIGHT;
use crate::protocol::wire::amended::Amended;
use crate::protocol::{Action, Contact, Event, Message, Outer, ReplyToken, RequestId, RunPlan, SignedUpdate};
use crate::simulator::counts::Counts;
use crate::simulator::invariants::{Invariants, fenced};
use crate::simulator::peer::disk::Disk;
use crate::simulator::peer::learner::INNER_STEPS;
use crate::simulator::peer::{Peer, peer_key};
use crate::simulator::rng::SeededRng;
use crate::simulator::scenario::byzantine::Byzantine;
use crate::simulator::scenario::clocks::OwnClock;
use crate::simulator::scenario::faults::{Cut, Kind, Planned, What, plan};
use crate::simulator::trace::Trace;
use crate::simulator::world::event_queue::EventQueue;
use crate::simulator::{Failure, Outcome, Scenario};

/// Interval of checking whether everything is done.
const LOOK_MS: u64 = 100;

/// In a swarm of more peers, queues are checked several times a second instead of after every message.
const LOOKED_AT_ALWAYS: usize = 32;

/// A future event.
#[derive(Debug)]
pub(super) enum Due {
    /// For a node.
    Event(Box<Event>),
    /// Gossip, with one copy for all receivers.
    Heard { module: ModuleId, author: PeerKey, message: Arc<Message> },
    /// A node's own deadline, if it is still valid.
    Tick,
    /// The aggregator begins a request of its node.
    Work(Box<Outer>),
    /// The trainer of this number begins, or has made some steps, if this is still its next event.
    Trainer(usize, u64),
    /// A blob has arrived.
    Arrived(Vec<u8>),
    /// A planned fault begins.
    Fault(usize),
    /// A peer that was down returns.
    Back,
    /// A disk has space again.
    Space,
    /// The run's creator amends it.
    Amend(usize),
}

pub struct World {
    pub(super) scenario: Arc<Scenario>,
    pub(super) seed: u64,
    pub(super) plan: Arc<RunPlan>,
    /// The amendments that are signed by now.
    pub(super) amended: Vec<Amended>,
    pub(super) outer: OuterConfig,
    pub(super) rng: SeededRng,
    pub(super) now_ms: u64,
    /// Peer, incarnation, and event.
    pub(super) due: EventQueue<(usize, u64, Due)>,
    /// Number of events already prefetched.
    pub(super) seen_ahead: usize,
    pub(super) planned: Vec<Planned>,
    /// When the last fault is over, and all peers have joined.
    calm_ms: u64,
    pub(super) peers: Vec<Peer>,
    /// Restarts of each peer: events of one incarnation do not reach the next. Gossip does not depend on them, so it is
    /// stored once.
    pub(super) incarnations: Vec<u64>,
    pub(super) index_of: BTreeMap<PeerKey, usize>,
    /// The subscribers of each topic.
    pub(super) hearers: BTreeMap<ModuleId, BTreeSet<usize>>,
    /// The present partitions.
    pub(super) cuts: Vec<(u64, Cut)>,
    /// The pending requests, for their responses.
    pub(super) asked: BTreeMap<ReplyToken, (usize, u64, RequestId, Option<ModuleId>)>,
    pub(super) next_token: u64,
    /// Bytes that gossip has carried, with the time.
    pub(super) gossiped: BTreeMap<BlobHash, u64>,
    /// The Byzantine peers, and their behaviour.
    pub(super) byzantine: BTreeMap<usize, Byzantine>,
    pub(super) byzantine_from_ms: u64,
    /// A Byzantine peer's first contribution to each module.
    pub(super) first_frames: BTreeMap<(usize, ModuleId), Vec<u8>>,
    /// Wrong averages that Byzantine peers have published.
    pub(super) wrong_averages: BTreeSet<BlobHash>,
    /// Byzantine peers that an honest peer has quarantined.
    pub(super) quarantined: BTreeSet<usize>,
    pub(super) overheard: VecDeque<(ModuleId, PeerKey, Message)>,
    /// The updates that Byzantine peers have made up for their chains.
    pub(super) forged: BTreeMap<(usize, ModuleId), Vec<SignedUpdate>>,
    pub(super) invariants: Invariants,
    pub(super) counts: Counts,
    pub(super) trace: Trace,
    pub(super) staleness_most: u64,
    /// Inner steps in each contribution that was ever made.
    pub(super) steps_of: BTreeMap<BlobHash, u64>,
    /// The time of the last check of the loss, and the last time above the given one.
    loss_ms: u64,
    above_ms: u64,
}

fn genesis_states(grid: &Grid, values: usize, mode: OuterMode) -> BTreeMap<ModuleId, Vec<u8>> {
    let state = |module: ModuleId| (module, ModuleState::initial(module, vec![0.0; values], mode).encode());
    grid.modules().into_iter().map(state).collect()
}

impl World {
    /// A world before its first event.
    ///
    /// # Panics
    /// If the scenario's levels make no grid, which [`Scenario::check`] has excluded.
    pub fn new(scenario: Arc<Scenario>, seed: u64) -> Self {
        let slots = scenario.slots().expect("a checked scenario's levels make a grid, and its sample fits it");
        let grid = slots.grid();
        let values = scenario.swarm.values;
        let genesis = genesis_states(grid, values, scenario.swarm.mode);
        let outer = scenario.swarm.outer();
        let run = Arc::new(RunPlan {
            weights: grid.paths().map(|path| FULL_WEIGHT - 1000 * (path.0 % 3)).collect(),
            genesis: genesis.iter().map(|(module, bytes)| (*module, BlobRef::of(bytes))).collect(),
            offer_bytes: vec![frame::max_bytes(outer.codec, values); grid.levels()],
            average_bytes: vec![frame::max_bytes(outer.average_codec(), values); grid.levels()],
            norm_cap: outer.cap(),
            audit_share: outer.audit_share,
            centred_clipping: outer.centred_clipping,
            deterministic: outer.deterministic,
            mode: scenario.swarm.mode,
            phases: scenario.swarm.phases,
            inner_steps: INNER_STEPS,
            streaming: outer.streaming.map(|streaming| Stagger::new(grid.levels(), INNER_STEPS, streaming.overlap)),
            reshard: Vec::new(),
            slots,
        });
        let mut rng = SeededRng::new(seed, "world");
        let disk = |index: usize| match index {
            _ if scenario.swarm.placed => {
                Disk::placed(&run.slots, &scenario.swarm.paths_of(index, &run.slots), &genesis)
            }
            0 => Disk::with(genesis.values()),
            _ => Disk::default(),
        };
        let peers: Vec<Peer> = (0..scenario.all_peers())
            .map(|index| {
                let clock = OwnClock::new(&scenario.clocks, &mut rng);
                Peer::new(index, disk(index), &run, (clock, scenario.trainers(index)))
            })
            .collect();
        let mut world = Self {
            seed,
            plan: run,
            amended: Vec::new(),
            outer,
            now_ms: 0,
            due: EventQueue::default(),
            seen_ahead: 0,
            planned: plan(&scenario.faults, scenario.fault_schedule.as_ref(), scenario.swarm.peers, &mut rng),
            rng,
            calm_ms: 0,
            index_of: peers.iter().enumerate().map(|(index, peer)| (peer.key, index)).collect(),
            incarnations: vec![0; peers.len()],
            peers,
            hearers: BTreeMap::new(),
            cuts: Vec::new(),
            asked: BTreeMap::new(),
            forged: BTreeMap::new(),
            next_token: 0,
            gossiped: BTreeMap::new(),
            byzantine: BTreeMap::new(),
            byzantine_from_ms: scenario.byzantine_from_ms,
            first_frames: BTreeMap::new(),
            wrong_averages: BTreeSet::new(),
            quarantined: BTreeSet::new(),
            overheard: VecDeque::new(),
            invariants: Invariants::default(),
            counts: Counts::default(),
            trace: Trace::Off,
            staleness_most: 0,
            steps_of: BTreeMap::new(),
            loss_ms: 0,
            above_ms: 0,
            scenario,
        };
        world.set_up();
        world
    }

    /// With a trace.
    #[must_use]
    pub fn traced(mut self, trace: Trace) -> Self {
        self.trace = trace;
        self
    }

    fn set_up(&mut self) {
        self.begin();
        self.plan_amendments();
        for behaviour in self.scenario.byzantine.clone() {
            let honest: Vec<usize> =
                (0..self.scenario.swarm.peers).filter(|peer| !self.byzantine.contains_key(peer)).collect();
            self.byzantine.insert(honest[self.rng.pick(honest.len())], behaviour);
            self.counts.byzantine(behaviour);
        }
        for number in 0..self.planned.len() {
            let Planned { kind, what, when_ms } = self.planned[number].clone();
            self.calm_ms = self.calm_ms.max(when_ms.end);
            match (kind, what) {
                (Kind::JoinStorm, What::Peer(newcomer)) => {
                    self.counts.fault(kind);
                    self.join_at(newcomer, when_ms.end);
                }
                _ => self.schedule(when_ms.start, (0, 0), Due::Fault(number)),
            }
        }
    }

    fn begin(&mut self) {
        if self.scenario.swarm.placed {
            for index in 0..self.scenario.swarm.peers {
                let after_ms = self.rng.draw([0, 1_000].into());
                self.event_at(index, after_ms, Event::Join(vec![]));
            }
            return;
        }
        self.event_at(0, 0, Event::Create);
        for index in 1..self.scenario.swarm.peers {
            let after_ms = self.rng.draw([500, 3_000].into());
            self.join_at(index, after_ms);
        }
    }

    fn join_at(&mut self, index: usize, at_ms: u64) {
        let contacts = vec![Contact { peer: peer_key(0), addresses: vec!["0".to_owned()] }];
        self.event_at(index, at_ms, Event::Join(contacts));
    }

    pub(super) fn schedule(&mut self, at_ms: u64, (peer, incarnation): (usize, u64), due: Due) {
        self.due.put(at_ms, (peer, incarnation, due));
    }

    /// Schedules an event for a peer in its present incarnation.
    pub(super) fn later(&mut self, peer: usize, after_ms: u64, due: Due) {
        let incarnation = self.incarnations[peer];
        self.schedule(self.now_ms + after_ms, (peer, incarnation), due);
    }

    pub(super) fn event_at(&mut self, peer: usize, after_ms: u64, event: Event) {
        self.later(peer, after_ms, Due::Event(Box::new(event)));
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<Outcome, Failure> {
        let mut looked_ms = 0;
        loop {
            if self.now_ms >= looked_ms + LOOK_MS {
                looked_ms = self.now_ms;
                self.note_loss();
                if self.now_ms >= self.calm_ms && self.all_done() && self.disagreement().is_none() {
                    return self.outcome();
                }
            }
            if self.now_ms > self.scenario.swarm.deadline_ms {
                // Two parts may each have made the last version; then the lighter one must yield in time.
                return Err(match self.disagreement().filter(|_| self.all_done()) {
                    Some(detail) => self.failure("agreement", detail),
                    None => self.failure("progress", self.why_stuck()),
                });
            }
            self.next()?;
        }
    }

    fn outcome(mut self) -> Result<Outcome, Failure> {
        self.look_at_all_chains()?;
        let tally = self.tally()?;
        self.counts.late = self.invariants.counted_once.late;
        self.counts.unheld = self.unheld() as u64;
        self.counts.wrong_updates = (self.wrong_averages.len() as u64, self.wrong_updates_left() as u64);
        self.counts.ended(self.peers.len(), self.plan.phases);
        let loss = self.loss();
        Ok(Outcome {
            finished_ms: self.now_ms,
            trace: self.trace.hash(),
            loss,
            reached_ms: self.scenario.swarm.given_loss.filter(|given| loss <= *given).map(|_| self.above_ms),
            accepted_steps: self.accepted_steps(),
            staleness_most: self.staleness_most,
            counts: self.counts,
            tally,
        })
    }

    /// Handles the next event.
    fn next(&mut self) -> Result<(), Failure> {
        self.look_ahead();
        let Some((due_ms, (index, incarnation, due))) = self.due.take() else {
            return Err(self.failure("progress", "nothing is left to happen".to_owned()));
        };
        self.now_ms = self.now_ms.max(due_ms);
        match due {
            Due::Fault(number) => {
                self.inject(number);
                return Ok(());
            }
            Due::Back => {
                self.come_back(index);
                return Ok(());
            }
            Due::Space => return self.resume_with_space(index),
            Due::Amend(number) => {
                self.amend(number);
                return Ok(());
            }
            _ => {}
        }
        let peer = &mut self.peers[index];
        if !peer.up || self.incarnations[index] != incarnation {
            return Ok(());
        }
        if self.now_ms < peer.frozen_until_ms {
            let thaws_ms = peer.frozen_until_ms;
            self.postpone(index, (due_ms, thaws_ms), due);
            return Ok(());
        }
        if self.peers[index].is_stalled() {
            return self.defer_until_space(index, due_ms, due);
        }
        let peer = &mut self.peers[index];
        match due {
            Due::Event(event) => self.handle(index, *event),
            Due::Heard { module, author, message } => self.handle(index, Event::Heard { module, author, message }),
            Due::Tick => {
                if peer.tick_ms != Some(due_ms) {
                    return Ok(());
                }
                peer.tick_ms = None;
                self.handle(index, Event::Tick)
            }
            Due::Work(work) => self.outer(index, *work),
            Due::Trainer(trainer, next) => self.train_on((index, trainer), next),
            Due::Arrived(bytes) => {
                peer.disk.put(bytes);
                Ok(())
            }
            Due::Fault(_) | Due::Back | Due::Space | Due::Amend(_) => Ok(()),
        }
    }

    /// Postpones an event until a frozen peer continues.
    pub(super) fn postpone(&mut self, index: usize, (due_ms, until_ms): (u64, u64), due: Due) {
        let peer = &mut self.peers[index];
        if matches!(due, Due::Tick) {
            if peer.tick_ms != Some(due_ms) {
                return;
            }
            peer.tick_ms = Some(until_ms);
        }
        let incarnation = self.incarnations[index];
        self.schedule(until_ms, (index, incarnation), due);
    }

    pub(super) fn handle(&mut self, index: usize, event: Event) -> Result<(), Failure> {
        self.counts.events += 1;
        let now_ms = self.now_ms;
        let peer = &mut self.peers[index];
        self.trace.event(now_ms, index, &event);
        let outdated = fenced::outdated(&peer.node, &event);
        let only_heard = matches!(event, Event::Heard { .. });
        let actions = peer.node.handle(peer.clock.shows(now_ms), event);
        if let Some(update) = outdated.filter(|update| fenced::is_taken(&peer.node, update)) {
            let detail =
                format!("peer {index} takes module {} version {} of an earlier term", update.module, update.version);
            return Err(self.failure("fenced", detail));
        }
        self.carry_out_all(index, actions.into())?;
        // With thousands of peers this would take most of the time.
        if !only_heard || self.peers.len() <= LOOKED_AT_ALWAYS {
            self.look_at_queues(index)?;
        }
        self.set_tick(index);
        Ok(())
    }

    /// In order, unless the peer crashes in the middle, or its disk rejects writes.
    pub(super) fn carry_out_all(&mut self, index: usize, mut actions: VecDeque<Action>) -> Result<(), Failure> {
        while let Some(action) = actions.pop_front() {
            let peer = &mut self.peers[index];
            if peer.dies_after == Some(0) {
                self.crash(index);
                return Ok(());
            }
            if self.now_ms < peer.full_until_ms && matches!(action, Action::Persist(_)) {
                actions.push_front(action);
                self.stall(index, actions);
                return Ok(());
            }
            peer.dies_after = peer.dies_after.map(|left| left - 1);
            self.trace.action(&action);
            self.carry_out(index, action)?;
        }
        let peer = &mut self.peers[index];
        peer.disk.rewrite_if_long(|| peer.node.records());
        Ok(())
    }

    /// Schedules its next deadline once.
    pub(super) fn set_tick(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        let Some(deadline) = peer.node.next_deadline() else { return };
        let at_ms = peer.clock.when_it_shows(deadline).max(self.now_ms);
        if peer.tick_ms == Some(at_ms) {
            return;
        }
        peer.tick_ms = Some(at_ms);
        let incarnation = self.incarnations[index];
        self.schedule(at_ms, (index, incarnation), Due::Tick);
    }

    pub(super) fn failure(&self, invariant: &'static str, detail: String) -> Failure {
        Failure { seed: self.seed, invariant, at_ms: self.now_ms, detail }
    }
}
