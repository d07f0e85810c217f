//! Checks invariants after every report, and at the end.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{BlobHash, ModuleId, PathId, PeerKey};
use crate::outer::state::ModuleState;
use crate::protocol::Report;
use crate::protocol::module::chain::head_of;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::message::{Message, Stage};
use crate::simulator::Failure;
use crate::simulator::invariants::bounded_queues;
use crate::simulator::invariants::none_lost::Tally;
use crate::simulator::peer::Peer;
use crate::simulator::peer::learner;
use crate::simulator::world::World;

/// After a partition, two owners may coexist for this long.
const PARTED_MS: u64 = 5_000;

/// Time by which all peers have a path.
const SETTLED_MS: u64 = 15_000;

/// Interval of checking the loss.
const LOSS_MS: u64 = 1_000;

impl World {
    /// The invariants after a report: heads change with no other event.
    pub(super) fn look(&mut self, index: usize, report: &Report) -> Result<(), Failure> {
        if self.byzantine.contains_key(&index) {
            return Ok(());
        }
        let now_ms = self.now_ms;
        match report {
            Report::Owner { module, owner } => {
                self.counts.ownership_changes += 1;
                if *owner == self.peers[index].key {
                    self.note_claim(index, *module);
                }
            }
            Report::Advanced { module, .. } => {
                self.counts.advanced(now_ms, *module);
                let chain = self.peers[index].node.chains().find(|(of, _)| of == module);
                self.staleness_most = self.staleness_most.max(chain.map_or(0, |(_, chain)| chain.staleness().1));
            }
            Report::ChainSwitched { .. } => self.counts.switches += 1,
            Report::WentBack { .. } => self.counts.went_back += 1,
            Report::Quarantined { peer, fault } => self.note_quarantined(index, *peer, *fault)?,
            Report::Lost { module, path, parent, .. } => {
                self.invariants.none_lost.told(index, *module, *path, *parent);
            }
            Report::Refused { module, reason, by } if !reason.contains("comes from") && !self.is_byzantine(*by) => {
                return Err(self.failure("one state", format!("peer {index} refuses module {module}: {reason}")));
            }
            _ => {}
        }
        let only = match report {
            Report::Advanced { module, .. } | Report::ChainSwitched { module, .. } => Some(*module),
            _ => None,
        };
        self.look_at_chains(index, only)
    }

    /// All of a peer's chains, or that of one module.
    fn look_at_chains(&mut self, index: usize, only: Option<ModuleId>) -> Result<(), Failure> {
        let invariants = &mut self.invariants;
        let mut broken = None;
        let chains = self.peers[index].node.chains();
        for (module, chain) in chains.filter(|(module, _)| only.is_none_or(|only| only == *module)) {
            let mut is_broken =
                |name, looked: Result<(), String>| broken = broken.take().or(looked.err().map(|it| (name, it)));
            is_broken("one state", invariants.one_state.look(module, chain.head()));
            invariants.counted_once.note_head(index, module, chain.head().update);
            for (hash, signed) in chain.entries() {
                let byzantine =
                    self.index_of.get(&signed.update.owner).is_some_and(|index| self.byzantine.contains_key(index));
                is_broken("one writer", invariants.one_writer.look(hash, signed, !byzantine));
                is_broken("counted once", invariants.counted_once.look(hash, signed));
            }
        }
        match broken {
            Some((invariant, detail)) => Err(self.failure(invariant, detail)),
            None => Ok(()),
        }
    }

    /// What an honest owner publishes, before anybody applies it.
    pub(super) fn note_signed(&mut self, author: PeerKey, message: &Message) -> Result<(), Failure> {
        let Message::Update(signed) = message else { return Ok(()) };
        let own = Some(signed).filter(|signed| signed.update.owner == author);
        let Some((signed, head)) = own.and_then(|signed| Some((signed, head_of(&signed.update)?))) else {
            return Ok(());
        };
        let looked = self.invariants.one_writer.signs(head.update, signed);
        looked.map_err(|detail| self.failure("one writer", detail))
    }

    /// No honest peer may be quarantined.
    fn note_quarantined(&mut self, index: usize, peer: PeerKey, fault: Fault) -> Result<(), Failure> {
        let named = self.index_of.get(&peer).copied().filter(|named| self.byzantine.contains_key(named));
        let Some(named) = named else {
            let detail = format!("peer {index} says that {} {}", peer.short(), fault.describe());
            return Err(self.failure("nobody slandered", detail));
        };
        if self.quarantined.insert(named) {
            self.counts.names(self.byzantine[&named]);
        }
        Ok(())
    }

    /// Once more, at the end: a first state comes without a report.
    pub(super) fn look_at_all_chains(&mut self) -> Result<(), Failure> {
        let staying: Vec<usize> = self.staying().map(|(index, _)| index).collect();
        staying.into_iter().try_for_each(|index| self.look_at_chains(index, None))
    }

    /// After every event.
    pub(super) fn look_at_queues(&self, index: usize) -> Result<(), Failure> {
        let within = bounded_queues::look(&self.peers[index].node);
        within.map_err(|queue| self.failure("bounded queues", format!("peer {index}: {queue}")))
    }

    /// The modules of a crashing owner that other peers have.
    pub(super) fn note_crash(&mut self, index: usize) {
        for module in self.peers[index].node.owned() {
            let others = self.peers.iter().enumerate().filter(|(other, peer)| *other != index && peer.up);
            let copied = others.flat_map(|(_, peer)| peer.node.chains()).any(|(of, _)| of == module);
            if copied {
                self.counts.owner_crashed(self.now_ms, module, index);
            }
        }
    }

    /// An election in a module whose owner is up.
    fn note_claim(&mut self, index: usize, module: ModuleId) {
        let now_ms = self.now_ms;
        let works = |(other, peer): (usize, &Peer)| {
            let cut =
                self.cuts.iter().any(|(until_ms, cut)| now_ms < until_ms + PARTED_MS && cut.between(other, index));
            let still = now_ms < peer.frozen_until_ms || peer.is_stalled();
            other != index && peer.up && !peer.gone && !still && !cut && peer.node.owned().contains(&module)
        };
        let needless = now_ms > SETTLED_MS && self.peers.iter().enumerate().any(works);
        self.counts.needless += u64::from(needless);
        self.counts.owner_claims(now_ms, module, index);
    }

    /// The modules of a leaving owner.
    pub(super) fn note_leave(&mut self, index: usize) {
        for module in self.peers[index].node.owned() {
            self.counts.owner_leaves(self.now_ms, module);
        }
    }

    fn is_byzantine(&self, peer: PeerKey) -> bool {
        self.index_of.get(&peer).is_some_and(|index| self.byzantine.contains_key(index))
    }

    /// Honest peers that stay to the end.
    fn staying(&self) -> impl Iterator<Item = (usize, &Peer)> {
        self.peers.iter().enumerate().filter(|(index, peer)| !peer.gone && !self.byzantine.contains_key(index))
    }

    pub(super) fn all_done(&self) -> bool {
        self.staying().all(|(_, peer)| {
            let states = peer.node.states();
            let held = peer.node.paths();
            let needed: BTreeSet<ModuleId> = held.iter().flat_map(|path| peer.node.modules_of(*path)).collect();
            let complete = peer.node.chains().all(|(module, chain)| self.plan.is_done(module, chain.head()));
            let knows = peer.node.amendment() == self.amendment_in_force();
            peer.up && knows && !held.is_empty() && complete && states.len() >= needed.len() && !peer.node.is_auditing()
        })
    }

    /// The mean over all paths of ½‖θ − target‖² per value, by weight. If each peer began with its own path, over those
    /// of honest peers.
    pub(super) fn loss(&self) -> f64 {
        let values = self.scenario.swarm.values;
        let mut states: BTreeMap<ModuleId, Vec<f32>> = BTreeMap::new();
        for (_, peer) in self.staying() {
            for (module, _, state) in peer.node.states() {
                let decoded = peer.disk.get(state.hash).map(|bytes| ModuleState::decode(bytes, module, values));
                states.extend(decoded.and_then(Result::ok).map(|state| (module, state.parameters)));
            }
        }
        let (mut losses, mut weights) = (0.0, 0.0);
        let honest = |path: &PathId| !self.scenario.swarm.placed || !self.byzantine.contains_key(&(path.0 as usize));
        for path in self.plan.slots.grid().paths().filter(honest) {
            let weight = f64::from(self.plan.weights[path.0 as usize]);
            for module in self.plan.slots.grid().modules_of(path) {
                let Some(parameters) = states.get(&module) else { continue };
                let target = learner::target(module, path, values, self.scenario.swarm.likeness);
                let squares = parameters.iter().zip(target).map(|(value, target)| f64::from(value - target).powi(2));
                losses += weight * 0.5 * squares.sum::<f64>() / values as f64;
                weights += weight;
            }
        }
        losses / weights
    }

    /// Checks the loss from time to time.
    pub(super) fn note_loss(&mut self) {
        let Some(given) = self.scenario.swarm.given_loss else { return };
        if self.now_ms >= self.loss_ms + LOSS_MS {
            self.loss_ms = self.now_ms;
            if self.loss() > given {
                self.above_ms = self.now_ms;
            }
        }
    }

    /// Inner steps in the final chains.
    pub(super) fn accepted_steps(&self) -> u64 {
        let heads: BTreeMap<_, _> = self
            .staying()
            .flat_map(|(_, peer)| peer.node.chains())
            .map(|(module, chain)| (module, chain.head().update))
            .collect();
        let counted = heads.into_iter().map(|(module, head)| self.invariants.counted_once.counted(module, head));
        counted.flatten().filter_map(|(_, _, blob)| self.steps_of.get(&blob)).sum()
    }

    /// Wrong updates in the final chains.
    pub(super) fn wrong_updates_left(&self) -> usize {
        let chains = self.staying().flat_map(|(_, peer)| peer.node.chains());
        let averages = chains.flat_map(|(_, chain)| chain.recent()).map(|signed| signed.update.average.hash);
        averages.filter(|average| self.wrong_averages.contains(average)).collect::<BTreeSet<_>>().len()
    }

    /// Paths that no peer trains to their end. A peer may leave in order when it has done so.
    pub(super) fn unheld(&self) -> usize {
        let leases = self.staying().flat_map(|(_, peer)| peer.node.leases());
        let left = self.peers.iter().filter(|peer| peer.node.is_gone()).flat_map(|peer| peer.node.leases());
        let done = left.filter(|lease| lease.stage == Stage::Done);
        let trained: BTreeSet<_> = leases
            .filter(|lease| lease.stage != Stage::Standby)
            .chain(done)
            .map(|lease| self.plan.slots.first_trainer(lease.path))
            .collect();
        self.plan.slots.paths_at_a_time() as usize - trained.len()
    }

    /// Whether all peers have a path, and another staying peer has each of its modules.
    pub(super) fn can_be_spared(&self, index: usize) -> bool {
        let others: BTreeSet<ModuleId> = self
            .staying()
            .filter(|(other, _)| *other != index)
            .flat_map(|(_, peer)| peer.node.states())
            .map(|(module, ..)| module)
            .collect();
        let settled = self.staying().all(|(_, peer)| !peer.up || !peer.node.paths().is_empty());
        settled && self.plan.slots.grid().modules().iter().all(|module| others.contains(module))
    }

    /// A module whose members do not all have the same state.
    pub(super) fn disagreement(&self) -> Option<String> {
        let mut states: BTreeMap<ModuleId, BTreeSet<BlobHash>> = BTreeMap::new();
        for (module, _, state) in self.staying().flat_map(|(_, peer)| peer.node.states()) {
            states.entry(module).or_default().insert(state.hash);
        }
        let (module, hashes) = states.iter().find(|(_, hashes)| hashes.len() > 1)?;
        Some(format!("module {module}: {hashes:?}"))
    }

    /// The fate of every contribution; at the end, when all agree.
    pub(super) fn tally(&self) -> Result<Tally, Failure> {
        self.no_leaks()?;
        let heads: BTreeMap<_, _> = self
            .staying()
            .flat_map(|(_, peer)| peer.node.chains())
            .map(|(module, chain)| (module, chain.head().update))
            .collect();
        let by_chain: BTreeMap<ModuleId, BTreeSet<_>> = heads
            .into_iter()
            .map(|(module, head)| (module, self.invariants.counted_once.counted(module, head)))
            .collect();
        let counted = |module: ModuleId, contribution| {
            by_chain.get(&module).is_some_and(|counted| counted.contains(&contribution))
        };
        let shown = self.staying().flat_map(|(_, peer)| peer.node.uncounted()).collect();
        let ever_counted = |module, contribution| self.invariants.counted_once.has_ever_counted(module, contribution);
        let had_counted_long_ago =
            |peer, module, contribution| self.invariants.counted_once.had_counted_long_ago(peer, module, contribution);
        let settled = self.invariants.none_lost.settle(counted, &shown, ever_counted, had_counted_long_ago, |peer| {
            !self.peers[peer].gone && !self.byzantine.contains_key(&peer)
        });
        settled.map_err(|lost| self.failure("none lost", lost))
    }

    /// A disk holds blobs that its node may need, blobs to be released, and (the creator's) genesis.
    fn no_leaks(&self) -> Result<(), Failure> {
        let genesis: BTreeSet<BlobHash> = self.plan.genesis.values().map(|blob| blob.hash).collect();
        for (index, peer) in self.staying() {
            let kept = peer.node.referenced_blobs();
            let leaked: Vec<BlobHash> =
                peer.disk.names().filter(|blob| !kept.contains(blob) && !genesis.contains(blob)).collect();
            // For a module that others have finished, a phase may still be trained, or an average computed.
            if leaked.len() > self.plan.slots.grid().levels() + 3 {
                return Err(self.failure("disk", format!("peer {index} keeps {leaked:?} for nothing")));
            }
        }
        Ok(())
    }

    pub(super) fn why_stuck(&self) -> String {
        let peer = |(index, peer): (usize, &Peer)| {
            let status = peer.node.status();
            let versions: Vec<String> = status
                .modules
                .iter()
                .map(|module| {
                    let owner = module.owner.as_deref().map_or("nobody", |owner| &owner[..8]);
                    format!("{}@{:?}t{} {owner}", module.module, module.version, module.term)
                })
                .collect();
            let waits: Vec<String> = status
                .paths
                .iter()
                .map(|path| {
                    let waits = path.waits_for.as_ref().map(|waiting| format!("{waiting:?}")).unwrap_or_default();
                    format!("path {} {} {waits}", path.path, path.stage)
                })
                .collect();
            let up = if peer.up { "" } else { " (down)" };
            format!("\n  peer {index} {}{up}: {} | {}", peer.key.short(), versions.join(" "), waits.join("; "))
        };
        self.peers.iter().enumerate().map(peer).collect()
    }
}
