//! Updates with many contributions: their lists are fetched and read before anything else looks at the updates.

use std::sync::Arc;

use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};
use crate::protocol::Node;
use crate::protocol::action::{Action, Outer};
use crate::protocol::blobs::{Purpose, Unread, Waiting};
use crate::protocol::limits::MAX_LIST_BYTES;
use crate::protocol::module::chain::Chain;
use crate::protocol::wire::contributions::Entries;
use crate::protocol::wire::message::{Counted, Message, Response, SignedUpdate};

impl Node {
    /// Fills in the lists of contributions that are known here. Returns what came if none is missing. Otherwise it waits for
    /// them, if it may be of use.
    pub(in crate::protocol) fn with_lists(
        &mut self,
        module: ModuleId,
        from: PeerKey,
        mut what: Unread,
    ) -> Option<Unread> {
        for list in what.missing() {
            if let Some(entries) = self.known_list(module, list) {
                what.fill(list, &entries);
            }
        }
        let missing = what.missing();
        if missing.is_empty() {
            return Some(what);
        }
        let too_long = missing.iter().any(|list| list.bytes > MAX_LIST_BYTES as u64);
        if too_long || !self.may_be_of_use(module, &what) {
            self.gives_up_on(Waiting { module, from, what });
            return None;
        }
        let owners: Vec<PeerKey> = what.updates().iter().map(|signed| signed.update.owner).collect();
        let Self { blobs, modules, .. } = self;
        let is_owner = |module, peer| modules.get(&module).is_some_and(|state| state.leadership.is_owner(peer));
        if !blobs.lists_mut().wait(Waiting { module, from, what }, is_owner) {
            return None;
        }
        // Whoever has applied an update has its list.
        let ahead = self.membership.roster().heads(self.now, module).map(|(peer, _)| peer).collect();
        let mut holders = vec![from];
        for peer in owners.into_iter().chain(self.after_me(ahead)) {
            holders.extend((peer != self.me && !holders.contains(&peer)).then_some(peer));
        }
        for list in missing {
            self.fetch_from(list, &holders, Purpose::List(module));
        }
        None
    }

    /// Whether an update on a topic can be next, or be wrong, before its contributions are known.
    fn may_be_of_use(&self, module: ModuleId, what: &Unread) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let Unread::Message(Message::Update(SignedUpdate { update, .. })) = what else { return true };
        let fits = state.history.chain().is_some_and(|chain| chain.fits(update));
        let is_next = || state.applying.next().is_some_and(|next| next.update == *update);
        fits && self.is_believed(update.owner) && update.term >= state.leadership.term() && !is_next()
    }

    /// A list that this node has read.
    fn known_list(&self, module: ModuleId, list: BlobRef) -> Option<Arc<Entries>> {
        let state = self.modules.get(&module)?;
        let chains = state.history.chain().into_iter().chain(state.catch_up.installing());
        let mut updates = chains.flat_map(Chain::recent).chain(state.applying.next());
        let known = updates.find(|signed| signed.update.contributions.list() == Some(list))?;
        known.update.contributions.entries().cloned()
    }

    pub(in crate::protocol) fn list_fetched(&mut self, module: ModuleId, list: BlobHash, found: bool) {
        if !found {
            return self.list_failed(list);
        }
        if let Some(list) = self.blobs.lists_mut().arrived(list) {
            self.act(Action::Outer(Outer::ReadList { module, list }));
        }
    }

    /// A worker has read a list, or found that it is none.
    pub(in crate::protocol) fn list_read(&mut self, list: BlobHash, contributions: Option<Vec<Counted>>) {
        let Some(contributions) = contributions else { return self.list_failed(list) };
        for Waiting { module, from, what } in self.blobs.lists_mut().read(list, &Entries::of(contributions)) {
            match what {
                Unread::Message(message) => {
                    self.heard(module, from, &message);
                }
                Unread::Response(Response::Replay(mut updates)) => {
                    // Some of them may have come meanwhile.
                    let chain = self.modules.get(&module).and_then(|state| state.history.chain());
                    updates.retain(|signed| !chain.is_some_and(|chain| chain.has(signed)));
                    if !updates.is_empty() {
                        self.caught_up(module, from, Response::Replay(updates));
                    }
                }
                Unread::Response(response) => self.caught_up(module, from, response),
            }
        }
        self.release(list);
    }

    fn list_failed(&mut self, list: BlobHash) {
        for waiting in self.blobs.lists_mut().failed(list) {
            self.gives_up_on(waiting);
        }
        self.release(list);
    }

    /// An update cannot be read. Its owner steps down, as where its average cannot be fetched.
    fn gives_up_on(&mut self, Waiting { module, from, what }: Waiting) {
        let works = self.reputation.own_link_works(self.now);
        let Some(state) = self.modules.get_mut(&module) else { return };
        match what {
            Unread::Response(_) => state.catch_up.shows_nothing(from),
            Unread::Message(Message::Update(signed)) if works && state.leadership.has_signed(&signed.update) => {
                self.force_step_down(module, "the list of its contributions cannot be fetched".to_owned());
            }
            Unread::Message(_) => {}
        }
    }

    /// Modules in whose chains a list of contributions is missing, since the disk has lost it.
    pub fn modules_without_lists(&self) -> Vec<ModuleId> {
        let is_unread = |signed: &SignedUpdate| signed.update.contributions.unread().is_some();
        self.chains().filter(|(_, chain)| chain.recent().any(is_unread)).map(|(module, _)| module).collect()
    }

    /// A response to a request to catch up, all of whose lists have been read.
    pub(in crate::protocol) fn caught_up(&mut self, module: ModuleId, donor: PeerKey, response: Response) {
        let understood = match response {
            Response::Replay(updates) => self.replay(module, donor, updates),
            Response::Snapshot(updates) => self.install(module, donor, updates),
            _ => false,
        };
        if let Some(state) = self.modules.get_mut(&module).filter(|_| !understood) {
            state.catch_up.shows_nothing(donor);
        }
    }
}
