//! A newcomer's search for a path through the peers' directories, and nearby paths without a living holder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::clock::Millis;
use crate::names::{PathId, PeerKey, Phase};
use crate::protocol::event::{Contact, RequestId};
use crate::protocol::limits::{MAX_ASKED, MAX_DIRECTORY, RECONSIDER_FIRST_MS, RECONSIDER_MS};
use crate::protocol::status::waiting::Waiting;
use crate::protocol::wire::message::DirectoryEntry;

/// A node's search for paths.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Search {
    contacts: Vec<Contact>,
    to_ask: VecDeque<PeerKey>,
    asked: BTreeSet<PeerKey>,
    waiting: BTreeMap<RequestId, (PeerKey, Millis)>,
    directory: BTreeMap<PeerKey, DirectoryEntry>,
    active: bool,
    /// Paths through a local module without a living holder, and since when.
    unheld: BTreeMap<PathId, Millis>,
    /// Paths that this node has taken and yielded to a peer that it did not know of.
    lost: BTreeSet<PathId>,
    /// When a trainer next looks whether it is of more use to another path.
    reconsiders_at: Millis,
}

impl Search {
    /// Sets the peers known from outside.
    pub(in crate::protocol) fn set_contacts(&mut self, contacts: Vec<Contact>) {
        self.contacts = contacts;
    }

    /// Asks only the contacts, without a search for a path.
    pub(in crate::protocol) fn ask_contacts(&mut self) {
        self.to_ask = self.contacts.iter().map(|contact| contact.peer).collect();
    }

    /// Begins a search with the known peers, the contacts, and the peers that an earlier search found.
    pub(in crate::protocol) fn begin(&mut self, known: Vec<DirectoryEntry>) {
        self.active = true;
        self.asked.clear();
        let found_before = std::mem::take(&mut self.directory).into_keys();
        let contacts = self.contacts.iter().map(|contact| contact.peer);
        self.to_ask = known.iter().map(|entry| entry.peer).chain(contacts).chain(found_before).collect();
        self.directory = known.into_iter().map(|entry| (entry.peer, entry)).collect();
    }

    /// The next peer to ask. It counts as asked from now on.
    pub(in crate::protocol) fn next_to_ask(&mut self, me: PeerKey) -> Option<PeerKey> {
        while let Some(peer) = self.to_ask.pop_front() {
            if peer != me && self.asked.len() < MAX_ASKED && self.asked.insert(peer) {
                return Some(peer);
            }
        }
        None
    }

    pub(in crate::protocol) fn asked(&mut self, now: Millis, id: RequestId, peer: PeerKey) {
        self.waiting.insert(id, (peer, now));
    }

    /// Whether this request belongs to the search.
    pub(in crate::protocol) fn answered(&mut self, id: RequestId) -> bool {
        self.waiting.remove(&id).is_some()
    }

    /// Whether one more peer fits.
    pub(in crate::protocol) fn has_capacity(&self) -> bool {
        self.directory.len() < 4 * MAX_DIRECTORY
    }

    /// Adds a peer that another one named. It is asked too.
    pub(in crate::protocol) fn add(&mut self, entry: DirectoryEntry) {
        self.to_ask.push_back(entry.peer);
        self.directory.insert(entry.peer, entry);
    }

    /// Times out pending requests.
    pub(in crate::protocol) fn time_out(&mut self, now: Millis, timeout_ms: u64) {
        self.waiting.retain(|_, (_, asked_at)| now.since(*asked_at) < timeout_ms);
    }

    pub(in crate::protocol) fn is_active(&self) -> bool {
        self.active
    }

    /// Whether every request was answered or timed out.
    pub(in crate::protocol) fn is_answered(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Ends a search if every request was answered and a peer was found.
    pub(in crate::protocol) fn end(&mut self) -> bool {
        let ends = self.active && self.waiting.is_empty() && !self.directory.is_empty();
        self.active &= !ends;
        ends
    }

    /// The peers found, with their leases.
    pub(in crate::protocol) fn found(&self) -> impl ExactSizeIterator<Item = &DirectoryEntry> {
        self.directory.values()
    }

    /// What the search waits for.
    pub(in crate::protocol) fn waits(&self) -> Option<Waiting> {
        if !self.active {
            return None;
        }
        let asked = self.asked.len();
        if self.waiting.is_empty() && self.directory.is_empty() {
            return Some(Waiting::Nobody { asked });
        }
        let unanswered: Vec<PeerKey> = self.waiting.values().map(|(peer, _)| *peer).collect();
        Some(Waiting::Directory { unanswered, asked })
    }

    /// Forgets the paths that have a living holder again.
    pub(in crate::protocol) fn retain_unheld(&mut self, unheld: &BTreeMap<PathId, Phase>) {
        self.unheld.retain(|path, _| unheld.contains_key(path));
    }

    /// A path has no living holder. Returns since when.
    pub(in crate::protocol) fn note_unheld(&mut self, now: Millis, path: PathId) -> Millis {
        *self.unheld.entry(path).or_insert(now)
    }

    /// The path is taken here.
    pub(in crate::protocol) fn taken(&mut self, now: Millis, path: PathId) {
        self.unheld.remove(&path);
        self.reconsiders_at = now + RECONSIDER_FIRST_MS;
    }

    /// Whether it is time to look for a path to which this node is of more use.
    pub(in crate::protocol) fn is_to_reconsider(&self, now: Millis) -> bool {
        !self.active && now >= self.reconsiders_at
    }

    /// It is looked for now.
    pub(in crate::protocol) fn reconsiders(&mut self, now: Millis) {
        self.reconsiders_at = now + RECONSIDER_MS;
        self.lost.clear();
    }

    /// A path was yielded to another holder, which the directories need not name yet.
    pub(in crate::protocol) fn lost(&mut self, path: PathId) {
        if self.lost.len() < MAX_DIRECTORY {
            self.lost.insert(path);
        }
    }

    /// Whether this node has yielded the path to another holder.
    pub(in crate::protocol) fn has_lost(&self, path: PathId) -> bool {
        self.lost.contains(&path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: PeerKey = PeerKey([1; 32]);

    fn entry(peer: u8) -> DirectoryEntry {
        DirectoryEntry { peer: PeerKey([peer; 32]), addresses: Vec::new(), leases: Vec::new() }
    }

    #[test]
    fn every_other_peer_is_asked_once() {
        let mut search = Search::default();
        search.set_contacts(vec![Contact { peer: PeerKey([2; 32]), addresses: Vec::new() }]);
        search.begin(vec![entry(2), entry(3)]);
        search.add(entry(1));
        search.add(entry(4));
        let asked: Vec<PeerKey> = std::iter::from_fn(|| search.next_to_ask(ME)).collect();
        assert_eq!(asked, [2, 3, 4].map(|peer| PeerKey([peer; 32])));
    }

    #[test]
    fn a_search_ends_when_all_have_answered_and_a_peer_was_found() {
        let mut search = Search::default();
        search.begin(Vec::new());
        assert!(!search.end(), "no peer was found");
        assert_eq!(search.waits(), Some(Waiting::Nobody { asked: 0 }));
        search.asked(Millis(0), RequestId(1), PeerKey([2; 32]));
        search.add(entry(2));
        assert!(!search.end(), "one request is pending");
        search.time_out(Millis(100), 100);
        assert!(search.is_answered() && search.end() && !search.is_active());
    }
}
