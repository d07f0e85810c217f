//! Tests of evaluation.

use crate::protocol::limits::{FIRST_STEP_MS, MEMBER_LEASE_MS, SILENCE_LEAST_MS};
use crate::protocol::node::tests::*;
use crate::protocol::wire::message::Score;

const SECOND: u64 = 1_000;

/// A standby of path 0 that has the module after these updates.
fn standby(updates: &[SignedUpdate]) -> Node {
    let mut records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Lease { path: PathId(0), held: true, standby: true },
    ];
    records.extend(updates.iter().cloned().map(Record::Head));
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    node
}

/// `OTHER` trains path 0 and owns the module, and these peers are standbys. All are at the head of these updates.
fn hears(node: &mut Node, second: u64, updates: &[SignedUpdate], standbys: &[PeerKey]) -> Vec<Action> {
    let head = updates.last().map_or(genesis(), head);
    let theirs = Heartbeat {
        leases: vec![lease(0, head.version.0, Stage::Training)],
        ..heartbeat(second + 1, Some(head), None)
    };
    let mut actions = node.handle(Millis(second * SECOND), heard_heartbeat(OTHER, theirs));
    for peer in standbys {
        let leases = vec![lease(0, head.version.0, Stage::Standby)];
        actions.extend(node.handle(
            Millis(second * SECOND),
            heard_heartbeat(*peer, Heartbeat { leases, ..heartbeat(second + 1, Some(head), None) }),
        ));
    }
    actions.extend(node.handle(Millis(second * SECOND), Event::Tick));
    actions
}

fn evaluations(actions: &[Action]) -> Vec<(PathId, Phase)> {
    let evaluation = |action: &Action| match action {
        Action::Evaluate { path, phase, .. } => Some((*path, *phase)),
        _ => None,
    };
    actions.iter().filter_map(evaluation).collect()
}

fn scored(phase: u64) -> Event {
    Event::Evaluated { path: PathId(0), phase: Phase(phase), millibits_per_byte: Some(1_234) }
}

fn score(phase: u64) -> Score {
    Score { path: PathId(0), phase: Phase(phase), millibits_per_byte: 1_234 }
}

#[test]
fn a_standby_scores_each_new_checkpoint_once_and_publishes_the_score() {
    let chain = updates(3, OTHER);
    let mut node = standby(&chain[..2]);
    let began = hears(&mut node, 1, &chain[..2], &[]);
    let evaluate = Action::Evaluate { path: PathId(0), phase: Phase(2), states: vec![(MODULE, state(2))] };
    assert!(began.contains(&evaluate), "{began:?}");
    assert_eq!(evaluations(&hears(&mut node, 2, &chain[..2], &[])), [], "one is being scored");
    assert_eq!(node.handle(Millis(2_500), scored(2)), vec![publish(Message::Score(score(2)))]);
    assert_eq!(evaluations(&hears(&mut node, 3, &chain[..2], &[])), []);
    let shown = node.status().scores;
    assert_eq!((shown.len(), shown[0].phase, shown[0].millibits_per_byte, shown[0].by), (1, 2, 1_234, ME));
    node.handle(Millis(3_100), heard(OTHER, Message::Update(chain[2].clone())));
    node.handle(Millis(3_100), Event::Fetched { blob: average(3).hash, found: true });
    let applied = Event::Applied { module: MODULE, version: Version(3), state: Some(state(3)) };
    node.handle(Millis(3_100), applied);
    assert_eq!(evaluations(&hears(&mut node, 4, &chain, &[])), [(PathId(0), Phase(3))]);
}

#[test]
fn nothing_is_scored_before_the_first_update_nor_by_a_peer_that_trains() {
    let chain = updates(1, OTHER);
    let mut new = standby(&[]);
    assert_eq!(evaluations(&hears(&mut new, 1, &[], &[])), []);
    let mut trainer = member(&chain);
    let evaluated: Vec<_> = (1..10).flat_map(|second| evaluations(&hears(&mut trainer, second, &chain, &[]))).collect();
    assert_eq!(evaluated, []);
}

#[test]
fn one_of_two_standbys_scores_and_the_other_does_if_it_dies() {
    let chain = updates(2, OTHER);
    let others = || (4..=255).map(|byte| PeerKey([byte; 32]));
    let does = |peer: PeerKey| !evaluations(&hears(&mut standby(&chain), 1, &chain, &[peer])).is_empty();
    let (lower, higher) = (others().find(|peer| does(*peer)), others().find(|peer| !does(*peer)).unwrap());
    assert!(lower.is_some());
    let mut node = standby(&chain);
    hears(&mut node, 1, &chain, &[higher]);
    let dead = 1 + MEMBER_LEASE_MS / SECOND;
    let taken: Vec<u64> =
        (2..=dead).filter(|second| !evaluations(&hears(&mut node, *second, &chain, &[])).is_empty()).collect();
    assert_eq!(taken, [dead]);
}

#[test]
fn a_score_of_another_peer_is_kept_unless_it_is_of_a_future_phase() {
    let chain = updates(2, OTHER);
    let mut node = standby(&chain);
    for phase in [0, 3, u64::MAX] {
        node.handle(Millis(10), heard(THIRD, Message::Score(score(phase))));
    }
    node.handle(Millis(10), heard(THIRD, Message::Score(Score { path: PathId(9), ..score(2) })));
    assert_eq!(node.status().scores.len(), 0);
    node.handle(Millis(10), heard(THIRD, Message::Score(score(2))));
    node.handle(Millis(10), heard(OTHER, Message::Score(Score { millibits_per_byte: 1, ..score(1) })));
    assert_eq!((node.status().scores[0].phase, node.status().scores[0].by), (2, THIRD));
    assert_eq!(evaluations(&hears(&mut node, 1, &chain, &[])), [], "it has a score");
}

#[test]
fn a_state_is_kept_while_it_is_scored_and_a_failed_evaluation_is_not_repeated() {
    let chain = updates(4, OTHER);
    let mut node = standby(&chain[..1]);
    hears(&mut node, 1, &chain[..1], &[]);
    for signed in &chain[1..] {
        let version = signed.update.version;
        node.handle(Millis(1_100), heard(OTHER, Message::Update(signed.clone())));
        node.handle(Millis(1_100), Event::Fetched { blob: signed.update.average.hash, found: true });
        let applied = Event::Applied { module: MODULE, version, state: Some(signed.update.state) };
        assert!(!node.handle(Millis(1_100), applied).contains(&Action::Release(state(1).hash)));
    }
    let failed = |phase| Event::Evaluated { path: PathId(0), phase: Phase(phase), millibits_per_byte: None };
    assert_eq!(node.handle(Millis(1_200), failed(1)), vec![Action::Release(state(1).hash)]);
    assert_eq!(evaluations(&hears(&mut node, 2, &chain, &[])), [(PathId(0), Phase(4))]);
    node.handle(Millis(2_200), failed(4));
    assert_eq!(evaluations(&hears(&mut node, 3, &chain, &[])), []);
}

#[test]
fn a_trainer_that_hangs_while_it_scores_is_restarted_and_the_checkpoint_is_skipped() {
    let chain = updates(2, OTHER);
    let mut node = standby(&chain);
    assert_eq!(evaluations(&hears(&mut node, 1, &chain, &[])), [(PathId(0), Phase(2))]);
    let progress = |batches| Event::Progress { path: PathId(0), phase: Phase(2), steps: batches };
    node.handle(Millis(2_000), progress(0));
    pass(&mut node, 2_000, 3_000);
    node.handle(Millis(3_000), progress(1));
    let actions = pass(&mut node, 3_000, 3_000 + SILENCE_LEAST_MS);
    let told = |silent_ms| Action::Report(Report::TrainerStuck { path: PathId(0), steps: None, silent_ms });
    let restarted = |(_, action): &&(u64, Action)| {
        *action == Action::RestartTrainer { path: Some(PathId(0)) } || *action == told(SILENCE_LEAST_MS)
    };
    let at: Vec<u64> = actions.iter().filter(restarted).map(|(at, _)| *at).collect();
    assert_eq!(at, [3_000 + SILENCE_LEAST_MS; 2]);
    let none = Event::Evaluated { path: PathId(0), phase: Phase(2), millibits_per_byte: None };
    node.handle(Millis(4_000 + SILENCE_LEAST_MS), none);
    let later = pass(&mut node, 4_000 + SILENCE_LEAST_MS, 4_000 + 3 * FIRST_STEP_MS);
    assert!(
        !later.iter().any(|(_, action)| *action == Action::RestartTrainer { path: Some(PathId(0)) }),
        "it is not working now"
    );
}

#[test]
fn the_trainer_state_after_the_run_replaces_the_one_before() {
    let mut node = standby(&updates(3, OTHER));
    let reviewed = |path, number| Event::Reviewed { path: PathId(path), trainer: BlobRef::of(&[number]) };
    let persist = |number| Action::Persist(Record::Trainer { path: PathId(0), trainer: BlobRef::of(&[number]) });
    let remove = |number| Action::Release(BlobRef::of(&[number]).hash);
    assert_eq!(node.handle(Millis(0), reviewed(0, 1)), vec![persist(1)]);
    assert_eq!(node.handle(Millis(0), reviewed(0, 1)), vec![persist(1)], "reported twice, kept once");
    assert_eq!(node.handle(Millis(0), reviewed(0, 2)), vec![persist(2), remove(1)]);
    assert_eq!(node.trainer(PathId(0)), Some(BlobRef::of(&[2])));
    assert_eq!(node.handle(Millis(0), reviewed(1, 3)), vec![remove(3)], "the path is not held here");
}
