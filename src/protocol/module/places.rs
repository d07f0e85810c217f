//! The places of a chain before the updates that are kept: enough to see where two chains part, and what each has
//! counted since.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::names::Version;
use crate::protocol::limits::{MAX_CONTRIBUTIONS, MAX_PLACES};
use crate::protocol::wire::message::{Counted, GENESIS, UpdateHash};

/// One version of a module in one chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The update that made it.
    pub update: UpdateHash,
    /// What it counted.
    pub counts: Vec<Brief>,
}

/// A contribution, just so that it can be told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brief {
    /// The beginning of its blob's hash, and which path and phase it is.
    pub contribution: u64,
    /// As it was counted.
    pub weight: u32,
}

impl From<&Counted> for Brief {
    fn from(counted: &Counted) -> Self {
        let (beginning, _) = counted.blob.hash.0.split_at(8);
        let beginning = beginning.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        // The same bytes may be those of another path, or of another phase.
        let whose = u64::from(counted.path.0) << 40 ^ counted.parent.0;
        Self { contribution: beginning ^ whose, weight: counted.weight }
    }
}

/// The newest of them, without gaps: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    newest: Version,
    /// Oldest first.
    places: VecDeque<Place>,
}

impl Places {
    /// The beginning of every chain.
    pub fn genesis() -> Self {
        Self::one(Version(0), GENESIS)
    }

    /// Of what came before it, nothing is known.
    pub fn one(version: Version, update: UpdateHash) -> Self {
        Self { newest: version, places: [Place { update, counts: Vec::new() }].into() }
    }

    /// With those before the newest as well, as another tells them, if they can be.
    pub fn told(self, places: Vec<Place>) -> Self {
        let fit = places.last().map(|place| place.update) == Some(self.newest().1)
            && places.len() <= MAX_PLACES
            && places.len() as u64 <= self.newest.0.saturating_add(1)
            && places.iter().all(|place| place.counts.len() <= MAX_CONTRIBUTIONS);
        if fit { Self { places: places.into(), ..self } } else { self }
    }

    /// The next.
    pub fn push(&mut self, place: Place) {
        self.newest = self.newest.next();
        self.places.push_back(place);
        if self.places.len() > MAX_PLACES {
            self.places.pop_front();
        }
    }

    /// The version of the newest, and the update that made it.
    pub fn newest(&self) -> (Version, UpdateHash) {
        (self.newest, self.places.back().map_or(GENESIS, |place| place.update))
    }

    /// The version of the oldest that is known.
    pub fn oldest(&self) -> Version {
        Version((self.newest.0 + 1).saturating_sub(self.places.len() as u64))
    }

    /// That of a version, as far as it is known.
    pub fn at(&self, version: Version) -> Option<&Place> {
        let back = usize::try_from(self.newest.0.checked_sub(version.0)?).ok()?;
        self.places.get(self.places.len().checked_sub(back + 1)?)
    }

    /// What those after a version have counted.
    pub fn counted_after(&self, version: Version) -> impl Iterator<Item = Brief> {
        let after = usize::try_from(self.newest.0.saturating_sub(version.0)).unwrap_or(usize::MAX);
        self.places.iter().rev().take(after).flat_map(|place| &place.counts).copied()
    }

    /// All of them, oldest first.
    pub fn all(&self) -> impl Iterator<Item = Place> {
        self.places.iter().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobHash;

    fn place(version: u64) -> Place {
        let counts = vec![Brief { contribution: version, weight: 10 * version as u32 }];
        Place { update: BlobHash([version as u8; 32]), counts }
    }

    #[test]
    fn a_version_is_found_as_far_as_it_is_known() {
        let mut places = Places::genesis();
        (1..4).for_each(|version| places.push(place(version)));
        assert_eq!(places.newest(), (Version(3), place(3).update));
        assert_eq!(places.at(Version(2)), Some(&place(2)));
        assert_eq!(places.at(Version(4)), None);
        let weights = |places: &Places| places.counted_after(Version(1)).map(|brief| brief.weight).collect::<Vec<_>>();
        assert_eq!(weights(&places), [30, 20]);
        (4..5 + MAX_PLACES as u64).for_each(|version| places.push(place(version)));
        assert_eq!(places.all().count(), MAX_PLACES);
        assert_eq!((places.at(Version(3)), places.oldest()), (None, Version(5)));
        assert!(places.at(places.oldest()).is_some());
    }

    #[test]
    fn what_another_tells_is_taken_only_if_it_ends_where_it_must() {
        let one = Places::one(Version(3), place(3).update);
        let told = |versions: &[u64]| one.clone().told(versions.iter().map(|version| place(*version)).collect());
        assert_eq!(told(&[1, 2, 3]).at(Version(1)), Some(&place(1)));
        for wrong in [&[][..], &[1, 2], &[9, 0, 1, 2, 3]] {
            assert_eq!(told(wrong), one, "{wrong:?}");
        }
    }
}
