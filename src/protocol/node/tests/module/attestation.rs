//! Tests of which chains a node follows: no single message replaces a chain or extends it.

use crate::protocol::limits::{ATTESTED_MS, DOUBT_MS, GAP_TIMEOUT_MS, LISTENED_MS};
use crate::protocol::node::tests::*;
use crate::protocol::{RequestId, Response};

/// Heartbeats of these members at these heads, the first of them as owner of term 1, and the requests that follow.
fn hears(node: &mut Node, at_ms: u64, sequence: u64, members: &[(PeerKey, Head)]) -> Vec<(RequestId, PeerKey)> {
    for (peer, head) in members {
        let owner = Some((1, members[0].0));
        node.handle(Millis(at_ms), heard_heartbeat(*peer, heartbeat(sequence, Some(*head), owner)));
    }
    requests(&pass(node, at_ms, at_ms + GAP_TIMEOUT_MS + 250))
}

fn persists(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Persist(_)))
}

fn unattested(by: PeerKey) -> Action {
    Action::Report(Report::Unattested { module: MODULE, by })
}

/// One self-signed update far ahead, of the greatest weight.
fn hijack(by: PeerKey) -> SignedUpdate {
    let before = Head { version: Version(PHASES - 1), weight: 160 * (PHASES - 1), ..genesis() };
    update(before, 9, by)
}

#[test]
fn a_snapshot_of_one_self_signed_update_does_not_replace_the_chain_of_the_others() {
    let chain = updates(2, OTHER);
    let mut node = member_with_owner(&chain);
    let forged = hijack(THIRD);
    let at = head(&chain[1]);
    let asked = hears(&mut node, 10, 2, &[(OTHER, at), (FOURTH, at), (THIRD, head(&forged))]);
    let [(id, THIRD), ..] = asked[..] else { panic!("{asked:?}") };
    let now = Millis(1_000);
    let answer = |id| Event::Answered { id, response: Some(Response::Snapshot(vec![forged.clone()])) };
    assert_eq!(node.handle(now, answer(id)), [unattested(THIRD)]);
    assert_eq!(node.states(), vec![(MODULE, Version(2), state(2))]);
    let meanwhile = node.handle(Millis(1_000 + GAP_TIMEOUT_MS - 1), Event::Tick);
    assert!(!meanwhile.iter().any(|it| matches!(it, Action::Ask { .. })), "the next request waits: {meanwhile:?}");
}

#[test]
fn a_newcomer_does_not_begin_with_a_chain_that_most_members_contradict() {
    let records = vec![Record::Lease { path: PathId(0), held: true, standby: false }];
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    pass(&mut node, 0, 2_500);
    let (right, forged) = (updates(20, OTHER), hijack(THIRD));
    let members = [(OTHER, head(&right[19])), (FOURTH, head(&right[19])), (THIRD, head(&forged))];
    let asked = hears(&mut node, 2_500, 1, &members);
    let (id, _) = *asked.iter().find(|(_, to)| *to == THIRD).unwrap_or_else(|| panic!("{asked:?}"));
    let response = Some(Response::Snapshot(vec![forged]));
    let actions = node.handle(Millis(3_300), Event::Answered { id, response });
    assert!(actions.contains(&unattested(THIRD)) && !persists(&actions), "{actions:?}");
    let asked = hears(&mut node, 3_500, 2, &members);
    let (id, _) = *asked.iter().find(|(_, to)| *to != THIRD).unwrap_or_else(|| panic!("{asked:?}"));
    node.handle(Millis(4_300), Event::Answered { id, response: Some(Response::Snapshot(right[4..].to_vec())) });
    installed(&mut node, Millis(4_310), state(20));
    assert_eq!(node.states(), vec![(MODULE, Version(20), state(20))]);
}

#[test]
fn a_state_that_cannot_be_read_is_never_journaled() {
    let chain = updates(20, OTHER);
    let mut node = member(&[]);
    let asked = hears(&mut node, 10, 1, &[(OTHER, head(&chain[19])), (THIRD, head(&chain[19]))]);
    let (id, _) = asked[0];
    node.handle(Millis(900), Event::Answered { id, response: Some(Response::Snapshot(chain[4..].to_vec())) });
    let read = node.handle(Millis(910), Event::Fetched { blob: state(20).hash, found: true });
    assert_eq!(read, [Action::Outer(Outer::Decode { module: MODULE, state: state(20) })]);
    let refused = node.handle(Millis(920), Event::Decoded { module: MODULE, state: state(20).hash, so: false });
    assert!(!persists(&refused), "{refused:?}");
    assert!(refused.iter().any(|it| matches!(it, Action::Report(Report::Refused { .. }))), "{refused:?}");
    assert_eq!(node.states(), vec![(MODULE, Version(0), state(0))]);
    assert_eq!(hears(&mut node, 1_000, 2, &[(OTHER, head(&chain[19]))]), [], "that head is not asked for again");
}

#[test]
fn a_member_does_not_extend_the_chain_alone() {
    let chain = updates(2, OTHER);
    let mut node = member_with_owner(&chain);
    let at = head(&chain[1]);
    let forged = update(at, 1, THIRD);
    let asked = hears(&mut node, 10, 2, &[(OTHER, at), (FOURTH, at), (THIRD, head(&forged))]);
    let (id, _) = asked[0];
    let response = Some(Response::Replay(vec![forged.clone()]));
    assert_eq!(node.handle(Millis(900), Event::Answered { id, response: response.clone() }), [unattested(THIRD)]);
    // Another member has applied it, too, so more attest it than do not.
    let asked = hears(&mut node, 1_000, 3, &[(OTHER, at), (FOURTH, head(&forged)), (THIRD, head(&forged))]);
    let (id, _) = asked[0];
    let followed = node.handle(Millis(2_000), Event::Answered { id, response });
    assert!(matches!(followed[..], [Action::Fetch { .. }]), "{followed:?}");
}

#[test]
fn of_a_replay_only_what_most_members_have_applied_is_applied() {
    let chain = updates(5, OTHER);
    let mut node = member_with_owner(&chain[..2]);
    let [at, next, forged] = [1, 2, 4].map(|place| head(&chain[place]));
    let asked = hears(&mut node, 10, 2, &[(OTHER, next), (FOURTH, next), (PeerKey([5; 32]), at), (THIRD, forged)]);
    let [(id, THIRD), ..] = asked[..] else { panic!("{asked:?}") };
    let mut replay = chain[2..].to_vec();
    replay[1..].iter_mut().for_each(|signed| signed.update.owner = THIRD);
    replay[2].update.parent = head(&replay[1]).update;
    node.handle(Millis(900), Event::Answered { id, response: Some(Response::Replay(replay)) });
    node.handle(Millis(910), Event::Fetched { blob: average(3).hash, found: true });
    let applied = Event::Applied { module: MODULE, version: Version(3), state: Some(state(3)) };
    let after = node.handle(Millis(920), applied);
    assert_eq!(node.states(), vec![(MODULE, Version(3), state(3))]);
    let next = |it: &Action| matches!(it, Action::Fetch { blob, .. } if *blob == average(4));
    assert!(!after.iter().any(next), "{after:?}");
}

#[test]
fn a_member_that_is_silent_for_a_moment_is_still_against_what_it_has_not_seen() {
    let chain = updates(2, OTHER);
    let at = head(&chain[1]);
    let forged = update(at, 1, THIRD);
    let followed = [ATTESTED_MS - 2_000, ATTESTED_MS].map(|silent_ms| {
        let mut node = member_with_owner(&chain);
        hears(&mut node, 10, 2, &[(OTHER, at), (FOURTH, at)]);
        pass(&mut node, 1_000, silent_ms);
        let alone = heartbeat(3, Some(head(&forged)), Some((1, OTHER)));
        node.handle(Millis(silent_ms), heard_heartbeat(THIRD, alone));
        let (id, _) = hears(&mut node, silent_ms, 4, &[])[0];
        let response = Some(Response::Replay(vec![forged.clone()]));
        let actions = node.handle(Millis(silent_ms + 1_000), Event::Answered { id, response });
        actions.iter().any(|it| matches!(it, Action::Fetch { .. }))
    });
    assert_eq!(followed, [false, true]);
}

#[test]
fn an_owner_alone_extends_the_chain_by_one_update_and_not_by_several() {
    let chain = updates(4, OTHER);
    let at = head(&chain[1]);
    for (ahead, follows) in [(1, true), (2, false)] {
        let mut node = member_with_owner(&chain[..2]);
        let members = [(OTHER, head(&chain[1 + ahead])), (THIRD, at), (FOURTH, at)];
        let asked = hears(&mut node, 10, 2, &members);
        let (id, _) = asked[0];
        let whole = Some(Response::Snapshot(chain[..2 + ahead].to_vec()));
        let actions = node.handle(Millis(900), Event::Answered { id, response: whole });
        assert_eq!(actions.contains(&unattested(OTHER)), !follows, "{ahead}: {actions:?}");
    }
}

#[test]
fn a_chain_that_begins_late_has_most_of_the_updates_that_members_keep() {
    let chain = updates(20, OTHER);
    for (kept, adopts) in [(7, false), (8, true)] {
        let mut node = member(&[]);
        let asked = hears(&mut node, 10, 1, &[(OTHER, head(&chain[19])), (THIRD, head(&chain[19]))]);
        let (id, _) = asked[0];
        let response = Some(Response::Snapshot(chain[20 - kept..].to_vec()));
        let actions = node.handle(Millis(900), Event::Answered { id, response });
        assert_eq!(actions.iter().any(|it| matches!(it, Action::Fetch { .. })), adopts, "{actions:?}");
    }
    let mut impossible = chain[4..].to_vec();
    impossible[0].update.contributions[0].parent = Version(5);
    for after in 1..impossible.len() {
        impossible[after].update.parent = head(&impossible[after - 1]).update;
    }
    let at = head(&impossible[15]);
    let mut node = member(&[]);
    let asked = hears(&mut node, 10, 1, &[(OTHER, at), (THIRD, at)]);
    let response = Some(Response::Snapshot(impossible));
    let actions = node.handle(Millis(900), Event::Answered { id: asked[0].0, response });
    let refused = |it: &Action| matches!(it, Action::Report(Report::Refused { .. }));
    assert!(actions.iter().any(refused), "its first update is checked as far as it can be: {actions:?}");
}

#[test]
fn a_member_on_its_own_chain_follows_the_majority_although_that_is_lighter() {
    let mine = updates(2, ME);
    let mut node = member(&mine);
    let mut lighter = updates(1, OTHER);
    lighter[0].update.contributions.edit(|all| all.truncate(1));
    (lighter[0].update.weight, lighter[0].update.state) = (100, state(11));
    let at = head(&lighter[0]);
    assert_eq!(hears(&mut node, 10, 1, &[(OTHER, at)]), [], "one other member is no majority");
    let asked = hears(&mut node, 1_000, 2, &[(OTHER, at), (THIRD, at)]);
    let (id, _) = asked[0];
    node.handle(Millis(2_000), Event::Answered { id, response: Some(Response::Snapshot(lighter.clone())) });
    let actions = installed(&mut node, Millis(2_010), state(11));
    let record = Record::Installed { updates: lighter, replays_from: Version(1) };
    assert!(actions.contains(&Action::Persist(record.clone())), "{actions:?}");
    let mut records = vec![Record::Genesis { module: MODULE, state: state(0) }];
    records.extend(mine.into_iter().map(Record::Head).chain([record]));
    let restored = Node::restore(ME, plan(), records);
    assert_eq!(restored.states(), vec![(MODULE, Version(1), state(11))], "also after a restart");
}

#[test]
fn an_owner_that_follows_the_majority_to_a_lighter_chain_signs_nothing_more_in_its_term() {
    let mut records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: ME },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    records.extend(updates(2, ME).into_iter().map(Record::Head));
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    let mut lighter = updates(1, OTHER);
    lighter[0].update.contributions.edit(|all| all.truncate(1));
    (lighter[0].update.weight, lighter[0].update.state) = (100, state(11));
    for peer in [OTHER, THIRD] {
        let confirms = heartbeat(1, Some(head(&lighter[0])), Some((1, ME)));
        node.handle(Millis(10), heard_heartbeat(peer, confirms));
    }
    let (id, _) = requests(&pass(&mut node, 10, 1_000))[0];
    node.handle(Millis(1_100), Event::Answered { id, response: Some(Response::Snapshot(lighter)) });
    let actions = installed(&mut node, Millis(1_110), state(11));
    assert!(actions.contains(&term(2, ME)), "{actions:?}");
}

#[test]
fn an_update_of_another_member_does_not_take_the_place_of_the_owners_that_is_held_back() {
    let (mut node, now) = (listener(), Millis(LISTENED_MS + 1_000));
    node.handle(now, heard(THIRD, Message::Update(update(genesis(), 1, THIRD))));
    node.handle(now, heard(OTHER, Message::Update(update(genesis(), 1, OTHER))));
    node.handle(now, heard(OTHER, Message::Offer(offer(0, genesis()))));
    let actions = node.handle(now, heard(THIRD, Message::Offer(offer(1, genesis()))));
    assert!(actions.contains(&Action::Fetch { blob: average(1), from: vec![OTHER, THIRD] }), "{actions:?}");
}

/// A member that has listened for long, beside the owner and another member at genesis.
fn listener() -> Node {
    let mut node = member(&[]);
    for second in 0..=LISTENED_MS / 1_000 {
        hears(&mut node, second * 1_000, second + 1, &[(OTHER, genesis()), (THIRD, genesis())]);
    }
    node
}

#[test]
fn an_update_that_counts_what_nobody_offered_waits_for_the_offers() {
    let (mut node, now) = (listener(), Millis(LISTENED_MS + 1_000));
    let signed = update(genesis(), 1, OTHER);
    assert_eq!(node.handle(now, heard(OTHER, Message::Update(signed.clone()))), []);
    node.handle(now, heard(OTHER, Message::Offer(offer(0, genesis()))));
    let heard_all = node.handle(now, heard(THIRD, Message::Offer(offer(1, genesis()))));
    let fetch = Action::Fetch { blob: average(1), from: vec![OTHER, THIRD] };
    assert!(heard_all.contains(&fetch), "{heard_all:?}");
}

#[test]
fn an_update_that_counts_what_nobody_offered_is_applied_once_the_others_have_applied_it() {
    let (mut node, now) = (listener(), Millis(LISTENED_MS + 1_000));
    let signed = update(genesis(), 1, OTHER);
    node.handle(now, heard(OTHER, Message::Update(signed.clone())));
    let applied = heartbeat(90, Some(head(&signed)), Some((1, OTHER)));
    let actions = node.handle(now, heard_heartbeat(THIRD, applied));
    assert!(actions.iter().any(|action| matches!(action, Action::Fetch { .. })), "{actions:?}");
}

#[test]
fn an_owner_that_counts_what_nobody_offered_steps_down() {
    let (mut node, now) = (listener(), Millis(LISTENED_MS + 1_000));
    node.handle(now, heard(OTHER, Message::Update(update(genesis(), 1, OTHER))));
    let mut stepped_down = Vec::new();
    for at_ms in (LISTENED_MS + 1_250..LISTENED_MS + 2_000 + DOUBT_MS).step_by(250) {
        let mut actions = node.handle(Millis(at_ms), Event::Tick);
        for peer in [OTHER, THIRD] {
            let heartbeat = heartbeat(at_ms, Some(genesis()), Some((1, OTHER)));
            actions.extend(node.handle(Millis(at_ms), heard_heartbeat(peer, heartbeat)));
        }
        let steps_down = |it: &Action| matches!(it, Action::Report(Report::SteppedDown { owner: OTHER, .. }));
        stepped_down.extend(actions.iter().any(steps_down).then_some(at_ms));
    }
    assert_eq!(stepped_down, [LISTENED_MS + 1_000 + DOUBT_MS]);
    assert_eq!(node.states(), vec![(MODULE, Version(0), state(0))]);
}
