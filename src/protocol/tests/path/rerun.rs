//! Phases of others that a standby trains again.

use crate::names::BlobHash;
use crate::protocol::reputation::score::Fault;
use crate::protocol::tests::*;
use crate::protocol::wire::message::Made;

const CLASS: u64 = 7;
const STEPS: u64 = INNER_STEPS - 4;

fn made(phase: u64, trainer: Option<BlobHash>) -> Made {
    Made { phase: Phase(phase), steps: STEPS, trainer, class: CLASS }
}

fn trainer(name: &str) -> BlobRef {
    BlobRef::of(name.as_bytes())
}

/// `OTHER` trains both paths, and `ME` stands by the first; both have the module as these updates have left it.
fn standby(chain: &[SignedUpdate]) -> Node {
    let mut records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Lease { path: PathId(0), held: true, standby: true },
    ];
    records.extend(chain.iter().cloned().map(Record::Head));
    let mut node = Node::restore(ME, RunPlan { rerun_share: 1.0, ..plan() }, records);
    node.handle(Millis(0), Event::Join(vec![]));
    node.handle(Millis(2_400), holders(1, chain, None));
    waits(&mut node, 2_400, 2_600);
    node
}

fn holders(sequence: u64, chain: &[SignedUpdate], trainer: Option<BlobRef>) -> Event {
    let head = chain.last().map_or(genesis(), head);
    let leases = [0, 1].map(|path| Lease { trainer, ..lease(path, head.version.0, Stage::Training) });
    heard_beat(OTHER, Beat { leases: leases.to_vec(), ..beat(sequence, Some(head), Some((1, OTHER))) })
}

fn offered(chain: &[SignedUpdate], made: Made) -> Event {
    let head = chain.last().map_or(genesis(), head);
    heard(OTHER, Message::Offer(Offer { made: Some(made), ..offer(0, head) }))
}

/// What comes out, on a machine of this class.
fn again(blob: BlobRef, made: Made, class: u64) -> Event {
    let offers = vec![(started_from(genesis()), blob)];
    let made = Some(Made { class, ..made });
    Event::Trained(Finished { offers, made, trainer: trainer("after"), ..trained(0, genesis()) })
}

fn train_again(from: Head, trainer: Option<BlobRef>) -> Action {
    let start = vec![(started_from(from), from.state)];
    let part = Part { last: STEPS, ..whole() };
    Action::TrainAgain { path: PathId(0), phase: Phase(from.version.0), part, start, trainer }
}

/// Lets time pass; whatever is to be scored is scored at once.
fn waits(node: &mut Node, from_ms: u64, to_ms: u64) -> Vec<(u64, Action)> {
    let mut all = Vec::new();
    for at in (from_ms..to_ms).step_by(250) {
        for (now, action) in pass(node, at, at + 250) {
            if let Action::Evaluate { path, phase, .. } = action {
                let scored = Event::Evaluated { path, phase, millibits_per_byte: Some(1) };
                all.extend(node.handle(Millis(now), scored).into_iter().map(|action| (now, action)));
            }
            all.push((now, action));
        }
    }
    all
}

fn told(apart_ppm: Option<u32>, alike: bool) -> Action {
    Action::Report(Report::TrainedAgain { path: PathId(0), phase: Phase(0), peer: OTHER, apart_ppm, alike })
}

#[test]
fn a_standby_makes_the_same_again_and_says_so() {
    let mut node = standby(&[]);
    let made = made(0, None);
    let began = node.handle(Millis(2_700), offered(&[], made));
    assert!(!began.contains(&train_again(genesis(), None)), "nothing of it can wait for no more than a sweep");
    let began = waits(&mut node, 2_700, 3_000);
    assert!(began.iter().any(|(_, action)| *action == train_again(genesis(), None)), "{began:?}");
    let kept = node.referenced_blobs();
    assert!(kept.contains(&state(0).hash));
    let done = node.handle(Millis(4_000), again(gradient(0, 0), made, CLASS));
    assert!(done.contains(&told(Some(0), true)) && done.contains(&Action::Forget(trainer("after").hash)), "{done:?}");
    assert!(!done.iter().any(|action| matches!(action, Action::Publish { message: Message::Offer(_), .. })));
    let conduct = node.status().conduct;
    assert_eq!((conduct[0].peer, conduct[0].rerun, conduct[0].alike, conduct[0].named), (OTHER, 1, 1, false));
    let later = waits(&mut node, 4_000, 5_000);
    assert!(!later.iter().any(|(_, action)| matches!(action, Action::TrainAgain { .. })), "once");
}

#[test]
fn other_bytes_from_a_machine_of_the_same_class_name_their_holder_the_second_time() {
    let mut node = standby(&[]);
    let made = made(0, None);
    node.handle(Millis(2_700), offered(&[], made));
    waits(&mut node, 2_700, 3_000);
    let done = node.handle(Millis(4_000), again(trainer("another gradient"), made, CLASS));
    assert!(done.contains(&told(None, false)), "{done:?}");
    let faults = |node: &Node| (node.status().conduct[0].faults[&Fault::Untrained], node.status().conduct[0].named);
    assert_eq!(faults(&node), (1, false), "its machine may have been at fault");
    let other = Offer { made: Some(Made { steps: STEPS - 1, ..made }), blob: trainer("theirs"), ..offer(0, genesis()) };
    node.handle(Millis(4_100), heard(OTHER, Message::Offer(other)));
    waits(&mut node, 4_100, 4_600);
    let done = node.handle(Millis(5_000), again(trainer("ours"), Made { steps: STEPS - 1, ..made }, CLASS));
    let named = Action::Report(Report::Named { peer: OTHER, fault: Fault::Untrained });
    assert!(done.contains(&named), "{done:?}");
    assert_eq!(faults(&node), (2, true));
}

#[test]
fn what_another_class_of_machine_comes_to_is_measured() {
    for (class, apart_ppm, alike) in [(8, 400_000, true), (8, 600_000, false), (0, 1, true)] {
        let mut node = standby(&[]);
        let made = made(0, None);
        node.handle(Millis(2_700), offered(&[], made));
        waits(&mut node, 2_700, 3_000);
        let (theirs, ours) = (gradient(0, 0), trainer("another gradient"));
        let fetches = node.handle(Millis(4_000), again(ours, made, class));
        assert!(fetches.contains(&Action::Fetch { blob: theirs, from: vec![OTHER] }), "{fetches:?}");
        let compares = node.handle(Millis(4_010), Event::Fetched { blob: theirs.hash, found: true });
        let compare = Action::Outer(Outer::Compare { module: MODULE, theirs, ours });
        assert!(compares.contains(&compare), "{compares:?}");
        let apart = Event::Compared { theirs: theirs.hash, apart_ppm: Some(apart_ppm) };
        let done = node.handle(Millis(4_020), apart);
        assert!(done.contains(&told(Some(apart_ppm), alike)), "{done:?}");
        assert!(done.contains(&Action::Forget(ours.hash)) && done.contains(&Action::Forget(theirs.hash)), "{done:?}");
    }
}

#[test]
fn what_cannot_be_had_says_nothing() {
    let mut node = standby(&[]);
    let made = made(0, None);
    node.handle(Millis(2_700), offered(&[], made));
    waits(&mut node, 2_700, 3_000);
    let fewer = again(trainer("ours"), Made { steps: STEPS - 1, ..made }, CLASS);
    let done = node.handle(Millis(4_000), fewer);
    assert!(done.contains(&Action::Forget(trainer("ours").hash)), "{done:?}");
    assert!(node.status().conduct.iter().all(|conduct| conduct.rerun == 0), "it has made fewer steps");
}

#[test]
fn a_phase_is_made_again_from_the_trainer_that_it_began_with_though_another_has_come() {
    let chain = updates(1, OTHER);
    let mut node = standby(&chain);
    let [before, after] = ["before", "after"].map(trainer);
    for (sequence, trainer) in [(2, before), (3, after)] {
        node.handle(Millis(2_650), holders(sequence, &chain, Some(trainer)));
        node.handle(Millis(2_650), Event::Fetched { blob: trainer.hash, found: true });
    }
    assert_eq!(node.trainer(PathId(0)), Some(after));
    node.handle(Millis(2_700), offered(&chain, made(1, Some(trainer("never heard of").hash))));
    let nothing = waits(&mut node, 2_700, 3_000);
    assert!(!nothing.iter().any(|(_, action)| matches!(action, Action::TrainAgain { .. })), "{nothing:?}");
    node.handle(Millis(3_100), offered(&chain, made(1, Some(before.hash))));
    let began = waits(&mut node, 3_100, 3_600);
    assert!(began.iter().any(|(_, action)| *action == train_again(head(&chain[0]), Some(before))), "{began:?}");
    assert!(node.referenced_blobs().contains(&before.hash));
}

#[test]
fn a_phase_of_another_is_given_up_for_a_path_of_ones_own_and_to_leave() {
    let begun = || {
        let mut node = standby(&[]);
        node.handle(Millis(2_700), offered(&[], made(0, None)));
        waits(&mut node, 2_700, 3_000);
        node
    };
    assert_eq!(begun().handle(Millis(3_000), Event::Leave).last(), Some(&Action::Gone), "nothing keeps it");
    let mut node = begun();
    // Its holder is heard no more.
    let actions: Vec<Action> = waits(&mut node, 3_000, 40_000).into_iter().map(|(_, action)| action).collect();
    assert_eq!(actions.iter().filter(|action| **action == Action::Pause).count(), 1, "{actions:?}");
    let trains = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Train { .. }));
    assert!(!trains(&actions), "not before the trainer has stopped");
    let paused = Event::Paused { path: PathId(0), phase: Phase(0), middle: None };
    let actions = node.handle(Millis(40_000), paused);
    assert!(trains(&actions), "{actions:?}");
    assert!(node.status().conduct.iter().all(|conduct| conduct.rerun == 0));
}

#[test]
fn a_trainer_that_dies_over_anothers_phase_lets_it_be() {
    let mut node = standby(&[]);
    node.handle(Millis(2_700), offered(&[], made(0, None)));
    waits(&mut node, 2_700, 3_000);
    let restarted = node.handle(Millis(3_100), Event::TrainerDied);
    assert!(restarted.contains(&Action::RestartTrainer), "{restarted:?}");
    let later = waits(&mut node, 3_100, 4_000);
    assert!(!later.iter().any(|(_, action)| matches!(action, Action::TrainAgain { .. })), "{later:?}");
}

#[test]
fn holders_say_how_they_have_made_it_only_where_it_is_made_again_and_then_even_as_owners() {
    for (rerun_share, says) in [(0.0, 0), (0.5, 1)] {
        let mut node = member(&[]);
        node.plan = RunPlan { rerun_share, ..plan() }.into();
        let mut actions = node.handle(Millis(3_000), Event::Tick);
        let made = Some(made(0, None));
        actions.extend(node.handle(Millis(3_100), Event::Trained(Finished { made, ..trained(0, genesis()) })));
        actions.extend(node.handle(Millis(3_200), Event::Tick));
        let offers = actions.iter().filter_map(|action| match action {
            Action::Publish { message: Message::Offer(offer), .. } => Some(offer.made),
            _ => None,
        });
        let offers: Vec<_> = offers.collect();
        assert!(offers.iter().filter(|told| **told == made).count() >= says, "{offers:?}");
        assert!(says > 0 || offers.iter().all(Option::is_none), "{offers:?}");
    }
}
