//! Shares a bounded number of places fairly, whoever comes first.
//!
//! Keys are free, so a table that is full when a peer comes must not stay so. Members come before others. Among equals,
//! each IP address gets as much as any other, and each key of an address as much as any other there: a newcomer takes
//! the place of whoever has the most.

use std::collections::BTreeMap;
use std::net::IpAddr;

use libp2p::PeerId;

use crate::network::standing::Standing;

/// What entitles a peer to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub standing: Standing,
    /// Its IP address, if it is connected directly.
    pub origin: Option<IpAddr>,
    pub peer: PeerId,
}

/// The places, and what is in each.
pub(crate) struct Places<T> {
    most: usize,
    next: u64,
    held: BTreeMap<u64, (Claim, T)>,
}

impl<T> Places<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, next: 0, held: BTreeMap::new() }
    }

    /// Takes a place. Returns its number, and what had to leave for it; or nothing, if all that are there are at least
    /// as entitled.
    pub(crate) fn enter(&mut self, claim: Claim, what: T) -> Option<(u64, Option<T>)> {
        let leaves = match self.held.len() < self.most {
            true => None,
            false => Some(self.least_entitled(&claim)?),
        };
        let evicted = leaves.and_then(|number| self.leave(number));
        let number = self.next;
        self.next += 1;
        self.held.insert(number, (claim, what));
        Some((number, evicted))
    }

    /// Frees a place.
    pub(crate) fn leave(&mut self, number: u64) -> Option<T> {
        self.held.remove(&number).map(|(_, what)| what)
    }

    /// How many places a peer holds.
    pub(crate) fn of_peer(&self, peer: &PeerId) -> usize {
        self.held.values().filter(|(claim, _)| claim.peer == *peer).count()
    }

    fn of_origin(&self, origin: Option<IpAddr>) -> usize {
        self.held.values().filter(|(claim, _)| claim.origin == origin).count()
    }

    /// The place that this claim may take, if any: that of a lower standing, or of an address or key with more.
    fn least_entitled(&self, claim: &Claim) -> Option<u64> {
        let counted = |(number, (held, _)): (&u64, &(Claim, T))| {
            (held.standing, self.of_origin(held.origin), self.of_peer(&held.peer), *number)
        };
        let worst = |one: &(Standing, usize, usize, u64), other: &(Standing, usize, usize, u64)| {
            other.0.cmp(&one.0).then((one.1, one.2, one.3).cmp(&(other.1, other.2, other.3)))
        };
        let (standing, of_origin, of_peer, number) = self.held.iter().map(counted).max_by(worst)?;
        let (held, _) = self.held.get(&number)?;
        let has_more = match held.origin == claim.origin {
            true => of_peer > self.of_peer(&claim.peer) + 1,
            false => of_origin > self.of_origin(claim.origin) + 1,
        };
        let yields = standing < claim.standing || (standing == claim.standing && has_more);
        yields.then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(standing: Standing, origin: u8, peer: PeerId) -> Claim {
        Claim { standing, origin: Some(IpAddr::from([192, 0, 2, origin])), peer }
    }

    /// A table of 32 that these have filled, each with as many as it could get.
    fn filled(claims: &[Claim]) -> Places<PeerId> {
        let mut places = Places::new(32);
        for claim in claims.iter().cycle().take(32) {
            assert!(matches!(places.enter(*claim, claim.peer), Some((_, None))));
        }
        places
    }

    #[test]
    fn four_keys_that_hold_everything_make_room_until_all_have_as_much() {
        let greedy = [(); 4].map(|()| claim(Standing::Stranger, 1, PeerId::random()));
        // Even from the same address.
        for origin in [1, 2] {
            let mut places = filled(&greedy);
            let honest = claim(Standing::Stranger, origin, PeerId::random());
            let got = (0..32).take_while(|_| places.enter(honest, honest.peer).is_some()).count();
            assert_eq!(got, if origin == 1 { 6 } else { 16 }, "a fifth of the keys, half of the addresses");
        }
    }

    #[test]
    fn an_address_with_many_keys_has_no_more_than_one_with_a_single_key() {
        let many: Vec<Claim> = (0..32).map(|_| claim(Standing::Stranger, 1, PeerId::random())).collect();
        let mut places = filled(&many);
        let another = claim(Standing::Stranger, 1, PeerId::random());
        assert!(places.enter(another, another.peer).is_none(), "one more of these");
        let honest = claim(Standing::Stranger, 2, PeerId::random());
        assert!(places.enter(honest, honest.peer).is_some());
    }

    #[test]
    fn members_come_first_and_nobody_takes_their_places() {
        let stranger = claim(Standing::Stranger, 1, PeerId::random());
        let mut places = filled(&[stranger]);
        let members = [(); 4].map(|()| claim(Standing::Member, 1, PeerId::random()));
        for member in members.iter().cycle().take(32) {
            assert_eq!(places.enter(*member, member.peer).and_then(|(_, evicted)| evicted), Some(stranger.peer));
        }
        assert!(places.enter(stranger, stranger.peer).is_none());
        assert!(places.enter(members[0], members[0].peer).is_none(), "all have as much");
    }

    #[test]
    fn a_place_that_was_left_is_free() {
        let one = claim(Standing::Stranger, 1, PeerId::random());
        let mut places = filled(&[one]);
        assert!(places.enter(one, one.peer).is_none());
        assert!(places.leave(3).is_some() && places.leave(3).is_none());
        assert!(places.enter(one, one.peer).is_some());
    }
}
