//! Shares a bounded number of places fairly, whoever comes first.
//!
//! Keys are free, and so is a standing that heartbeats earn, so a table that is full when a peer comes must not stay so.
//! Each IP address gets as much as any other, and each key of an address as much as any other there: a newcomer takes
//! the place of whoever has the most. Only between two that have the same do members come before others. Standing is
//! looked up at each decision, since it changes.
//!
//! A place is kept for a moment, so that two with as much do not take turns without end. Who has none does not wait that
//! long for those that have several: a short transfer would take as long as the wait.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use libp2p::PeerId;

use crate::network::standing::Standing;

/// Looks up the present standing of a peer.
pub(crate) type StandingOf<'a> = &'a dyn Fn(&PeerId) -> Standing;

/// Who holds or wants a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Its IP address, if it is connected directly.
    pub ip: Option<IpAddr>,
    pub peer: PeerId,
}

/// What has an equal share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Address(IpAddr),
    /// A peer on this machine, on which there may be many.
    Local(PeerId),
    Unknown,
}

impl Claim {
    fn origin(&self) -> Origin {
        match self.ip {
            Some(ip) if ip.is_loopback() => Origin::Local(self.peer),
            Some(ip) => Origin::Address(ip),
            None => Origin::Unknown,
        }
    }
}

struct Held<T> {
    claim: Claim,
    since: Instant,
    what: T,
}

/// How many places each has.
#[derive(Default)]
struct Shares {
    origins: BTreeMap<Origin, usize>,
    peers: BTreeMap<PeerId, usize>,
}

/// A claim, and what decides about it.
#[derive(Clone, Copy)]
struct Rated {
    number: u64,
    claim: Claim,
    origin: Origin,
    of_origin: usize,
    of_peer: usize,
    standing: Standing,
    /// It holds a place and came less than the least stay ago.
    has_just_come: bool,
}

impl Rated {
    /// Whether the holder of this place has to leave it to another: if its origin has at least two more, or one more and
    /// a lower standing. Within one origin, the same holds for keys.
    fn yields_to(&self, other: &Self) -> bool {
        if self.has_just_come && (other.of_origin > 0 || self.of_origin < 2) {
            return false;
        }
        let (has, would_have) = match self.origin == other.origin {
            true => (self.of_peer, other.of_peer + 1),
            false => (self.of_origin, other.of_origin + 1),
        };
        has > would_have || (has == would_have && self.standing < other.standing)
    }
}

/// All that hold places are at least as entitled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The places, and what is in each.
pub(crate) struct Places<T> {
    most: usize,
    /// Nobody has to leave earlier than this after it came, but for an origin that has no place.
    stays: Duration,
    held: BTreeMap<u64, Held<T>>,
}

impl<T> Places<T> {
    /// So many places. Nobody has to leave before it has been there for `stays`, but for an origin that has none.
    pub(crate) fn new(most: usize, stays: Duration) -> Self {
        Self { most, stays, held: BTreeMap::new() }
    }

    /// Takes a place, under a number that nothing else there has. Returns what had to leave for it.
    pub(crate) fn enter(
        &mut self,
        number: u64,
        claim: Claim,
        what: T,
        at: (Instant, StandingOf<'_>),
    ) -> Result<Option<T>, Full> {
        self.enter_one(&[(number, claim)], |_| what, at).map(|(_, left)| left).ok_or(Full)
    }

    /// Lets one of these in: of those that may enter, the one whose origin has least, then a member, then the one whose
    /// key has least, then the first. Returns its number, and what had to leave for it.
    pub(crate) fn enter_one(
        &mut self,
        waiting: &[(u64, Claim)],
        what: impl FnOnce(u64) -> T,
        (now, standing): (Instant, StandingOf<'_>),
    ) -> Option<(u64, Option<T>)> {
        let (chosen, leaves) = self.choose(waiting, now, standing)?;
        let left = leaves.and_then(|number| self.leave(number));
        self.held.insert(chosen.number, Held { claim: chosen.claim, since: now, what: what(chosen.number) });
        Some((chosen.number, left))
    }

    /// Frees a place.
    pub(crate) fn leave(&mut self, number: u64) -> Option<T> {
        self.held.remove(&number).map(|held| held.what)
    }

    /// Whether this number has a place.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.held.contains_key(&number)
    }

    /// How many places a peer holds.
    pub(crate) fn of_peer(&self, peer: &PeerId) -> usize {
        self.held.values().filter(|held| held.claim.peer == *peer).count()
    }

    fn shares(&self) -> Shares {
        let mut shares = Shares::default();
        for Held { claim, .. } in self.held.values() {
            *shares.origins.entry(claim.origin()).or_default() += 1;
            *shares.peers.entry(claim.peer).or_default() += 1;
        }
        shares
    }

    /// The next one to come in, and who has to leave for it.
    fn choose(&self, waiting: &[(u64, Claim)], now: Instant, standing: StandingOf<'_>) -> Option<(Rated, Option<u64>)> {
        let shares = self.shares();
        let rated = |(number, claim): (u64, Claim), since: Option<Instant>| {
            let origin = claim.origin();
            let of_origin = shares.origins.get(&origin).copied().unwrap_or(0);
            let of_peer = shares.peers.get(&claim.peer).copied().unwrap_or(0);
            let has_just_come = since.is_some_and(|since| now.saturating_duration_since(since) < self.stays);
            Rated { number, claim, origin, of_origin, of_peer, standing: standing(&claim.peer), has_just_come }
        };
        let mut waiting: Vec<Rated> = waiting.iter().map(|it| rated(*it, None)).collect();
        waiting.sort_by_key(|it| (it.of_origin, Reverse(it.standing), it.of_peer));
        if self.held.len() < self.most {
            return waiting.first().map(|first| (*first, None));
        }
        let of_place = |(number, held): (&u64, &Held<T>)| rated((*number, held.claim), Some(held.since));
        let mut held: Vec<Rated> = self.held.iter().map(of_place).collect();
        // The weakest one of the origin with the most comes first.
        held.sort_by_key(|it| Reverse((it.of_origin, Reverse(it.standing), it.of_peer, it.number)));
        let leaves = |it: &Rated| held.iter().find(|held| held.yields_to(it)).map(|held| held.number);
        waiting.iter().find_map(|it| Some((*it, Some(leaves(it)?))))
    }
}

#[cfg(test)]
mod tests {
    use Standing::{Member, Stranger};

    use super::*;

    fn claim(address: u8, peer: PeerId) -> Claim {
        Claim { ip: Some(IpAddr::from([192, 0, 2, address])), peer }
    }

    fn keys<const N: usize>() -> [PeerId; N] {
        [(); N].map(|()| PeerId::random())
    }

    #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
    fn now() -> Instant {
        Instant::now()
    }

    /// A table of 32, with the members among its peers.
    struct Table {
        places: Places<Claim>,
        members: Vec<PeerId>,
        next: u64,
    }

    impl Table {
        /// Filled by these in turn, each with as many as it could get.
        fn filled(claims: &[Claim], members: &[PeerId]) -> Self {
            let mut table = Self { places: Places::new(32, Duration::ZERO), members: members.to_vec(), next: 0 };
            for claim in claims.iter().cycle().take(32) {
                assert_eq!(table.enter(*claim), Ok(None));
            }
            table
        }

        fn enter(&mut self, claim: Claim) -> Result<Option<Claim>, Full> {
            let members = self.members.clone();
            let standing = move |peer: &PeerId| if members.contains(peer) { Member } else { Stranger };
            self.next += 1;
            self.places.enter(self.next, claim, claim, (now(), &standing))
        }

        /// How many places this one gets, and from whom it takes them.
        fn gets(&mut self, claim: Claim) -> usize {
            (0..32).take_while(|_| self.enter(claim).is_ok()).count()
        }
    }

    #[test]
    fn four_keys_that_hold_everything_make_room_until_all_have_as_much() {
        let greedy = keys::<4>().map(|key| claim(1, key));
        // Even from the same address.
        for address in [1, 2] {
            let mut table = Table::filled(&greedy, &[]);
            let got = table.gets(claim(address, PeerId::random()));
            assert_eq!(got, if address == 1 { 6 } else { 16 }, "a fifth of the keys, half of the addresses");
        }
    }

    #[test]
    fn four_members_on_one_address_hold_at_most_half_of_what_a_stranger_from_another_wants() {
        let sybils = keys::<4>();
        let honest = claim(2, PeerId::random());
        let mut table = Table::filled(&sybils.map(|key| claim(1, key)), &sybils);
        assert_eq!(table.gets(honest), 16);
        assert!(table.enter(claim(1, sybils[0])).is_err(), "they do not take them back");
        let mut table = Table::filled(&sybils.map(|key| claim(1, key)), &sybils);
        assert_eq!(table.gets(claim(1, PeerId::random())), 6, "and a neighbour gets as much as each");
    }

    #[test]
    fn an_address_with_many_keys_has_no_more_than_one_with_a_single_key() {
        let many = keys::<32>().map(|key| claim(1, key));
        let mut table = Table::filled(&many, &[]);
        assert!(table.enter(claim(1, PeerId::random())).is_err(), "one more of these");
        assert!(table.enter(claim(2, PeerId::random())).is_ok());
    }

    #[test]
    fn between_addresses_with_as_much_members_come_first() {
        let strangers: Vec<Claim> = (0..32).map(|address| claim(address, PeerId::random())).collect();
        let members = keys::<2>();
        let mut table = Table::filled(&strangers, &members);
        assert!(table.enter(claim(100, PeerId::random())).is_err(), "all have as much");
        let from = table.enter(claim(100, members[0])).unwrap().unwrap();
        assert!(strangers.contains(&from));
        assert!(table.enter(from).is_err(), "it does not take it back");
        assert!(table.enter(claim(100, members[0])).is_err(), "a second one would be more than a stranger has");
        table.members.clear();
        assert!(table.enter(claim(101, members[1])).is_err(), "it was a member once");
    }

    #[test]
    fn peers_on_this_machine_count_by_their_keys() {
        let local = |key| Claim { ip: Some(IpAddr::from([127, 0, 0, 1])), peer: key };
        let mut table = Table::filled(&keys::<4>().map(local), &[]);
        assert_eq!(table.gets(local(PeerId::random())), 6);
        assert_eq!(table.gets(claim(1, PeerId::random())), 5, "no less than each of them");
    }

    #[test]
    fn whoever_has_just_come_stays_for_a_moment() {
        let (greedy, honest) = (claim(1, PeerId::random()), claim(2, PeerId::random()));
        let (came, stays) = (now(), Duration::from_secs(2));
        let mut places = Places::new(4, stays);
        let standing = |_: &PeerId| Stranger;
        for (number, claim) in [greedy, greedy, greedy, honest].into_iter().enumerate() {
            assert_eq!(places.enter(number as u64, claim, (), (came, &standing)), Ok(None));
        }
        assert_eq!(places.enter(4, honest, (), (came + stays / 2, &standing)), Err(Full));
        assert_eq!(places.enter(4, honest, (), (came + stays, &standing)), Ok(Some(())));
    }

    #[test]
    fn who_has_no_place_waits_for_nobody_that_has_two() {
        let (greedy, honest) = (claim(1, PeerId::random()), claim(2, PeerId::random()));
        let (came, standing) = (now(), |_: &PeerId| Stranger);
        let mut places = Places::new(2, Duration::from_secs(2));
        for number in 0..2 {
            assert_eq!(places.enter(number, greedy, (), (came, &standing)), Ok(None));
        }
        assert_eq!(places.enter(2, honest, (), (came, &standing)), Ok(Some(())));
        assert_eq!(places.enter(3, claim(3, PeerId::random()), (), (came, &standing)), Err(Full), "each has one");
    }

    #[test]
    fn a_place_that_was_left_is_free() {
        let one = claim(1, PeerId::random());
        let mut table = Table::filled(&[one], &[]);
        assert!(table.enter(one).is_err());
        assert!(table.places.leave(3).is_some() && table.places.leave(3).is_none());
        assert_eq!(table.enter(one), Ok(None));
    }
}
