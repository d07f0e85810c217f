//! Decides which donor is asked for which piece of a blob.
//!
//! Each donor is asked for a few pieces at a time, and for the next when one has arrived, so a slow donor sends few.
//! The rarest piece among donors comes first, and ties are random, so that two peers that fetch the same blob soon have
//! pieces for each other. When every piece has been requested, an idle donor is asked for a piece that another is late
//! with. Time is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::network::limits::PIECE_IS_LATE;
use crate::pieces::PieceSet;

/// The rarest piece is searched among this many of the random order.
const CANDIDATES: usize = 1024;

/// Limit of donors asked for the same piece.
const ASKED_AT_ONCE: usize = 2;

/// Number of a donor of a blob.
pub(crate) type DonorId = usize;

/// The next step of a donor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask it for this piece.
    Ask(u32),
    /// No piece for it now.
    Nothing,
    /// All pieces are here.
    Done,
}

/// The donors asked for a piece, and the time of the last request.
#[derive(Debug)]
struct Asked {
    of: Vec<DonorId>,
    at: Duration,
}

/// The pieces of a blob during a fetch.
#[derive(Debug)]
pub(crate) struct PieceScheduler {
    here: PieceSet,
    /// The rank of each piece in the random order.
    order: Vec<u32>,
    /// Pieces neither here nor requested, in random order.
    missing: BTreeSet<(u32, u32)>,
    asked: BTreeMap<u32, Asked>,
    /// Pieces of each donor.
    donors: BTreeMap<DonorId, PieceSet>,
}

impl PieceScheduler {
    /// For a blob with some pieces here; `order` is a permutation of all pieces.
    pub(crate) fn new(here: PieceSet, order: Vec<u32>) -> Self {
        let missing =
            order.iter().zip(0..).filter(|(_, piece)| !here.has(*piece)).map(|(order, piece)| (*order, piece));
        Self { missing: missing.collect(), here, order, asked: BTreeMap::new(), donors: BTreeMap::new() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.here.is_whole()
    }

    pub(crate) fn pieces_here(&self) -> u32 {
        self.here.count()
    }

    /// A donor reports its pieces.
    pub(crate) fn offers(&mut self, donor: DonorId, pieces: PieceSet) {
        self.donors.insert(donor, pieces);
    }

    /// The next step for a donor with this many pending requests.
    pub(crate) fn next(&mut self, donor: DonorId, in_flight: usize, now: Duration) -> Next {
        if self.is_done() {
            return Next::Done;
        }
        let Some(offered) = self.donors.get(&donor) else { return Next::Nothing };
        let rarity = |piece: u32| self.donors.values().filter(|pieces| pieces.has(piece)).count();
        let missing = self.missing.iter().filter(|(_, piece)| offered.has(*piece));
        let found = match self.donors.values().all(PieceSet::is_whole) {
            true => missing.map(|(_, piece)| *piece).next(),
            false => {
                missing.take(CANDIDATES).min_by_key(|(order, piece)| (rarity(*piece), *order)).map(|(_, piece)| *piece)
            }
        };
        let late = || {
            let late = self.asked.iter().filter(|(piece, Asked { of, at })| {
                let is_late = now.saturating_sub(*at) >= PIECE_IS_LATE;
                is_late && offered.has(**piece) && of.len() < ASKED_AT_ONCE && !of.contains(&donor)
            });
            late.map(|(piece, _)| *piece).min_by_key(|piece| self.order[*piece as usize])
        };
        let Some(piece) = found.or_else(|| if in_flight == 0 { late() } else { None }) else { return Next::Nothing };
        self.missing.remove(&(self.order[piece as usize], piece));
        let asked = self.asked.entry(piece).or_insert(Asked { of: Vec::new(), at: now });
        asked.of.push(donor);
        asked.at = now;
        Next::Ask(piece)
    }

    /// A verified piece has arrived. Returns whether it is the first copy.
    pub(crate) fn came(&mut self, piece: u32) -> bool {
        self.asked.remove(&piece);
        self.missing.remove(&(self.order[piece as usize], piece));
        self.here.insert(piece)
    }

    /// A donor lacks a requested piece.
    pub(crate) fn lacks(&mut self, donor: DonorId, piece: u32) {
        if let Some(pieces) = self.donors.get_mut(&donor) {
            pieces.remove(piece);
        }
        self.not_from(donor, piece);
    }

    /// A donor has ended. Its pending pieces are requested from others.
    pub(crate) fn ends(&mut self, donor: DonorId) {
        self.donors.remove(&donor);
        let asked_of_it = self.asked.iter().filter(|(_, asked)| asked.of.contains(&donor));
        let pieces: Vec<u32> = asked_of_it.map(|(piece, _)| *piece).collect();
        pieces.into_iter().for_each(|piece| self.not_from(donor, piece));
    }

    fn not_from(&mut self, donor: DonorId, piece: u32) {
        let Some(asked) = self.asked.get_mut(&piece) else { return };
        asked.of.retain(|other| *other != donor);
        if asked.of.is_empty() {
            self.asked.remove(&piece);
            self.missing.insert((self.order[piece as usize], piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: u32 = 12;
    const NOW: Duration = Duration::from_secs(7);
    const LATER: Duration = Duration::from_secs(7).saturating_add(PIECE_IS_LATE);

    fn some(pieces: &[u32]) -> PieceSet {
        let mut set = PieceSet::none(PIECES);
        pieces.iter().for_each(|piece| assert!(set.insert(*piece)));
        set
    }

    /// With a reversed order, so that its effect is visible.
    fn blob(here: &[u32]) -> PieceScheduler {
        PieceScheduler::new(some(here), (0..PIECES).rev().collect())
    }

    fn asks(scheduler: &mut PieceScheduler, donor: DonorId, count: usize) -> Vec<Next> {
        (0..count).map(|in_flight| scheduler.next(donor, in_flight, NOW)).collect()
    }

    #[test]
    fn pieces_are_asked_by_lot_each_of_one_donor_and_what_is_here_of_none() {
        let mut scheduler = blob(&[10]);
        scheduler.offers(0, PieceSet::all(PIECES));
        scheduler.offers(1, PieceSet::all(PIECES));
        assert_eq!(asks(&mut scheduler, 0, 2), [Next::Ask(11), Next::Ask(9)]);
        assert_eq!(asks(&mut scheduler, 1, 1), [Next::Ask(8)]);
        assert_eq!(scheduler.next(7, 0, NOW), Next::Nothing, "it has said nothing yet");
    }

    #[test]
    fn what_few_have_comes_first() {
        let mut scheduler = blob(&[]);
        scheduler.offers(0, PieceSet::all(PIECES));
        scheduler.offers(1, some(&[11, 10, 9, 8, 7, 6, 4, 3, 2, 1, 0]));
        scheduler.offers(2, some(&[11, 5]));
        assert_eq!(scheduler.next(1, 0, NOW), Next::Ask(10), "three have 11");
        scheduler.ends(2);
        assert_eq!(scheduler.next(0, 0, NOW), Next::Ask(5), "nobody else has it any more");
    }

    #[test]
    fn a_donor_that_is_late_is_helped_out_once_by_one_that_has_nothing_to_do() {
        let mut scheduler = blob(&(2..PIECES).collect::<Vec<_>>());
        (0..3).for_each(|donor| scheduler.offers(donor, PieceSet::all(PIECES)));
        assert_eq!(asks(&mut scheduler, 0, 2), [Next::Ask(1), Next::Ask(0)]);
        assert_eq!(scheduler.next(0, 2, NOW), Next::Nothing);
        assert_eq!(scheduler.next(1, 0, NOW), Next::Nothing, "it may still come in time");
        assert_eq!(scheduler.next(1, 1, LATER), Next::Nothing, "this one has something to do");
        assert_eq!((scheduler.next(1, 0, LATER), scheduler.next(2, 0, LATER)), (Next::Ask(1), Next::Ask(0)));
        assert_eq!(scheduler.next(2, 0, 2 * LATER), Next::Nothing, "two are asked for each");
        assert!(scheduler.came(1) && !scheduler.came(1));
        assert!(scheduler.came(0) && scheduler.is_done());
        assert_eq!(scheduler.next(2, 0, NOW), Next::Done);
    }

    #[test]
    fn what_a_donor_does_not_give_is_asked_of_others() {
        let mut scheduler = blob(&(2..PIECES).collect::<Vec<_>>());
        scheduler.offers(0, PieceSet::all(PIECES));
        assert_eq!(asks(&mut scheduler, 0, 2), [Next::Ask(1), Next::Ask(0)]);
        scheduler.lacks(0, 1);
        assert_eq!(scheduler.next(0, 1, NOW), Next::Nothing, "it does not have it");
        scheduler.offers(1, PieceSet::all(PIECES));
        assert_eq!(scheduler.next(1, 0, NOW), Next::Ask(1));
        scheduler.ends(0);
        assert_eq!(scheduler.next(1, 1, NOW), Next::Ask(0));
    }
}
