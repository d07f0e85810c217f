//! What the roster promises.

use super::*;
use crate::protocol::limits::{ADMITTED_PER_SECOND, MEMBER_LEASE_MS, NEWCOMER_STAYS_MS};

fn heartbeat(incarnation: u64, sequence: u64) -> Heartbeat {
    let start = Start { incarnation, ..Start::default() };
    Heartbeat {
        start,
        sequence,
        head: None,
        owner: None,
        claim: vec![],
        leases: vec![],
        addresses: vec![],
        replicas: 0,
        wanted: vec![],
        copied: vec![],
        leaving: false,
        pace: 0,
    }
}

const MODULE: ModuleId = ModuleId { level: 0, expert: 0 };
const PEER: PeerKey = PeerKey([7; 32]);

#[test]
fn a_member_is_alive_for_the_time_of_its_lease() {
    let mut roster = Roster::default();
    assert_eq!(roster.hear(Millis(100), MODULE, PEER, &heartbeat(1, 1)).0, Heard::New);
    assert!(roster.lives(Millis(100 + MEMBER_LEASE_MS - 1), MODULE, PEER));
    assert!(!roster.lives(Millis(100 + MEMBER_LEASE_MS), MODULE, PEER));
}

#[test]
fn an_old_heartbeat_does_not_revive_a_dead_member() {
    let mut roster = Roster::default();
    roster.hear(Millis(0), MODULE, PEER, &heartbeat(2, 5));
    assert_eq!(roster.hear(Millis(9_000), MODULE, PEER, &heartbeat(2, 5)).0, Heard::Ignored);
    assert_eq!(roster.hear(Millis(4_900), MODULE, PEER, &heartbeat(1, 99)).0, Heard::Ignored);
    assert!(!roster.lives(Millis(9_000), MODULE, PEER));
    assert_eq!(roster.hear(Millis(9_000), MODULE, PEER, &heartbeat(3, 1)).0, Heard::Known);
    assert!(roster.lives(Millis(9_000), MODULE, PEER));
}

#[test]
fn a_heartbeat_beyond_the_bounds_is_ignored() {
    let mut roster = Roster::default();
    let long = Heartbeat { addresses: vec!["x".repeat(MAX_ADDRESS_BYTES + 1)], ..heartbeat(1, 1) };
    assert_eq!(roster.hear(Millis(0), MODULE, PEER, &long).0, Heard::Ignored);
}

fn made_up(number: u64) -> PeerKey {
    PeerKey(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

fn holds(sequence: u64) -> Heartbeat {
    let lease = Lease { path: PathId(1), phase: crate::names::Phase(0), stage: Stage::Training, trainer: None };
    Heartbeat { leases: vec![lease], ..heartbeat(1, sequence) }
}

/// A roster in which everybody has been heard once a second for a while: first [`PEER`], and then as many made-up peers
/// as there is room for, all of which claim to hold a path. Returns what is the present time.
fn filled() -> (Roster, Millis) {
    let mut roster = Roster::default();
    let mut taken_in = 0;
    for second in 0.. {
        let now = Millis(1_000 * second);
        roster.hear(now, MODULE, PEER, &holds(1 + second));
        for number in 1..MAX_MEMBERS as u64 {
            taken_in += usize::from(roster.hear(now + 1, MODULE, made_up(number), &holds(1 + second)).0 == Heard::New);
        }
        assert!(taken_in <= ADMIT_AT_ONCE + ADMITTED_PER_SECOND * (3 + second as usize));
        if roster.peers() == MAX_MEMBERS && second > 60 {
            return (roster, now + 1);
        }
    }
    unreachable!("a second follows each")
}

#[test]
fn a_newcomer_that_repeats_its_heartbeats_gets_in_and_stays_while_made_up_keys_come_without_end() {
    // 600 messages a second: 400 keep the made-up members alive, and the rest are of new keys, heard once or without end.
    for (repeat, within_ms) in [(false, 5_000), (true, 60_000)] {
        let (mut roster, began) = filled();
        let (newcomer, mut known_ms) = (PeerKey([8; 32]), None);
        for ms in 0..120_000 {
            let now = began + ms;
            let slot = ms / 5;
            let author = match ms % 5 {
                0 | 1 => made_up(1 + (2 * slot + ms % 5) % (MAX_MEMBERS as u64 - 1)),
                2 => made_up(1_000_000 + if repeat { slot % 400 } else { slot }),
                _ => continue,
            };
            roster.hear(now, MODULE, author, &holds(1_000 + ms));
            if slot % 200 == 0 && ms % 5 == 0 {
                roster.hear(now, MODULE, PEER, &holds(1_000 + ms));
                // It comes last, and has no path.
                let is_known =
                    ms >= 5_000 && roster.hear(now, MODULE, newcomer, &heartbeat(1, 1 + ms)).0 != Heard::Ignored;
                assert!(is_known || known_ms.is_none(), "forgotten after {ms} ms");
                known_ms = known_ms.or_else(|| is_known.then_some(ms));
            }
            assert!(roster.peers() <= MAX_MEMBERS);
        }
        assert!(known_ms.is_some_and(|ms| ms <= 5_000 + within_ms), "{known_ms:?}");
        assert!(roster.lives(began + 120_000, MODULE, PEER), "nobody who was here before is forgotten");
    }
}

#[test]
fn a_member_that_restarts_keeps_its_place_while_made_up_keys_come_without_end() {
    let (mut roster, began) = filled();
    // It is silent for 15 s, and comes back with another start.
    for second in 1..15 {
        let now = began + 1_000 * second;
        for number in 1..MAX_MEMBERS as u64 {
            roster.hear(now, MODULE, made_up(number), &holds(1_000 + second));
            roster.hear(now, MODULE, made_up(1_000_000 + number), &holds(1_000 + second));
        }
        assert!(roster.member(PEER).is_some());
    }
    assert_eq!(roster.hear(began + 15_000, MODULE, PEER, &heartbeat(2, 1)).0, Heard::Known);
}

#[test]
fn a_heartbeat_that_is_ignored_forgets_nobody() {
    let (mut roster, now) = filled();
    let known = |roster: &Roster| roster.members.iter().map(|(peer, _)| peer).collect::<Vec<_>>();
    let before = known(&roster);
    let long = Heartbeat { addresses: vec!["x".repeat(MAX_ADDRESS_BYTES + 1)], ..holds(1) };
    for (number, heartbeat) in [long, Heartbeat { leaving: true, ..holds(1) }, holds(0)].into_iter().enumerate() {
        let author = made_up(1_000_000 + number as u64);
        assert_eq!(roster.hear(now + 1_000, MODULE, author, &heartbeat).0, Heard::Ignored);
    }
    assert_eq!(known(&roster), before);
}

#[test]
fn a_new_peer_that_repeats_its_heartbeats_is_not_forgotten_for_a_while() {
    let rank = |steady_ms, speaks| Rank::of(false, steady_ms, (true, speaks));
    assert_eq!(rank(NEWCOMER_STAYS_MS - 1, true), None);
    assert_eq!(rank(NEWCOMER_STAYS_MS - 1, false), Some(Rank::OfTheYounger), "it was heard once");
    assert_eq!(rank(NEWCOMER_STAYS_MS, true), Some(Rank::OfTheYounger));
    assert_eq!(Rank::of(true, NEWCOMER_STAYS_MS, (true, false)), None, "it is of the older half");
}

#[test]
fn a_full_directory_names_those_that_have_been_here_for_longest() {
    let mut roster = Roster::default();
    for number in 0..20 {
        roster.hear(Millis(number * 10), MODULE, made_up(number), &heartbeat(1, 1));
    }
    let named = |most| roster.steadiest(Millis(1_000), most).map(|entry| entry.peer).collect::<Vec<_>>();
    let mut first: Vec<PeerKey> = (0..5).map(made_up).collect();
    first.sort_unstable();
    assert_eq!(named(5), first);
    assert_eq!(named(20), roster.directory(Millis(1_000)).map(|entry| entry.peer).collect::<Vec<_>>());
}

#[test]
fn a_member_that_leaves_is_gone_at_once() {
    let mut roster = Roster::default();
    roster.hear(Millis(0), MODULE, PEER, &heartbeat(1, 1));
    roster.hear(Millis(1), MODULE, PEER, &Heartbeat { leaving: true, ..heartbeat(1, 2) });
    assert!(!roster.lives(Millis(1), MODULE, PEER));
}
