//! Who becomes known when nearly as many peers are known as may be, and who is forgotten for it.
//!
//! Keys are free, and so are claims to hold paths. What costs something is to repeat heartbeats for a while. So newcomers
//! wait in the order in which they were first heard, as long as they repeat themselves, and few are taken in per second.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::PeerKey;
use crate::protocol::limits::{ADMITTED_PER_SECOND, MAX_NEWCOMERS, NEWCOMER_STAYS_MS, STILL_HEARD_MS};

/// Time between two that are taken in, on average.
const TAKEN_IN_EVERY_MS: u64 = 1_000 / ADMITTED_PER_SECOND as u64;

/// The newcomers whose turn it is, and the most that are taken in at once: as many as may be while each of them is heard
/// again.
const FIRST_IN_LINE: usize = (STILL_HEARD_MS / TAKEN_IN_EVERY_MS) as usize;

/// A peer that is not known yet.
#[derive(Clone, Copy, Debug)]
struct Newcomer {
    first: Millis,
    last: Millis,
}

/// The peers that wait to become known.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    newcomers: BTreeMap<PeerKey, Newcomer>,
    /// When as many may be taken in at once as after a quiet while.
    rested: Millis,
}

impl Admission {
    /// An unknown peer was heard. Returns whether it is its turn.
    pub fn is_due(&mut self, now: Millis, peer: PeerKey) -> bool {
        if !self.newcomers.contains_key(&peer) && self.newcomers.len() >= MAX_NEWCOMERS {
            self.newcomers.retain(|_, other| other.is_heard(now));
            if self.newcomers.len() >= MAX_NEWCOMERS {
                return false;
            }
        }
        let before = self.newcomers.get(&peer).filter(|before| before.is_heard(now));
        let own = Newcomer { first: before.map_or(now, |before| before.first), last: now };
        self.newcomers.insert(peer, own);
        let is_before =
            |(other, it): &(&PeerKey, &Newcomer)| it.is_heard(now) && (it.first, **other) < (own.first, peer);
        let earlier = self.newcomers.iter().filter(is_before).take(FIRST_IN_LINE).count();
        self.rested.since(now) + TAKEN_IN_EVERY_MS <= STILL_HEARD_MS && earlier < FIRST_IN_LINE
    }

    /// A peer has become known.
    pub fn admitted(&mut self, now: Millis, peer: PeerKey) {
        self.newcomers.remove(&peer);
        self.rested = self.rested.max(now) + TAKEN_IN_EVERY_MS;
    }

    /// Number of peers that wait, or have waited lately.
    pub fn len(&self) -> usize {
        self.newcomers.len()
    }

    /// Forgets those that were not heard since then.
    pub fn prune_before(&mut self, time: Millis) {
        self.newcomers.retain(|_, newcomer| newcomer.last >= time);
    }
}

impl Newcomer {
    fn is_heard(&self, now: Millis) -> bool {
        now.since(self.last) < STILL_HEARD_MS
    }
}

/// How useful it is to know a peer, the least first. Of equals, the one that was not heard for longest is forgotten, so
/// that whoever repeats its heartbeats stays. What a peer says that it does counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Silent,
    OfTheYounger,
    /// It is of the older half, and may be restarting.
    SilentForNow,
}

impl Rank {
    /// The rank of a peer that has been here for so long. `None` if it is not forgotten.
    pub fn of(is_old: bool, steady_ms: u64, (lives, speaks): (bool, bool)) -> Option<Self> {
        match (lives, is_old) {
            (false, true) => Some(Self::SilentForNow),
            (false, false) => Some(Self::Silent),
            (true, true) => None,
            (true, false) if speaks && steady_ms < NEWCOMER_STAYS_MS => None,
            (true, false) => Some(Self::OfTheYounger),
        }
    }
}
