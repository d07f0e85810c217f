//! Tests of streaming mode.

use crate::config::Stagger;
use crate::protocol::Resume;
use crate::protocol::node::tests::*;
use crate::protocol::status::waiting::Waiting;
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;

const LOWER: ModuleId = MODULE;
const UPPER: ModuleId = ModuleId { level: 1, expert: 0 };

fn streaming() -> RunPlan {
    RunPlan {
        slots: Grid::with_paths(vec![Sharing::Shared, Sharing::Shared], 2).unwrap().into(),
        streaming: Some(Stagger::new(2, INNER_STEPS, 1)),
        genesis: BTreeMap::from([(LOWER, state(0)), (UPPER, upper(0))]),
        offer_bytes: vec![1_000; 2],
        average_bytes: vec![1_000; 2],
        ..plan()
    }
}

fn upper(version: u64) -> BlobRef {
    BlobRef { bytes: 200, ..BlobRef::of(format!("upper {version}").as_bytes()) }
}

fn records() -> Vec<Record> {
    let of =
        |(module, state)| [Record::Genesis { module, state }, Record::Term { module, term: Term(1), owner: OTHER }];
    let held = Record::Lease { path: PathId(0), held: true, standby: false };
    [(LOWER, state(0)), (UPPER, upper(0))].into_iter().flat_map(of).chain([held]).collect()
}

fn member_of_both(records: Vec<Record>) -> (Node, Vec<Action>) {
    let mut node = Node::restore(ME, streaming(), records);
    let began = node.handle(Millis(0), Event::Join(vec![]));
    began_in_time(&mut node);
    (node, began)
}

fn at(module: ModuleId, head: Head) -> (BaseVersion, BlobRef) {
    (BaseVersion { module, version: head.version, update: head.update }, head.state)
}

fn genesis_of_both() -> Vec<(BaseVersion, BlobRef)> {
    vec![at(LOWER, genesis()), at(UPPER, Head { state: upper(0), ..genesis() })]
}

/// The result of a part of a phase.
fn part_done(phase: u64, start: &[(BaseVersion, BlobRef)], level: usize) -> Finished {
    let what = format!("{phase} {level}");
    let blob = if level == 0 { gradient(0, phase) } else { BlobRef::of(what.as_bytes()) };
    Finished {
        path: PathId(0),
        phase: Phase(phase),
        steps: INNER_STEPS,
        offers: vec![(start[level].0, blob)],
        trainer: BlobRef::of(format!("trainer {what}").as_bytes()),
        base_states: start.to_vec(),
    }
}

type Begun = (Phase, Part, Vec<(BaseVersion, BlobRef)>);

fn trains(actions: &[Action]) -> Option<Begun> {
    actions.iter().find_map(|action| match action {
        Action::Train { phase, part, start, .. } => Some((*phase, part.clone(), start.clone())),
        _ => None,
    })
}

fn of_lower() -> Part {
    Part { first: 0, last: 32, of: INNER_STEPS, due: vec![LOWER] }
}

fn of_upper() -> Part {
    Part { first: 32, last: INNER_STEPS, of: INNER_STEPS, due: vec![UPPER] }
}

/// The update that counts the first part of the lower level, published and applied.
fn update_lower(node: &mut Node, now: u64) -> (Head, Vec<Action>) {
    update_after(genesis(), node, now)
}

fn update_after(before: Head, node: &mut Node, now: u64) -> (Head, Vec<Action>) {
    let update = update(before, 1, OTHER);
    let mut actions = node.handle(Millis(now), heard(OTHER, Message::Update(update.clone())));
    actions.extend(node.handle(Millis(now), Event::Fetched { blob: update.update.average.hash, found: true }));
    let made = Event::Applied { module: LOWER, version: update.update.version, state: Some(update.update.state) };
    actions.extend(node.handle(Millis(now), made));
    (head(&update), actions)
}

#[test]
fn inner_steps_continue_while_an_update_travels_and_wait_for_it_when_it_is_to_be_mixed_in() {
    let (mut node, began) = member_of_both(records());
    let start = genesis_of_both();
    assert_eq!(trains(&began), Some((Phase(0), of_lower(), start.clone())));

    let actions = node.handle(Millis(1_000), Event::Trained(part_done(0, &start, 0)));
    assert_eq!(trains(&actions), Some((Phase(0), of_upper(), start.clone())), "it does not wait");

    let actions = node.handle(Millis(2_000), Event::Trained(part_done(0, &start, 1)));
    assert_eq!(trains(&actions), None, "the lower level's update is to be mixed in now");
    assert!(matches!(node.waits_for(PathId(0)), Some(Waiting::Owner { owner: OTHER, .. })));

    let (lower, actions) = update_lower(&mut node, 2_100);
    let next = vec![at(LOWER, lower), start[1]];
    assert_eq!(trains(&actions), Some((Phase(1), of_lower(), next)));
}

#[test]
fn an_early_update_is_mixed_in_after_the_same_number_of_parts() {
    let (mut node, _) = member_of_both(records());
    let start = genesis_of_both();
    node.handle(Millis(1_000), Event::Trained(part_done(0, &start, 0)));
    let (head, actions) = update_lower(&mut node, 1_100);
    assert_eq!(trains(&actions), None, "the part of the upper level is in training");
    assert!(node.referenced_blobs().contains(&state(0).hash), "it is the base state in training");
    let actions = node.handle(Millis(2_000), Event::Trained(part_done(0, &start, 1)));
    assert_eq!(trains(&actions), Some((Phase(1), of_lower(), vec![at(LOWER, head), start[1]])));
}

/// The first phase, interrupted in the part of the upper level.
fn middle_of_upper(start: &[(BaseVersion, BlobRef)]) -> InnerCheckpoint {
    let (path, phase, blob) = (PathId(0), Phase(0), BlobRef::of(b"middle"));
    InnerCheckpoint { path, phase, start: start.to_vec(), steps: 40, blob }
}

#[test]
fn after_a_restart_a_path_keeps_its_base_states() {
    let start = genesis_of_both();
    let finished = part_done(0, &start, 0);
    let again = [records(), vec![Record::Finished(finished.clone())]].concat();
    let (node, began) = member_of_both(again.clone());
    assert_eq!(trains(&began), Some((Phase(0), of_upper(), start.clone())));
    assert_eq!(node.base_states(PathId(0)), start);

    let middle = middle_of_upper(&start);
    let (_, began) = member_of_both([again, vec![Record::Checkpoint(middle.clone())]].concat());
    let resume = Some(Resume { steps: 40, blob: middle.blob });
    let trainer = Some(finished.trainer);
    let expected = Action::Train { path: PathId(0), phase: Phase(0), part: of_upper(), start, trainer, resume };
    assert!(began.contains(&expected), "{began:?}");
}

#[test]
fn a_new_holder_in_the_middle_of_a_phase_does_not_repeat_the_earlier_parts() {
    let start = genesis_of_both();
    let middle = middle_of_upper(&start);
    let (mut node, began) = member_of_both([records(), vec![Record::Checkpoint(middle)]].concat());
    assert_eq!(trains(&began), Some((Phase(0), of_upper(), start.clone())), "where the previous holder stopped");

    let actions = node.handle(Millis(1_000), Event::Trained(part_done(0, &start, 1)));
    assert_eq!(trains(&actions), None, "the previous holder has offered the part of the lower level");
    let (lower, actions) = update_lower(&mut node, 1_100);
    assert_eq!(trains(&actions), Some((Phase(1), of_lower(), vec![at(LOWER, lower), start[1]])));
}

#[test]
fn a_path_that_is_given_up_releases_its_base_states() {
    let start = genesis_of_both();
    let given = Record::Lease { path: PathId(0), held: false, standby: false };
    let node =
        Node::restore(ME, streaming(), [records(), vec![Record::Finished(part_done(0, &start, 0)), given]].concat());
    assert_eq!(node.base_states(PathId(0)), []);
}

#[test]
fn a_lease_with_the_largest_phase_number_is_harmless() {
    let (mut node, _) = member_of_both(records());
    let (lower, _) = update_lower(&mut node, 2_100);
    let (lower, _) = update_after(lower, &mut node, 2_600);
    // Long enough that the module is held up and its holders are checked.
    for now_s in 3..80 {
        let leases = vec![lease(1, u64::MAX, Stage::Training)];
        let heartbeat = Heartbeat { leases, ..heartbeat(now_s, Some(lower), Some((1, OTHER))) };
        node.handle(Millis(1_000 * now_s), heard_heartbeat(OTHER, heartbeat));
        pass(&mut node, 1_000 * now_s, 1_000 * now_s + 999);
    }
    assert!(node.next_deadline().is_some());
}
