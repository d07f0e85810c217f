//! Retention of blobs.
//!
//! A part that no longer needs a blob releases it here. The blob is removed once nothing else refers to it. Blobs are
//! named by their hash, so two uses may share one blob, and workers may still read what the protocol no longer needs.

use std::collections::BTreeSet;

use crate::names::{BlobHash, ModuleId, PathId, Version};
use crate::protocol::action::{Action, Report};
use crate::protocol::journal::record::Record;
use crate::protocol::module::chain::Chain;
use crate::protocol::module::offers::countable;
use crate::protocol::path::contributions::Reproposed;
use crate::protocol::wire::message::{ContributionKey, Counted, GENESIS, SignedUpdate};
use crate::protocol::{Node, Replica};

impl Node {
    /// One use of this blob has ended. It is removed when nothing else refers to it.
    pub(in crate::protocol) fn release(&mut self, blob: BlobHash) {
        self.blobs.release(blob);
    }

    /// An update is needed no more: its average, and the list of its contributions.
    pub(in crate::protocol) fn release_made(&mut self, signed: &SignedUpdate) {
        let list = signed.update.contributions.list();
        [signed.update.average].into_iter().chain(list).for_each(|blob| self.release(blob.hash));
    }

    /// Removes unreferenced blobs. Called after every event.
    pub(in crate::protocol) fn release_unreferenced(&mut self) {
        let mut releases = self.blobs.take_releases();
        let gone = releases.take_unreferenced(|visit| self.for_each_reference(&mut |blob| visit(blob)));
        self.blobs.put_back(releases);
        gone.into_iter().for_each(|blob| self.out.act(Action::Release(blob)));
    }

    /// The blobs that this node may still need or serve. All others can be removed.
    pub fn referenced_blobs(&self) -> BTreeSet<BlobHash> {
        let mut blobs = BTreeSet::new();
        self.for_each_reference(&mut |blob| {
            blobs.insert(blob);
        });
        blobs
    }

    fn for_each_reference(&self, mut visit: &mut impl FnMut(BlobHash)) {
        for state in self.modules.values() {
            state.for_each_reference(visit);
        }
        self.contributions.blobs().for_each(&mut visit);
        self.paths.trainers().map(|(_, blob)| blob.hash).for_each(&mut visit);
        let base_states = self.paths.held().keys().flat_map(|path| self.base_states(*path));
        base_states.map(|(_, state)| state.hash).for_each(&mut visit);
        self.evaluations.reads().for_each(&mut visit);
        self.paths.hand_offs().arrived().for_each(&mut visit);
        self.reputation.audits().blobs().for_each(&mut visit);
        self.paths.checkpoints().flat_map(crate::protocol::node::path::resume::blobs).for_each(&mut visit);
        self.trainers.training().flat_map(|training| &training.reads).copied().for_each(&mut visit);
        self.blobs.lists().blobs().for_each(&mut visit);
        self.lifecycle.amendments().blobs().for_each(&mut visit);
        // A requested blob may be in the store already, with its event on the way.
        self.blobs.being_fetched().for_each(visit);
    }

    /// Under disk pressure: the averages that are kept only for members that lag, oldest first. These members take
    /// whole states from now on.
    pub fn spare_averages(&mut self) -> Vec<BlobHash> {
        self.modules.values_mut().for_each(|state| state.history.replay_only_the_newest());
        let needed = self.referenced_blobs();
        let recent = self.modules.values().filter_map(|state| state.history.chain()).flat_map(Chain::recent);
        let averages = recent.map(|signed| signed.update.average.hash);
        averages.filter(|average| !needed.contains(average)).collect()
    }

    /// The chain of a module is replaced by another that has not counted all the same contributions. Re-proposes those
    /// that this node aggregated. Older ones are lost.
    pub(in crate::protocol) fn repropose(&mut self, module: ModuleId, given_up: &Chain) {
        let me = self.me;
        let Some(chain) = self.modules.get(&module).and_then(|state| state.history.chain()) else { return };
        let mine = given_up.entries().filter(|(hash, signed)| signed.update.owner == me && !chain.contains(*hash));
        let reproposed: Vec<Counted> = mine
            .flat_map(|(_, signed)| &signed.update.contributions)
            .filter(|counted| countable(given_up.head().version, counted.parent) && !chain.has_counted(counted.key()))
            .copied()
            .collect();
        for counted in reproposed {
            let parent_update = given_up.update_of(counted.parent).unwrap_or(GENESIS);
            if self.contributions.repropose(Reproposed { module, parent_update, counted }) {
                self.act(Action::Persist(Record::Reproposed { module, parent_update, counted }));
            }
        }
    }

    /// Releases contributions that are older than the versions kept. Until then they are kept, counted or not, because
    /// a merge may need them again.
    pub(in crate::protocol) fn release_contributions(&mut self) {
        let modules = &self.modules;
        let keeps = |module: ModuleId, parent: Version| {
            modules.get(&module).and_then(Replica::head).is_some_and(|head| countable(head.version, parent))
        };
        let released = self.contributions.retain(keeps);
        released.into_iter().for_each(|blob| self.release(blob));
    }

    /// Reports contributions that became too old when a module's head advanced and that are in no update. Each is
    /// reported once.
    pub(in crate::protocol) fn tell_lost(&mut self, module: ModuleId, before: Version) {
        let Some(head) = self.modules.get(&module).and_then(Replica::head) else { return };
        self.tell(module, |parent| countable(before, parent) && !countable(head.version, parent));
    }

    /// A module is left. Reports the contributions that it has not counted and never will.
    pub(in crate::protocol) fn tell_uncounted(&mut self, module: ModuleId) {
        self.tell(module, |_| true);
    }

    /// Reports a contribution that will never be counted.
    pub(in crate::protocol) fn tell_lost_one(&mut self, module: ModuleId, path: PathId, parent: Version) {
        let weight = self.plan.weight(path, (parent, module), 0);
        if let Some(state) = self.modules.get_mut(&module) {
            state.weight_lost = state.weight_lost.saturating_add(u64::from(weight));
        }
        self.act(Action::Report(Report::Lost { module, path, parent, weight }));
    }

    fn tell(&mut self, module: ModuleId, lost: impl Fn(Version) -> bool) {
        let of = |(of, contribution): (ModuleId, ContributionKey)| (of == module).then_some(contribution);
        let lost: BTreeSet<ContributionKey> =
            self.uncounted().filter_map(of).filter(|(_, parent, _)| lost(*parent)).collect();
        for (path, parent, _) in lost {
            self.tell_lost_one(module, path, parent);
        }
    }
}

impl Replica {
    /// Whether a blob is needed for the module's current work.
    pub(in crate::protocol::node) fn has_in_hand(&self, blob: BlobHash) -> bool {
        let next = self.applying.next().is_some_and(|next| next.update.average.hash == blob);
        next || self.aggregation.collected().any(|other| other == blob)
    }

    /// Every blob that is needed for this module, some more than once.
    pub(in crate::protocol::node) fn for_each_reference(&self, mut visit: &mut impl FnMut(BlobHash)) {
        self.history.states().map(|blob| blob.hash).for_each(&mut visit);
        let installing = self.catch_up.installing();
        installing.iter().map(|chain| chain.head().state.hash).for_each(&mut visit);
        for chain in self.history.chain().into_iter().chain(installing) {
            chain.replayed().map(|signed| signed.update.average.hash).for_each(&mut visit);
            let lists = chain.recent().filter_map(|signed| signed.update.contributions.list());
            lists.map(|list| list.hash).for_each(&mut visit);
            let counted = chain.recent().flat_map(|signed| &signed.update.contributions);
            counted.map(|counted| counted.blob.hash).for_each(&mut visit);
        }
        let doubted = self.doubt.held().and_then(|(signed, ..)| signed.update.contributions.list());
        doubted.into_iter().for_each(|list| visit(list.hash));
        self.applying.blobs().for_each(&mut visit);
        self.aggregation.blobs().for_each(visit);
    }
}
