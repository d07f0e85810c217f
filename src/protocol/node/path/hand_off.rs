//! Hand-off of paths between peers, with the state of their trainers.
//!
//! A peer that takes a path asks the previous holder for the state of the trainer. This is AdamW's moments, the data
//! cursor and the residual of compression after the last phase, and the checkpoint of an interrupted phase. The holder
//! stops training the path, trains its other paths, and gives the path up once the taker has the state. A standby keeps
//! the trainer state that the holder names in its lease. A crash therefore costs the residual only if there was no
//! standby.

use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey};
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::blobs::Purpose;
use crate::protocol::event::RequestId;
use crate::protocol::journal::record::Record;
use crate::protocol::limits::HAND_OFF_RESPONSE_MS;
use crate::protocol::node::module::election::path_rank;
use crate::protocol::node::path::placement::turns;
use crate::protocol::path::hand_off::{Step, blobs};
use crate::protocol::wire::inner_checkpoint::{BaseVersion, InnerCheckpoint};
use crate::protocol::wire::message::{GENESIS, Lease, PathHandOff, Request, Response, Stage};

/// Bytes of a trainer's blob besides its values.
const FRAMING_BYTES: u64 = 1 << 20;

/// The place of another trainer of the path among those that are asked.
const BESIDE: u8 = 3;

impl Node {
    /// A path was taken. Sends a request for the state of its trainer to a peer that has it, among the living peers and
    /// those that a search has just found. If that peer trains the path until it receives the request, the request
    /// waits until the path's modules are here.
    pub(in crate::protocol) fn begin_hand_off(&mut self, path: PathId, found: Vec<(PeerKey, Lease)>) {
        let Some((from, trains_on)) = self.donor_of(path, found) else { return };
        self.paths.hand_offs_mut().take(self.now, path, from, trains_on);
        if !trains_on || self.phase(path).is_some() {
            self.ask_for_trainer(path, from);
        }
    }

    /// Whether it is too early to request the state of a path's trainer: its holder continues training, and the path's
    /// modules are not here.
    fn waits_for_modules(&self, path: PathId) -> bool {
        let Some(from) = self.paths.hand_offs().trains_on(path).filter(|_| self.phase(path).is_none()) else {
            return false;
        };
        let goes = |(peer, _, lease): (PeerKey, _, Lease)| peer == from && lease.stage == Stage::Leaving;
        !self.membership.roster().holders(self.now, path).any(goes)
    }

    fn ask_for_trainer(&mut self, path: PathId, from: PeerKey) {
        let id = self.ask(from, Request::Path(path));
        self.paths.hand_offs_mut().asked(self.now, path, from, id);
    }

    /// The peer to ask, and whether it continues training the path. A leaving holder comes before one that continues,
    /// and a standby only if its lease names the trainer state. Last comes another trainer of the path, whose state is
    /// better than none. A peer that is doubted for its contributions is not asked.
    fn donor_of(&self, path: PathId, found: Vec<(PeerKey, Lease)>) -> Option<(PeerKey, bool)> {
        let slots: Vec<PathId> = self.plan.slots.of_same_path(path).collect();
        let heard = slots.iter().flat_map(|slot| self.membership.roster().holders(self.now, *slot));
        let heard = heard.map(|(peer, _, lease)| (peer, lease));
        let rank = |(peer, lease): (PeerKey, Lease)| match lease.stage {
            _ if peer == self.me || self.reputation.scores().is_doubted(self.now, peer) => None,
            stage if lease.path != path => {
                let has = slots.contains(&lease.path) && Self::trains(stage) && lease.trainer.is_some();
                (has && self.paths.trainer(path).is_none()).then_some((BESIDE, peer))
            }
            Stage::Leaving => Some((0, peer)),
            Stage::Waiting | Stage::Training | Stage::Skipping => Some((1, peer)),
            Stage::Standby if lease.trainer.is_some() && self.paths.trainer(path).is_none() => Some((2, peer)),
            Stage::Standby | Stage::Joining | Stage::Done => None,
        };
        // Of several trainers beside this slot, each newcomer asks another one.
        let order =
            |(rank, peer): &(u8, PeerKey)| (*rank, if *rank == BESIDE { path_rank(path, *peer) } else { peer.0 });
        heard.chain(found).filter_map(rank).min_by_key(order).map(|(rank, peer)| (peer, rank == 1))
    }

    /// Handles the response to a hand-off request. Returns whether it was one.
    pub(in crate::protocol) fn hand_off_answered(&mut self, id: RequestId, response: &Option<Response>) -> bool {
        let Some((path, from)) = self.paths.hand_offs_mut().answered(id) else { return false };
        match response {
            Some(Response::Path(Some(state))) if state.later => {}
            Some(Response::Path(Some(state))) if self.could_be(path, state) => {
                for blob in self.paths.hand_offs_mut().told(path, state.clone()) {
                    self.fetch(blob, from, Purpose::HandOff(path));
                }
                self.complete(path);
            }
            // The missing response may be a lost one.
            None => {}
            Some(_) => self.begin_afresh(path),
        }
        true
    }

    /// Whether this can be the state of a path's trainer, as far as it can be told without the bytes.
    fn could_be(&self, path: PathId, word: &PathHandOff) -> bool {
        let phase = word.checkpoint.as_ref().map_or_else(|| self.near(path), |middle| middle.phase);
        let modules = self.plan.slots.modules(path, phase);
        let genesis = |module: &ModuleId| self.plan.genesis.get(module).map_or(0, |state| state.bytes);
        // A state has parameters and momentum. A trainer has three times the parameters, or four times in the middle of
        // a phase.
        let states: u64 = modules.iter().map(genesis).sum();
        let fits = |blob: BlobRef, times: u64| blob.bytes <= times * states + FRAMING_BYTES;
        let sound = |middle: &InnerCheckpoint| {
            let start = middle.start.iter().map(|(from, _)| from.module);
            let sized = |(from, state): &(BaseVersion, BlobRef)| state.bytes == genesis(&from.module);
            middle.path == path
                && middle.phase.0 < self.plan.phases
                && start.eq(modules.iter().copied())
                && middle.start.iter().all(sized)
                && fits(middle.blob, 3)
        };
        word.trainer.is_none_or(|trainer| fits(trainer, 2)) && word.checkpoint.as_ref().is_none_or(sound)
    }

    pub(in crate::protocol) fn hand_off_fetched(&mut self, path: PathId, blob: BlobHash, found: bool) {
        if !found {
            return self.begin_afresh(path);
        }
        self.paths.hand_offs_mut().arrived_one(path, blob);
        self.complete(path);
    }

    /// Completes the hand-off once the trainer's blobs and the path's modules are here. The modules' chains show
    /// whether the interrupted phase began from the states that it claims.
    fn complete(&mut self, path: PathId) {
        if self.phase(path).is_none() || !self.paths.hand_offs().is_here(path) {
            return;
        }
        let Some((from, Some(word))) = self.paths.hand_offs_mut().end(path) else { return };
        for blob in blobs(&word) {
            self.release(blob.hash);
        }
        if let Some(trainer) = word.trainer {
            self.keep_trainer(path, trainer);
        }
        let begun_here = |(from, state): &(BaseVersion, BlobRef)| self.state_after(from) == Some(*state);
        if let Some(middle) = word.checkpoint.filter(|middle| middle.start.iter().all(begun_here)) {
            self.act(Action::Persist(Record::Checkpoint(middle.clone())));
            self.paths.set_checkpoint(middle);
        }
        self.act(Action::Report(Report::HandedOff { path, from }));
    }

    /// The state of a module at a base version that its chain here contains.
    pub(in crate::protocol) fn state_after(&self, place: &BaseVersion) -> Option<BlobRef> {
        if place.update == GENESIS {
            return self.plan.genesis.get(&place.module).copied().filter(|_| place.version.0 == 0);
        }
        let chain = self.modules.get(&place.module)?.history.chain()?;
        let (_, signed) = chain.entries().find(|(update, _)| *update == place.update)?;
        (signed.update.version == place.version).then_some(signed.update.state)
    }

    pub(in crate::protocol) fn keep_trainer(&mut self, path: PathId, trainer: BlobRef) {
        self.act(Action::Persist(Record::Trainer { path, trainer }));
        if let Some(old) = self.paths.set_trainer(path, trainer).filter(|old| *old != trainer) {
            self.release(old.hash);
        }
    }

    /// The hand-off failed: the path begins with what is here.
    fn begin_afresh(&mut self, path: PathId) {
        if let Some(from) = self.paths.hand_offs().donor(path) {
            self.cancel_hand_off(path);
            if self.paths.trainer(path).is_none() {
                self.act(Action::Report(Report::BeganAfresh { path, from }));
            }
        }
    }

    /// Cancels a hand-off of the path in either direction.
    pub(in crate::protocol) fn cancel_hand_off(&mut self, path: PathId) {
        self.paths.hand_offs_mut().withdraw(path);
        let word = self.paths.hand_offs_mut().end(path).and_then(|(_, word)| word);
        for blob in word.iter().flat_map(blobs) {
            self.release(blob.hash);
        }
    }

    /// In every sweep: repeats requests, and times out hand-offs.
    pub(in crate::protocol) fn continue_hand_offs(&mut self) {
        for path in self.paths.hand_offs().incoming() {
            if self.waits_for_modules(path) {
                self.paths.hand_offs_mut().wait_for_modules(self.now, path);
                continue;
            }
            let bytes = |state: &PathHandOff| blobs(state).iter().map(|blob| blob.bytes).sum();
            let transfer_ms = |state: &PathHandOff| self.membership.response_times().transfer_ms(bytes(state));
            let roster = self.membership.roster();
            let lives = |peer| roster.member(peer).is_some_and(|member| roster.alive(self.now, member));
            let patient = self.plan.deterministic && self.paths.hand_offs().donor(path).is_some_and(lives);
            let timeout_ms = |state: Option<&PathHandOff>| match state {
                _ if patient => u64::MAX,
                None => HAND_OFF_RESPONSE_MS,
                Some(state) => transfer_ms(state),
            };
            match self.paths.hand_offs().step(self.now, path, timeout_ms) {
                Step::GiveUp => self.begin_afresh(path),
                Step::Complete => self.complete(path),
                Step::Ask { from, again: true } => self.ask_for_trainer(path, from),
                Step::Ask { from, again: false } => {
                    // The peer that had it when the path was taken may be gone by now.
                    let donor = self.donor_of(path, Vec::new()).map_or(from, |(donor, _)| donor);
                    self.ask_for_trainer(path, donor);
                }
                Step::Wait => {}
            }
        }
    }

    /// The response of a holder or a standby. A trainer is stopped only for a peer that is known to take the path, and
    /// only if this node would give it up.
    pub(in crate::protocol) fn hand_off_path(&mut self, to: PeerKey, path: PathId) -> Option<PathHandOff> {
        let Some(stage) = self.paths.held().get(&path).map(crate::protocol::Held::stage) else {
            return self
                .trainer_beside(path)
                .map(|trainer| PathHandOff { trainer: Some(trainer), ..PathHandOff::default() });
        };
        let word = PathHandOff { later: false, trainer: self.paths.trainer(path), checkpoint: None };
        if stage == Stage::Standby {
            return Some(word).filter(|word| word.trainer.is_some());
        }
        let later = Some(PathHandOff { later: true, ..PathHandOff::default() });
        if !self.gives(to, path) {
            return later;
        }
        let again = self.paths.hand_offs_mut().promise(self.now, path, to);
        if self.trainers.trains(path) {
            if !again {
                self.act(Action::Pause { path });
            }
            return later;
        }
        Some(PathHandOff { checkpoint: self.paths.checkpoint(path).cloned(), ..word })
    }

    /// The state of this node's trainer of the same path in another worker slot.
    fn trainer_beside(&self, slot: PathId) -> Option<BlobRef> {
        let valid = slot.0 < self.plan.slots.count();
        let beside = self.plan.slots.of_same_path(slot).filter(|other| valid && self.paths.holds(*other));
        beside.filter_map(|other| self.paths.trainer(other)).next()
    }

    /// Whether this node yields a path to a peer that joins it.
    fn gives(&self, to: PeerKey, path: PathId) -> bool {
        let Some(member) = self.membership.roster().member(to) else { return false };
        let joins = member.leases.iter().any(|lease| lease.path == path && lease.stage == Stage::Joining);
        let leaving = self.paths.held().get(&path).is_some_and(|held| held.stage() == Stage::Leaving);
        joins && (leaving || self.turns_here() > turns(&member.leases))
    }

    /// The bytes of the trainer state and the checkpoint of a path held here.
    pub(in crate::protocol) fn trainer_bytes(&self, path: PathId) -> u64 {
        let middle = self.paths.checkpoint(path).map(|middle| middle.blob);
        self.paths.trainer(path).into_iter().chain(middle).map(|blob| blob.bytes).sum()
    }

    /// Whether another peer takes a path from here, so that it is not trained meanwhile. A peer that is gone or too
    /// slow does not count.
    pub(in crate::protocol) fn is_promised(&self, path: PathId) -> bool {
        self.paths.hand_offs().promised(path).is_some_and(|(to, at)| {
            let roster = self.membership.roster();
            let alive = roster.member(to).is_some_and(|member| roster.alive(self.now, member));
            alive
                && self.gives(to, path)
                && self.now.since(at) < self.membership.response_times().transfer_ms(self.trainer_bytes(path))
        })
    }

    /// A standby fetches the trainer states that its path's holder names.
    pub(in crate::protocol) fn stand_by(&mut self, holder: PeerKey, leases: &[Lease]) {
        if self.reputation.scores().is_doubted(self.now, holder) {
            return;
        }
        for lease in leases {
            let stands_by = self.paths.stands_by(lease.path);
            let Some(trainer) = lease.trainer.filter(|_| stands_by && Self::trains(lease.stage)) else { continue };
            let word = PathHandOff { trainer: Some(trainer), ..PathHandOff::default() };
            if self.paths.trainer(lease.path) != Some(trainer) && self.could_be(lease.path, &word) {
                self.fetch(trainer, holder, Purpose::Trainer(lease.path));
            }
        }
    }

    pub(in crate::protocol) fn trainer_fetched(&mut self, path: PathId, blob: BlobHash, found: bool) {
        let stands_by = self.paths.stands_by(path);
        let named = self.membership.roster().holders(self.now, path).filter_map(|(_, _, lease)| lease.trainer);
        let trainer = named.filter(|trainer| trainer.hash == blob).min_by_key(|trainer| trainer.bytes);
        if let Some(trainer) = trainer.filter(|_| found && stands_by) {
            self.keep_trainer(path, trainer);
        }
    }
}
