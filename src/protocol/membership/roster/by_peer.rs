//! An ordered map from peers to entries, stored side by side. A heartbeat of each peer arrives several times a second,
//! and all entries are visited as often.

use crate::names::PeerKey;

/// An ordered map from peers to entries.
#[derive(Clone, Debug)]
pub struct ByPeer<T> {
    /// The first bytes of each key, for lookup.
    beginnings: Vec<u64>,
    entries: Vec<(PeerKey, T)>,
}

impl<T> Default for ByPeer<T> {
    fn default() -> Self {
        Self { beginnings: Vec::new(), entries: Vec::new() }
    }
}

/// The first bytes of a key, in the order of keys.
fn beginning(peer: PeerKey) -> u64 {
    peer.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl<T> ByPeer<T> {
    /// The index of a peer, or the index where it would be inserted.
    fn place(&self, peer: PeerKey) -> Result<usize, usize> {
        let beginning = beginning(peer);
        let mut place = self.beginnings.partition_point(|other| *other < beginning);
        // Two keys hardly ever begin alike.
        while let Some((other, _)) = self.entries.get(place).filter(|(other, _)| *other != peer) {
            if *other > peer {
                return Err(place);
            }
            place += 1;
        }
        if place < self.entries.len() { Ok(place) } else { Err(place) }
    }

    /// Number of peers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry of a peer.
    pub fn get(&self, peer: PeerKey) -> Option<&T> {
        self.place(peer).ok().map(|place| &self.entries[place].1)
    }

    /// The entry of a peer, mutable.
    pub fn get_mut(&mut self, peer: PeerKey) -> Option<&mut T> {
        let place = self.place(peer).ok()?;
        Some(&mut self.entries[place].1)
    }

    /// The entry of a peer, inserted if it is new, and whether it was known.
    pub fn get_or_begin(&mut self, peer: PeerKey) -> (&mut T, bool)
    where
        T: Default,
    {
        let found = self.place(peer);
        let place = found.unwrap_or_else(|place| {
            self.beginnings.insert(place, beginning(peer));
            self.entries.insert(place, (peer, T::default()));
            place
        });
        (&mut self.entries[place].1, found.is_ok())
    }

    /// Removes the entry of a peer.
    pub fn remove(&mut self, peer: PeerKey) {
        if let Ok(place) = self.place(peer) {
            self.beginnings.remove(place);
            self.entries.remove(place);
        }
    }

    /// All entries in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (PeerKey, &T)> {
        self.entries.iter().map(|(peer, entry)| (*peer, entry))
    }

    /// Visits all entries, mutable, and drops those for which `keeps` returns false.
    pub fn retain(&mut self, mut keeps: impl FnMut(&mut T) -> bool) {
        let before = self.entries.len();
        self.entries.retain_mut(|(_, entry)| keeps(entry));
        if self.entries.len() < before {
            self.beginnings.clear();
            self.beginnings.extend(self.entries.iter().map(|(peer, _)| beginning(*peer)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_behaves_like_an_ordered_map_even_for_keys_that_begin_alike() {
        let keys = (0..64u8).map(|number| {
            let mut key = [7; 32];
            (key[0], key[31]) = (number.wrapping_mul(83) % 4, number.wrapping_mul(29));
            PeerKey(key)
        });
        let (mut by_peer, mut map) = (ByPeer::<usize>::default(), BTreeMap::new());
        for (number, key) in keys.clone().chain(keys.clone()).enumerate() {
            let (entry, known) = by_peer.get_or_begin(key);
            *entry = number;
            assert_eq!(known, map.insert(key, number).is_some());
        }
        let keeps = |number: &mut usize| !number.is_multiple_of(3);
        by_peer.retain(keeps);
        map.retain(|_, number| keeps(number));
        assert_eq!(by_peer.len(), map.len());
        assert!(by_peer.iter().eq(map.iter().map(|(key, number)| (*key, number))));
        for key in keys {
            assert_eq!(by_peer.get(key), map.get(&key));
            assert_eq!(by_peer.get_mut(key), map.get_mut(&key));
            by_peer.remove(key);
            map.remove(&key);
            assert_eq!(by_peer.len(), map.len());
        }
    }
}
