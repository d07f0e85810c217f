//! A module's chain of updates, as one member has applied it.

use std::collections::VecDeque;

use crate::names::{BlobRef, ModuleId, PathId, PeerKey, Term, Version};
use crate::protocol::journal::record::Record;
use crate::protocol::limits::VERSIONS_KEPT;
use crate::protocol::wire::encoding::update_hash;
use crate::protocol::wire::message::{ContributionKey, Counted, GENESIS, Head, SignedUpdate, Update, UpdateHash};

/// The head and the kept updates that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    head: Head,
    /// Oldest first, without gaps. The last one is the head, unless the chain is at genesis.
    recent: VecDeque<(UpdateHash, SignedUpdate)>,
    /// The version that precedes the oldest kept update, and the update that made it.
    base: ChainIndex,
    /// The averages after this version are here too. Everything before came as a whole state.
    replays_from: Version,
}

/// A version and the update that made it.
pub type ChainIndex = (Version, UpdateHash);

/// The updates after a chain index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// The updates that follow it.
    Updates(Vec<SignedUpdate>),
    /// The index is not in this chain, or too far back.
    Unknown,
}

impl Chain {
    /// The chain before the first update.
    pub fn genesis(state: BlobRef) -> Self {
        let head = Head { version: Version(0), update: GENESIS, state, weight: 0 };
        Self { head, recent: VecDeque::new(), base: (Version(0), GENESIS), replays_from: Version(0) }
    }

    /// A chain that ends with the last of these updates. Its state is here, but the averages that led to it are not.
    /// Nothing if there are no updates or they do not follow each other.
    pub fn of(updates: Vec<SignedUpdate>) -> Option<Self> {
        let mut updates = updates.into_iter();
        let first = updates.next()?;
        let base = Version(first.update.version.0.checked_sub(1)?);
        let mut chain = Self {
            head: head_of(&first.update)?,
            base: (base, first.update.parent),
            recent: VecDeque::new(),
            replays_from: base,
        };
        chain.recent.push_back((chain.head.update, first));
        for signed in updates {
            if !chain.fits(&signed.update) {
                return None;
            }
            chain.push(signed);
        }
        chain.replays_from = chain.head.version;
        Some(chain)
    }

    /// A copy of the kept updates, oldest first; none at genesis.
    pub fn updates(&self) -> Vec<SignedUpdate> {
        self.recent().cloned().collect()
    }

    /// The same chain, with the averages after this version available.
    pub fn replaying_from(mut self, version: Version) -> Self {
        self.replays_from = version;
        self
    }

    /// The version after which all averages are here.
    pub fn replays_from(&self) -> Version {
        self.replays_from
    }

    /// Notes that only the newest average is still here.
    pub fn replay_only_the_newest(&mut self) {
        self.replays_from = self.replays_from.max(Version(self.head.version.0.saturating_sub(1)));
    }

    /// The kept updates whose averages are here too, oldest first.
    pub fn replayed(&self) -> impl Iterator<Item = &SignedUpdate> {
        self.recent().filter(|signed| signed.update.version > self.replays_from)
    }

    /// The journal record of a module with this chain.
    pub fn record(&self, module: ModuleId) -> Record {
        match self.recent.is_empty() {
            true => Record::Genesis { module, state: self.head.state },
            false => Record::Installed { updates: self.updates(), replays_from: self.replays_from },
        }
    }

    /// The newest chain index.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The module's running norm at the head; 0 at genesis.
    pub fn running_norm(&self) -> u32 {
        self.recent.back().map_or(0, |(_, signed)| signed.update.norm)
    }

    /// Whether an update comes right after the head.
    pub fn fits(&self, update: &Update) -> bool {
        update.version.0.checked_sub(1) == Some(self.head.version.0) && update.parent == self.head.update
    }

    /// Appends an update that fits, as the head. Returns the oldest kept update if there are now too many.
    pub fn push(&mut self, signed: SignedUpdate) -> Option<SignedUpdate> {
        self.head = head_of(&signed.update)?;
        self.recent.push_back((self.head.update, signed));
        if self.recent.len() as u64 <= VERSIONS_KEPT {
            return None;
        }
        let (hash, oldest) = self.recent.pop_front()?;
        self.base = (oldest.update.version, hash);
        Some(oldest)
    }

    /// The kept updates, oldest first.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &SignedUpdate> {
        self.recent.iter().map(|(_, signed)| signed)
    }

    /// The signer of the head and its term; nothing at genesis.
    pub fn signer(&self) -> Option<(Term, PeerKey)> {
        self.recent.back().map(|(_, signed)| (signed.update.term, signed.update.owner))
    }

    /// The kept updates with their hashes, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = (UpdateHash, &SignedUpdate)> {
        self.recent.iter().map(|(hash, signed)| (*hash, signed))
    }

    /// The versions whose updates are kept, oldest first.
    pub fn indices(&self) -> impl Iterator<Item = ChainIndex> {
        self.entries().map(|(hash, signed)| (signed.update.version, hash))
    }

    /// The same, and the one before them.
    pub fn base_and_indices(&self) -> impl Iterator<Item = ChainIndex> {
        [self.base].into_iter().chain(self.indices())
    }

    /// The kept update that follows a head.
    pub fn next_after(&self, head: Head) -> Option<&SignedUpdate> {
        self.recent().find(|signed| signed.update.parent == head.update)
    }

    /// The updates after a chain index, if they can be replayed.
    pub fn since(&self, version: Version, update: UpdateHash) -> Since {
        if version < self.replays_from {
            return Since::Unknown;
        }
        if (version, update) == self.base {
            return Since::Updates(self.updates());
        }
        let place = self.recent.iter().position(|(hash, signed)| *hash == update && signed.update.version == version);
        match place {
            Some(place) => Since::Updates(self.recent().skip(place + 1).cloned().collect()),
            None => Since::Unknown,
        }
    }

    /// Whether every update after this version is kept. Only then is it certain which contributions were counted.
    pub fn knows_all_since(&self, version: Version) -> bool {
        self.base() <= version && version <= self.head.version
    }

    /// Whether a kept update counts exactly this contribution.
    pub fn has_counted(&self, contribution: ContributionKey) -> bool {
        let (_, parent, _) = contribution;
        self.has_counted_after(parent, contribution)
    }

    /// Whether an update after this version counts the contribution.
    pub fn has_counted_after(&self, version: Version, contribution: ContributionKey) -> bool {
        self.updates_after(version).any(|update| update.contributions.counts(contribution))
    }

    /// How many contributions of a path to one version the kept updates count.
    pub fn times_counted(&self, path: PathId, parent: Version) -> usize {
        let of_path = self.updates_after(parent).flat_map(|update| update.contributions.of_path(path));
        of_path.filter(|counted| counted.parent == parent).count()
    }

    /// The inner steps of these paths from one version that the kept updates count.
    pub fn steps_counted(&self, parent: Version, is_of: impl Fn(PathId) -> bool) -> u64 {
        let counted = self.counted_after(parent).filter(|counted| counted.parent == parent && is_of(counted.path));
        counted.map(|counted| u64::from(counted.steps)).sum()
    }

    /// The update that made a version, if it is kept or the base.
    pub fn update_of(&self, version: Version) -> Option<UpdateHash> {
        let Some(after) = version.0.checked_sub(self.base().0 + 1) else {
            return (version == self.base()).then_some(self.base.1);
        };
        self.recent.get(usize::try_from(after).ok()?).map(|(hash, _)| *hash)
    }

    /// The chain as it was before one of its updates; nothing if what precedes the update is no longer known.
    pub fn before(&self, update: UpdateHash, genesis: BlobRef) -> Option<Self> {
        let place = self.recent.iter().position(|(hash, _)| *hash == update)?;
        let recent: VecDeque<_> = self.recent.iter().take(place).cloned().collect();
        let head = match recent.back() {
            Some((_, signed)) => head_of(&signed.update)?,
            None if self.base() == Version(0) => Self::genesis(genesis).head,
            None => return None,
        };
        let replays_from = self.replays_from.min(head.version);
        Some(Self { head, recent, base: self.base, replays_from })
    }

    /// The state after an update, if that update is kept.
    pub fn state_at(&self, place: UpdateHash, genesis: BlobRef) -> Option<BlobRef> {
        let mut kept = self.recent.iter().filter(|(hash, _)| *hash == place);
        if place == GENESIS { Some(genesis) } else { kept.next().map(|(_, signed)| signed.update.state) }
    }

    /// Whether the chain had this state, as far as updates are kept.
    pub fn has_had(&self, state: BlobRef, genesis: BlobRef) -> bool {
        let from_genesis = self.base() == Version(0) && state == genesis;
        from_genesis || self.recent().any(|signed| signed.update.state == state)
    }

    /// Whether this signed update is among the kept ones.
    pub fn has(&self, signed: &SignedUpdate) -> bool {
        self.recent().any(|kept| kept == signed)
    }

    /// Whether this update is among the kept ones.
    pub fn contains(&self, update: UpdateHash) -> bool {
        self.recent.iter().any(|(hash, _)| *hash == update)
    }

    /// The version before the oldest kept update.
    pub fn base(&self) -> Version {
        self.base.0
    }

    /// How many versions late the contributions in the kept updates were: the mean and the maximum.
    pub fn staleness(&self) -> (f64, u64) {
        let late = |signed: &SignedUpdate| {
            let before = signed.update.version.0.saturating_sub(1);
            signed.update.contributions.iter().map(|counted| before.saturating_sub(counted.parent.0)).collect()
        };
        let late: Vec<u64> = self.recent().flat_map(|signed| -> Vec<u64> { late(signed) }).collect();
        let most = late.iter().max().copied().unwrap_or(0);
        (late.iter().sum::<u64>() as f64 / late.len().max(1) as f64, most)
    }

    /// The contributions counted in the kept updates after a version. No earlier update can count a contribution to it.
    fn counted_after(&self, version: Version) -> impl Iterator<Item = &Counted> {
        self.updates_after(version).flat_map(|update| &update.contributions)
    }

    fn updates_after(&self, version: Version) -> impl Iterator<Item = &Update> {
        let before = usize::try_from(version.0.saturating_sub(self.base().0)).unwrap_or(usize::MAX);
        self.recent.iter().skip(before).map(|(_, signed)| &signed.update)
    }
}

/// The head that an update makes; nothing if the update cannot be encoded.
pub fn head_of(update: &Update) -> Option<Head> {
    let hash = update_hash(update)?;
    Some(Head { version: update.version, update: hash, state: update.state, weight: update.weight })
}

#[cfg(test)]
pub mod made_up {
    //! Made-up updates for tests.
    use super::*;
    use crate::names::{BlobHash, ModuleId, PeerKey, Term};

    /// The next update of a chain, with one contribution of this path.
    pub fn next(chain: &Chain, path: u32, weight: u32) -> SignedUpdate {
        let head = chain.head();
        let blob = BlobRef::of(&[path.to_le_bytes(), (head.version.0 as u32).to_le_bytes()].concat());
        let update = Update {
            module: ModuleId { level: 0, expert: 0 },
            term: Term(1),
            owner: PeerKey([1; 32]),
            version: head.version.next(),
            parent: head.update,
            contributions: vec![Counted {
                path: PathId(path),
                parent: head.version,
                steps: 1,
                uncapped: weight,
                weight,
                norm: 0,
                blob,
            }]
            .into(),
            norm: 0,
            average: blob,
            state: BlobRef { hash: BlobHash::of(&blob.hash.0), bytes: 100 },
            weight: head.weight + u64::from(weight),
        };
        SignedUpdate { update, signature: vec![] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain_of(length: u64) -> Chain {
        let mut chain = Chain::genesis(BlobRef::of(b"genesis"));
        for _ in 0..length {
            chain.push(made_up::next(&chain, 0, 5));
        }
        chain
    }

    #[test]
    fn the_updates_after_a_chain_index_are_returned() {
        let chain = chain_of(3);
        let all: Vec<SignedUpdate> = chain.recent().cloned().collect();
        assert_eq!(chain.since(Version(0), GENESIS), Since::Updates(all.clone()));
        let second = head_of(&all[1].update).unwrap();
        assert_eq!(chain.since(second.version, second.update), Since::Updates(vec![all[2].clone()]));
        assert_eq!(chain.since(Version(2), GENESIS), Since::Unknown);
        assert_eq!(chain.head().weight, 15);
    }

    #[test]
    fn a_chain_is_pruned_and_knows_where_it_begins() {
        let chain = chain_of(VERSIONS_KEPT + 3);
        assert_eq!(chain.recent().count() as u64, VERSIONS_KEPT);
        assert!(!chain.knows_all_since(Version(2)));
        assert!(chain.knows_all_since(Version(3)));
        let counted: Vec<Version> = chain.counted_after(chain.base()).map(|counted| counted.parent).collect();
        assert_eq!((counted.first(), counted.last()), (Some(&Version(3)), Some(&Version(VERSIONS_KEPT + 2))));
        let one = chain.counted_after(chain.base()).next().unwrap().key();
        assert!(chain.has_counted(one));
        assert!(!chain.has_counted((one.0, one.1, GENESIS)));
        assert_eq!(chain.since(Version(0), GENESIS), Since::Unknown);
    }

    #[test]
    fn a_chain_can_be_cut_before_an_update() {
        let genesis = BlobRef::of(b"genesis");
        let chain = chain_of(5);
        let places: Vec<UpdateHash> = chain.entries().map(|(hash, _)| hash).collect();
        assert_eq!(chain.before(places[3], genesis), Some(chain_of(3)));
        assert_eq!(chain.before(places[0], genesis), Some(chain_of(0)));
        assert_eq!(chain.before(GENESIS, genesis), None);
        let states = [places[1], GENESIS].map(|place| chain.state_at(place, genesis));
        assert_eq!(states, [Some(chain_of(2).head().state), Some(genesis)]);
        assert_eq!(chain_of(2).state_at(places[3], genesis), None);
        let had =
            [chain_of(2).head().state, genesis, BlobRef::of(b"another")].map(|state| chain.has_had(state, genesis));
        assert_eq!(had, [true, true, false]);
        let taken_over = Chain::of(chain.updates().split_off(2)).unwrap();
        assert_eq!(taken_over.before(places[2], genesis), None, "the update before is unknown");
        assert_eq!(taken_over.before(places[3], genesis).unwrap().head(), chain_of(3).head());
    }

    #[test]
    fn a_chain_with_a_gap_is_refused() {
        let updates: Vec<SignedUpdate> = chain_of(3).recent().cloned().collect();
        let taken_over = Chain::of(updates.clone()).unwrap();
        assert_eq!(taken_over.clone().replaying_from(Version(0)), chain_of(3));
        // Its averages were never here, so they cannot be replayed.
        assert_eq!(taken_over.since(Version(0), GENESIS), Since::Unknown);
        let head = taken_over.head();
        assert_eq!(taken_over.since(head.version, head.update), Since::Updates(vec![]));
        assert_eq!(Chain::of(vec![updates[0].clone(), updates[2].clone()]), None);
        assert_eq!(Chain::of(vec![]), None);
        let mut last = updates[0].clone();
        last.update.version = Version(u64::MAX);
        assert_eq!(Chain::of(vec![last, updates[1].clone()]), None);
    }
}
