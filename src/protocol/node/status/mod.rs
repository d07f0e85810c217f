//! The status of a node.

mod queues;
mod waiting;

use std::collections::BTreeMap;

use crate::names::{ModuleId, PathId, PeerKey, Term};
use crate::protocol::membership::roster::{Member, Seen};
use crate::protocol::module::chain::Chain;
use crate::protocol::path::contributions::Contribution;
use crate::protocol::reputation::score::PeerScore;
use crate::protocol::status::{
    CopiedIdentity, MemberPath, MemberStatus, ModuleStatus, PathStatus, PeerScoreStatus, ScoreStatus, Status,
};
use crate::protocol::wire::message::{ContributionKey, Lease, Score, SignedUpdate, Stage};
use crate::protocol::{Node, Replica};

impl Node {
    /// Known living peers without this one.
    pub fn living(&self) -> impl Iterator<Item = PeerKey> {
        self.membership.roster().everybody(self.now).map(|(peer, _)| peer)
    }

    /// The current status of this node.
    pub fn status(&self) -> Status {
        Status {
            peer: self.me.to_string(),
            phases: self.plan.phases,
            amendment: self.amendment().map(|amended| amended.number),
            modules: self.modules.keys().map(|module| self.module_status(*module)).collect(),
            paths: self.paths.held().keys().map(|path| self.path_status(*path)).collect(),
            peers: self.membership.roster().directory(self.now).map(|entry| entry.peer.to_string()).collect(),
            members: self.members(),
            done: self.is_done(),
            waits_for: self.waits(),
            copied_identities: self.copied_identities(),
            scores: self.scores(),
            peer_scores: self.peer_scores(),
            audited: self.reputation.audits().audited(),
        }
    }

    /// Whether every path held here has completed all its phases.
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

    /// Whether this peer trains a path, and is not only its standby.
    pub fn holds(&self, path: PathId) -> bool {
        self.paths.held().get(&path).is_some_and(|held| held.stage() != Stage::Standby)
    }

    /// The state of a path's trainer, if it is here.
    pub fn trainer(&self, path: PathId) -> Option<crate::names::BlobRef> {
        self.paths.trainer(path)
    }

    /// The state of each module's head here.
    pub fn states(&self) -> Vec<(ModuleId, crate::names::Version, crate::names::BlobRef)> {
        let state = |(module, state): (&ModuleId, &Replica)| {
            let head = state.head()?;
            Some((*module, head.version, head.state))
        };
        self.modules.iter().filter_map(state).collect()
    }

    /// The modules that this node owns, as far as it knows.
    pub fn owned(&self) -> Vec<ModuleId> {
        self.modules.keys().copied().filter(|module| self.owns(*module)).collect()
    }

    /// The latest known term of a module, and the update that is to be applied next.
    pub fn pending(&self, module: ModuleId) -> (Term, Option<&SignedUpdate>) {
        let state = self.modules.get(&module);
        let next = state.and_then(|state| state.applying.next());
        (state.map_or(Term(0), |state| state.leadership.term()), next)
    }

    /// The chain of each module here.
    pub fn chains(&self) -> impl Iterator<Item = (ModuleId, &crate::protocol::module::chain::Chain)> {
        self.modules.iter().filter_map(|(module, state)| Some((*module, state.history.chain()?)))
    }

    /// Contributions kept here that no update counts: not yet or, if the module is done, never.
    pub fn uncounted(&self) -> impl Iterator<Item = (ModuleId, ContributionKey)> {
        let key = |offer: Contribution| (offer.module, offer.key());
        self.contributions.all().map(key).filter(|(module, contribution)| {
            let chain = self.modules.get(module).and_then(|state| state.history.chain());
            self.plan.can_count(contribution.1) && !chain.is_some_and(|chain| chain.has_counted(*contribution))
        })
    }

    fn members(&self) -> BTreeMap<PeerKey, MemberStatus> {
        let roster = self.membership.roster();
        let one = |(peer, member): (PeerKey, &Member)| {
            let differs = |(module, seen): (ModuleId, &Seen)| {
                let (mine, theirs) = (self.modules.get(&module)?.head()?, seen.head?);
                (mine.version == theirs.version && mine.state != theirs.state).then(|| module.to_string())
            };
            let path = |lease: &Lease| MemberPath {
                path: self.plan.slots.first_trainer(lease.path).0,
                trainer: self.trainer_number(lease.path) + 1,
                phase: lease.phase.0,
                stage: format!("{:?}", lease.stage).to_lowercase(),
            };
            let version =
                |(module, seen): (ModuleId, &Seen)| (module.to_string(), seen.head.map(|head| head.version.0));
            let status = MemberStatus {
                modules: member.modules().map(version).collect(),
                differs: member.modules().filter_map(differs).collect(),
                // A peer may announce a path that the run does not have.
                paths: member.leases.iter().filter(|lease| lease.path.0 < self.plan.slots.count()).map(path).collect(),
                steps_per_1000_s: member.pace,
                replicas: member.replicas,
                silent_s: roster.silent_since(self.now, peer).map(|since| self.now.since(since) / 1_000),
            };
            (peer, status)
        };
        roster.everybody(self.now).map(one).collect()
    }

    fn scores(&self) -> Vec<ScoreStatus> {
        let score = |(score, by): &(Score, PeerKey)| {
            let Score { path, phase, millibits_per_byte } = *score;
            ScoreStatus { path: path.0, phase: phase.0, millibits_per_byte, by: *by }
        };
        self.evaluations.scores().map(score).collect()
    }

    fn peer_scores(&self) -> Vec<PeerScoreStatus> {
        let one = |(peer, score): (PeerKey, &PeerScore)| PeerScoreStatus {
            peer,
            counted: score.counted,
            faults: score.faults.clone(),
            quarantined: self.reputation.scores().is_quarantined(self.now, peer),
            reason: score.reason.map(|fault| fault.describe().to_owned()),
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
        let (staleness_mean, staleness_most) = state.history.chain().map_or((0.0, 0), Chain::staleness);
        ModuleStatus {
            module: module.to_string(),
            version: head.map(|head| head.version.0),
            phase: head.map(|head| self.plan.phase_of(module, head).0),
            staleness_mean,
            staleness_most,
            state_hash: head.map(|head| head.state.hash.to_string()),
            owner: state.leadership.owner().map(|owner| owner.to_string()),
            term: state.leadership.term().0,
            owned_here: self.owns(module),
            members: self.living_members(module).len(),
            replica: self.replicas.holds(module),
            no_replica: self.membership.roster().heads(self.now, module).next().is_none(),
            uncounted,
            weight_lost: state.weight_lost,
        }
    }

    fn path_status(&self, path: PathId) -> PathStatus {
        let held = self.paths.held()[&path];
        PathStatus {
            path: self.plan.slots.first_trainer(path).0,
            trainer: self.trainer_number(path) + 1,
            drawn: self.path_at(path, self.near(path)).0,
            phase: self.phase(path).map(|phase| phase.0),
            stage: format!("{:?}", held.stage()).to_lowercase(),
            waits_for: self.waits_for(path),
        }
    }
}
