//! The addresses of other peers.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Millis;
use crate::names::PeerKey;
use crate::network::Multiaddr;

/// Peers whose addresses are remembered: four times as many as are known as members.
pub(crate) const MAX_ADDRESS_BOOK: usize = 4_096;

/// Addresses by peer. When it is full, a new peer takes the place of the one that was learnt first of those that are not
/// useful.
#[derive(Default)]
pub(crate) struct AddressBook {
    peers: BTreeMap<PeerKey, (u64, Vec<Multiaddr>)>,
    /// The peers in the order in which they were last learnt.
    by_age: BTreeMap<u64, PeerKey>,
    next: u64,
    pub(crate) unstored: Unstored,
}

impl AddressBook {
    /// The addresses of a peer; none if it is not in the book.
    pub(crate) fn of(&self, peer: PeerKey) -> Vec<Multiaddr> {
        self.peers.get(&peer).map(|(_, addresses)| addresses.clone()).unwrap_or_default()
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerKey> {
        self.peers.keys().copied()
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Multiaddr> {
        self.peers.values().flat_map(|(_, addresses)| addresses)
    }

    /// Replaces the addresses of a peer.
    pub(crate) fn learn(&mut self, peer: PeerKey, addresses: Vec<Multiaddr>, is_useful: impl Fn(PeerKey) -> bool) {
        match self.peers.get(&peer) {
            Some((age, _)) => drop(self.by_age.remove(age)),
            None if self.peers.len() >= MAX_ADDRESS_BOOK => self.make_room(is_useful),
            None => {}
        }
        self.peers.insert(peer, (self.next, addresses));
        self.by_age.insert(self.next, peer);
        self.next += 1;
    }

    /// A peer is connected. It can be asked as long as it is, even if it has named no address that counts here: behind a
    /// router, without a relay.
    pub(crate) fn met(&mut self, peer: PeerKey, is_useful: impl Fn(PeerKey) -> bool) {
        if !self.peers.contains_key(&peer) {
            self.learn(peer, Vec::new(), is_useful);
        }
    }

    fn make_room(&mut self, is_useful: impl Fn(PeerKey) -> bool) {
        let useless = self.by_age.iter().find(|(_, peer)| !is_useful(**peer)).map(|(age, _)| *age);
        let first = || self.by_age.first_key_value().map(|(age, _)| *age);
        if let Some(peer) = useless.or_else(first).and_then(|age| self.by_age.remove(&age)) {
            self.peers.remove(&peer);
        }
    }
}

/// Time between two looks at which peers have become members.
const LOOK_EVERY_MS: u64 = 1_000;

/// The peers whose addresses are to be stored when they become members; at most as many as are in the book.
#[derive(Default)]
pub(crate) struct Unstored {
    peers: BTreeSet<PeerKey>,
    looked: Millis,
}

impl Unstored {
    /// The addresses of a peer have been learnt.
    pub(crate) fn note(&mut self, peer: PeerKey, is_member: bool) {
        if is_member {
            self.peers.remove(&peer);
        } else if self.peers.len() < MAX_ADDRESS_BOOK {
            self.peers.insert(peer);
        }
    }

    /// One that has become a member.
    pub(crate) fn next(&mut self, now: Millis, is_member: impl Fn(PeerKey) -> bool) -> Option<PeerKey> {
        if now.since(self.looked) < LOOK_EVERY_MS {
            return None;
        }
        let peer = self.peers.iter().copied().find(|peer| is_member(*peer));
        match peer {
            Some(peer) => drop(self.peers.remove(&peer)),
            None => self.looked = now,
        }
        peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> PeerKey {
        PeerKey(*blake3::hash(&number.to_le_bytes()).as_bytes())
    }

    fn address(port: u16) -> Vec<Multiaddr> {
        vec![format!("/ip4/203.0.113.7/tcp/{port}").parse().unwrap()]
    }

    #[test]
    fn made_up_peers_keep_no_newcomer_out_and_no_member_is_lost_for_them() {
        let (member, newcomer) = (PeerKey([1; 32]), PeerKey([2; 32]));
        let mut book = AddressBook::default();
        book.learn(member, address(1), |_| false);
        for number in 0..2 * MAX_ADDRESS_BOOK as u64 {
            book.learn(key(number), address(9), |peer| peer == member);
            assert!(book.peers.len() <= MAX_ADDRESS_BOOK && book.by_age.len() == book.peers.len());
        }
        book.learn(newcomer, address(2), |peer| peer == member);
        assert_eq!((book.of(member), book.of(newcomer)), (address(1), address(2)));
        assert_eq!(book.of(key(0)), [], "the one that was learnt first has gone");
    }

    #[test]
    fn the_addresses_of_a_peer_are_stored_once_it_is_a_member() {
        let (mut unstored, is_member) = (Unstored::default(), |peer| peer == key(2));
        (1..=3).for_each(|number| unstored.note(key(number), false));
        assert_eq!(unstored.next(Millis(LOOK_EVERY_MS), |_| false), None);
        assert_eq!(unstored.next(Millis(LOOK_EVERY_MS + 1), is_member), None, "it has just looked");
        let later = Millis(2 * LOOK_EVERY_MS);
        assert_eq!((unstored.next(later, is_member), unstored.next(later, is_member)), (Some(key(2)), None));
    }

    #[test]
    fn a_peer_that_moves_has_its_new_addresses_alone() {
        let mut book = AddressBook::default();
        book.learn(key(1), address(1), |_| false);
        book.learn(key(1), address(2), |_| false);
        assert_eq!((book.of(key(1)), book.peers().count(), book.addresses().count()), (address(2), 1, 1));
    }

    #[test]
    fn a_connected_peer_that_names_no_address_can_be_asked_and_one_that_did_keeps_its_own() {
        let mut book = AddressBook::default();
        book.learn(key(1), address(1), |_| false);
        for peer in [key(1), key(2)] {
            book.met(peer, |_| false);
        }
        assert!(book.peers().any(|peer| peer == key(2)));
        assert_eq!((book.of(key(1)), book.of(key(2))), (address(1), Vec::new()));
    }
}
