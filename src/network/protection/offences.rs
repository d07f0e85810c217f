//! The peer score of the network: offences of each peer, and bans.
//!
//! Each offence adds points, and one point expires each second. From [`BAN_POINTS`] on the peer is banned: its
//! connections are closed and new ones refused, for a time that doubles with each ban of the last week. Only a peer's
//! own actions count: what it has signed, and what it has sent on its own connection. Messages that it has forwarded
//! for others do not.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::names::PeerKey;
use crate::network::limits::{BAN_MOST_S, BAN_POINTS, BAN_S, BANS_FORGOTTEN_S, SCORED_PEERS};

/// Seconds since 1970, by this machine's clock.
#[expect(clippy::disallowed_methods, reason = "an edge: bans and invitations end by the clock on the wall")]
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An action of which no honest peer is capable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// It signed a message or sent a request that cannot be decoded.
    Unreadable,
    /// It forwarded an update on a topic without a valid signature of its owner.
    Unsigned,
    /// It sent bytes that do not match the requested hash.
    WrongBytes,
    /// It exceeded the rates of an honest peer.
    TooFast,
    /// It published an invalid update.
    WrongUpdate,
}

impl Offence {
    fn points(self) -> u32 {
        match self {
            // Bad bytes from a failing disk are possible now and then.
            Self::WrongBytes => 25,
            Self::Unreadable | Self::Unsigned => 20,
            // The failure detector replaces such an owner first.
            Self::WrongUpdate => 10,
            Self::TooFast => 1,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Unreadable => "it sent messages that cannot be decoded",
            Self::Unsigned => "it sent updates without a valid signature of their owner",
            Self::WrongBytes => "it sent bytes that do not match the requested hash",
            Self::TooFast => "it exceeded the rate limit for messages",
            Self::WrongUpdate => "it published invalid updates",
        }
    }
}

/// A peer that is or was banned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    pub peer: PeerKey,
    /// End, in seconds since 1970.
    pub until_s: u64,
    /// Number of bans so far; the next one is twice as long.
    pub times: u32,
    /// The last offence, for people.
    pub reason: String,
}

#[derive(Clone, Debug, Default)]
struct PeerScore {
    points: u32,
    at_s: u64,
    ban: Option<Ban>,
}

impl PeerScore {
    fn points_at(&self, now_s: u64) -> u32 {
        self.points.saturating_sub(u32::try_from(now_s.saturating_sub(self.at_s)).unwrap_or(u32::MAX))
    }

    /// Whether the record can be dropped.
    fn is_over(&self, now_s: u64) -> bool {
        let forgotten = |ban: &Ban| ban.until_s.saturating_add(BANS_FORGOTTEN_S) <= now_s;
        self.points_at(now_s) == 0 && self.ban.as_ref().is_none_or(forgotten)
    }
}

#[derive(Debug, Default)]
pub(crate) struct PeerScores {
    records: BTreeMap<PeerKey, PeerScore>,
}

impl PeerScores {
    /// Adds an offence. Returns the ban, if it reaches the threshold.
    pub(crate) fn penalize(&mut self, peer: PeerKey, offence: Offence, now_s: u64) -> Option<Ban> {
        if !self.records.contains_key(&peer) {
            self.evict(now_s);
        }
        let score = self.records.entry(peer).or_default();
        if score.ban.as_ref().is_some_and(|ban| ban.until_s > now_s) {
            return None;
        }
        (score.points, score.at_s) = (score.points_at(now_s).saturating_add(offence.points()), now_s);
        if score.points < BAN_POINTS {
            return None;
        }
        score.points = 0;
        let before = score.ban.as_ref().filter(|ban| ban.until_s.saturating_add(BANS_FORGOTTEN_S) > now_s);
        let times = before.map_or(0, |ban| ban.times).saturating_add(1);
        let lasts_s = BAN_S.saturating_mul(1 << (times - 1).min(31)).min(BAN_MOST_S);
        let ban = Ban { peer, until_s: now_s.saturating_add(lasts_s), times, reason: offence.reason().to_owned() };
        score.ban = Some(ban.clone());
        Some(ban)
    }

    /// Restores the bans of an earlier start.
    pub(crate) fn restore(&mut self, bans: Vec<Ban>, now_s: u64) {
        for ban in bans.into_iter().take(SCORED_PEERS) {
            let score = PeerScore { ban: Some(ban.clone()), ..PeerScore::default() };
            // A clock that was wrong must not ban a peer for years.
            let sane = ban.until_s <= now_s.saturating_add(BAN_MOST_S);
            if sane && !score.is_over(now_s) {
                self.records.insert(ban.peer, score);
            }
        }
    }

    /// All remembered bans, with those that are over.
    pub(crate) fn bans(&self) -> Vec<Ban> {
        self.records.values().filter_map(|score| score.ban.clone()).collect()
    }

    pub(crate) fn is_banned(&self, peer: PeerKey, now_s: u64) -> bool {
        let ban = self.records.get(&peer).and_then(|score| score.ban.as_ref());
        ban.is_some_and(|ban| ban.until_s > now_s)
    }

    pub(crate) fn banned(&self, now_s: u64) -> impl Iterator<Item = PeerKey> {
        let banned = move |score: &PeerScore| score.ban.as_ref().is_some_and(|ban| ban.until_s > now_s);
        self.records.iter().filter(move |(_, score)| banned(score)).map(|(peer, _)| *peer)
    }

    /// Drops records that are over first, then the peer with the fewest points and no ban, then the ban that ends
    /// first.
    fn evict(&mut self, now_s: u64) {
        if self.records.len() < SCORED_PEERS {
            return;
        }
        self.records.retain(|_, score| !score.is_over(now_s));
        if self.records.len() < SCORED_PEERS {
            return;
        }
        let weight = |score: &PeerScore| (score.ban.as_ref().map_or(0, |ban| ban.until_s), score.points_at(now_s));
        let least = self.records.iter().min_by_key(|(peer, score)| (weight(score), **peer)).map(|(peer, _)| *peer);
        least.iter().for_each(|peer| drop(self.records.remove(peer)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVE: PeerKey = PeerKey([6; 32]);
    const NOW: u64 = 1_000_000;

    fn bans_after(scores: &mut PeerScores, offence: Offence, count: u32, now_s: u64) -> Vec<Ban> {
        (0..count).filter_map(|_| scores.penalize(EVE, offence, now_s)).collect()
    }

    #[test]
    fn each_ban_is_twice_as_long_as_the_one_before_up_to_a_day() {
        let mut scores = PeerScores::default();
        let mut now_s = NOW;
        for times in 1..=14 {
            let bans = bans_after(&mut scores, Offence::WrongBytes, 4, now_s);
            let lasts_s = (BAN_S << (times - 1)).min(BAN_MOST_S);
            assert_eq!((bans.len(), bans[0].times, bans[0].until_s), (1, times, now_s + lasts_s));
            assert_eq!(scores.banned(now_s + lasts_s - 1).collect::<Vec<_>>(), [EVE]);
            assert_eq!(scores.banned(now_s + lasts_s).count(), 0);
            assert_eq!(bans_after(&mut scores, Offence::WrongBytes, 9, now_s + 1), [], "banned already");
            now_s += lasts_s;
        }
        let after = now_s + BANS_FORGOTTEN_S;
        assert_eq!(bans_after(&mut scores, Offence::WrongBytes, 4, after)[0].times, 1, "a week later it is forgotten");
    }

    #[test]
    fn what_happens_now_and_then_bans_nobody() {
        let mut scores = PeerScores::default();
        for hour in 0..1_000 {
            assert_eq!(bans_after(&mut scores, Offence::WrongBytes, 3, NOW + 3_600 * hour), []);
        }
        for second in 0..100 {
            assert_eq!(bans_after(&mut scores, Offence::TooFast, 1, NOW + 9_000_000 + second), []);
        }
        assert_eq!(bans_after(&mut scores, Offence::TooFast, BAN_POINTS, NOW + 9_100_000).len(), 1);
    }

    #[test]
    fn bans_survive_a_restart_but_not_a_clock_that_was_wrong() {
        let mut scores = PeerScores::default();
        bans_after(&mut scores, Offence::Unreadable, 5, NOW);
        let mut again = PeerScores::default();
        again.restore(scores.bans(), NOW + 1);
        assert_eq!(again.banned(NOW + 1).collect::<Vec<_>>(), [EVE]);
        assert_eq!(again.bans()[0].reason, "it sent messages that cannot be decoded");
        let mut wrong = PeerScores::default();
        wrong.restore(scores.bans(), NOW - 2 * BAN_MOST_S);
        assert_eq!(wrong.banned(NOW - 2 * BAN_MOST_S).count(), 0);
    }

    #[test]
    fn keys_that_are_made_up_neither_fill_the_memory_nor_free_whom_is_banned() {
        let mut scores = PeerScores::default();
        bans_after(&mut scores, Offence::Unreadable, 5, NOW);
        for number in 0..2 * SCORED_PEERS {
            let peer = PeerKey(*blake3::hash(&number.to_le_bytes()).as_bytes());
            scores.penalize(peer, Offence::Unreadable, NOW);
            assert!(scores.records.len() <= SCORED_PEERS);
        }
        assert_eq!(scores.banned(NOW + 1).collect::<Vec<_>>(), [EVE]);
    }
}
