//! From the journal back to a node: what a peer is after a kill, without asking anybody.

use std::collections::BTreeSet;

use super::action::Action;
use super::chain::Chain;
use super::limits::SETTLE_MS;
use super::message::{Message, SignedUpdate, Stage};
use super::record::Record;
use super::{Held, Node, RunPlan};
use crate::clock::Millis;
use crate::names::{BlobHash, ModuleId, PeerKey, Term};

impl Node {
    /// A node as its journal's records left it. Follow with `Event::Join` or, for a journal without any record of
    /// the run, `Event::Found`.
    pub fn restore(me: PeerKey, plan: RunPlan, records: Vec<Record>) -> Self {
        let mut node = Self::new(me, plan);
        for record in records {
            node.take_in(record);
        }
        node.incarnation += 1;
        let started = Record::Started(node.incarnation);
        node.act(Action::Persist(started));
        node.release_finished();
        node
    }

    fn take_in(&mut self, record: Record) {
        match record {
            Record::Started(times) => self.incarnation = self.incarnation.max(times),
            Record::Term { module, term, owner } => {
                let state = self.modules.entry(module).or_default();
                // What it owned may have another owner by now: the others say so, or confirm it.
                (state.term, state.owner) = (term, (owner != self.me).then_some(owner));
            }
            Record::Sealed(signed) => self.sealed_before.push(signed),
            Record::Genesis { module, state: blob } => {
                let state = self.modules.entry(module).or_default();
                state.chain = Some(Chain::genesis(blob));
                state.states = [blob].into();
            }
            Record::Head(signed) => self.restore_head(signed),
            Record::Left(module) => {
                self.modules.remove(&module);
            }
            Record::Lease { path, held: true } => {
                self.held.insert(path, Held { stage: Stage::Joining, last_trained: Millis(0) });
                for module in self.plan.grid.modules_of(path) {
                    self.modules.entry(module).or_default();
                }
            }
            Record::Lease { path, held: false } => {
                self.held.remove(&path);
                self.trainers.remove(&path);
            }
            Record::Finished(finished) => {
                self.trainers.insert(finished.path, finished.trainer);
                self.finished.push_back(finished);
            }
        }
    }

    fn restore_head(&mut self, signed: SignedUpdate) {
        let module = signed.update.module;
        let state = self.modules.entry(module).or_default();
        if state.chain.as_ref().is_some_and(|chain| chain.fits(&signed.update)) {
            self.put_head(module, signed);
        } else {
            state.states = [signed.update.state].into();
            state.chain = Chain::ending_with(vec![signed]);
        }
        // Whatever had to be forgotten was, or is unreferenced now.
        self.actions.clear();
    }

    /// The others still take this node for the owner: it goes on as one.
    pub(super) fn resume_ownership(&mut self, module: ModuleId, term: Term) {
        let me = self.me;
        self.adopt_owner(module, term, me);
        self.beat_on(module);
        self.open_collection(module, SETTLE_MS);
        self.say_sealed_again(module);
    }

    /// An update that this node has signed before a restart may be out: it is said again, never another in its place.
    pub(super) fn say_sealed_again(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let sealed = self.sealed_before.extract_if(.., |signed| signed.update.module == module);
        let sealed: Vec<SignedUpdate> = sealed.collect();
        let fits = |signed: &SignedUpdate| state.chain.as_ref().is_some_and(|chain| chain.fits(&signed.update));
        let Some(signed) = sealed.into_iter().find(fits) else { return };
        if let Some(collection) = &mut state.collection {
            collection.closing = true;
        }
        self.act(Action::Publish { module, message: Message::Update(signed.clone()) });
        self.take_next(module, signed);
    }

    /// The records that say what this node is now: what a journal can be rewritten to.
    pub fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::Started(self.incarnation)];
        for (module, state) in &self.modules {
            if let Some(chain) = &state.chain {
                let updates: Vec<SignedUpdate> = chain.recent().cloned().collect();
                if updates.is_empty() {
                    records.push(Record::Genesis { module: *module, state: chain.head().state });
                }
                records.extend(updates.into_iter().map(Record::Head));
            }
            if state.term > Term(0) {
                let owner = state.owner.unwrap_or(self.me);
                records.push(Record::Term { module: *module, term: state.term, owner });
            }
            if let Some(next) = state.next.as_ref().filter(|next| next.signed.update.owner == self.me) {
                records.push(Record::Sealed(next.signed.clone()));
            }
        }
        records.extend(self.held.keys().map(|path| Record::Lease { path: *path, held: true }));
        records.extend(self.finished.iter().cloned().map(Record::Finished));
        records
    }

    /// The blobs that this node may still need or be asked for; all others can be removed.
    pub fn referenced_blobs(&self) -> BTreeSet<BlobHash> {
        let mut blobs = BTreeSet::new();
        for state in self.modules.values() {
            blobs.extend(state.states.iter().map(|blob| blob.hash));
            let updates = state.chain.iter().flat_map(Chain::recent).chain(state.next.iter().map(|next| &next.signed));
            for signed in updates {
                blobs.insert(signed.update.average.hash);
                blobs.extend(signed.update.contributions.iter().map(|counted| counted.blob));
            }
        }
        blobs.extend(self.sealed_before.iter().map(|signed| signed.update.average.hash));
        blobs.extend(self.finished.iter().flat_map(|finished| &finished.offers).map(|(_, blob)| blob.hash));
        blobs.extend(self.trainers.values().map(|blob| blob.hash));
        blobs
    }
}
