//! From the journal back to a node: what a peer is after a kill, without asking anybody.

use std::collections::BTreeSet;

use super::action::Action;
use super::chain::Chain;
use super::limits::SETTLE_MS;
use super::message::{Message, SignedUpdate, Stage};
use super::record::Record;
use super::{Held, Module, Node, RunPlan};
use crate::clock::Millis;
use crate::names::{BlobHash, PeerKey, Term};

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
                (state.term, state.owner) = (term, Some(owner));
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

    /// After a restart: an update that this owner has signed is said again; what it owned, it goes on gathering for.
    pub(super) fn resume(&mut self) {
        let owned: Vec<_> = self.modules.keys().copied().filter(|module| self.owns(*module)).collect();
        for module in owned {
            self.open_collection(module, SETTLE_MS);
        }
        for signed in std::mem::take(&mut self.sealed_before) {
            let module = signed.update.module;
            let fits = |state: &Module| state.chain.as_ref().is_some_and(|chain| chain.fits(&signed.update));
            if self.owns(module) && self.modules.get(&module).is_some_and(fits) {
                if let Some(collection) = self.modules.get_mut(&module).and_then(|state| state.collection.as_mut()) {
                    collection.closing = true;
                }
                self.act(Action::Publish { module, message: Message::Update(signed.clone()) });
                self.take_next(module, signed);
            }
        }
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
            if let Some(owner) = state.owner {
                records.push(term_record(*module, state.term, owner));
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

fn term_record(module: crate::names::ModuleId, term: Term, owner: PeerKey) -> Record {
    Record::Term { module, term, owner }
}
