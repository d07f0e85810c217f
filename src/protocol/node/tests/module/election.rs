//! Tests of elections.

use crate::protocol::limits::{
    ELECTION_STAGGER_MS, LONELY_RETURN_MS, MAX_TERM_JUMP, MAX_TERMS_IN_VAIN, MEMBER_LEASE_MS,
};
use crate::protocol::node::module::election::rank;
use crate::protocol::node::tests::*;

/// A peer that ranks before or after `ME`.
fn ranked(first: bool) -> PeerKey {
    let before = |peer: &PeerKey| (rank(MODULE, *peer) > rank(MODULE, ME)) == first;
    (4..=255).map(|byte| PeerKey([byte; 32])).find(before).unwrap()
}

/// Hears these peers, first 100 ms before the owner's lease expires. Returns how long after the lease this node claims
/// the module.
fn claims_after(others: &[(PeerKey, Head)], mine: &[SignedUpdate]) -> u64 {
    let mut node = member_with_owner(mine);
    pass(&mut node, 0, MEMBER_LEASE_MS - 100);
    let mut now = MEMBER_LEASE_MS - 100;
    for sequence in 2..40 {
        for (peer, head) in others {
            node.handle(Millis(now), heard_heartbeat(*peer, heartbeat(sequence, Some(*head), Some((1, OTHER)))));
        }
        for _ in 0..2 {
            if node.handle(Millis(now), Event::Tick).contains(&term(2, ME)) {
                return now - MEMBER_LEASE_MS;
            }
            now += 250;
        }
    }
    panic!("no claim");
}

#[test]
fn a_silent_owner_is_replaced_by_the_first_in_rank() {
    let mut node = member_with_owner(&[]);
    pass(&mut node, 0, MEMBER_LEASE_MS - 250);
    let claim = Heartbeat {
        sequence: 8,
        addresses: vec![],
        leases: vec![lease(0, 0, Stage::Training)],
        ..heartbeat(8, Some(genesis()), Some((2, ME)))
    };
    assert_eq!(
        node.handle(Millis(MEMBER_LEASE_MS), Event::Tick),
        vec![
            term(2, ME),
            new_owner(ME),
            publish(Message::Heartbeat(claim)),
            Action::Outer(Outer::OpenSum { module: MODULE, target: Version(1), running: 0 }),
        ]
    );
}

#[test]
fn the_second_in_rank_waits_for_the_first() {
    assert!(claims_after(&[(ranked(false), genesis())], &[]) < ELECTION_STAGGER_MS);
    assert!(claims_after(&[(ranked(true), genesis())], &[]) >= ELECTION_STAGGER_MS);
}

#[test]
fn a_member_that_is_behind_claims_after_those_that_are_not() {
    let ahead = head(&update(genesis(), 1, OTHER));
    assert!(claims_after(&[(ranked(false), ahead)], &[]) >= ELECTION_STAGGER_MS);
    let first = [update(genesis(), 1, OTHER)];
    assert!(claims_after(&[(ranked(true), genesis())], &first) < ELECTION_STAGGER_MS);
}

#[test]
fn a_later_term_takes_the_module_away() {
    let mut node = owner();
    let taken = vec![learn(THIRD), term(2, THIRD), new_owner(THIRD)];
    assert_eq!(node.handle(Millis(2_001), heard_heartbeat(THIRD, heartbeat(1, None, Some((2, THIRD))))), taken);
    // The average that is being computed is of no use now.
    let late = Event::Combined { module: MODULE, target: Version(1), average: average(1), state: state(1) };
    let forgotten = vec![Action::Release(state(1).hash), Action::Release(average(1).hash)];
    let mut forgotten_sorted = forgotten.clone();
    forgotten_sorted.sort_by_key(|action| format!("{action:?}"));
    let mut actions = node.handle(Millis(2_002), late);
    actions.sort_by_key(|action| format!("{action:?}"));
    assert_eq!(actions, forgotten_sorted);
}

#[test]
fn of_two_claims_to_the_same_term_the_first_in_rank_wins() {
    let (before, after) = (ranked(true), ranked(false));
    let mut node = owner();
    assert_eq!(
        node.handle(Millis(2_001), heard_heartbeat(after, heartbeat(1, None, Some((1, after))))),
        vec![learn(after)]
    );
    let taken = vec![learn(before), term(1, before), new_owner(before)];
    assert_eq!(node.handle(Millis(2_002), heard_heartbeat(before, heartbeat(1, None, Some((1, before))))), taken);
}

#[test]
fn the_next_term_is_claimed_if_the_owner_itself_names_another_owner_in_the_same_term() {
    for other in [ME, THIRD] {
        let mut node = member_with_owner(&[]);
        node.handle(Millis(100), heard_heartbeat(OTHER, heartbeat(2, Some(genesis()), Some((1, other)))));
        let claims = pass(&mut node, 250, MEMBER_LEASE_MS).into_iter().any(|(_, action)| action == term(2, ME));
        assert!(claims, "no other peer would");
    }
    let mut node = member_with_owner(&[]);
    node.reputation.owner_failed(node.now, MODULE, THIRD);
    node.handle(Millis(100), heard_heartbeat(OTHER, heartbeat(2, Some(genesis()), Some((1, THIRD)))));
    let claims = pass(&mut node, 250, MEMBER_LEASE_MS).into_iter().any(|(_, action)| action == term(2, ME));
    assert!(claims, "even if the named peer is not accepted as an owner");
    let mut node = member_with_owner(&[]);
    node.handle(Millis(100), heard_heartbeat(THIRD, heartbeat(2, Some(genesis()), Some((1, ME)))));
    node.handle(Millis(200), heard_heartbeat(OTHER, heartbeat(2, Some(genesis()), Some((1, OTHER)))));
    assert!(!node.handle(Millis(250), Event::Tick).contains(&term(2, ME)), "the claims of others do not matter");
}

#[test]
fn an_owner_that_leaves_is_replaced_at_once() {
    let mut node = member_with_owner(&[]);
    let parting = Heartbeat { leaving: true, ..heartbeat(2, Some(genesis()), Some((1, OTHER))) };
    assert_eq!(node.handle(Millis(100), heard_heartbeat(OTHER, parting)), vec![]);
    let claim = Heartbeat {
        addresses: vec![],
        leases: vec![lease(0, 0, Stage::Training)],
        ..heartbeat(4, Some(genesis()), Some((2, ME)))
    };
    assert_eq!(
        node.handle(Millis(250), Event::Tick),
        vec![
            term(2, ME),
            new_owner(ME),
            publish(Message::Heartbeat(claim)),
            Action::Outer(Outer::OpenSum { module: MODULE, target: Version(1), running: 0 }),
        ]
    );
}

#[test]
fn a_peer_that_has_just_started_considers_nobody_dead() {
    let mut node = member(&[]);
    assert!(!pass(&mut node, 0, MEMBER_LEASE_MS - 250).iter().any(|(_, action)| *action == term(2, ME)));
    assert!(node.handle(Millis(MEMBER_LEASE_MS), Event::Tick).contains(&term(2, ME)));
}

#[test]
fn a_claim_that_the_journal_has_lost_is_made_valid_by_a_new_term() {
    let mut node = member(&[]);
    let heard = node.handle(Millis(100), heard_heartbeat(OTHER, heartbeat(1, Some(genesis()), Some((7, ME)))));
    assert_eq!(heard, vec![learn(OTHER), term(7, ME), new_owner(ME)]);
    let mut claimed = false;
    for now in [250, 1_500, 3_000] {
        node.handle(Millis(now), heard_heartbeat(OTHER, heartbeat(now, Some(genesis()), Some((7, ME)))));
        claimed |= node.handle(Millis(now), Event::Tick).contains(&term(8, ME));
    }
    assert!(claimed);
}

#[test]
fn a_term_that_would_exhaust_the_numbers_is_not_accepted() {
    let mut node = member(&[]);
    let absurd = heartbeat(1, Some(genesis()), Some((u64::MAX, THIRD)));
    assert_eq!(node.handle(Millis(0), heard_heartbeat(THIRD, absurd)), vec![learn(THIRD)]);
    let far = heartbeat(2, Some(genesis()), Some((MAX_TERM_JUMP, THIRD)));
    let actions = node.handle(Millis(0), heard_heartbeat(THIRD, far));
    assert_eq!(actions, vec![term(MAX_TERM_JUMP, THIRD), new_owner(THIRD)]);
}

#[test]
fn an_update_with_such_a_term_is_not_accepted_either() {
    let mut node = member_with_owner(&[]);
    let actions = node.handle(Millis(10), heard(THIRD, Message::Update(update(genesis(), u64::MAX, THIRD))));
    assert!(matches!(&actions[..], [Action::Report(Report::Refused { .. })]), "{actions:?}");
    let far = update(genesis(), 1 + MAX_TERM_JUMP, THIRD);
    assert!(node.handle(Millis(20), heard(THIRD, Message::Update(far))).contains(&new_owner(THIRD)));
}

#[test]
fn a_peer_that_has_returned_and_heard_nobody_waits_longer() {
    let claims_at = |hears: bool| {
        let records = vec![
            Record::Started(1),
            Record::Genesis { module: MODULE, state: state(0) },
            Record::Term { module: MODULE, term: Term(1), owner: OTHER },
            Record::Lease { path: PathId(0), held: true, standby: false },
        ];
        let mut node = Node::restore(ME, plan(), records);
        node.handle(Millis(0), Event::Join(vec![]));
        if hears {
            node.handle(Millis(0), heard_heartbeat(THIRD, heartbeat(1, None, None)));
        }
        let mut times = (0..200).map(|sweep| 250 * sweep);
        times.find(|now| node.handle(Millis(*now), Event::Tick).contains(&term(2, ME))).unwrap()
    };
    assert!((LONELY_RETURN_MS..LONELY_RETURN_MS + 500).contains(&claims_at(false)));
    assert!(claims_at(true) < 2 * MEMBER_LEASE_MS);
}

#[test]
fn an_owner_that_leaves_hands_off_and_its_successor_continues_at_once() {
    let mut node = owner();
    let said = node.handle(Millis(2_100), Event::Leave);
    assert!(said.contains(&term(2, OTHER)), "persisted before it is published: {said:?}");
    let parting = said.iter().find_map(|action| match action {
        Action::Publish { message: Message::Heartbeat(heartbeat), .. } if heartbeat.leaving => Some(heartbeat.clone()),
        _ => None,
    });
    assert_eq!(parting.unwrap().owner, Some((Term(2), OTHER)));

    let mut successor = member_with_owner(&[]);
    let parting = Heartbeat { leaving: true, ..heartbeat(2, Some(genesis()), Some((2, ME))) };
    let actions = successor.handle(Millis(100), heard_heartbeat(OTHER, parting));
    assert!(actions.contains(&term(2, ME)));
    assert!(actions.contains(&Action::Outer(Outer::OpenSum { module: MODULE, target: Version(1), running: 0 })));
}

#[test]
fn only_the_owner_itself_can_name_its_successor() {
    let mut node = member_with_owner(&[]);
    let parting = Heartbeat { leaving: true, ..heartbeat(1, Some(genesis()), Some((2, ME))) };
    let actions = node.handle(Millis(100), heard_heartbeat(THIRD, parting));
    assert!(!actions.contains(&term(2, ME)), "{actions:?}");
}

/// `OTHER` sends a heartbeat as the owner in this term once a second, while time passes.
fn with_heartbeats(node: &mut Node, seconds: std::ops::Range<u64>, term: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    for second in seconds {
        let lives = Heartbeat {
            leases: vec![lease(1, 0, Stage::Waiting)],
            ..heartbeat(2 + second, Some(genesis()), Some((term, OTHER)))
        };
        actions.extend(node.handle(Millis(second * 1_000), heard_heartbeat(OTHER, lives)));
        actions.extend(pass(node, second * 1_000, second * 1_000 + 900).into_iter().map(|(_, action)| action));
    }
    actions
}

#[test]
fn an_owner_that_sends_heartbeats_but_no_updates_is_replaced_and_not_accepted_again() {
    let mut node = member_with_owner(&[]);
    node.handle(Millis(1), Event::Trained(trained(0, genesis())));
    node.handle(Millis(1), heard(OTHER, Message::Offer(offer(1, genesis()))));
    let actions = with_heartbeats(&mut node, 0..40, 1);
    assert!(actions.contains(&term(2, ME)), "its update is overdue");
    let stepped_down = |action: &Action| matches!(action, Action::Report(Report::SteppedDown { owner: OTHER, .. }));
    assert_eq!(actions.iter().filter(|action| stepped_down(action)).count(), 1);
    let actions = with_heartbeats(&mut node, 40..50, 9);
    assert!(!actions.contains(&term(9, OTHER)), "it claims again, and is not accepted");
}

#[test]
fn an_owner_that_takes_term_after_term_without_an_update_is_not_accepted() {
    let after_terms_of = |author: PeerKey| {
        let mut node = member_with_owner(&[]);
        let mut terms = Vec::new();
        for heartbeats in 1..2 * u64::from(MAX_TERMS_IN_VAIN) {
            let claims = heartbeat(1 + heartbeats, Some(genesis()), Some((2 + heartbeats, OTHER)));
            terms.push(node.handle(Millis(100 * heartbeats), heard_heartbeat(author, claims)));
        }
        let stepped_down = |action: &Action| matches!(action, Action::Report(Report::SteppedDown { owner: OTHER, .. }));
        let at = terms.iter().position(|actions| actions.iter().any(stepped_down));
        (at, at.is_some_and(|at| terms[at + 1].contains(&new_owner(OTHER))))
    };
    assert_eq!(after_terms_of(OTHER), (Some(MAX_TERMS_IN_VAIN as usize - 1), false));
    assert_eq!(after_terms_of(THIRD), (None, false), "claims reported by another peer do it no harm");
}

#[test]
fn the_time_an_owner_may_take_does_not_depend_on_the_clock_at_the_start_of_a_run() {
    let begins_s = 50_000;
    let held = Record::Lease { path: PathId(0), held: true, standby: false };
    let owned = Record::Term { module: MODULE, term: Term(1), owner: OTHER };
    let records = vec![Record::Genesis { module: MODULE, state: state(0) }, owned, held];
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(begins_s * 1_000), Event::Join(vec![]));
    with_heartbeats(&mut node, begins_s..begins_s + 2, 1);
    node.handle(Millis((begins_s + 2) * 1_000), Event::Trained(trained(0, genesis())));
    node.handle(Millis((begins_s + 2) * 1_000), heard(OTHER, Message::Offer(offer(1, genesis()))));
    assert!(with_heartbeats(&mut node, begins_s + 2..begins_s + 100, 1).contains(&term(2, ME)));
}

#[test]
fn a_failed_owner_that_offers_its_path_to_nobody_is_not_waited_for() {
    let mut node = member_with_owner(&[]);
    node.handle(Millis(1), heard(OTHER, Message::Offer(offer(1, genesis()))));
    node.handle(Millis(1), Event::Trained(trained(0, genesis())));
    let mut actions = with_heartbeats(&mut node, 0..40, 1);
    let mine = gradient(0, 0);
    // Its offer cannot be fetched, and it offers nothing more.
    for second in 40..44 {
        node.handle(Millis(second * 1_000), Event::Fetched { blob: gradient(1, 0).hash, found: false });
        actions.extend(with_heartbeats(&mut node, second..second + 1, 1));
    }
    assert!(actions.contains(&term(2, ME)), "{actions:?}");
    node.handle(Millis(44_000), Event::Fetched { blob: mine.hash, found: true });
    let counted_in = Event::Accumulated { module: MODULE, target: Version(1), blob: mine.hash, norm: Some(NORM) };
    let mut closed = node.handle(Millis(44_000), counted_in);
    closed.extend(with_heartbeats(&mut node, 44..45, 1));
    let combines = |action: &Action| matches!(action, Action::Outer(Outer::Combine { .. }));
    assert!(closed.iter().any(combines), "path 1 is not waited for: {closed:?}");
}

#[test]
fn an_owner_that_waits_for_contributions_is_not_overdue() {
    let mut node = member_with_owner(&[]);
    let actions = with_heartbeats(&mut node, 0..100, 1);
    assert!(!actions.contains(&term(2, ME)));
}

#[test]
fn a_node_that_was_suspended_considers_nobody_dead() {
    let mut node = member_with_owner(&[]);
    with_heartbeats(&mut node, 0..20, 1);
    assert!(!node.handle(Millis(60_000), Event::Tick).contains(&term(2, ME)));
    assert!(!with_heartbeats(&mut node, 61..64, 1).contains(&term(2, ME)));
    let silent = pass(&mut node, 64_000, 75_000);
    assert!(silent.iter().any(|(_, action)| *action == term(2, ME)), "but it does not wait forever");
}

#[test]
fn a_regular_owner_that_does_not_respond_either_is_dead_after_two_heartbeats() {
    let mut node = member_with_owner(&[]);
    with_heartbeats(&mut node, 0..20, 1);
    let claim = pass(&mut node, 19_900, 30_000).into_iter().find(|(_, action)| *action == term(2, ME));
    let silent_ms = claim.unwrap().0 - 19_000;
    assert!((1_900..=2_100).contains(&silent_ms), "{silent_ms}");
}

#[test]
fn a_peer_that_comes_and_goes_claims_after_those_that_stay() {
    let flapping = ranked(true);
    let mut node = member_with_owner(&[]);
    with_heartbeats(&mut node, 0..40, 1);
    // It ranks first but has just restarted. This node has been present for long and does not wait for it.
    let start = Start { incarnation: 5, ..Start::default() };
    let again = Heartbeat { start, ..heartbeat(1, Some(genesis()), Some((1, OTHER))) };
    node.handle(Millis(40_000), heard_heartbeat(flapping, again));
    let claim = pass(&mut node, 40_000, 50_000).into_iter().find(|(_, action)| *action == term(2, ME));
    let silent_ms = claim.unwrap().0 - 39_000;
    assert!(silent_ms < 2_200 + ELECTION_STAGGER_MS, "{silent_ms}");
}

#[test]
fn an_update_of_an_owner_that_is_not_accepted_raises_the_term_all_the_same() {
    let mut node = member_with_owner(&[]);
    node.force_step_down(MODULE, "overdue".to_owned());
    node.hear_later_term(MODULE, Term(5), OTHER);
    assert!(node.handle(Millis(250), Event::Tick).contains(&term(6, ME)), "its own update follows that update");
}

#[test]
fn a_later_term_of_another_is_believed_only_with_the_claim_that_its_owner_signed() {
    let mut node = member_with_owner(&[]);
    let named = |sequence: u64, claim: Vec<u8>| {
        heard_heartbeat(OTHER, Heartbeat { claim, ..heartbeat(sequence, Some(genesis()), Some((2, THIRD))) })
    };
    let unknown = node.handle(Millis(100), named(2, vec![9; 64]));
    assert!(!unknown.contains(&term(2, THIRD)), "it is no living member: {unknown:?}");
    node.handle(Millis(110), heard_heartbeat(THIRD, heartbeat(1, Some(genesis()), Some((1, OTHER)))));
    // The owner itself may hand the module on; anybody else may not.
    let by_another = |claim: Vec<u8>| {
        let heartbeat = Heartbeat { claim, ..heartbeat(1, Some(genesis()), Some((2, THIRD))) };
        heard_heartbeat(PeerKey([4; 32]), heartbeat)
    };
    let unsigned = node.handle(Millis(120), by_another(vec![]));
    assert!(!unsigned.contains(&term(2, THIRD)), "{unsigned:?}");
    let signed = node.handle(Millis(200), named(3, vec![9; 64]));
    assert!(signed.contains(&term(2, THIRD)), "{signed:?}");
    node.handle(Millis(250), Event::Tick);
    let passed_on = node.handle(Millis(1_250), Event::Tick);
    let carries = |action: &Action| {
        let Action::Publish { message: Message::Heartbeat(heartbeat), .. } = action else { return false };
        heartbeat.owner == Some((Term(2), THIRD)) && heartbeat.claim == [9; 64]
    };
    assert!(passed_on.iter().any(carries), "{passed_on:?}");
}
