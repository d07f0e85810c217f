//! Restores a node from its journal: the state of a peer after a kill, without any request.
//!
//! A journal may be compacted while a record of the same moment is still to be appended. Every record may therefore
//! come twice, and must change nothing the second time.

use std::sync::Arc;

use crate::names::{ModuleId, PathId, PeerKey, Phase, Term, Version};
use crate::protocol::action::Action;
use crate::protocol::journal::record::{Finished, Record};
use crate::protocol::module::chain::Chain;
use crate::protocol::module::history::History;
use crate::protocol::path::contributions::Reproposed;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;
use crate::protocol::wire::message::{Message, SignedUpdate, Stage};
use crate::protocol::{Held, Node, Replica, RunPlan};

impl Node {
    /// Restores a node from the records of its journal. Follow with `Event::Join` or, for the creator of a run whose
    /// node [is blank](Self::is_blank), with `Event::Create`.
    pub fn restore(me: PeerKey, plan: impl Into<Arc<RunPlan>>, records: Vec<Record>) -> Self {
        let mut node = Self::new(me, plan);
        for record in records {
            node.take_in(record);
        }
        node.restore_terms();
        let modules = &node.modules;
        node.contributions.take_sealed(|signed| {
            let chain = modules.get(&signed.update.module).and_then(|state| state.history.chain());
            !chain.is_some_and(|chain| chain.fits(&signed.update))
        });
        node.release_contributions();
        node.restore_worker_slots();
        // The actions of that time were carried out. When the store is opened, unreferenced blobs are found there.
        node.out.clear();
        node.blobs.release_nothing();
        let started = Record::Started(node.membership.start_again());
        node.act(Action::Persist(started));
        node
    }

    /// Whether nothing has begun here yet. A creator of a run that was killed while it created the run starts again.
    pub fn is_blank(&self) -> bool {
        let at_genesis = |state: &Replica| state.head().is_none_or(|head| head.version.0 == 0);
        self.paths.held().is_empty() && self.contributions.is_empty() && self.modules.values().all(at_genesis)
    }

    fn take_in(&mut self, record: Record) {
        match record {
            Record::Started(times) => self.membership.has_started(times),
            Record::Term { module, term, owner } => {
                let me = self.me;
                let state = self.modules.entry(module).or_default();
                if term >= state.leadership.term() {
                    state.restore_owner(term, owner, me);
                }
            }
            Record::Sealed(signed) => self.contributions.restore_sealed(signed),
            Record::Genesis { module, state: blob } => {
                let state = self.modules.entry(module).or_default();
                if state.history.chain().is_none() {
                    state.history = History::at_genesis(blob);
                }
            }
            Record::Head(signed) => self.restore_head(signed),
            Record::Installed { updates, replays_from } => self.restore_chain(updates, replays_from),
            Record::Left(module) => {
                let left = self.modules.remove(&module);
                left.into_iter().for_each(|state| self.membership.leaves(module, state.leadership.term()));
                self.replicas.release(module);
            }
            Record::Replica(module) => {
                self.modules.entry(module).or_default();
                self.replicas.hold(module, None);
            }
            Record::Lease { path, held, standby } => self.restore_lease(path, held, standby),
            Record::Finished(finished) => self.restore_finished(finished),
            Record::Trainer { path, trainer } => {
                self.paths.set_trainer(path, trainer);
            }
            Record::Reproposed { module, parent_update, counted } => {
                self.contributions.restore_reproposed(Reproposed { module, parent_update, counted });
            }
            Record::Checkpoint(checkpoint) => self.restore_checkpoint(checkpoint),
            Record::Invalidated { module, update, owner } => {
                self.reputation.audits_mut().invalidate(self.now, module, (update, owner));
                self.reputation.penalize(self.now, owner, Fault::WrongUpdate, None);
                self.restore_before(module, update);
            }
            Record::Abandoned(path) => {
                self.paths.remove_checkpoint(path);
            }
        }
    }

    fn restore_checkpoint(&mut self, checkpoint: InnerCheckpoint) {
        if self.paths.holds(checkpoint.path) {
            self.paths.set_checkpoint(checkpoint);
        }
    }

    /// A crash may have come between the record of a head and that of its term.
    fn restore_terms(&mut self) {
        let me = self.me;
        for state in self.modules.values_mut() {
            let signer = state.history.chain().and_then(Chain::signer);
            if let Some((term, owner)) = signer.filter(|(term, _)| *term > state.leadership.term()) {
                state.restore_owner(term, owner, me);
            }
        }
    }

    fn restore_head(&mut self, signed: SignedUpdate) {
        let module = signed.update.module;
        let fits = |state: &Replica| state.history.chain().is_some_and(|chain| chain.fits(&signed.update));
        if self.modules.get(&module).is_some_and(fits) {
            self.put_head(module, signed);
        }
    }

    fn restore_chain(&mut self, updates: Vec<SignedUpdate>, replays_from: Version) {
        let Some(module) = updates.first().map(|signed| signed.update.module) else { return };
        let Some(chain) = Chain::of(updates) else { return };
        let state = self.modules.entry(module).or_default();
        // A node that was outvoted has taken a lighter chain.
        if !state.history.contains(chain.head().update) {
            state.history.switch(chain.replaying_from(replays_from), self.plan.genesis.get(&module).copied());
        }
    }

    fn restore_lease(&mut self, path: PathId, held: bool, standby: bool) {
        if !held {
            self.paths.give_up(path);
            self.paths.remove_trainer(path);
            self.paths.remove_checkpoint(path);
            self.release_base_states(path);
            return;
        }
        let stage = if standby { Stage::Standby } else { Stage::Joining };
        self.paths.take(path, Held::new(stage, Phase(0)));
    }

    fn restore_finished(&mut self, mut finished: Finished) {
        self.paths.remove_checkpoint(finished.path);
        if self.contributions.contains(&finished) {
            return;
        }
        self.release_base_states(finished.path);
        // The trainer's state is kept only with the path.
        if self.paths.holds(finished.path) {
            self.paths.set_trainer(finished.path, finished.trainer);
        } else {
            finished.base_states.clear();
        }
        self.contributions.add(finished);
    }

    /// The others still accept this node as the owner, so it continues as one.
    pub(in crate::protocol) fn resume_ownership(&mut self, module: ModuleId, term: Term) {
        let me = self.me;
        self.adopt_owner(module, term, me);
        self.send_heartbeat(module);
        self.open_collection(module, self.membership.response_times().settle_ms());
        self.say_sealed_again(module);
    }

    /// Publishes an update again that this owner signed before a restart. It may already be published, so no other may
    /// take its place.
    fn say_sealed_again(&mut self, module: ModuleId) {
        let sealed = self.contributions.take_sealed(|signed| signed.update.module == module);
        let Some(state) = self.modules.get(&module) else { return };
        let stands = |signed: &SignedUpdate| {
            let fits = state.history.chain().is_some_and(|chain| chain.fits(&signed.update));
            let read = signed.update.contributions.unread().is_none();
            fits && read && state.leadership.term() == signed.update.term
        };
        let (again, gone): (Vec<SignedUpdate>, Vec<SignedUpdate>) = sealed.into_iter().partition(stands);
        let term = state.leadership.term();
        let signed_another = gone.iter().any(|signed| signed.update.term == term);
        gone.iter().for_each(|signed| self.release_made(signed));
        let Some(signed) = again.into_iter().next() else {
            if signed_another {
                self.take_ownership(module);
            }
            return;
        };
        let Some(state) = self.modules.get_mut(&module) else { return };
        if let Some(collection) = state.aggregation.collection_mut() {
            collection.close();
        }
        self.act(Action::Publish { module, message: Message::Update(signed.clone()) });
        self.take_next(module, signed.clone(), true);
        let next = self.modules.get(&module).and_then(|state| state.applying.next());
        if next != Some(&signed) {
            // It may be published, so no other is signed in its term.
            self.release_made(&signed);
            self.take_ownership(module);
        }
    }

    /// Releases updates that this node signed in a term that it no longer owns.
    pub(in crate::protocol) fn release_sealed(&mut self, module: ModuleId) {
        let owned = self
            .modules
            .get(&module)
            .filter(|state| state.leadership.is_owner(self.me))
            .map(|state| state.leadership.term());
        let ended = |signed: &SignedUpdate| signed.update.module == module && owned != Some(signed.update.term);
        let released = self.contributions.take_sealed(ended);
        released.iter().for_each(|signed| self.release_made(signed));
    }

    /// The records that describe the current node, for a compacted journal.
    pub fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::Started(self.membership.start().incarnation)];
        for (module, term) in self.membership.left() {
            records.extend([Record::Term { module, term, owner: self.me }, Record::Left(module)]);
        }
        for (module, state) in &self.modules {
            if let Some(chain) = state.history.chain() {
                records.push(chain.record(*module));
            }
            if state.leadership.term() > Term(0) {
                let owner = state.leadership.owner().unwrap_or(self.me);
                records.push(Record::Term { module: *module, term: state.leadership.term(), owner });
            }
        }
        let next = self.modules.values().filter_map(|state| state.applying.next());
        let sealed = next.filter(|signed| signed.update.owner == self.me);
        records.extend(sealed.cloned().map(Record::Sealed));
        records.extend(self.contributions.sealed().cloned().map(Record::Sealed));
        // Before the leases: the trainer of a path must not be that of a phase before the path was given up.
        records.extend(self.contributions.finished_records());
        records.extend(self.contributions.reproposed_records());
        records.extend(self.paths.held().iter().map(|(path, held)| Record::Lease {
            path: *path,
            held: true,
            standby: held.stage() == Stage::Standby,
        }));
        records.extend(self.replicas.held().map(Record::Replica));
        records.extend(self.paths.trainers().map(|(path, trainer)| Record::Trainer { path, trainer }));
        records.extend(self.paths.checkpoints().cloned().map(Record::Checkpoint));
        records.extend(self.reputation.audits().records());
        records
    }
}

impl Replica {
    /// A module that this node owned may have another owner by now. The others say so, or confirm it.
    fn restore_owner(&mut self, term: Term, owner: PeerKey, me: PeerKey) {
        self.leadership.restore(term, (owner != me).then_some(owner));
    }
}
