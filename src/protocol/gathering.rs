//! The owner's part: from offers to a signed update.

use std::collections::BTreeMap;

use super::Node;
use super::action::Action;
use super::collect::{Collection, Entry, Progress};
use super::fetching::Purpose;
use super::limits::{MAX_OFFERS, VERSIONS_KEPT};
use super::message::{Message, Offer, SignedUpdate, Stage, Update};
use super::record::Record;
use super::timers::Timer;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Version};

impl Node {
    /// Begins to gather for the version after the head, unless the module is done.
    pub(super) fn open_collection(&mut self, module: ModuleId, settle_ms: u64) {
        let (now, phases) = (self.now, self.plan.phases);
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(head) = state.head() else { return };
        if let Some(closed) = state.collection.take()
            && closed.closing
        {
            state.durations.add(now.since(closed.opened));
        }
        self.timers.clear(Timer::Close(module));
        if head.version.0 >= phases {
            return;
        }
        let target = head.version.next();
        let deadline = state.durations.deadline_ms().map(|deadline_ms| now + deadline_ms);
        let settled = now + settle_ms;
        state.collection = Some(Collection::new(target, now, settled, deadline));
        self.timers.set(Timer::Close(module), settled);
        self.act(Action::OpenSum { module, target });
    }

    /// An offer, this node's own included.
    pub(super) fn heard_offer(&mut self, module: ModuleId, author: PeerKey, offer: Offer) {
        let level = usize::from(module.level);
        let through = offer.path.0 < self.plan.grid.path_count()
            && self.plan.grid.modules_of(offer.path).get(level) == Some(&module);
        if !through || offer.blob.bytes > self.plan.frame_bytes[level] {
            return;
        }
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(chain) = &state.chain else { return };
        let head = chain.head().version;
        let too_old = head.0.saturating_sub(offer.parent.0) >= VERSIONS_KEPT;
        let counted = chain.has_counted(offer.path, offer.parent);
        // One from ahead is kept: this member is about to catch up.
        if too_old || counted || offer.parent.0 > head.0 + VERSIONS_KEPT || state.offers.len() >= MAX_OFFERS {
            return;
        }
        state.offers.entry((offer.path, offer.parent)).or_insert((offer, author));
    }

    /// Takes in hand what can be, and closes if it can.
    pub(super) fn gather(&mut self, module: ModuleId) {
        if !self.owns(module) {
            return;
        }
        self.begin_offers(module);
        let expected = self.expected(module);
        let now = self.now;
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(head) = state.head() else { return };
        let Some(collection) = state.collection.as_mut().filter(|collection| !collection.closing) else { return };
        if let Some(at) = [collection.settled].into_iter().chain(collection.deadline).find(|at| *at > now) {
            self.timers.set(Timer::Close(module), at);
        }
        if collection.state(now, &expected).is_err() {
            return;
        }
        collection.closing = true;
        let (target, contributions) = (collection.target, collection.contributions());
        self.act(Action::Combine { module, target, from: head.state, contributions });
    }

    /// Fetches every offer that may be counted in the open collection.
    fn begin_offers(&mut self, module: ModuleId) {
        let plan = &self.plan;
        let Some(state) = self.modules.get_mut(&module) else { return };
        let (Some(chain), Some(collection)) = (&state.chain, &mut state.collection) else { return };
        let mut begun = Vec::new();
        for ((path, parent), (offer, from)) in &state.offers {
            let fits = parent.0 < collection.target.0 && chain.knows_all_since(*parent);
            if !fits || !collection.wants(*path, *parent) {
                continue;
            }
            let weight = plan.weight(*path, collection.target.0 - 1 - parent.0);
            let entry = Entry { offer: offer.clone(), from: *from, weight, progress: Progress::Fetching };
            collection.begin(entry);
            begun.push((offer.blob, *from));
        }
        for (blob, from) in begun {
            self.fetch(blob, from, Purpose::Contribution(module));
        }
    }

    /// The paths through a module that somebody alive trains, and their weights.
    pub(super) fn expected(&self, module: ModuleId) -> BTreeMap<PathId, u32> {
        let mut paths: Vec<PathId> =
            self.held.iter().filter(|(_, held)| Self::trains(held.stage)).map(|(path, _)| *path).collect();
        for (_, member) in self.roster.living(self.now, module) {
            paths.extend(member.leases.iter().filter(|lease| Self::trains(lease.stage)).map(|lease| lease.path));
        }
        let level = usize::from(module.level);
        paths.retain(|path| path.0 < self.plan.grid.path_count() && self.plan.grid.modules_of(*path)[level] == module);
        paths.into_iter().map(|path| (path, self.plan.weight(path, 0))).collect()
    }

    pub(super) fn contribution_fetched(&mut self, module: ModuleId, blob: BlobHash, found: bool) {
        if !found {
            return self.drop_contribution(module, blob);
        }
        let Some(collection) = self.modules.get_mut(&module).and_then(|state| state.collection.as_mut()) else {
            return;
        };
        let target = collection.target;
        if collection.closing {
            return;
        }
        if let Some(entry) = collection.advance(blob, Progress::Fetching, Progress::Adding) {
            let weight = entry.weight;
            self.act(Action::Accumulate { module, target, blob, weight });
        }
    }

    pub(super) fn accumulated(&mut self, module: ModuleId, target: Version, blob: BlobHash, valid: bool) {
        let Some(collection) = self.modules.get_mut(&module).and_then(|state| state.collection.as_mut()) else {
            return;
        };
        if collection.target != target {
            return;
        }
        if valid {
            collection.advance(blob, Progress::Adding, Progress::Counted);
        } else {
            self.drop_contribution(module, blob);
        }
    }

    /// It can be offered again.
    fn drop_contribution(&mut self, module: ModuleId, blob: BlobHash) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        if let Some(collection) = &mut state.collection {
            collection.drop_blob(blob);
        }
        state.offers.retain(|_, (offer, _)| offer.blob.hash != blob);
    }

    pub(super) fn combined(&mut self, module: ModuleId, target: Version, average: BlobRef, made: BlobRef) {
        let me = self.me;
        let Some(state) = self.modules.get(&module).filter(|state| state.owner == Some(me)) else { return };
        let (Some(head), Some(collection)) = (state.head(), &state.collection) else { return };
        if !collection.closing || collection.target != target || head.version.next() != target {
            return;
        }
        let contributions = collection.contributions();
        let weight = head.weight + contributions.iter().map(|counted| u64::from(counted.weight)).sum::<u64>();
        let update = Update {
            module,
            term: state.term,
            owner: me,
            version: target,
            parent: head.update,
            contributions,
            average,
            state: made,
            weight,
        };
        self.act(Action::Seal(update));
    }

    /// It is remembered before it is said: a restart says the same again, never something else.
    pub(super) fn sealed(&mut self, signed: SignedUpdate) {
        let module = signed.update.module;
        if !self.owns(module) {
            return;
        }
        self.act(Action::Persist(Record::Sealed(signed.clone())));
        self.act(Action::Publish { module, message: Message::Update(signed.clone()) });
        self.take_next(module, signed);
    }

    /// What a holder of a path is to its owners: expected, or not.
    pub(super) fn set_stage(&mut self, path: PathId, stage: Stage) {
        if let Some(held) = self.held.get_mut(&path)
            && held.stage != stage
        {
            held.stage = stage;
            for module in self.plan.grid.modules_of(path) {
                self.beat_on(module);
            }
        }
    }
}
