//! Tests of amendments: a node that is done goes on, and no more than the creator has signed counts.

use crate::protocol::node::tests::*;
use crate::protocol::wire::amended::Amended;

fn amended(phases: u64, number: u32) -> Amended {
    Amended { phases, number, blob: BlobRef::of(format!("amendment {number} of {phases} phases").as_bytes()) }
}

fn tells(sequence: u64, head: Head, told: Amended) -> Event {
    let leases = vec![lease(1, head.version.0, Stage::Done), told.lease()];
    heard_heartbeat(OTHER, Heartbeat { leases, ..heartbeat(sequence, Some(head), Some((1, OTHER))) })
}

fn is_trained_from(actions: &[Action], from: Head) -> bool {
    actions.iter().any(|action| match action {
        Action::Train { start, .. } => start[0].0 == started_from(from),
        _ => false,
    })
}

#[test]
fn a_node_that_is_done_fetches_an_amendment_goes_on_and_tells_of_it() {
    let chain = updates(PHASES, OTHER);
    let (mut node, end, more) = (member_with_owner(&chain), head(&chain[PHASES as usize - 1]), amended(PHASES + 2, 1));
    assert!(node.is_done());
    let heard = node.handle(Millis(100), tells(2, end, more));
    assert!(heard.contains(&Action::Fetch { blob: more.blob, from: vec![OTHER] }), "{heard:?}");
    let fetched = node.handle(Millis(200), Event::Fetched { blob: more.blob.hash, found: true });
    assert_eq!(fetched, [Action::ReadAmendment(more.blob)]);
    let going_on = node.handle(Millis(300), Event::Amended(more));
    assert!(going_on.contains(&Action::Report(Report::Amended { phases: PHASES + 2, number: 1 })));
    let tells_others = |action: &Action| match action {
        Action::Publish { message: Message::Heartbeat(heartbeat), .. } => heartbeat.leases.contains(&more.lease()),
        _ => false,
    };
    assert!(going_on.iter().any(tells_others), "{going_on:?}");
    assert!(is_trained_from(&going_on, end) && !node.is_done());
    assert_eq!((node.status().phases, node.amendment()), (PHASES + 2, Some(more)));
    assert!(node.referenced_blobs().contains(&more.blob.hash), "others fetch it here");
    assert_eq!(node.handle(Millis(400), tells(3, end, more)), []);
}

#[test]
fn an_update_behind_the_end_is_nobodys_fault_and_counts_after_the_amendment() {
    let chain = updates(PHASES + 1, OTHER);
    let (next, until_then) = chain.split_last().unwrap();
    let (mut node, more) = (member_with_owner(until_then), amended(PHASES + 2, 1));
    assert_eq!(node.handle(Millis(100), heard(OTHER, Message::Update(next.clone()))), []);
    node.handle(Millis(200), Event::Amended(more));
    let taken = node.handle(Millis(300), heard(OTHER, Message::Update(next.clone())));
    assert!(taken.contains(&Action::Fetch { blob: next.update.average, from: vec![OTHER] }), "{taken:?}");
}

#[test]
fn what_is_no_amendment_changes_nothing_and_is_not_fetched_again() {
    let chain = updates(PHASES, OTHER);
    let (mut node, end, made_up) = (member_with_owner(&chain), head(&chain[PHASES as usize - 1]), amended(9_999, 9));
    node.handle(Millis(100), tells(2, end, made_up));
    node.handle(Millis(100), Event::Fetched { blob: made_up.blob.hash, found: true });
    let refused = node.handle(Millis(200), Event::AmendmentRefused { blob: made_up.blob.hash, is_false: true });
    assert_eq!(refused, [Action::Release(made_up.blob.hash)]);
    assert!(node.is_done() && node.amendment().is_none());
    let again = node.handle(Millis(300), tells(3, end, amended(9_998, 9)));
    assert!(!again.iter().any(|action| matches!(action, Action::Fetch { .. })), "{again:?}");
}

#[test]
fn phases_never_fall_and_a_restart_keeps_them() {
    let (more, fewer) = (amended(PHASES + 2, 1), amended(PHASES + 1, 2));
    let mut node = member(&[]).amended(more);
    assert_eq!(node.handle(Millis(100), Event::Amended(fewer)), [Action::Release(fewer.blob.hash)]);
    assert_eq!((node.status().phases, node.amendment()), (PHASES + 2, Some(more)));
}
