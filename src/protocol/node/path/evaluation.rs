//! Evaluation by standbys: each new checkpoint of a path is scored once, and the score is published to the path's
//! modules.
//!
//! A path's checkpoint at a phase consists of the states from which it would train next, once all its modules have
//! reached that phase. Of the living peers that have all these modules and a trainer without a path, the first by rendezvous
//! hashing scores the newest checkpoint. All of them are members of the same modules, so they know each other.

use crate::names::{BlobRef, ModuleId, PathId, PeerKey, Phase};
use crate::protocol::Node;
use crate::protocol::action::Action;
use crate::protocol::membership::roster::Member;
use crate::protocol::node::path::placement::has_free_trainer;
use crate::protocol::wire::message::{Message, Score, Stage};

fn rank(path: PathId, phase: Phase, peer: PeerKey) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"evaluate").update(&path.0.to_le_bytes()).update(&phase.0.to_le_bytes()).update(&peer.0);
    *hasher.finalize().as_bytes()
}

impl Node {
    /// Begins to score a checkpoint, if it is this node's turn. The path that has waited longest for a score goes
    /// first.
    pub(in crate::protocol) fn evaluate_next(&mut self) {
        if self.evaluations.is_busy() || self.trainers.free() == 0 || !self.has_free_trainer() {
            return;
        }
        let next = self
            .paths_here()
            .filter_map(|path| Some((path, self.phase(path)?)))
            .filter(|(path, phase)| phase.0 > 0 && self.evaluations.is_new(*path, *phase))
            .filter(|(path, phase)| self.is_evaluator(*path, *phase))
            .min_by_key(|(path, _)| (self.evaluations.scored(*path), *path));
        let Some((path, phase)) = next else { return };
        let state = |module: ModuleId| Some((module, self.modules.get(&module)?.head()?.state));
        let states: Vec<(ModuleId, BlobRef)> =
            self.plan.modules_at(path, phase).into_iter().filter_map(state).collect();
        let reads = states.iter().map(|(_, state)| state.hash).collect();
        self.evaluations.begin(path, phase, reads);
        self.act(Action::Evaluate { path, phase, states });
    }

    /// Paths that a living peer trains and whose modules all have a state here.
    fn paths_here(&self) -> impl Iterator<Item = PathId> {
        let bottom = self.modules.iter().filter(|(module, _)| module.level == 0);
        let here = bottom.filter_map(|(module, state)| Some((*module, self.plan.phase_of(*module, state.head()?))));
        here.flat_map(|(module, phase)| self.plan.slots.first_trainers_through(module, phase)).filter(|path| {
            let slots = self.plan.slots.of_same_path(*path);
            let mut holders = slots.flat_map(|slot| self.membership.roster().holders(self.now, slot));
            self.phase(*path).is_some() && holders.any(|(_, _, lease)| lease.stage != Stage::Standby)
        })
    }

    /// Whether this node ranks first among the peers that can score the checkpoint.
    fn is_evaluator(&self, path: PathId, phase: Phase) -> bool {
        let modules = self.plan.modules_at(path, phase);
        let mine = rank(path, phase, self.me);
        let has = |member: &Member, module: &ModuleId| {
            let head = member.seen(*module).and_then(|seen| seen.head);
            head.is_some_and(|head| self.plan.phase_of(*module, head) >= phase)
        };
        let able = |(peer, member): &(PeerKey, &Member)| {
            let lives =
                |module: &ModuleId| self.membership.roster().lives(self.now, *module, *peer) && has(member, module);
            has_free_trainer(&member.leases) && modules.iter().all(lives)
        };
        !self.membership.roster().everybody(self.now).filter(able).any(|(peer, _)| rank(path, phase, peer) > mine)
    }

    pub(in crate::protocol) fn evaluated(&mut self, path: PathId, phase: Phase, millibits_per_byte: Option<u32>) {
        let number = self.trainers.scoring(path);
        let watchdog = self.trainers.get_mut(number).watchdog_mut();
        watchdog.has_scored();
        if millibits_per_byte.is_some() {
            watchdog.got_further();
        }
        let Some(reads) = self.evaluations.end(path, phase) else { return };
        for blob in reads {
            self.release(blob);
        }
        let Some(millibits_per_byte) = millibits_per_byte else { return };
        let score = Score { path, phase, millibits_per_byte };
        for module in self.plan.modules_at(path, phase) {
            if self.modules.contains_key(&module) {
                self.act(Action::Publish { module, message: Message::Score(score) });
            }
        }
        self.evaluations.keep(score, self.me);
    }

    /// Handles a score of another peer. It is not verified, because a wrong score misleads users and nothing else.
    pub(in crate::protocol) fn heard_score(&mut self, module: ModuleId, author: PeerKey, score: Score) {
        let head = self.modules.get(&module).and_then(crate::protocol::Replica::head);
        // A score for a future phase would prevent the next checkpoints from being scored.
        let reached = head.is_some_and(|head| (1..=self.plan.phase_of(module, head).0).contains(&score.phase.0));
        let is_path = self.plan.slots.first_trainer(score.path) == score.path;
        if reached && is_path && self.plan.goes_through_at(score.path, score.phase, module) {
            self.evaluations.keep(score, author);
        }
    }
}
