//! Tests of updates that a member refuses.

use crate::protocol::node::tests::*;

fn refused(reason: &str) -> Action {
    Action::Report(Report::Refused { module: MODULE, by: OTHER, reason: reason.to_owned() })
}

/// The signer also has to step down as the owner.
fn refused_and_stepped_down(reason: &str) -> Vec<Action> {
    let stepped_down = Report::SteppedDown { module: MODULE, owner: OTHER, reason: reason.to_owned() };
    vec![refused(reason), Action::Report(stepped_down)]
}

fn says(node: &mut Node, signed: SignedUpdate) -> Vec<Action> {
    node.handle(Millis(100), heard(OTHER, Message::Update(signed)))
}

/// A valid update with one change.
fn but(change: impl FnOnce(&mut Update)) -> SignedUpdate {
    let mut signed = update(genesis(), 1, OTHER);
    change(&mut signed.update);
    signed
}

#[test]
fn a_lower_term_is_refused() {
    let mut node = member_with_owner(&[]);
    node.handle(Millis(50), heard_heartbeat(THIRD, heartbeat(1, Some(genesis()), Some((2, THIRD)))));
    let actions = says(&mut node, update(genesis(), 1, OTHER));
    assert_eq!(actions, vec![refused("version 1 comes from term 1, the current one is 2")]);
}

#[test]
fn a_wrong_parent_or_version_is_ignored() {
    let mut node = member_with_owner(&[]);
    assert_eq!(says(&mut node, but(|update| update.parent = state(9).hash)), vec![]);
    assert_eq!(says(&mut node, but(|update| update.version = Version(2))), vec![]);
    assert_eq!(says(&mut node, but(|update| update.version = Version(u64::MAX))), vec![]);
    assert_eq!(says(&mut node, but(|update| update.version = Version(0))), vec![]);
}

#[test]
fn wrong_weights_sizes_and_contributions_are_refused() {
    let cases: [(SignedUpdate, &str); 12] = [
        (but(|update| update.contributions[1].weight = 61), "path 1 has weight 61 of 60 in it, not 60 of 60"),
        (but(|update| update.contributions[1].uncapped = 61), "path 1 has weight 60 of 61 in it, not 60 of 60"),
        (but(|update| update.contributions[1].steps = 0), "the contribution of path 1 has 0 inner steps"),
        (but(|update| update.contributions[1].steps = 65), "the contribution of path 1 has 65 inner steps"),
        (but(|update| update.weight = u64::MAX), "its total weight is 18446744073709551615, not 160"),
        (but(|update| update.contributions[1].path = PathId(2)), "path 2 does not go through module 0.0"),
        (but(|update| update.contributions[1].parent = Version(1)), "it counts a contribution to version 1"),
        (but(|update| update.contributions.swap(0, 1)), "its contributions are not in order, each once"),
        (but(|update| update.contributions.edit(Vec::clear)), "it counts 0 contributions"),
        (but(|update| update.state.bytes = u64::MAX), "its state has 18446744073709551615 bytes, not 200"),
        (but(|update| update.average.bytes = 1_001), "its average has 1001 bytes"),
        (
            but(|update| update.contributions = vec![counted(0, 0), counted(0, 0)].into()),
            "its contributions are not in order, each once",
        ),
    ];
    for (signed, reason) in cases {
        let mut node = member_with_owner(&[]);
        assert_eq!(says(&mut node, signed), refused_and_stepped_down(&format!("version 1: {reason}")));
    }
}

#[test]
fn a_contribution_that_was_counted_is_refused_and_an_update_beyond_the_last_phase_is_left_alone() {
    let chain = updates(1, OTHER);
    let before = head(&chain[0]);
    let mut node = member_with_owner(&chain);
    let mut again = update(before, 1, OTHER);
    // A version late, and half of what its path has counted of that version.
    again.update.contributions = vec![Counted { uncapped: 25, weight: 25, ..counted(0, 0) }].into();
    again.update.weight = before.weight + 25;
    let reason = "version 2: it counts a contribution of path 0 to version 0 again";
    assert_eq!(says(&mut node, again), refused_and_stepped_down(reason));

    let all = updates(PHASES, OTHER);
    let mut node = member_with_owner(&all);
    let beyond = update(head(all.last().unwrap()), 1, OTHER);
    // Its owner may know of an amendment of the run.
    assert_eq!(says(&mut node, beyond), []);
}

#[test]
fn a_state_with_another_hash_is_refused_and_its_owner_has_to_step_down() {
    let mut node = member_with_owner(&[]);
    let signed = update(genesis(), 1, OTHER);
    says(&mut node, signed.clone());
    node.handle(Millis(110), Event::Fetched { blob: average(1).hash, found: true });
    let wrong = state(99);
    let applied = Event::Applied { module: MODULE, version: Version(1), state: Some(wrong) };
    let mut forgotten = [average(1), state(1), wrong].map(|blob| Action::Release(blob.hash)).to_vec();
    forgotten.sort_by_key(|action| match action {
        Action::Release(blob) => *blob,
        _ => average(1).hash,
    });
    let mut expected = refused_and_stepped_down("version 1: the resulting state has another hash here");
    expected.extend(forgotten);
    assert_eq!(node.handle(Millis(120), applied), expected);
    let again = format!("version 1 comes from …{}, which is not accepted as an owner for now", OTHER.short());
    assert_eq!(says(&mut node, signed), vec![refused(&again)], "it is not applied again");
    // It continues to send heartbeats, but another term is needed.
    node.handle(Millis(200), heard_heartbeat(OTHER, heartbeat(2, Some(genesis()), Some((1, OTHER)))));
    let claimed = (1..12).any(|sweep| node.handle(Millis(250 * sweep), Event::Tick).contains(&term(2, ME)));
    assert!(claimed);
}
