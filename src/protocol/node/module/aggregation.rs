//! The owner's work, from offers to a signed update.

use std::collections::BTreeMap;

use crate::config::OuterMode;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, Version};
use crate::protocol::action::{Action, Outer};
use crate::protocol::blobs::Purpose;
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{LOST_MS, MAX_OFFERS_OF_ONE, MAX_RIVALS};
use crate::protocol::module::collection::{Collection, Entry, Progress};
use crate::protocol::module::offers::countable;
use crate::protocol::node::path::placement::turns;
use crate::protocol::reputation::score::Fault;
use crate::protocol::timers::Timer;
use crate::protocol::wire::contributions::Contributions;
use crate::protocol::wire::message::{Lease, Message, Offer, SignedUpdate, Stage, Update};
use crate::protocol::{Node, Replica, phase_from};

/// How many different contributions of a path to one version are taken in. One place is for whoever holds the path.
fn most_rivals(holds: bool) -> usize {
    if holds { MAX_RIVALS } else { MAX_RIVALS - 1 }
}

/// An offer that can be fetched for a collection.
struct WaitingOffer {
    offer: Offer,
    from: PeerKey,
    /// Whether its author holds the path.
    holds: bool,
    /// Whether the collection waits for it.
    awaited: bool,
}

impl Node {
    /// Opens a collection for the version after the head, unless the module is done.
    pub(in crate::protocol) fn open_collection(&mut self, module: ModuleId, settle_ms: u64) {
        let now = self.now;
        self.drop_collection(module);
        let settled = now + settle_ms.max(self.pause_ms(module));
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(head) = state.head().filter(|head| !self.plan.is_done(module, *head)) else { return };
        let target = head.version.next();
        let deadline = match self.plan.mode {
            OuterMode::Synchronous if self.plan.deterministic => None,
            OuterMode::Synchronous => state.aggregation.deadline_ms().map(|deadline_ms| now + deadline_ms),
            OuterMode::Asynchronous => Some(settled),
        };
        let running = state.history.running_norm();
        let collection = Collection::new(target, now, settled, deadline);
        state.aggregation.open(collection.of_phase_since(state.history.phase_began()));
        self.out.set_timer(Timer::Close(module), settled);
        self.act(Action::Outer(Outer::OpenSum { module, target, running }));
    }

    /// Drops the collection. Blobs that were fetched for it and are not counted can be fetched again.
    pub(in crate::protocol) fn drop_collection(&mut self, module: ModuleId) {
        self.out.clear_timer(Timer::Close(module));
        let now = self.now;
        let Some(state) = self.modules.get_mut(&module) else { return };
        for blob in state.aggregation.drop_collection(now) {
            self.release(blob);
        }
    }

    /// Opens a new collection in place of one that closed without an average.
    pub(in crate::protocol) fn reopen(&mut self, module: ModuleId) {
        let led_to_nothing = |state: &Replica| state.aggregation.led_to_nothing();
        if self.owns(module) && self.modules.get(&module).is_some_and(led_to_nothing) {
            self.open_collection(module, 0);
        }
    }

    /// Handles an offer, including this node's own.
    pub(in crate::protocol) fn heard_offer(&mut self, module: ModuleId, author: PeerKey, offer: Offer) {
        let ours = offer.router == self.plan.router_at(offer.parent)
            && self.plan.contributes(offer.path, offer.parent, module)
            && self.plan.can_make(offer.steps);
        if !ours || offer.blob.bytes > self.plan.offer_bytes(module) {
            return;
        }
        let key = offer.key();
        if self.reputation.scores().is_quarantined(self.now, author) {
            return;
        }
        if self.reputation.audits().is_broken(offer.blob.hash) {
            return self.penalize(author, Fault::Broken, Some(key));
        }
        if let Some((fault, first)) = self.seen_before(module, author, &offer) {
            self.penalize_copier(author, fault, (key, first));
            return;
        }
        self.reputation.contributes(module, offer.path, author);
        let holds = self.may_offer(author, offer.path);
        let most = self.plan.most_offers(module);
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(chain) = state.history.chain() else { return };
        let head = chain.head().version;
        // An offer for a later version is kept, because this member is about to catch up.
        let counted = || chain.has_counted(key) || state.offers.is_counted_from(offer.start());
        if !countable(head, offer.parent) || counted() {
            return;
        }
        if let Some((known, first)) = state.offers.get(&key).map(|(known, first)| (known.steps, *first)) {
            self.blobs.another_holder(offer.blob, author);
            // Whoever holds the path knows how many steps it has made.
            if holds && known != offer.steps && !self.may_offer(first, offer.path) {
                self.replace_offer(module, offer, author);
            }
            return;
        }
        let rivals = state.offers.times(offer.path, offer.parent) + chain.times_counted(offer.path, offer.parent);
        let of_author = state.offers.times_by(author, offer.path, offer.parent);
        if rivals < most_rivals(holds) && of_author < MAX_OFFERS_OF_ONE {
            state.offers.add(head, most, offer, author);
        } else {
            state.offers.note_beyond(head, most, key);
        }
    }

    /// Fetches the offers that can be counted, and closes the collection if it can.
    pub(in crate::protocol) fn gather(&mut self, module: ModuleId) {
        if !self.owns(module) {
            return;
        }
        self.begin_offers(module);
        let is_empty = |collection: &Collection| collection.blobs().next().is_none();
        let state = self.modules.get(&module);
        if state
            .and_then(|state| state.aggregation.collection())
            .is_none_or(|collection| collection.is_closing() || is_empty(collection))
        {
            return;
        }
        let now = self.now;
        // Of a thousand paths, looking who is missing takes longer than all else.
        if self.plan.has_many(module)
            && state
                .and_then(|state| state.aggregation.collection())
                .is_some_and(|collection| collection.is_adding(now))
        {
            return;
        }
        let expected = self.expected(module);
        let turns = self.turns(module);
        let lags = self.lags(module);
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(head) = state.head() else { return };
        let busy = lags || state.aggregation.is_combining() || state.applying.next().is_some();
        let Some(collection) = state.aggregation.collection_mut().filter(|collection| !collection.is_closing()) else {
            return;
        };
        if !self.plan.deterministic {
            collection.measure(now, &expected, turns);
        }
        let lost = self.plan.deterministic.then_some(collection.opened() + LOST_MS);
        let times = [Some(collection.settled()), collection.deadline(), lost];
        if let Some(at) = times.into_iter().flatten().find(|at| *at > now) {
            self.out.set_timer(Timer::Close(module), at);
        }
        if busy || collection.state(now, &expected).is_err() {
            return;
        }
        let Some(chain) = state.history.chain() else { return };
        let target = collection.target();
        let contributions = Contributions::from(self.plan.counted(module, chain, collection));
        let contributed = contributions.iter().map(|counted| counted.blob.hash);
        let reads = contributed.chain([head.state.hash]).collect();
        state.aggregation.combine(reads, contributions.list().map(|list| list.hash));
        let portion = self.plan.portion(module, &contributions);
        self.act(Action::Outer(Outer::Combine { module, target, from: head.state, contributions, portion }));
    }

    /// Fetches every offer that may be counted in the open collection: those that are awaited first, then the oldest, so
    /// that none waits forever.
    fn begin_offers(&mut self, module: ModuleId) {
        let mut waiting = self.waiting_offers(module);
        if waiting.is_empty() {
            return;
        }
        waiting.sort_by_key(|it| (!it.awaited, it.offer.parent, it.offer.path));
        let expected = self.expected(module);
        let Some(state) = self.modules.get_mut(&module) else { return };
        let (Some(chain), Some(collection)) = (state.history.chain(), state.aggregation.collection_mut()) else {
            return;
        };
        let mut begun = Vec::new();
        for WaitingOffer { offer, from, holds, awaited } in waiting {
            if !collection.has_room() {
                break;
            }
            // Another chain may have counted other rivals than this one.
            let rivals = chain.times_counted(offer.path, offer.parent) + collection.times(offer.path, offer.parent);
            if !collection.wants(offer.key(), awaited) || rivals >= most_rivals(holds) {
                continue;
            }
            let weight = self.plan.likely_weight(module, chain, &offer, expected.keys());
            begun.push((offer.blob, from));
            collection.begin(Entry { offer, from, weight, awaited, norm: 0, progress: Progress::Fetching });
        }
        for (blob, from) in begun {
            self.fetch(blob, from, Purpose::Contribution(module));
        }
    }

    /// The offers that fit the open collection and are not in it.
    fn waiting_offers(&self, module: ModuleId) -> Vec<WaitingOffer> {
        let Some(state) = self.modules.get(&module) else { return Vec::new() };
        let (Some(chain), Some(collection)) = (state.history.chain(), state.aggregation.collection()) else {
            return Vec::new();
        };
        if !collection.has_room() {
            return Vec::new();
        }
        let fits = |offer: &Offer| {
            let known = offer.parent < collection.target() && chain.knows_all_since(offer.parent);
            let twice = || self.plan.counts_once() && collection.has_summed_another(offer);
            known && !collection.has(offer.key()) && !twice()
        };
        let waiting = |(offer, from): &(Offer, PeerKey)| {
            let holds = self.may_offer(*from, offer.path);
            let awaited = holds && !self.reputation.is_unfetchable(self.now, *from);
            WaitingOffer { offer: offer.clone(), from: *from, holds, awaited }
        };
        state.offers.all().filter(|(offer, _)| fits(offer)).map(waiting).collect()
    }

    /// The paths that a collection waits for, with their weights: those through the module that a living peer trains,
    /// and none in the asynchronous mode. A holder that skips the round is not waited for, nor one whose contribution
    /// to it was a fault.
    ///
    /// Nor is one that could not be fetched from, unless nothing else was fetched lately: then the connection of this node may
    /// be at fault.
    pub(in crate::protocol) fn expected(&self, module: ModuleId) -> BTreeMap<PathId, u32> {
        if self.plan.deterministic {
            return self.able_through(module);
        }
        let works = self.reputation.own_link_works(self.now);
        self.trained_through(module, |peer| !(works && self.reputation.is_unfetchable(self.now, peer)))
    }

    /// All paths through a module, with their weights, whether or not a living peer trains them. If a path's contribution was
    /// lost with its peer after its other module had counted it, nobody can make it again. It is left out once the others
    /// have waited for a while.
    fn able_through(&self, module: ModuleId) -> BTreeMap<PathId, u32> {
        let Some(head) = self.modules.get(&module).and_then(Replica::head) else { return BTreeMap::new() };
        let opened = self.modules.get(&module).and_then(|state| Some(state.aggregation.collection()?.opened()));
        let waited = opened.is_some_and(|opened| self.now.since(opened) >= LOST_MS);
        let skipped = |path: PathId| {
            let mut heard = self.membership.roster().holders(self.now, path);
            heard.any(|(_, _, lease)| lease.stage == Stage::Skipping)
                || self.paths.held().get(&path).is_some_and(|held| held.stage() == Stage::Skipping)
        };
        let mut paths = self.plan.slots.through(module, phase_from(head.version));
        paths.retain(|path| !(waited && skipped(*path)));
        self.plan.expected_weights((module, head.version), paths)
    }

    /// The paths through a module that these living peers train, with their weights; none in the asynchronous mode.
    pub(in crate::protocol) fn trained_through(
        &self,
        module: ModuleId,
        is_one: impl Fn(PeerKey) -> bool,
    ) -> BTreeMap<PathId, u32> {
        if self.plan.mode == OuterMode::Asynchronous {
            return BTreeMap::new();
        }
        let Some(head) = self.modules.get(&module).and_then(Replica::head) else {
            return BTreeMap::new();
        };
        // Where paths are sampled anew, those that have moved on do not return to this version.
        let is_past = |phase: Phase| self.plan.slots.are_drawn_anew() && phase > phase_from(head.version);
        let mine = self.paths.held().iter().filter(|(path, held)| {
            Self::is_waited_for(held.stage()) && !is_past(held.near()) && !self.is_not_contributing(**path, self.me)
        });
        let mut paths: Vec<PathId> = mine.map(|(path, _)| *path).collect();
        for (peer, member) in self.membership.roster().living(self.now, module).filter(|(peer, _)| is_one(*peer)) {
            let trains = |lease: &&Lease| {
                let fails = self.is_not_contributing(lease.path, peer)
                    || self.reputation.scores().has_failed(peer, lease.path, head.version);
                Self::is_waited_for(lease.stage) && !fails && !is_past(lease.phase)
            };
            paths.extend(member.leases.iter().filter(trains).map(|lease| lease.path));
        }
        paths.retain(|path| self.plan.slots.goes_through(*path, phase_from(head.version), module));
        self.plan.expected_weights((module, head.version), paths)
    }

    /// The most paths that one trainer of a living member trains in turn.
    pub(in crate::protocol) fn turns(&self, module: ModuleId) -> u64 {
        let others = self.membership.roster().living(self.now, module).map(|(_, member)| turns(&member.leases));
        others.chain([self.turns_here()]).max().unwrap_or(1) as u64
    }

    pub(in crate::protocol) fn contribution_fetched(&mut self, module: ModuleId, blob: BlobHash, found: bool) {
        if !found {
            self.note_not_fetched(module, blob);
            return self.drop_contribution(module, blob, Progress::Fetching);
        }
        let Some(collection) = self.modules.get_mut(&module).and_then(|state| state.aggregation.collection_mut())
        else {
            return;
        };
        collection.in_hand(blob, Progress::Fetching).for_each(|entry| self.reputation.fetched(self.now, entry.from));
        let dropped = self.plan.counts_once() && collection.drop_made_twice(blob);
        let target = collection.target();
        while !collection.is_closing()
            && let Some(entry) = collection.advance(blob, Progress::Fetching, Progress::Adding)
        {
            self.out.act(Action::Outer(Outer::Accumulate { module, target, blob, weight: entry.weight }));
        }
        if dropped {
            self.release(blob);
        }
    }

    pub(in crate::protocol) fn accumulated(
        &mut self,
        module: ModuleId,
        target: Version,
        blob: BlobHash,
        norm: Option<u16>,
    ) {
        let Some(collection) = self.modules.get_mut(&module).and_then(|state| state.aggregation.collection_mut())
        else {
            return;
        };
        if collection.target() != target {
            return;
        }
        match norm {
            Some(norm) => collection.count(self.now, blob, norm),
            None => {
                let broken = collection.in_hand(blob, Progress::Adding);
                let broken: Vec<_> = broken.map(|entry| (entry.from, entry.offer.clone())).collect();
                for (author, offer) in broken {
                    self.found_broken(module, author, &offer);
                }
                self.drop_contribution(module, blob, Progress::Adding);
            }
        }
    }

    /// The authors of a contribution that could not be fetched are not waited for any more.
    fn note_not_fetched(&mut self, module: ModuleId, blob: BlobHash) {
        let Some(state) = self.modules.get(&module) else { return };
        let entries = state.aggregation.collection().into_iter().flat_map(|it| it.in_hand(blob, Progress::Fetching));
        for author in entries.map(|entry| entry.from).filter(|author| *author != self.me) {
            self.reputation.not_fetched(self.now, author);
        }
    }

    /// Whether a path has offered something for a version: a peer that holds the path, that is.
    pub(in crate::protocol) fn is_offered(&self, state: &Replica, path: PathId, parent: Version) -> bool {
        state.offers.is_offered_by(path, parent, |author| self.may_offer(author, path))
    }

    fn replace_offer(&mut self, module: ModuleId, offer: Offer, author: PeerKey) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.offers.replace(offer, author);
    }

    /// Whether a peer's offers for a path are its own: it holds the path, or is this node. Of several worker slots of one
    /// path, a peer holds the first.
    pub(in crate::protocol) fn may_offer(&self, author: PeerKey, path: PathId) -> bool {
        let first = self.plan.slots.first_trainer(path);
        let same = |lease: &&Lease| lease.stage != Stage::Standby && self.plan.slots.first_trainer(lease.path) == first;
        let holds = |leases: &[Lease]| leases.iter().filter(same).map(|lease| lease.path).min() == Some(path);
        author == self.me || self.membership.roster().member(author).is_some_and(|member| holds(&member.leases))
    }

    /// Drops a contribution. It can be offered again.
    fn drop_contribution(&mut self, module: ModuleId, blob: BlobHash, progress: Progress) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        if let Some(collection) = state.aggregation.collection_mut() {
            collection.drop_blob(blob, progress);
        }
        state.offers.drop_blob(blob);
        self.release(blob);
    }

    pub(in crate::protocol) fn combined(&mut self, module: ModuleId, target: Version, average: BlobRef, made: BlobRef) {
        let owns = self.owns(module);
        let plan = self.plan.clone();
        let mut list = None;
        let update = self.modules.get_mut(&module).and_then(|state| {
            // No collection closes while an average is computed. If one is closing, this is its average.
            list = state.aggregation.combined()?;
            self.blobs.look_again();
            let (chain, collection) = (state.history.chain()?, state.aggregation.collection()?);
            let head = chain.head();
            if !owns || !collection.is_closing() || head.version.next() != target {
                return None;
            }
            let contributions = plan.counted(module, chain, collection);
            let norm = plan.running_norm(chain.running_norm(), module, &contributions);
            let weight = head.weight + contributions.iter().map(|counted| u64::from(counted.weight)).sum::<u64>();
            Some(Update {
                module,
                term: state.leadership.term(),
                owner: self.me,
                version: target,
                parent: head.update,
                contributions: contributions.into(),
                norm,
                average,
                state: made,
                weight,
            })
        });
        match update {
            Some(update) => self.act(Action::Seal(update)),
            None => [average.hash, made.hash].into_iter().chain(list).for_each(|blob| self.release(blob)),
        }
    }

    /// The signed update is persisted before it is published, so that a restart publishes the same update again, never
    /// another.
    pub(in crate::protocol) fn sealed(&mut self, signed: SignedUpdate) {
        let (module, update) = (signed.update.module, &signed.update);
        let stands = |state: &Replica| {
            let closing = state.aggregation.is_closing();
            let fits = state.history.chain().is_some_and(|chain| chain.fits(update));
            closing && fits && state.leadership.term() == update.term && state.applying.next().is_none()
        };
        if !self.owns(module) || !self.modules.get(&module).is_some_and(stands) {
            let list = update.contributions.list();
            let made = [update.average, update.state].into_iter().chain(list);
            made.for_each(|blob| self.release(blob.hash));
            return self.reopen(module);
        }
        self.act(Action::Persist(Record::Sealed(signed.clone())));
        self.act(Action::Publish { module, message: Message::Update(signed.clone()) });
        self.take_next(module, signed, false);
    }

    /// Sets the stage of a path. Its owners learn from it whether to expect a contribution.
    pub(in crate::protocol) fn set_stage(&mut self, path: PathId, stage: Stage) {
        if self.paths.set_stage(path, stage) {
            for module in self.modules_around(path) {
                self.send_heartbeat(module);
            }
        }
    }
}
