//! Catch-up: a member replays the updates that it missed, or takes a whole state that the chain attests.

use std::collections::BTreeSet;

use crate::clock::Millis;
use crate::names::{BlobHash, ModuleId, PeerKey, Version};
use crate::protocol::action::{Action, Outer, Report};
use crate::protocol::blobs::{Purpose, Unread};
use crate::protocol::event::{ReplyToken, RequestId};
use crate::protocol::limits::{MAX_DIRECTORY, NO_MAJORITY_MS, VERSIONS_KEPT};
use crate::protocol::module::chain::{Chain, Since};
use crate::protocol::module::validate::check_chain;
use crate::protocol::wire::message::{DirectoryEntry, Head, Request, Response, SignedUpdate, UpdateHash};
use crate::protocol::{Node, Replica};

impl Node {
    pub(in crate::protocol) fn ask(&mut self, to: PeerKey, request: Request) -> RequestId {
        let id = self.out.next_request();
        self.membership.requested(self.now, id);
        self.act(Action::Ask { id, to, request });
        id
    }

    pub(in crate::protocol) fn asked(&mut self, from: PeerKey, token: ReplyToken, request: Request) {
        if let Request::Directory { start: Some(start) } = &request {
            let copy = self.membership.hear_start(self.now, from, start);
            copy.into_iter().for_each(|copy| self.notice_copy(from, copy));
        }
        let response = match request {
            Request::Path(path) => Response::Path(self.hand_off_path(from, path)),
            other => self.answer(&other),
        };
        self.act(Action::Reply { token, response });
    }

    /// The response from what this node knows. It changes no state, so it hands off no path.
    pub fn answer(&self, request: &Request) -> Response {
        match request {
            Request::Manifest => Response::Refused("the manifest is not mine to give".to_owned()),
            Request::Directory { .. } => Response::Directory(self.directory()),
            Request::CatchUp { module, from } => self.bring_up(*module, *from),
            Request::Path(_) => Response::Path(None),
            Request::Query(_) => Response::Refused("text is not mine to read".to_owned()),
            Request::Status => Response::Refused("the status is not mine to tell".to_owned()),
        }
    }

    fn directory(&self) -> Vec<DirectoryEntry> {
        let me =
            DirectoryEntry { peer: self.me, addresses: self.membership.addresses().to_vec(), leases: self.leases() };
        std::iter::once(me).chain(self.membership.roster().steadiest(self.now, MAX_DIRECTORY - 1)).collect()
    }

    fn bring_up(&self, module: ModuleId, from: Option<(Version, UpdateHash)>) -> Response {
        let Some(chain) = self.modules.get(&module).and_then(|state| state.history.chain()) else {
            return Response::Refused(format!("I do not hold module {module}"));
        };
        match from.map(|(version, update)| chain.since(version, update)) {
            Some(Since::Updates(updates)) => Response::Replay(updates),
            Some(Since::Unknown) | None => Response::Snapshot(chain.updates()),
        }
    }

    /// Sends a request to a member that is ahead, for every module that has been behind for a while.
    pub(in crate::protocol) fn close_gaps(&mut self) {
        let modules: Vec<ModuleId> = self.modules.keys().copied().collect();
        for module in modules {
            self.close_gap(module);
        }
    }

    fn close_gap(&mut self, module: ModuleId) {
        let now = self.now;
        let (request_ms, gap_ms) =
            (self.membership.response_times().request_ms(), self.membership.response_times().gap_ms());
        self.note_outvoted(module);
        let Some(state) = self.modules.get(&module) else { return };
        let mine = state.history.valid_head();
        let unread = self.blobs.lists().waits(module);
        let busy = unread
            || state.applying.next().is_some()
            || state.applying.is_replaying()
            || state.catch_up.installing().is_some();
        let donors = self.donors(module, mine);
        let Some(state) = self.modules.get_mut(&module) else { return };
        let catch_up = &mut state.catch_up;
        catch_up.time_out(now, request_ms);
        if donors.is_empty() {
            return catch_up.is_level();
        }
        let waited_ms = now.since(catch_up.is_behind(now));
        let timeout_ms = if mine.is_none() { 0 } else { gap_ms };
        if busy || catch_up.is_asking() || catch_up.pauses(now) || waited_ms < timeout_ms {
            return;
        }
        let Some(donor) = catch_up.donor(&donors) else { return };
        let whole = catch_up.needs_whole();
        let from = mine.filter(|_| !whole).map(|head| (head.version, head.update));
        let id = self.ask(donor, Request::CatchUp { module, from });
        if let Some(state) = self.modules.get_mut(&module) {
            state.catch_up.asked(now, id, donor);
        }
    }

    /// The members whose chain outweighs this node's, the best first; also those on other chains, if they are most of
    /// the members. For a module that is not here yet, also peers that a search found.
    fn donors(&self, module: ModuleId, mine: Option<Head>) -> Vec<PeerKey> {
        let state = self.modules.get(&module);
        let applying = state.map(|state| &state.applying);
        let outvoted = state.filter(|state| state.catch_up.outvoted_ms(self.now).is_some());
        let minority = outvoted.and_then(|state| state.history.chain());
        let outvoting: BTreeSet<PeerKey> = match minority {
            Some(chain) => self.attesters(module).filter(|it| it.contradicts(chain)).map(|it| it.peer).collect(),
            None => BTreeSet::new(),
        };
        let mut ahead: Vec<(PeerKey, Head)> = self
            .membership
            .roster()
            .heads(self.now, module)
            .filter(|(peer, head)| mine.is_none_or(|mine| head.outweighs(&mine)) || outvoting.contains(peer))
            .filter(|(_, head)| applying.is_none_or(|applying| !applying.has_refused(head.update)))
            .filter(|(peer, _)| !self.reputation.scores().is_quarantined(self.now, *peer))
            .collect();
        ahead.sort_by(|(_, a), (_, b)| b.weight.cmp(&a.weight).then(a.update.cmp(&b.update)));
        let mut donors: Vec<PeerKey> = ahead.into_iter().map(|(peer, _)| peer).collect();
        if mine.is_none() && donors.is_empty() {
            let through = |entry: &&DirectoryEntry| {
                entry.leases.iter().any(|lease| self.plan.needs(lease.path, lease.phase, module))
            };
            donors.extend(self.search.found().filter(through).map(|entry| entry.peer));
        }
        donors
    }

    pub(in crate::protocol) fn answered(&mut self, id: RequestId, response: Option<Response>) {
        let response = match response {
            response if self.hand_off_answered(id, &response) => return,
            response if self.probe_answered(id, response.is_some()) => return,
            Some(Response::Directory(entries)) => {
                self.directory_answered(id, Some(entries));
                return;
            }
            other => other,
        };
        if self.directory_answered(id, None) {
            return;
        }
        let asked = self.modules.iter_mut().find_map(|(module, state)| Some((*module, state.catch_up.take_asked(id)?)));
        let Some((module, donor)) = asked else { return };
        let Some(response) = response else {
            let state = self.modules.get_mut(&module);
            return state.into_iter().for_each(|state| state.catch_up.shows_nothing(donor));
        };
        if let Some(Unread::Response(response)) = self.with_lists(module, donor, Unread::Response(response)) {
            self.caught_up(module, donor, response);
        }
    }

    pub(in crate::protocol) fn replay(
        &mut self,
        module: ModuleId,
        donor: PeerKey,
        mut updates: Vec<SignedUpdate>,
    ) -> bool {
        if updates.is_empty() || updates.len() as u64 > VERSIONS_KEPT || self.has_invalidated(updates.iter()) {
            return false;
        }
        let longer = self.extended(module, &updates);
        let elsewhere = || Chain::of(updates.clone()).map(|it| it.base_and_indices().collect());
        let Some(shown) = longer.as_ref().map(|it| it.indices().collect()).or_else(elsewhere) else { return false };
        if let Some(state) = self.modules.get_mut(&module) {
            state.catch_up.note_shown(donor, shown);
        }
        let Some(longer) = longer else {
            self.report_unattested(module, donor);
            return true;
        };
        let attested = self.attested(module, &longer);
        if attested.is_none() {
            if let Some(next) = updates.first().filter(|_| self.counts_unheard(module, &longer)) {
                self.doubt(module, next, &longer);
            }
            self.report_unattested(module, donor);
            return true;
        }
        updates.retain(|signed| Some(signed.update.version) <= attested);
        let Some(state) = self.modules.get_mut(&module) else { return false };
        state.applying.replay(updates);
        self.replay_next(module);
        true
    }

    /// Continues with the missed updates. Terms are checked only for current updates, not for replayed ones.
    pub(in crate::protocol) fn replay_next(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        if state.applying.is_applying() {
            return;
        }
        let Some(chain) = state.history.chain() else { return };
        let known = chain.head().version;
        let Some(signed) = state.applying.next_to_replay(known) else { return };
        let fits = signed.update.module == module && chain.fits(&signed.update);
        if !fits || !self.take_next(module, signed, true) {
            self.abandon_next(module);
        }
    }

    /// Adopts a chain whose last update attests a whole state, and fetches that state.
    pub(in crate::protocol) fn install(
        &mut self,
        module: ModuleId,
        donor: PeerKey,
        updates: Vec<SignedUpdate>,
    ) -> bool {
        let Some(genesis) = self.plan.genesis.get(&module).copied() else { return false };
        let Some(state) = self.modules.get_mut(&module) else { return false };
        if updates.len() as u64 > VERSIONS_KEPT || updates.iter().any(|signed| signed.update.module != module) {
            return false;
        }
        let chain = if updates.is_empty() { Some(Chain::genesis(genesis)) } else { Chain::of(updates) };
        let Some(chain) = chain else { return false };
        let head = chain.head();
        state.catch_up.note_shown(donor, chain.indices().collect());
        if state.applying.has_refused(head.update) || self.has_invalidated(chain.recent()) {
            return false;
        }
        if !self.may_adopt(module, &chain) {
            self.report_unattested(module, donor);
            self.step_down_if_alone(module, donor, &chain);
            return true;
        }
        // The donor may know of an amendment of the run.
        if chain.recent().any(|signed| self.plan.is_after_the_end(&signed.update)) {
            return false;
        }
        if let Err(reason) = check_chain(&self.plan, Chain::genesis(genesis).head(), &chain) {
            self.act(Action::Report(Report::Refused { module, by: donor, reason }));
            return false;
        }
        if let Some(state) = self.modules.get_mut(&module) {
            state.catch_up.install(chain);
        }
        let there = self.membership.roster().heads(self.now, module).filter(|(_, theirs)| theirs.state == head.state);
        let there = there.map(|(peer, _)| peer).collect();
        let holders: Vec<PeerKey> = [donor].into_iter().chain(self.after_me(there)).collect();
        self.fetch_from(head.state, &holders, Purpose::State(module));
        true
    }

    /// An owner that is ahead on this node's own chain, and has not kept what others would need to follow it, has to step
    /// down after a while. The others continue from where they are, and it offers to them what they lack.
    fn step_down_if_alone(&mut self, module: ModuleId, donor: PeerKey, chain: &Chain) {
        let now = self.now;
        let owns = |state: &&mut Replica| state.leadership.is_owner(donor) && !state.leadership.has_stepped_down();
        let Some(state) = self.modules.get_mut(&module).filter(owns) else { return };
        let extends = state.history.valid_head().is_some_and(|mine| chain.update_of(mine.version) == Some(mine.update));
        if extends && !state.catch_up.needs_whole() && state.catch_up.leads_ms(now, donor) >= NO_MAJORITY_MS {
            self.force_step_down(module, "nobody can follow it: it has a state and not how that came about".to_owned());
        }
    }

    pub(in crate::protocol) fn state_fetched(&mut self, module: ModuleId, blob: BlobHash, found: bool) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(chain) = state.catch_up.installs(blob) else { return };
        if found {
            let state = chain.head().state;
            return self.act(Action::Outer(Outer::Decode { module, state }));
        }
        state.catch_up.take_installing(blob);
        state.catch_up.failed();
    }

    /// The state of a chain to install was checked. Only now is the chain adopted.
    pub(in crate::protocol) fn state_read(&mut self, module: ModuleId, blob: BlobHash, so: bool) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(chain) = state.catch_up.take_installing(blob) else { return };
        let head = chain.head();
        if !so {
            state.applying.refuse(head.update);
            state.catch_up.failed();
            self.blobs.look_again();
            let reason = format!("the state of version {} cannot be read", head.version);
            let by = chain.signer().map_or(self.me, |(_, owner)| owner);
            return self.act(Action::Report(Report::Refused { module, by, reason }));
        }
        let before = state.head();
        let lighter = !state.history.gives_way_to(&head);
        if lighter && state.catch_up.outvoted_ms(self.now).is_none() {
            return;
        }
        self.act(Action::Persist(chain.record(module)));
        let signer = chain.signer();
        let has_signed = self.switch_chain(module, chain);
        self.head_moved(module, true);
        if let Some((term, owner)) = signer {
            self.hear_later_term(module, term, owner);
        }
        if let Some(before) = before {
            let (from, to) = (before.version, head.version);
            self.act(Action::Report(Report::ChainSwitched { module, from, to }));
            self.tell_lost(module, from);
        }
        self.collect_anew(module, has_signed);
        // What the new chain has not counted is offered to it.
        self.contributions.offer_again();
        self.release_contributions();
    }

    /// Replaces the chain. The state of the new head is in the store. Kept states that the new chain has had stay,
    /// because its newest updates may be wrong. Returns whether this node has signed what it gives up, in its present term.
    pub(in crate::protocol) fn switch_chain(&mut self, module: ModuleId, chain: Chain) -> bool {
        self.drop_collection(module);
        self.abandon_next(module);
        let me = self.me;
        let Some(state) = self.modules.get_mut(&module) else { return false };
        let term = state.leadership.term();
        // Terms never fall along a chain, so what it has signed in its present term is newest.
        let has_signed = state.history.chain().and_then(Chain::signer) == Some((term, me));
        let (old_states, given_up) = state.history.switch(chain, self.plan.genesis.get(&module).copied());
        state.catch_up.switched();
        state.offers.clear_counted_from();
        state.history.chain().into_iter().for_each(|chain| state.offers.prune(chain));
        for old in old_states {
            self.release(old.hash);
        }
        let Some(given_up) = given_up else { return false };
        self.repropose(module, &given_up);
        for signed in given_up.recent() {
            self.release_made(signed);
            signed.update.contributions.iter().for_each(|counted| self.release(counted.blob.hash));
        }
        has_signed
    }

    /// Whether a better head has been known for so short a time that it may still be adopted.
    pub(in crate::protocol) fn lags(&self, module: ModuleId) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let young = |since: Millis| self.now.since(since) < self.membership.response_times().request_ms();
        let mine = state.history.valid_head();
        state.catch_up.behind_since().is_none_or(young) && !self.donors(module, mine).is_empty()
    }
}
