//! Tests of how members on different chains, or at different heads, come together again.

use crate::protocol::Response;
use crate::protocol::limits::{LISTENED_MS, NO_MAJORITY_MS, OUTVOTED_OWNER_MS, STUCK_MS, VERSIONS_KEPT};
use crate::protocol::node::tests::*;

const FIFTH: PeerKey = PeerKey([5; 32]);

/// Lets the time pass while these members send heartbeats with these heads, the first as owner of a term.
fn meanwhile(
    node: &mut Node,
    (from_ms, to_ms): (u64, u64),
    owner: (u64, PeerKey),
    members: &[(PeerKey, Head)],
) -> Vec<(u64, Action)> {
    let mut actions = Vec::new();
    for at_ms in (from_ms..=to_ms).step_by(1_000) {
        for (peer, head) in members {
            let heartbeat = heartbeat(at_ms + 1, Some(*head), Some(owner));
            let heard = node.handle(Millis(at_ms), heard_heartbeat(*peer, heartbeat));
            actions.extend(heard.into_iter().map(|action| (at_ms, action)));
        }
        actions.extend(pass(node, at_ms, at_ms + 750));
    }
    actions
}

/// A chain of so many updates of another owner that no chain of [`updates`] has.
fn elsewhere(count: u64, owner: PeerKey) -> Vec<SignedUpdate> {
    let mut made: Vec<SignedUpdate> = Vec::new();
    for version in 1..=count {
        let mut signed = update(made.last().map_or(genesis(), head), 2, owner);
        signed.update.state = state(100 + version);
        made.push(signed);
    }
    made
}

#[test]
fn a_member_that_has_seen_no_phase_does_not_extend_the_chain_alone_however_long_it_lasts() {
    let chain = updates(2, OTHER);
    let mut node = member_with_owner(&chain);
    let at = head(&chain[1]);
    let forged = update(at, 1, THIRD);
    let members = [(OTHER, at), (FOURTH, at), (THIRD, head(&forged))];
    let actions = meanwhile(&mut node, (0, 3 * 3_600_000), (1, OTHER), &members);
    let (id, to) = *requests(&actions).last().unwrap();
    assert_eq!(to, THIRD);
    let response = Some(Response::Replay(vec![forged]));
    let answered = node.handle(Millis(3 * 3_600_000 + 900), Event::Answered { id, response });
    assert_eq!(answered, [Action::Report(Report::Unattested { module: MODULE, by: THIRD })]);
}

#[test]
fn an_owner_that_most_members_contradict_names_the_heaviest_of_them() {
    let mut records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: ME },
    ];
    records.extend(updates(2, ME).into_iter().map(Record::Head));
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    let others = elsewhere(2, OTHER);
    let members = [(THIRD, head(&others[0])), (OTHER, head(&others[1]))];
    let actions = meanwhile(&mut node, (0, OUTVOTED_OWNER_MS + 2_000), (1, ME), &members);
    let names = |it: &(u64, Action)| (it.1 == term(2, OTHER)).then_some(it.0);
    let named: Vec<u64> = actions.iter().filter_map(names).collect();
    assert_eq!(named.len(), 1, "{actions:?}");
    assert!(named[0] >= OUTVOTED_OWNER_MS, "after {} ms", named[0]);
}

#[test]
fn a_member_that_nobody_has_followed_gives_its_chain_up_for_a_heavier_one() {
    // Where another member is, of three, and whether it shows its chain; whether this one gives up its chain.
    let mine = updates(3, OTHER);
    let (behind, level, ahead) = (head(&mine[0]), head(&mine[1]), head(&mine[2]));
    for ((third, shows), gives_up) in [
        ((vec![behind], false), true),
        ((vec![level], false), false),
        ((vec![ahead], true), false),
        ((vec![ahead], false), true),
        ((vec![behind; 2], false), false),
    ] {
        let mut node = member(&mine[..2]);
        let other = elsewhere(4, OTHER);
        let mut members = vec![(OTHER, head(&other[3]))];
        members.extend([THIRD, FOURTH].into_iter().zip(third.clone()));
        let mut adopted = Vec::new();
        for from_ms in (0..=STUCK_MS + 5_000).step_by(1_000) {
            let actions = meanwhile(&mut node, (from_ms, from_ms), (2, OTHER), &members);
            for (id, to) in requests(&actions) {
                let response = match to {
                    OTHER => Some(Response::Snapshot(other.clone())),
                    _ if shows => Some(Response::Replay(vec![mine[2].clone()])),
                    // No answer, and one that shows nothing.
                    _ => (from_ms % 2_000 == 0).then(|| Response::Replay(vec![mine[2].clone(), mine[0].clone()])),
                };
                let answered = node.handle(Millis(from_ms + 800), Event::Answered { id, response });
                let fetches = |it: &Action| matches!(it, Action::Fetch { blob, .. } if *blob == state(104));
                adopted.extend(answered.iter().any(fetches).then_some((from_ms, to)));
            }
        }
        assert_eq!(!adopted.is_empty(), gives_up, "{third:?}, {shows}: {adopted:?}");
        assert!(adopted.iter().all(|(at_ms, _)| *at_ms >= STUCK_MS - 1_000), "{adopted:?}");
    }
}

#[test]
fn a_member_that_answers_with_what_follows_another_head_is_counted_there() {
    let mine = updates(2, OTHER);
    let mut node = member(&mine);
    let other = elsewhere(5, FOURTH);
    let members = [(OTHER, head(&other[3])), (THIRD, head(&other[4]))];
    let mut fetched = Vec::new();
    for from_ms in (0..10_000).step_by(1_000) {
        let actions = meanwhile(&mut node, (from_ms, from_ms), (2, OTHER), &members);
        for (id, to) in requests(&actions) {
            let response = match to {
                OTHER => Response::Snapshot(other[..4].to_vec()),
                _ => Response::Replay(vec![other[4].clone()]),
            };
            let answered = node.handle(Millis(from_ms + 800), Event::Answered { id, response: Some(response) });
            fetched.extend(answered.into_iter().filter(|it| matches!(it, Action::Fetch { .. })));
        }
    }
    let fetches = |it: &Action| matches!(it, Action::Fetch { blob, .. } if *blob == state(104));
    assert!(fetched.iter().any(fetches), "two of three are on it: {fetched:?}");
}

#[test]
fn a_member_far_behind_that_moves_is_on_another_chain() {
    let mine = updates(VERSIONS_KEPT + 10, OTHER);
    let mut node = member(&mine);
    let far_behind = elsewhere(3, THIRD);
    let asks = |node: &mut Node, from_ms, at: usize| {
        let members = [THIRD, FOURTH].map(|peer| (peer, head(&far_behind[at])));
        let actions = meanwhile(node, (from_ms, from_ms + 2_000), (1, OTHER), &members);
        !requests(&actions).is_empty()
    };
    assert!(!asks(&mut node, 0, 1), "they may have been away");
    assert!(asks(&mut node, 3_000, 2), "nobody on this node's chain has what they needed for that");
}

#[test]
fn a_newcomer_between_two_members_that_disagree_begins_after_a_while_with_the_owners_chain() {
    let records = vec![Record::Lease { path: PathId(0), held: true, standby: false }];
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    let (right, forged) = (updates(2, OTHER), elsewhere(9, THIRD));
    let members = [(OTHER, head(&right[1])), (THIRD, head(&forged[8]))];
    let mut fetched = Vec::new();
    for from_ms in (0..=NO_MAJORITY_MS + 5_000).step_by(1_000) {
        let actions = meanwhile(&mut node, (from_ms, from_ms), (1, OTHER), &members);
        for (id, to) in requests(&actions) {
            let chain = if to == OTHER { &right } else { &forged };
            let event = Event::Answered { id, response: Some(Response::Snapshot(chain.clone())) };
            fetched.extend(node.handle(Millis(from_ms + 800), event).into_iter().filter_map(|it| match it {
                Action::Fetch { blob, .. } => Some((from_ms, blob)),
                _ => None,
            }));
        }
    }
    assert!(fetched.iter().all(|(at_ms, blob)| *at_ms >= NO_MAJORITY_MS && *blob == state(2)), "{fetched:?}");
    assert!(!fetched.is_empty());
}

/// A member that has listened for long, beside members at genesis of which two hold the paths. Then the owner is ahead with
/// an update of an earlier term. Returns what the member does since.
fn behind(ahead: &SignedUpdate, holders: [PeerKey; 2]) -> Vec<Action> {
    let mut node = member(&[]);
    let mut actions = Vec::new();
    for from_ms in (0..=2 * LISTENED_MS).step_by(1_000) {
        let is_ahead = from_ms > LISTENED_MS + 1_000;
        for peer in [OTHER, THIRD, FOURTH, FIFTH] {
            let at = if is_ahead && peer == OTHER { head(ahead) } else { genesis() };
            let held = (0..).zip(holders).filter(|(_, holder)| *holder == peer);
            let leases = held.map(|(path, _)| lease(path, 0, Stage::Waiting)).collect();
            let heartbeat = Heartbeat { leases, ..heartbeat(from_ms + 1, Some(at), Some((3, OTHER))) };
            actions.extend(node.handle(Millis(from_ms), heard_heartbeat(peer, heartbeat)));
        }
        let passed = pass(&mut node, from_ms, from_ms + 750);
        for (id, _) in requests(&passed) {
            let response = Some(Response::Replay(vec![ahead.clone()]));
            actions.extend(node.handle(Millis(from_ms + 800), Event::Answered { id, response }));
        }
        actions.extend(passed.into_iter().map(|(_, action)| action));
    }
    actions
}

#[test]
fn what_was_counted_before_a_member_listened_is_believed_if_those_who_train_the_paths_are_on_it() {
    let mut ahead = update(genesis(), 1, OTHER);
    ahead.update.contributions.edit(|all| all.truncate(1));
    ahead.update.weight = 100;
    let fetches = |it: &Action| matches!(it, Action::Fetch { blob, .. } if *blob == average(1));
    let actions = behind(&ahead, [OTHER, THIRD]);
    assert!(actions.iter().any(fetches), "the owner trains the path itself: {actions:?}");
    let actions = behind(&ahead, [THIRD, OTHER]);
    assert!(!actions.iter().any(fetches), "whoever trains the path is not on it: {actions:?}");
}

#[test]
fn an_owner_ahead_by_what_is_doubted_steps_down_in_whatever_term_it_was_signed() {
    let actions = behind(&update(genesis(), 1, OTHER), [THIRD, FOURTH]);
    let steps_down = |it: &Action| matches!(it, Action::Report(Report::SteppedDown { owner: OTHER, .. }));
    assert!(actions.iter().any(steps_down), "{actions:?}");
}

#[test]
fn an_owner_ahead_with_a_state_and_nothing_that_leads_to_it_steps_down_after_a_while() {
    let chain = updates(4, OTHER);
    let mut node = member_with_owner(&chain[..1]);
    let members = [(OTHER, head(&chain[3])), (THIRD, head(&chain[0])), (FOURTH, head(&chain[0]))];
    let mut stepped_down = Vec::new();
    for from_ms in (0..=NO_MAJORITY_MS + 5_000).step_by(1_000) {
        let actions = meanwhile(&mut node, (from_ms, from_ms), (1, OTHER), &members);
        for (id, _) in requests(&actions) {
            let whole = Some(Response::Snapshot(chain.clone()));
            let answered = node.handle(Millis(from_ms + 800), Event::Answered { id, response: whole });
            let steps_down = |it: &Action| matches!(it, Action::Report(Report::SteppedDown { owner: OTHER, .. }));
            stepped_down.extend(answered.iter().any(steps_down).then_some(from_ms));
        }
    }
    assert_eq!(stepped_down.len(), 1, "{stepped_down:?}");
    assert!(stepped_down[0] >= NO_MAJORITY_MS - 1_000, "{stepped_down:?}");
}

#[test]
fn a_chain_that_does_not_move_gives_way_to_one_that_a_third_attests() {
    let mine = updates(1, FIFTH);
    let mut node = member(&mine);
    let other = elsewhere(20, OTHER);
    let (ahead, level) = (head(&other[19]), head(&mine[0]));
    let members = [(OTHER, ahead), (THIRD, ahead), (FOURTH, level), (FIFTH, level)];
    let mut fetched = Vec::new();
    for from_ms in (0..=STUCK_MS + 5_000).step_by(1_000) {
        let actions = meanwhile(&mut node, (from_ms, from_ms), (2, OTHER), &members);
        for (id, _) in requests(&actions) {
            let response = Some(Response::Snapshot(other[4..].to_vec()));
            let answered = node.handle(Millis(from_ms + 800), Event::Answered { id, response });
            let fetches = |it: &Action| matches!(it, Action::Fetch { blob, .. } if *blob == state(120));
            fetched.extend(answered.iter().any(fetches).then_some(from_ms));
        }
    }
    assert!(fetched.first().is_some_and(|from_ms| *from_ms >= STUCK_MS - 1_000), "{fetched:?}");
}
