//! The swarm itself: peers, time, and everything that nodes ask for.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;

use super::disk::Disk;
use super::faults::{Crash, within};
use super::invariants::{counted_once::CountedOnce, one_state::OneState};
use super::{Failure, Outcome, Scenario, learner};
use crate::clock::Millis;
use crate::config::{Codec, OuterConfig};
use crate::grid::Grid;
use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey, Version};
use crate::outer::exact_sum::ExactSum;
use crate::outer::state::ModuleState;
use crate::outer::step;
use crate::protocol::action::Report;
use crate::protocol::limits::FULL_WEIGHT;
use crate::protocol::message::SignedUpdate;
use crate::protocol::record::{Finished, StartedFrom};
use crate::protocol::{Action, Contact, Event, Node, ReplyToken, RequestId, RunPlan, wire};
use crate::seed::Seed;

/// Something that will happen.
#[derive(Clone, Debug)]
enum Due {
    /// To a node, if it is still in the life in which this was caused.
    Event { peer: usize, life: u64, event: Event },
    /// A peer crashes.
    Crash(Crash),
    /// A crashed peer comes back.
    Back(usize),
}

struct Peer {
    key: PeerKey,
    node: Node,
    disk: Disk,
    topics: BTreeSet<ModuleId>,
    sums: BTreeMap<(ModuleId, Version), ExactSum>,
    /// Counts restarts: what one life caused does not reach the next.
    life: u64,
    up: bool,
    /// Its clock is this far from the world's.
    skew_ms: u64,
}

/// Everything.
pub struct World {
    scenario: Scenario,
    seed: u64,
    plan: RunPlan,
    outer: OuterConfig,
    dice: ChaCha8Rng,
    now_ms: u64,
    order: u64,
    due: BTreeMap<(u64, u64), Due>,
    peers: Vec<Peer>,
    /// Who asked what: a reply finds its way back.
    asked: BTreeMap<ReplyToken, (usize, u64, RequestId)>,
    next_token: u64,
    one_state: OneState,
    counted_once: CountedOnce,
    events: u64,
    trace: blake3::Hasher,
    ownership_changes: u64,
}

fn peer_key(index: usize) -> PeerKey {
    PeerKey(*blake3::hash(format!("simulated peer {index}").as_bytes()).as_bytes())
}

fn sign(update: &crate::protocol::Update) -> Vec<u8> {
    let bytes = wire::encode(update).unwrap_or_default();
    blake3::keyed_hash(&update.owner.0, &bytes).as_bytes().to_vec()
}

fn verified(signed: &SignedUpdate) -> bool {
    sign(&signed.update) == signed.signature
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
        let mut peers = Vec::new();
        for index in 0..scenario.peers {
            let key = peer_key(index);
            let mut disk = Disk::default();
            if index == 0 {
                genesis.values().for_each(|bytes| {
                    disk.put(bytes.clone());
                });
            }
            let skew_ms = within(&mut dice, &(0..1_000_000));
            let node = Node::restore(key, plan.clone(), vec![]);
            peers.push(Peer {
                key,
                node,
                disk,
                topics: BTreeSet::new(),
                sums: BTreeMap::new(),
                life: 0,
                up: true,
                skew_ms,
            });
        }
        let mut world = Self {
            seed,
            plan,
            outer: OuterConfig { codec: Codec::Int4, ..OuterConfig::default() },
            dice,
            now_ms: 0,
            order: 0,
            due: BTreeMap::new(),
            peers,
            asked: BTreeMap::new(),
            next_token: 0,
            one_state: OneState::default(),
            counted_once: CountedOnce::default(),
            events: 0,
            trace: blake3::Hasher::new(),
            ownership_changes: 0,
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
        let crashes = self.scenario.faults.draw(self.peers.len(), &mut self.dice);
        for crash in crashes {
            self.schedule(crash.at_ms, Due::Crash(crash));
            self.schedule(crash.back_ms, Due::Back(crash.peer));
        }
    }

    fn schedule(&mut self, at_ms: u64, due: Due) {
        self.order += 1;
        self.due.insert((at_ms, self.order), due);
    }

    fn event_at(&mut self, peer: usize, after_ms: u64, event: Event) {
        let life = self.peers[peer].life;
        self.schedule(self.now_ms + after_ms, Due::Event { peer, life, event });
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first invariant that broke.
    pub fn run(mut self) -> Result<Outcome, Failure> {
        loop {
            if self.all_done() && self.disagreement().is_none() {
                return Ok(Outcome {
                    finished_ms: self.now_ms,
                    events: self.events,
                    trace: BlobHash(*self.trace.finalize().as_bytes()),
                    ownership_changes: self.ownership_changes,
                });
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

    /// The next thing that is due: a scheduled one, or a node's own deadline.
    fn next(&mut self) -> Result<(), Failure> {
        let tick = self
            .peers
            .iter()
            .enumerate()
            .filter(|(_, peer)| peer.up)
            .filter_map(|(index, peer)| Some((peer.node.next_deadline()?.0.saturating_sub(peer.skew_ms), index)))
            .min();
        let scheduled = self.due.keys().next().copied();
        match (tick, scheduled) {
            (Some((at_ms, peer)), due) if due.is_none_or(|(due_ms, _)| at_ms < due_ms) => {
                self.now_ms = self.now_ms.max(at_ms);
                self.handle(peer, Event::Tick)
            }
            (_, Some(key)) => {
                self.now_ms = self.now_ms.max(key.0);
                match self.due.remove(&key) {
                    Some(Due::Event { peer, life, event }) if self.peers[peer].life == life && self.peers[peer].up => {
                        self.handle(peer, event)
                    }
                    Some(Due::Crash(crash)) => {
                        self.crash(crash.peer);
                        Ok(())
                    }
                    Some(Due::Back(peer)) => {
                        self.come_back(peer);
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
            (_, None) => Err(self.failure("progress", "nothing is left to happen".to_owned())),
        }
    }

    fn crash(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.up = false;
        peer.life += 1;
        peer.topics.clear();
        peer.sums.clear();
    }

    fn come_back(&mut self, index: usize) {
        let plan = self.plan.clone();
        let peer = &mut self.peers[index];
        peer.up = true;
        peer.node = Node::restore(peer.key, plan, peer.disk.journal.clone());
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
            self.trace.update(format!("  {action:?}\n").as_bytes());
            self.carry_out(index, action)?;
        }
        Ok(())
    }

    fn failure(&self, invariant: &'static str, detail: String) -> Failure {
        Failure { seed: self.seed, invariant, at_ms: self.now_ms, detail }
    }

    fn carry_out(&mut self, index: usize, action: Action) -> Result<(), Failure> {
        let values = self.scenario.values;
        match action {
            Action::Persist(record) => self.peers[index].disk.journal.push(record),
            Action::Subscribe(module) => {
                self.peers[index].topics.insert(module);
            }
            Action::Unsubscribe(module) => {
                self.peers[index].topics.remove(&module);
            }
            Action::Publish { module, message } => self.publish(index, module, message),
            Action::Learn { .. } => {}
            Action::Ask { id, to, request } => self.ask(index, id, to, request),
            Action::Reply { token, response } => self.reply(token, response),
            Action::Fetch { blob, from } => self.fetch(index, blob, from),
            Action::Forget(blob) => self.peers[index].disk.remove(blob),
            Action::Train { path, phase, start, trainer: _ } => {
                let offers = self.train(index, path, &start);
                let trainer = self.peers[index].disk.put(format!("{path} {phase} {index}").into_bytes());
                let after_ms = within(&mut self.dice, &self.scenario.phase_ms.clone());
                let event = match offers {
                    Some(offers) => Event::Trained(Finished { path, phase, offers, trainer }),
                    None => return Err(self.failure("disk", format!("path {path} starts from a state that is gone"))),
                };
                self.event_at(index, after_ms, event);
            }
            Action::OpenSum { module, target } => {
                let peer = &mut self.peers[index];
                peer.sums.retain(|(other, _), _| *other != module);
                peer.sums.insert((module, target), ExactSum::new(self.scenario.values));
            }
            Action::Accumulate { module, target, blob, weight } => {
                let valid = self.accumulate(index, module, target, blob, weight);
                self.event_at(index, 1, Event::Accumulated { module, target, blob, valid });
            }
            Action::Combine { module, target, from, contributions } => {
                let peer = &mut self.peers[index];
                let paths = contributions.iter().map(|counted| counted.path).collect::<BTreeSet<_>>().len();
                let sum = peer.sums.remove(&(module, target));
                let made = sum.zip(peer.disk.get(from.hash)).and_then(|(sum, state)| {
                    let frame = step::combine(&sum, paths, &self.outer).ok()?;
                    let state = step::apply(state, module, values, &frame, &self.outer).ok()?;
                    Some((frame, state))
                });
                let Some((frame, state)) = made else {
                    return Err(self.failure("disk", format!("module {module} cannot be combined")));
                };
                let (average, state) = (peer.disk.put(frame), peer.disk.put(state));
                self.event_at(index, 5, Event::Combined { module, target, average, state });
            }
            Action::Seal(update) => {
                let signature = sign(&update);
                self.event_at(index, 0, Event::Sealed(SignedUpdate { update, signature }));
            }
            Action::Apply { module, version, from, average } => {
                let disk = &mut self.peers[index].disk;
                let made = disk.get(from.hash).zip(disk.get(average.hash));
                let made = made.and_then(|(state, frame)| step::apply(state, module, values, frame, &self.outer).ok());
                let state = made.map(|bytes| disk.put(bytes));
                self.event_at(index, 2, Event::Applied { module, version, state });
            }
            Action::Report(report) => self.look(index, &report)?,
        }
        Ok(())
    }

    fn train(
        &mut self,
        index: usize,
        path: crate::names::PathId,
        start: &[(StartedFrom, BlobRef)],
    ) -> Option<Vec<(StartedFrom, BlobRef)>> {
        let disk = &mut self.peers[index].disk;
        let mut offers = Vec::new();
        for (from, state) in start {
            let state = ModuleState::decode(disk.get(state.hash)?, from.module, self.scenario.values).ok()?;
            let gradient = learner::outer_gradient(from.module, path, &state.parameters);
            let frame = crate::compress::frame::encode(self.outer.codec, &gradient).ok()?;
            offers.push((*from, disk.put(frame)));
        }
        Some(offers)
    }

    fn accumulate(&mut self, index: usize, module: ModuleId, target: Version, blob: BlobHash, weight: u32) -> bool {
        let values = self.scenario.values;
        let peer = &mut self.peers[index];
        let Some(sum) = peer.sums.get_mut(&(module, target)) else { return false };
        let Some(frame) = peer.disk.get(blob) else { return false };
        let decoded = crate::compress::frame::decode(frame, values);
        decoded.is_ok_and(|values| sum.add(&values, weight).is_ok())
    }

    fn publish(&mut self, from: usize, module: ModuleId, message: crate::protocol::Message) {
        let author = self.peers[from].key;
        let valid = match &message {
            crate::protocol::Message::Update(signed) => verified(signed),
            _ => true,
        };
        let hearers: Vec<usize> = (0..self.peers.len())
            .filter(|other| *other != from && self.peers[*other].up && self.peers[*other].topics.contains(&module))
            .collect();
        for hearer in hearers.into_iter().filter(|_| valid) {
            if let Some(after_ms) = self.scenario.links.travel_ms(500, &mut self.dice) {
                let message = message.clone();
                self.event_at(hearer, after_ms, Event::Heard { module, author, message });
            }
        }
    }

    fn index_of(&self, key: PeerKey) -> Option<usize> {
        self.peers.iter().position(|peer| peer.key == key && peer.up)
    }

    fn ask(&mut self, from: usize, id: RequestId, to: PeerKey, request: crate::protocol::Request) {
        let arrives = self.scenario.links.travel_ms(500, &mut self.dice);
        let (Some(to), Some(after_ms)) = (self.index_of(to), arrives) else {
            return self.event_at(from, 1_000, Event::Answered { id, response: None });
        };
        self.next_token += 1;
        let token = ReplyToken(self.next_token);
        self.asked.insert(token, (from, self.peers[from].life, id));
        let asker = self.peers[from].key;
        self.event_at(to, after_ms, Event::Asked { from: asker, token, request });
    }

    fn reply(&mut self, token: ReplyToken, response: crate::protocol::Response) {
        let Some((peer, life, id)) = self.asked.remove(&token) else { return };
        if let Some(after_ms) = self.scenario.links.travel_ms(2_000, &mut self.dice) {
            let event = Event::Answered { id, response: Some(response) };
            self.schedule(self.now_ms + after_ms, Due::Event { peer, life, event });
        }
    }

    fn fetch(&mut self, index: usize, blob: BlobRef, from: PeerKey) {
        let found = Event::Fetched { blob: blob.hash, found: true };
        if self.peers[index].disk.get(blob.hash).is_some() {
            return self.event_at(index, 0, found);
        }
        let bytes = self.index_of(from).and_then(|donor| self.peers[donor].disk.get(blob.hash).cloned());
        let travel = self.scenario.links.travel_ms(blob.bytes, &mut self.dice);
        match (bytes, travel) {
            (Some(bytes), Some(after_ms)) => {
                self.peers[index].disk.put(bytes);
                self.event_at(index, after_ms, found);
            }
            _ => self.event_at(index, 200, Event::Fetched { blob: blob.hash, found: false }),
        }
    }

    /// The invariants, after whatever was reported.
    fn look(&mut self, index: usize, report: &Report) -> Result<(), Failure> {
        match report {
            Report::Owner { .. } => self.ownership_changes += 1,
            Report::Refused { module, reason } if reason.contains("another hash") => {
                return Err(self.failure("one state", format!("peer {index} refuses module {module}: {reason}")));
            }
            _ => {}
        }
        let looked: Vec<_> = self.peers[index].node.chains().collect();
        for (module, chain) in looked {
            let mut broken = self.one_state.look(module, chain.head()).err().map(|detail| ("one state", detail));
            for (hash, signed) in chain.places() {
                let again = self.counted_once.look(hash, signed).err();
                broken = broken.or(again.map(|detail| ("counted once", detail)));
            }
            if let Some((invariant, detail)) = broken {
                return Err(Failure { seed: self.seed, invariant, at_ms: self.now_ms, detail });
            }
        }
        Ok(())
    }

    fn all_done(&self) -> bool {
        let faults_over = !self.due.values().any(|due| matches!(due, Due::Crash(_) | Due::Back(_)));
        let done = |peer: &Peer| {
            let status = peer.node.status();
            let complete = status.modules.iter().all(|module| module.version == Some(self.plan.phases));
            !status.paths.is_empty() && complete
        };
        faults_over && self.peers.iter().all(|peer| peer.up && done(peer))
    }

    /// A module whose members do not all have the same state.
    fn disagreement(&self) -> Option<String> {
        let mut states: BTreeMap<ModuleId, BTreeSet<BlobHash>> = BTreeMap::new();
        for (module, _, state) in self.peers.iter().flat_map(|peer| peer.node.states()) {
            states.entry(module).or_default().insert(state.hash);
        }
        let (module, hashes) = states.iter().find(|(_, hashes)| hashes.len() > 1)?;
        Some(format!("module {module}: {hashes:?}"))
    }

    fn why_stuck(&self) -> String {
        let peer = |(index, peer): (usize, &Peer)| {
            let status = peer.node.status();
            let versions: Vec<String> = status
                .modules
                .iter()
                .map(|module| format!("{}@{:?}t{}", module.module, module.version, module.term))
                .collect();
            let waits: Vec<String> = status
                .paths
                .iter()
                .map(|path| format!("path {} {} {}", path.path, path.stage, path.waits_for.clone().unwrap_or_default()))
                .collect();
            format!("\n  peer {index} {}: {} | {}", peer.key.short(), versions.join(" "), waits.join("; "))
        };
        self.peers.iter().enumerate().map(peer).collect()
    }
}
