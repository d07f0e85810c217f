//! Tests of interrupted phases.

use crate::protocol::Resume;
use crate::protocol::limits::{SETTLE_MS, TEXT_MS, VERSIONS_KEPT};
use crate::protocol::node::tests::*;
use crate::protocol::status::waiting::Waiting;
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;

fn middle(steps: u64) -> BlobRef {
    BlobRef::of(format!("middle {steps}").as_bytes())
}

fn checkpointed(phase: u64, steps: u64) -> Event {
    Event::Checkpointed { path: PathId(0), phase: Phase(phase), steps, blob: middle(steps) }
}

fn checkpoint(from: Head, steps: u64) -> InnerCheckpoint {
    let start = vec![(started_from(from), from.state)];
    InnerCheckpoint { path: PathId(0), phase: Phase(from.version.0), start, steps, blob: middle(steps) }
}

fn resumed(from: Head, steps: u64) -> Action {
    let start = vec![(started_from(from), from.state)];
    let resume = Some(Resume { steps, blob: middle(steps) });
    Action::Train { path: PathId(0), phase: Phase(from.version.0), part: whole(), start, trainer: None, resume }
}

fn held() -> Vec<Record> {
    vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: OTHER },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ]
}

/// The first actions of a node that returns with these records.
fn comes_back(records: Vec<Record>) -> Vec<Action> {
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    node.handle(Millis(SETTLE_MS), Event::Tick)
}

fn forgets(actions: &[Action], blob: BlobRef) -> bool {
    actions.contains(&Action::Release(blob.hash))
}

#[test]
fn a_phase_resumes_from_its_last_checkpoint_after_a_restart() {
    let mut node = member_with_owner(&[]);
    let persisted = |steps| Action::Persist(Record::Checkpoint(checkpoint(genesis(), steps)));
    assert_eq!(node.handle(Millis(10), checkpointed(0, 5)), vec![persisted(5)]);
    let second = node.handle(Millis(20), checkpointed(0, 9));
    assert_eq!(second, vec![persisted(9), Action::Release(middle(5).hash)]);

    let live = [held(), vec![Record::Checkpoint(checkpoint(genesis(), 9))]].concat();
    assert!(comes_back(live.clone()).contains(&resumed(genesis(), 9)));
    let rewritten = Node::restore(ME, plan(), live).records();
    assert!(comes_back(rewritten).contains(&resumed(genesis(), 9)));
}

#[test]
fn a_phase_resumes_from_its_base_states_after_the_module_has_advanced() {
    let first = update(genesis(), 1, OTHER);
    let records = [held(), vec![Record::Checkpoint(checkpoint(genesis(), 9)), Record::Head(first.clone())]].concat();
    assert!(comes_back(records.clone()).contains(&resumed(genesis(), 9)));
    let node = Node::restore(ME, plan(), records);
    assert!(node.referenced_blobs().is_superset(&[state(0).hash, middle(9).hash].into()));
}

#[test]
fn a_phase_that_cannot_be_counted_any_more_is_abandoned_and_the_path_begins_anew() {
    let chain = updates(VERSIONS_KEPT, OTHER);
    let heads = chain.iter().cloned().map(Record::Head);
    let mut records = [held(), vec![Record::Checkpoint(checkpoint(genesis(), 9))]].concat();
    records.extend(heads);
    let actions = comes_back(records.clone());
    assert!(actions.contains(&train(0, head(chain.last().unwrap()), None)), "{actions:?}");
    records.push(Record::Abandoned(PathId(0)));
    assert_eq!(Node::restore(ME, plan(), records).checkpoints().count(), 0);
}

#[test]
fn a_checkpoint_is_released_when_the_phase_is_done_and_when_the_path_is_given_up() {
    let mut node = member_with_owner(&[]);
    node.handle(Millis(10), checkpointed(0, 5));
    let done = node.handle(Millis(20), Event::Trained(trained(0, genesis())));
    assert!(forgets(&done, middle(5)));
    assert_eq!(node.checkpoints().count(), 0);

    let finished = Record::Finished(trained(0, genesis()));
    let records = [held(), vec![Record::Checkpoint(checkpoint(genesis(), 5)), finished]].concat();
    assert_eq!(Node::restore(ME, plan(), records).checkpoints().count(), 0);
    let given = Record::Lease { path: PathId(0), held: false, standby: false };
    let records = [held(), vec![Record::Checkpoint(checkpoint(genesis(), 5)), given]].concat();
    assert_eq!(Node::restore(ME, plan(), records).checkpoints().count(), 0);
}

#[test]
fn a_checkpoint_of_a_phase_that_is_not_in_training_is_not_kept() {
    let mut node = member_with_owner(&[]);
    assert_eq!(node.handle(Millis(10), checkpointed(3, 5)), vec![Action::Release(middle(5).hash)]);
}

#[test]
fn an_interrupted_phase_goes_before_other_paths() {
    let other = Record::Lease { path: PathId(1), held: true, standby: false };
    let in_the_middle = InnerCheckpoint { path: PathId(1), ..checkpoint(genesis(), 5) };
    let records = [held(), vec![other, Record::Checkpoint(in_the_middle)]].concat();
    let trains: Vec<PathId> = comes_back(records)
        .into_iter()
        .filter_map(|action| match action {
            Action::Train { path, resume: Some(_), .. } => Some(path),
            _ => None,
        })
        .collect();
    assert_eq!(trains, [PathId(1)]);
}

#[test]
fn a_path_without_text_delays_no_other_and_continues_when_the_text_is_here() {
    let mut records = held();
    records.push(Record::Lease { path: PathId(1), held: true, standby: false });
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    assert!(node.handle(Millis(SETTLE_MS), Event::Tick).contains(&train(0, genesis(), None)));

    let missing = Event::TextMissing { path: PathId(0), phase: Phase(0) };
    let actions = node.handle(Millis(SETTLE_MS), missing);
    assert!(actions.contains(&train(1, genesis(), None)), "{actions:?}");
    let stage = |node: &Node| node.status().paths[0].stage.clone();
    assert_eq!(stage(&node), "waiting", "the text may come soon");
    assert_eq!(node.waits_for(PathId(0)), Some(Waiting::Text { path: 0 }));

    node.handle(Millis(SETTLE_MS + TEXT_MS), Event::Tick);
    assert_eq!(stage(&node), "skipping", "no round waits for it any more");
    node.handle(Millis(SETTLE_MS + TEXT_MS + 10), Event::TextHere(PathId(0)));
    assert_eq!(stage(&node), "waiting");
    let actions = node.handle(Millis(SETTLE_MS + TEXT_MS + 20), Event::Trained(trained(1, genesis())));
    assert!(actions.contains(&train(0, genesis(), None)), "{actions:?}");
}
