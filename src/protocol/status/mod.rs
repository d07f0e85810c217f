//! What a node is doing and what it waits for, as a value: for `status`, for the progress lines, for programs.

pub(super) mod queues;
pub mod waiting;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Node;
use crate::names::{ModuleId, PathId, PeerKey, Term};
use crate::protocol::module::chain::Chain;
use crate::protocol::path::contributions::Contribution;
use crate::protocol::reputation::score::{Conduct, Fault};
use crate::protocol::status::waiting::Waiting;
use crate::protocol::wire::message::{ContributionKey, Score, SignedUpdate, Stage};

/// One module here.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct ModuleStatus {
    /// Its name, as `level.expert`.
    pub module: String,
    /// How many updates; nothing while its first state is being fetched.
    pub version: Option<u64>,
    /// How many rounds of its paths these come to: the version, unless the run is asynchronous.
    pub phase: Option<u64>,
    /// How many versions late the contributions of the last updates were, on average.
    pub staleness_mean: f64,
    /// And at the most.
    pub staleness_most: u64,
    /// BLAKE3 of the whole state at that version.
    pub state_hash: Option<String>,
    /// Who combines.
    pub owner: Option<String>,
    /// In which term.
    pub term: u64,
    /// Whether that is this peer.
    pub owned_here: bool,
    /// Living members, this peer included.
    pub members: usize,
    /// Whether no other living peer has it.
    pub no_replica: bool,
    /// Whether it is here as a replica: no path here goes through it.
    pub replica: bool,
    /// Contributions of this peer that no update counts: not yet or, when the module is done, never.
    pub uncounted: usize,
    /// Weight that was lost since this peer started: contributions of this peer that came too late, and what a chain that
    /// was given up had counted too long ago. In units of which a full shard has 16384.
    pub weight_lost: u64,
}

/// One path here.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PathStatus {
    /// Its number.
    pub path: u32,
    /// The path of the grid that it stands for now: another number where these are sampled.
    pub drawn: u32,
    /// Its phase.
    pub phase: Option<u64>,
    /// What is being done with it.
    pub stage: String,
    /// What it waits for, and why; nothing while it trains.
    pub waits_for: Option<Waiting>,
}

/// A whole node.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Status {
    /// Whose.
    pub peer: String,
    /// The phase at which modules are done.
    pub phases: u64,
    /// Its modules.
    pub modules: Vec<ModuleStatus>,
    /// Its paths.
    pub paths: Vec<PathStatus>,
    /// Living peers known, this one not counted.
    pub peers: Vec<String>,
    /// Whether every path here is done.
    pub done: bool,
    /// Why nothing trains here; nothing while something does.
    pub waits_for: Option<Waiting>,
    /// Peers, this one perhaps among them, with whose key two machines run.
    pub copied_identities: Vec<CopiedIdentity>,
    /// Scores of paths, by path.
    pub scores: Vec<ScoreStatus>,
    /// Peers whose contributions are known here, and what was wrong with them.
    pub conduct: Vec<ConductStatus>,
    /// Updates of others that were counted again here.
    pub audited: u64,
}

/// How a peer has behaved, as far as this one has seen.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ConductStatus {
    /// Who.
    pub peer: PeerKey,
    /// Its contributions that updates have counted in full.
    pub counted: u64,
    /// How often it was wrong, and in what.
    pub faults: BTreeMap<Fault, u64>,
    /// Whether its offers are not taken for now.
    pub named: bool,
    /// Why it is, or was last, named.
    pub reason: Option<String>,
}

/// The newest score of a path that is known here. It is taken on trust from whoever gave it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ScoreStatus {
    /// Which path.
    pub path: u32,
    /// All its modules had come this far.
    pub phase: u64,
    /// On its held-out text, thousandths of a bit for each byte.
    pub millibits_per_byte: u32,
    /// Who scored it.
    pub by: PeerKey,
}

/// A peer with whose key two machines run.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct CopiedIdentity {
    /// Whose key.
    pub peer: PeerKey,
    /// Where either machine can be reached, as far as known.
    pub addresses: Vec<String>,
}

impl Node {
    /// Living peers that this one knows, itself not counted.
    pub fn living(&self) -> impl Iterator<Item = PeerKey> {
        self.membership.roster().everybody(self.now).map(|(peer, _)| peer)
    }

    /// What this node is doing now.
    pub fn status(&self) -> Status {
        Status {
            peer: self.me.to_string(),
            phases: self.plan.phases,
            modules: self.modules.keys().map(|module| self.module_status(*module)).collect(),
            paths: self.paths.held().keys().map(|path| self.path_status(*path)).collect(),
            peers: self.membership.roster().directory(self.now).map(|entry| entry.peer.to_string()).collect(),
            done: self.is_done(),
            waits_for: self.waits(),
            copied_identities: self.copied_identities(),
            scores: self.scores(),
            conduct: self.conduct(),
            audited: self.auditing.audited,
        }
    }

    /// Whether every path held here has had all its phases.
    pub fn is_done(&self) -> bool {
        let resting = |stage: Stage| matches!(stage, Stage::Done | Stage::Standby);
        !self.paths.held().is_empty()
            && self.paths.held().iter().all(|(path, held)| {
                resting(held.stage()) && self.phase(*path).is_some_and(|phase| phase.0 >= self.plan.phases)
            })
    }

    /// The paths held here.
    pub fn paths(&self) -> Vec<PathId> {
        self.paths.held().keys().copied().collect()
    }

    /// Whether a path is this peer's to train, not only to stand by.
    pub fn holds(&self, path: PathId) -> bool {
        self.paths.held().get(&path).is_some_and(|held| held.stage() != Stage::Standby)
    }

    /// What a path's trainer carries, as far as it is here.
    pub fn trainer(&self, path: PathId) -> Option<crate::names::BlobRef> {
        self.paths.trainer(path)
    }

    /// The head's state of each module here.
    pub fn states(&self) -> Vec<(ModuleId, crate::names::Version, crate::names::BlobRef)> {
        let state = |(module, state): (&ModuleId, &super::Module)| {
            let head = state.head()?;
            Some((*module, head.version, head.state))
        };
        self.modules.iter().filter_map(state).collect()
    }

    /// The modules that this node owns, as far as it knows.
    pub fn owned(&self) -> Vec<ModuleId> {
        self.modules.keys().copied().filter(|module| self.owns(*module)).collect()
    }

    /// The latest term known of a module, and the update that is to be applied next.
    pub fn pending(&self, module: ModuleId) -> (Term, Option<&SignedUpdate>) {
        let state = self.modules.get(&module);
        let next = state.and_then(|state| Some(&state.next.as_ref()?.signed));
        (state.map_or(Term(0), |state| state.term), next)
    }

    /// The chain of each module here.
    pub fn chains(&self) -> impl Iterator<Item = (ModuleId, &crate::protocol::module::chain::Chain)> {
        self.modules.iter().filter_map(|(module, state)| Some((*module, state.chain.as_ref()?)))
    }

    /// Contributions kept here that no update counts: not yet or, where the module is done, never.
    pub fn uncounted(&self) -> impl Iterator<Item = (ModuleId, ContributionKey)> {
        let key = |(module, path, (parent, _), blob): Contribution| (module, (path, parent, blob.hash));
        self.contributions.all().map(key).filter(|(module, contribution)| {
            let chain = self.modules.get(module).and_then(|state| state.chain.as_ref());
            self.plan.can_count(contribution.1) && !chain.is_some_and(|chain| chain.has_counted(*contribution))
        })
    }

    fn scores(&self) -> Vec<ScoreStatus> {
        let score = |(score, by): &(Score, PeerKey)| {
            let Score { path, phase, millibits_per_byte } = *score;
            ScoreStatus { path: path.0, phase: phase.0, millibits_per_byte, by: *by }
        };
        self.evaluations.scores.values().map(score).collect()
    }

    fn conduct(&self) -> Vec<ConductStatus> {
        let one = |(peer, conduct): (PeerKey, &Conduct)| ConductStatus {
            peer,
            counted: conduct.counted,
            faults: conduct.faults.clone(),
            named: self.reputation.scores().is_named(self.now, peer),
            reason: conduct.reason.map(|fault| fault.describe().to_owned()),
        };
        self.reputation.scores().all().map(one).collect()
    }

    fn copied_identities(&self) -> Vec<CopiedIdentity> {
        let copied = self.membership.copies();
        copied.map(|(peer, addresses)| CopiedIdentity { peer, addresses: addresses.to_vec() }).collect()
    }

    fn module_status(&self, module: ModuleId) -> ModuleStatus {
        let state = &self.modules[&module];
        let head = state.head();
        let uncounted = self.uncounted().filter(|(of, _)| *of == module).count();
        let (staleness_mean, staleness_most) = state.chain.as_ref().map_or((0.0, 0), Chain::staleness);
        ModuleStatus {
            module: module.to_string(),
            version: head.map(|head| head.version.0),
            phase: head.map(|head| self.plan.phase_of(module, head).0),
            staleness_mean,
            staleness_most,
            state_hash: head.map(|head| head.state.hash.to_string()),
            owner: state.owner.map(|owner| owner.to_string()),
            term: state.term.0,
            owned_here: self.owns(module),
            members: self.living_members(module).len(),
            replica: self.replicas.held.contains(&module),
            no_replica: self.membership.roster().heads(self.now, module).next().is_none(),
            uncounted,
            weight_lost: state.weight_lost,
        }
    }

    fn path_status(&self, path: PathId) -> PathStatus {
        let held = self.paths.held()[&path];
        PathStatus {
            path: path.0,
            drawn: self.path_at(path, self.near(path)).0,
            phase: self.phase(path).map(|phase| phase.0),
            stage: format!("{:?}", held.stage()).to_lowercase(),
            waits_for: self.waits_for(path),
        }
    }
}
