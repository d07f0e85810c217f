//! Tests of hand-offs of paths with the state of their trainers.

use crate::protocol::limits::{
    FAILED_OWNER_MS, HAND_OFF_REPEAT_MS, HAND_OFF_RESPONSE_MS, MEMBER_LEASE_MS, PATH_LEASE_MS,
};
use crate::protocol::node::tests::*;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;
use crate::protocol::wire::message::{DirectoryEntry, PathHandOff};
use crate::protocol::{ReplyToken, Request, RequestId, Response, Resume};

fn trainer() -> BlobRef {
    BlobRef::of(b"trainer of path 1")
}

fn middle() -> InnerCheckpoint {
    let start = vec![(started_from(genesis()), genesis().state)];
    InnerCheckpoint { path: PathId(1), phase: Phase(0), start, steps: 9, blob: BlobRef::of(b"middle of path 1") }
}

fn word() -> PathHandOff {
    PathHandOff { later: false, trainer: Some(trainer()), checkpoint: Some(middle()) }
}

fn later() -> PathHandOff {
    PathHandOff { later: true, ..PathHandOff::default() }
}

fn asked(from: PeerKey, path: u32) -> Event {
    Event::Asked { from, token: ReplyToken(5), request: Request::Path(PathId(path)) }
}

fn answer(hand_off: Option<PathHandOff>) -> Action {
    Action::Reply { token: ReplyToken(5), response: Response::Path(hand_off) }
}

fn found(blob: BlobRef) -> Event {
    Event::Fetched { blob: blob.hash, found: true }
}

/// A newcomer that takes path 1 from `OTHER`, which holds it in this stage, and the newcomer's actions.
fn joining(stage: Stage) -> (Node, Vec<Action>) {
    let mut node = Node::restore(ME, plan(), vec![]);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    let leases = vec![lease(0, 0, Stage::Training), lease(1, 0, stage)];
    let entry = DirectoryEntry { peer: OTHER, addresses: vec![], leases: leases.clone() };
    let response = Some(Response::Directory(vec![entry]));
    let asked = node.handle(Millis(10), Event::Answered { id: RequestId(1), response });
    node.handle(
        Millis(10),
        heard_heartbeat(OTHER, Heartbeat { leases, ..heartbeat(1, Some(genesis()), Some((1, OTHER))) }),
    );
    (node, asked)
}

fn asks_for_path(actions: &[Action]) -> Option<RequestId> {
    actions.iter().find_map(|action| match action {
        Action::Ask { id, to: OTHER, request: Request::Path(PathId(1)) } => Some(*id),
        _ => None,
    })
}

/// A newcomer that takes path 1 from `OTHER` and has the module, with its pending request for the trainer.
fn newcomer() -> (Node, RequestId) {
    let (mut node, asked) = joining(Stage::Waiting);
    let state = asked.iter().find_map(|action| match action {
        Action::Ask { id, request: Request::CatchUp { .. }, .. } => Some(*id),
        _ => None,
    });
    node.handle(Millis(20), Event::Answered { id: state.unwrap(), response: Some(Response::Snapshot(vec![])) });
    installed(&mut node, Millis(30), genesis().state);
    let path = asks_for_path(&node.handle(Millis(250), Event::Tick));
    (node, path.unwrap())
}

#[test]
fn a_new_holder_lets_the_previous_one_train_until_the_modules_are_here_unless_it_is_leaving() {
    let (mut node, asked) = joining(Stage::Waiting);
    let mut actions = asked;
    for now in (250..2 * HAND_OFF_RESPONSE_MS).step_by(250) {
        let leases = vec![lease(0, 0, Stage::Training), lease(1, 0, Stage::Waiting)];
        actions.extend(node.handle(
            Millis(now),
            heard_heartbeat(OTHER, Heartbeat { leases, ..heartbeat(1 + now, Some(genesis()), None) }),
        ));
        actions.extend(node.handle(Millis(now), Event::Tick));
    }
    assert_eq!(asks_for_path(&actions), None);
    assert!(!actions.contains(&Action::Report(Report::BeganAfresh { path: PathId(1), from: OTHER })));
    let leases = vec![lease(1, 0, Stage::Leaving)];
    let now = 2 * HAND_OFF_RESPONSE_MS;
    node.handle(Millis(now), heard_heartbeat(OTHER, Heartbeat { leases, ..heartbeat(1 + now, Some(genesis()), None) }));
    assert!(asks_for_path(&node.handle(Millis(now + 250), Event::Tick)).is_some());

    assert!(asks_for_path(&joining(Stage::Leaving).1).is_some(), "the request is sent at once");
}

fn answered(id: RequestId, hand_off: PathHandOff) -> Event {
    Event::Answered { id, response: Some(Response::Path(Some(hand_off))) }
}

fn trains(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Train { .. }))
}

#[test]
fn the_path_of_a_quarantined_peer_is_taken_at_once_and_its_trainer_is_not_requested() {
    let mut node = member_with_owner(&[]);
    node.reputation.penalize(Millis(0), OTHER, Fault::Broken, None);
    let actions = pass(&mut node, 0, 3_000);
    let at = |wanted: Action| actions.iter().find(|(_, action)| *action == wanted).map(|(at, _)| *at);
    assert!(at(Action::Report(Report::PathTaken(PathId(1)))).is_some_and(|at| at < PATH_LEASE_MS), "{actions:?}");
    let asks = |(_, action): &(u64, Action)| matches!(action, Action::Ask { request: Request::Path(_), .. });
    assert!(!actions.iter().any(asks));
    // After its quarantine it does not get the path back.
    let leases = vec![lease(1, 0, Stage::Waiting)];
    let back = Heartbeat { leases, ..heartbeat(2, Some(genesis()), None) };
    let later = node.handle(Millis(3_000 + FAILED_OWNER_MS), heard_heartbeat(OTHER, back));
    assert!(!later.contains(&Action::Report(Report::PathYielded(PathId(1)))), "{later:?}");
}

#[test]
fn a_path_resumes_at_its_new_holder_where_the_previous_one_stopped() {
    let (mut node, id) = newcomer();
    let fetches: Vec<BlobRef> = node
        .handle(Millis(260), answered(id, word()))
        .iter()
        .filter_map(|action| match action {
            Action::Fetch { blob, from } if from == &[OTHER] => Some(*blob),
            _ => None,
        })
        .collect();
    assert_eq!(fetches, [trainer(), genesis().state, middle().blob]);
    assert!(!trains(&node.handle(Millis(270), found(trainer()))), "not before all blobs are here");
    node.handle(Millis(270), found(genesis().state));
    let actions = node.handle(Millis(280), found(middle().blob));
    let resume = Some(Resume { steps: 9, blob: middle().blob });
    let start = middle().start;
    let goes_on =
        Action::Train { path: PathId(1), phase: Phase(0), part: whole(), start, trainer: Some(trainer()), resume };
    let kept = Action::Persist(Record::Trainer { path: PathId(1), trainer: trainer() });
    for expected in [goes_on, kept, Action::Persist(Record::Checkpoint(middle()))] {
        assert!(actions.contains(&expected), "{actions:?}");
    }
    assert!(node.referenced_blobs().contains(&trainer().hash));
}

#[test]
fn a_new_holder_repeats_its_request_while_the_path_is_being_stopped_and_begins_afresh_after_a_time_out() {
    let (mut node, mut id) = newcomer();
    let (mut now, mut asked) = (260, 0);
    let afresh = loop {
        let mut actions = node.handle(Millis(now), answered(id, later()));
        actions.extend(node.handle(Millis(now), Event::Tick));
        let leases = vec![lease(0, 0, Stage::Training), lease(1, 0, Stage::Waiting)];
        let alive = Heartbeat { leases, ..heartbeat(now, Some(genesis()), Some((1, OTHER))) };
        actions.extend(node.handle(Millis(now), heard_heartbeat(OTHER, alive)));
        let again = actions.iter().find_map(|action| match action {
            Action::Ask { id, request: Request::Path(_), .. } => Some(*id),
            _ => None,
        });
        if let Some(again) = again {
            (id, asked) = (again, asked + 1);
        }
        if trains(&actions) {
            break actions;
        }
        now += 250;
    };
    assert!((HAND_OFF_RESPONSE_MS..HAND_OFF_RESPONSE_MS + 500).contains(&now), "{now}");
    assert!(asked as u64 >= HAND_OFF_RESPONSE_MS / HAND_OFF_REPEAT_MS / 2);
    assert!(afresh.contains(&Action::Report(Report::BeganAfresh { path: PathId(1), from: OTHER })));
}

#[test]
fn an_impossible_or_refused_hand_off_is_reported_and_the_path_begins_afresh() {
    let refused = Event::Answered { id: RequestId(0), response: Some(Response::Refused("no".to_owned())) };
    let huge = BlobRef { bytes: u64::MAX / 4, ..trainer() };
    let elsewhere = InnerCheckpoint { path: PathId(0), ..middle() };
    let nowhere = InnerCheckpoint { start: vec![], ..middle() };
    let words = [
        PathHandOff { trainer: Some(huge), ..word() },
        PathHandOff { checkpoint: Some(elsewhere), ..word() },
        PathHandOff { checkpoint: Some(nowhere), ..word() },
    ];
    let answers = words.map(|word| answered(RequestId(0), word)).into_iter().chain([refused]);
    for event in answers {
        let (mut node, id) = newcomer();
        let Event::Answered { response, .. } = event else { unreachable!() };
        let actions = node.handle(Millis(260), Event::Answered { id, response });
        let afresh = Action::Report(Report::BeganAfresh { path: PathId(1), from: OTHER });
        assert!(actions.contains(&afresh) && trains(&actions), "{actions:?}");
    }
}

#[test]
fn a_phase_whose_base_state_is_not_in_the_chain_is_not_resumed() {
    let (mut node, id) = newcomer();
    let made_up = BlobRef { bytes: genesis().state.bytes, ..BlobRef::of(b"made up") };
    let checkpoint = InnerCheckpoint { start: vec![(started_from(genesis()), made_up)], ..middle() };
    node.handle(Millis(260), answered(id, PathHandOff { checkpoint: Some(checkpoint), ..word() }));
    let mut actions = Vec::new();
    for blob in [trainer(), made_up, middle().blob] {
        actions.extend(node.handle(Millis(270), found(blob)));
    }
    assert!(actions.contains(&train(1, genesis(), Some(trainer()))), "{actions:?}");
    assert!(actions.contains(&Action::Release(made_up.hash)));
}

/// A peer that holds both paths, trains path 0, and knows that `OTHER` joins one of them.
fn busy(joined: u32) -> Node {
    let mut node = member(&[]);
    let records = [node.records(), vec![Record::Lease { path: PathId(1), held: true, standby: false }]].concat();
    node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    assert_eq!(node.paths().len(), 2);
    node.handle(Millis(0), joins(1, joined));
    node
}

fn joins(sequence: u64, path: u32) -> Event {
    let leases = vec![lease(path, 0, Stage::Joining)];
    heard_heartbeat(OTHER, Heartbeat { leases, ..heartbeat(sequence, None, None) })
}

#[test]
fn a_holder_stops_a_path_for_its_new_holder_and_trains_its_other_paths_meanwhile() {
    let mut node = busy(0);
    assert_eq!(
        node.handle(Millis(10), asked(OTHER, 0)),
        vec![Action::Pause { path: PathId(0) }, answer(Some(later()))]
    );
    assert_eq!(node.handle(Millis(20), asked(OTHER, 0)), vec![answer(Some(later()))], "it is paused only once");
    let blob = BlobRef::of(b"middle");
    let paused = Event::Paused { path: PathId(0), phase: Phase(0), middle: Some((7, blob)) };
    let actions = node.handle(Millis(30), paused);
    assert!(actions.contains(&train(1, genesis(), None)), "{actions:?}");
    let start = vec![(started_from(genesis()), genesis().state)];
    let middle = InnerCheckpoint { path: PathId(0), phase: Phase(0), start, steps: 7, blob };
    let word = PathHandOff { checkpoint: Some(middle), ..PathHandOff::default() };
    assert_eq!(node.handle(Millis(40), asked(OTHER, 0)), vec![answer(Some(word))]);
    // The other peer has the path.
    let trains = Heartbeat { leases: vec![lease(0, 0, Stage::Training)], ..heartbeat(2, Some(genesis()), None) };
    let actions = node.handle(Millis(50), heard_heartbeat(OTHER, trains));
    assert!(actions.contains(&Action::Report(Report::PathYielded(PathId(0)))));
    assert!(actions.contains(&Action::Release(blob.hash)));
}

#[test]
fn a_path_promised_to_a_peer_that_is_gone_is_trained_again() {
    let mut node = busy(0);
    node.handle(Millis(10), asked(OTHER, 0));
    node.handle(Millis(30), Event::Paused { path: PathId(0), phase: Phase(0), middle: None });
    let mut again = Vec::new();
    let other = Finished { trainer: trainer(), ..trained(1, genesis()) };
    again.extend(node.handle(Millis(40), Event::Trained(other)));
    assert!(!trains(&again));
    for now in (250..MEMBER_LEASE_MS + 500).step_by(250) {
        again.extend(node.handle(Millis(now), Event::Tick));
    }
    assert!(again.contains(&train(0, genesis(), None)), "{again:?}");
}

#[test]
fn a_trainer_is_stopped_only_for_a_path_that_would_be_given_up() {
    let mut node = busy(0);
    assert_eq!(node.handle(Millis(10), asked(THIRD, 0)), vec![answer(Some(later()))], "not known to take the path");
    assert_eq!(node.handle(Millis(10), asked(OTHER, 1)), vec![answer(Some(later()))], "known to take another path");
    let mut one = member_with_owner(&[]);
    one.handle(Millis(10), joins(9, 0));
    assert_eq!(one.handle(Millis(20), asked(OTHER, 0)), vec![answer(Some(later()))], "the only path of this peer");
    assert_eq!(one.handle(Millis(20), asked(OTHER, 7)), vec![answer(None)], "no path of this peer");
}

#[test]
fn a_standby_keeps_the_trainer_of_its_path_and_resumes_with_it_when_the_holder_crashes() {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Lease { path: PathId(0), held: true, standby: true },
    ];
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    let holds = |sequence, trainer| {
        let leases = vec![Lease { trainer: Some(trainer), ..lease(0, 0, Stage::Training) }];
        heard_heartbeat(OTHER, Heartbeat { leases, ..heartbeat(sequence, Some(genesis()), Some((1, OTHER))) })
    };
    let (first, second) = (BlobRef::of(b"trainer 1"), BlobRef::of(b"trainer 2"));
    let fetch = |blob| Action::Fetch { blob, from: vec![OTHER] };
    assert!(node.handle(Millis(10), holds(1, first)).contains(&fetch(first)));
    let kept = |trainer| Action::Persist(Record::Trainer { path: PathId(0), trainer });
    assert_eq!(node.handle(Millis(20), found(first)), vec![kept(first)]);
    assert_eq!(node.handle(Millis(30), holds(2, first)), vec![]);
    assert_eq!(node.handle(Millis(40), holds(3, second)), vec![fetch(second)]);
    let replaced = node.handle(Millis(50), found(second));
    assert_eq!(replaced, vec![kept(second), Action::Release(first.hash)], "one per standby path");
    let mut actions = Vec::new();
    for now in (250..MEMBER_LEASE_MS + PATH_LEASE_MS + 2_000).step_by(250) {
        let leases = vec![lease(1, 0, Stage::Training)];
        let busy = Heartbeat { leases, ..heartbeat(now, Some(genesis()), Some((1, OTHER))) };
        actions.extend(node.handle(Millis(now), heard_heartbeat(THIRD, busy)));
        actions.extend(node.handle(Millis(now), Event::Tick));
    }
    assert!(actions.contains(&train(0, genesis(), Some(second))), "{actions:?}");
}
