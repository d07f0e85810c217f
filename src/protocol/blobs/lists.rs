//! Messages and responses with updates whose lists of contributions have not been read. Each waits until its lists are
//! here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};
use crate::protocol::limits::MAX_UNREAD;
use crate::protocol::wire::contributions::Entries;
use crate::protocol::wire::message::{Message, Response, SignedUpdate};

/// What came from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum Unread {
    /// A message on a module's topic.
    Message(Message),
    /// The response to a request to catch up.
    Response(Response),
}

impl Unread {
    pub(in crate::protocol) fn updates(&self) -> &[SignedUpdate] {
        match self {
            Self::Message(message) => message.updates(),
            Self::Response(response) => response.updates(),
        }
    }

    fn updates_mut(&mut self) -> &mut [SignedUpdate] {
        match self {
            Self::Message(message) => message.updates_mut(),
            Self::Response(response) => response.updates_mut(),
        }
    }

    /// The lists that have not been read, each once.
    pub(in crate::protocol) fn missing(&self) -> BTreeSet<BlobRef> {
        self.updates().iter().filter_map(|signed| signed.update.contributions.unread()).collect()
    }

    /// Fills in a list that was read.
    pub(in crate::protocol) fn fill(&mut self, list: BlobRef, entries: &Arc<Entries>) {
        let named = |signed: &&mut SignedUpdate| signed.update.contributions.list() == Some(list);
        self.updates_mut().iter_mut().filter(named).for_each(|signed| signed.update.contributions.fill(entries));
    }
}

/// Something that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Waiting {
    pub(in crate::protocol) module: ModuleId,
    /// The peer that sent it.
    pub(in crate::protocol) from: PeerKey,
    pub(in crate::protocol) what: Unread,
}

impl Waiting {
    fn misses(&self, list: BlobHash) -> bool {
        self.what.missing().iter().any(|missing| missing.hash == list)
    }
}

/// Everything that waits for lists, the oldest first.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Lists {
    waiting: VecDeque<Waiting>,
    /// The lists that are here and being read.
    reading: BTreeMap<BlobHash, BlobRef>,
}

impl Lists {
    /// Something waits. It takes the place of what the same peer sent before in the same way. Of too many, the oldest
    /// goes, but one of the module's owner stays. Returns false if all of them are such.
    pub(in crate::protocol) fn wait(&mut self, waiting: Waiting, is_owner: impl Fn(ModuleId, PeerKey) -> bool) -> bool {
        let kind = std::mem::discriminant(&waiting.what);
        let same = |other: &Waiting| {
            (other.module, other.from) == (waiting.module, waiting.from) && std::mem::discriminant(&other.what) == kind
        };
        self.waiting.retain(|other| !same(other));
        if self.waiting.len() >= MAX_UNREAD {
            let Some(oldest) = self.waiting.iter().position(|other| !is_owner(other.module, other.from)) else {
                return false;
            };
            self.waiting.remove(oldest);
        }
        self.waiting.push_back(waiting);
        true
    }

    /// Whether an update of this module waits.
    pub(in crate::protocol) fn waits(&self, module: ModuleId) -> bool {
        self.waiting.iter().any(|waiting| waiting.module == module)
    }

    /// A list is in the store. Returns it if anything waits for it.
    pub(in crate::protocol) fn arrived(&mut self, list: BlobHash) -> Option<BlobRef> {
        let missing = self.waiting.iter().find_map(|waiting| {
            let missing = waiting.what.missing();
            missing.into_iter().find(|missing| missing.hash == list)
        })?;
        self.reading.insert(list, missing);
        Some(missing)
    }

    /// A list was read. Returns what now waits for no other.
    pub(in crate::protocol) fn read(&mut self, list: BlobHash, entries: &Arc<Entries>) -> Vec<Waiting> {
        let Some(list) = self.reading.remove(&list) else { return Vec::new() };
        self.waiting.iter_mut().for_each(|waiting| waiting.what.fill(list, entries));
        let (complete, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting| waiting.what.missing().is_empty());
        self.waiting = waiting;
        Vec::from(complete)
    }

    /// A list cannot be had, or is none. Returns what waited for it.
    pub(in crate::protocol) fn failed(&mut self, list: BlobHash) -> Vec<Waiting> {
        self.reading.remove(&list);
        let (gone, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|waiting| waiting.misses(list));
        self.waiting = waiting;
        Vec::from(gone)
    }

    /// The lists of everything that waits, some more than once.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let updates = self.waiting.iter().flat_map(|waiting| waiting.what.updates());
        let lists = updates.filter_map(|signed| signed.update.contributions.list());
        lists.map(|list| list.hash).chain(self.reading.keys().copied())
    }

    /// The number of things that wait.
    pub(in crate::protocol) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::limits::MAX_INLINE;
    use crate::protocol::module::chain::Chain;
    use crate::protocol::module::chain::made_up::next;

    const MODULE: ModuleId = ModuleId { level: 0, expert: 0 };
    const OWNER: PeerKey = PeerKey([1; 32]);

    fn unread(paths: usize) -> (SignedUpdate, SignedUpdate) {
        let mut signed = next(&Chain::genesis(BlobRef::of(b"genesis")), 0, 1);
        let one = signed.update.contributions[0];
        signed.update.contributions = vec![one; paths].into();
        let mut received = signed.clone();
        received.update.contributions.forget();
        (signed, received)
    }

    fn waiting(from: PeerKey, what: Unread) -> Waiting {
        Waiting { module: MODULE, from, what }
    }

    #[test]
    fn a_response_waits_for_all_of_its_lists() {
        let [(first, one), (second, two)] = [unread(MAX_INLINE + 1), unread(MAX_INLINE + 2)];
        let mut lists = Lists::default();
        assert!(
            lists.wait(waiting(OWNER, Unread::Response(Response::Replay(vec![one, two.clone()]))), |_, _| false)
                && lists.wait(waiting(OWNER, Unread::Message(Message::Update(two))), |_, _| false)
        );
        let read = |lists: &mut Lists, signed: &SignedUpdate| {
            let list = signed.update.contributions.list().unwrap();
            assert_eq!(lists.arrived(list.hash), Some(list));
            lists.read(list.hash, signed.update.contributions.entries().unwrap())
        };
        assert_eq!(read(&mut lists, &first), [], "it has read one of two");
        let complete = read(&mut lists, &second);
        assert_eq!(complete.iter().map(|it| it.what.missing().len()).collect::<Vec<_>>(), [0, 0]);
        assert_eq!((lists.waits(MODULE), lists.blobs().count()), (false, 0));
    }

    #[test]
    fn what_waits_is_bounded_and_the_owners_update_stays() {
        let (_, received) = unread(MAX_INLINE + 1);
        let list = received.update.contributions.list().unwrap().hash;
        let mut lists = Lists::default();
        for byte in 1..=2 * MAX_UNREAD as u8 {
            let what = Unread::Message(Message::Update(received.clone()));
            assert!(lists.wait(waiting(PeerKey([byte; 32]), what), |_, peer| peer == OWNER));
        }
        assert_eq!(lists.len(), MAX_UNREAD);
        let gone = lists.failed(list);
        assert!(gone.len() == MAX_UNREAD && gone.iter().any(|it| it.from == OWNER) && lists.len() == 0);
    }
}
