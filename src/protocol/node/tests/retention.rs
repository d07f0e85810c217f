//! Tests of the retention of blobs.

use crate::protocol::limits::VERSIONS_KEPT;
use crate::protocol::node::tests::*;

/// Advances by one update.
fn advance(node: &mut Node, signed: &SignedUpdate) -> Vec<Action> {
    let version = signed.update.version;
    let mut actions = node.handle(Millis(100), heard(OTHER, Message::Update(signed.clone())));
    actions.extend(node.handle(Millis(100), Event::Fetched { blob: signed.update.average.hash, found: true }));
    let applied = Event::Applied { module: MODULE, version, state: Some(signed.update.state) };
    actions.extend(node.handle(Millis(100), applied));
    actions
}

fn forgotten(actions: &[Action]) -> Vec<crate::names::BlobHash> {
    let forgotten = |action: &Action| match action {
        Action::Release(blob) => Some(*blob),
        _ => None,
    };
    actions.iter().filter_map(forgotten).collect()
}

#[test]
fn the_base_state_of_a_phase_in_training_is_kept_until_it_is_trained() {
    let mut node = member_with_owner(&[]);
    let chain = updates(4, OTHER);
    let gone: Vec<_> = chain.iter().flat_map(|signed| forgotten(&advance(&mut node, signed))).collect();
    assert_eq!(gone, vec![state(1).hash], "the states before the head and the base state in training are kept");
    assert_eq!(forgotten(&node.handle(Millis(100), Event::Trained(trained(0, genesis())))), vec![state(0).hash]);
}

#[test]
fn a_path_given_up_in_training_is_offered_all_the_same_and_its_trainer_is_released_afterwards() {
    let mut node = member_with_owner(&[]);
    let before = trained(0, genesis());
    let first = update(genesis(), 1, OTHER);
    node.handle(Millis(10), Event::Trained(before.clone()));
    assert!(advance(&mut node, &first).contains(&train(0, head(&first), Some(before.trainer))));
    // Another peer trains only this path.
    let ours = node.leases();
    let taken = (4..=255).map(|byte| PeerKey([byte; 32])).find_map(|peer| {
        let theirs = Heartbeat { leases: ours.clone(), ..heartbeat(1, Some(head(&first)), Some((1, OTHER))) };
        let actions = node.handle(Millis(110), heard_heartbeat(peer, theirs));
        actions.contains(&Action::Report(Report::PathYielded(PathId(0)))).then_some(actions)
    });
    assert_eq!(forgotten(&taken.unwrap()), vec![], "the trainer's thread may not have read it yet");
    node.handle(Millis(500), Event::Tick);
    let after = trained(0, head(&first));
    let actions = node.handle(Millis(600), Event::Trained(after.clone()));
    let offered = |action: &Action| matches!(action, Action::Publish { message: Message::Offer(offer), .. } if offer.blob == gradient(0, 1));
    assert!(actions.iter().any(offered), "{actions:?}");
    let mut gone = forgotten(&actions);
    gone.sort();
    let mut expected = vec![before.trainer.hash, after.trainer.hash];
    expected.sort();
    assert_eq!(gone, expected);
}

#[test]
fn a_contribution_that_has_become_too_old_is_reported_once() {
    let mut node = member_with_owner(&[]);
    let mut finished = trained(0, genesis());
    finished.offers[0].1 = BlobRef::of(b"never counted");
    node.handle(Millis(10), Event::Trained(finished));
    let lost = Report::Lost { module: MODULE, path: PathId(0), parent: Version(0), weight: 100 };
    let told = |actions: Vec<Action>| actions.iter().filter(|action| **action == Action::Report(lost.clone())).count();
    let chain = updates(VERSIONS_KEPT + 3, OTHER);
    let told: Vec<usize> = chain.iter().map(|signed| told(advance(&mut node, signed))).collect();
    let mut expected = vec![0; told.len()];
    expected[VERSIONS_KEPT as usize - 1] = 1;
    assert_eq!(told, expected);
    assert_eq!(node.uncounted().count(), 0);
}

#[test]
fn a_contribution_is_offered_until_a_rival_is_counted_and_kept_afterwards() {
    let mut node = member_with_owner(&[]);
    let mut finished = trained(0, genesis());
    let twice = BlobRef::of(b"trained by another as well");
    finished.offers[0].1 = twice;
    let offers = |actions: &[Action]| {
        let of_it = |action: &&Action| matches!(action, Action::Publish { message: Message::Offer(offer), .. } if offer.blob == twice);
        actions.iter().filter(of_it).count()
    };
    assert_eq!(offers(&node.handle(Millis(10), Event::Trained(finished))), 1);
    assert_eq!(offers(&node.handle(Millis(30_000), Event::Tick)), 1, "no contribution of the path is counted yet");
    advance(&mut node, &update(genesis(), 1, OTHER));
    assert_eq!(offers(&node.handle(Millis(60_000), Event::Tick)), 0);
    assert_eq!(node.uncounted().count(), 1, "it is kept, because another chain may not have counted the rival");
}

#[test]
fn contributions_counted_in_an_abandoned_chain_are_reproposed_by_their_aggregator() {
    let mine = update(genesis(), 1, ME);
    let mut node = member(&[mine]);
    let mut best = updates(2, OTHER);
    for signed in &mut best {
        for counted in signed.update.contributions.iter_mut() {
            counted.blob = BlobRef::of(format!("other {} {}", counted.path, counted.parent).as_bytes());
        }
    }
    best[1].update.parent = head(&best[0]).update;
    node.handle(Millis(0), heard_heartbeat(OTHER, heartbeat(1, Some(head(&best[1])), Some((1, OTHER)))));
    node.handle(Millis(250), Event::Tick);
    let asked = node.handle(Millis(1_000), Event::Tick);
    let id = asked.iter().find_map(|action| match action {
        Action::Ask { id, .. } => Some(*id),
        _ => None,
    });
    let response = Some(crate::protocol::Response::Snapshot(best));
    node.handle(Millis(1_010), Event::Answered { id: id.unwrap(), response });
    let switched = installed(&mut node, Millis(1_020), state(2));
    let reproposed = |path| {
        Action::Persist(Record::Reproposed {
            module: MODULE,
            parent_update: genesis().update,
            counted: counted(path, 0),
        })
    };
    let reproposes = |it: &&Action| matches!(it, Action::Persist(Record::Reproposed { .. }));
    assert!(switched.iter().filter(reproposes).eq([&reproposed(0), &reproposed(1)]), "{switched:?}");
    let offered: Vec<BlobRef> = node
        .handle(Millis(1_300), Event::Tick)
        .iter()
        .filter_map(|action| match action {
            Action::Publish { message: Message::Offer(offer), .. } => Some(offer.blob),
            _ => None,
        })
        .collect();
    assert_eq!(offered, [gradient(0, 0), gradient(1, 0)]);
}

#[test]
fn under_disk_pressure_only_the_newest_average_is_kept_and_lagging_members_take_a_whole_state() {
    let chain = updates(4, OTHER);
    let mut node = member(&chain);
    let lags = crate::protocol::Request::CatchUp { module: MODULE, from: Some((Version(1), head(&chain[0]).update)) };
    assert!(matches!(node.answer(&lags), crate::protocol::Response::Replay(updates) if updates.len() == 3));
    let spared: Vec<_> = chain[..3].iter().map(|signed| signed.update.average.hash).collect();
    assert_eq!(node.spare_averages(), spared);
    assert!(node.referenced_blobs().contains(&chain[3].update.average.hash));
    assert!(matches!(node.answer(&lags), crate::protocol::Response::Snapshot(_)));
    let next = crate::protocol::Request::CatchUp { module: MODULE, from: Some((Version(3), head(&chain[2]).update)) };
    assert!(matches!(node.answer(&next), crate::protocol::Response::Replay(updates) if updates.len() == 1));
}
