//! Tests of a trainer that hangs or dies.

use crate::protocol::Resume;
use crate::protocol::limits::{FIRST_STEP_MS, MAX_RESTARTS, SILENCE_FACTOR, SILENCE_LEAST_MS};
use crate::protocol::node::tests::*;

/// A node whose trainer is working, with its time.
struct Watched {
    node: Node,
    now: u64,
}

impl Watched {
    fn new() -> Self {
        Self { node: member_with_owner(&[]), now: 0 }
    }

    fn signs(&mut self, steps: u64) -> Vec<Action> {
        self.node.handle(Millis(self.now), Event::Progress { path: PathId(0), phase: Phase(0), steps })
    }

    /// The node's actions on its trainer while time passes.
    fn waits(&mut self, duration_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..duration_ms / 250 {
            self.now += 250;
            actions.extend(self.node.handle(Millis(self.now), Event::Tick));
        }
        of_the_trainer(actions)
    }
}

fn of_the_trainer(actions: Vec<Action>) -> Vec<Action> {
    let of_it = |action: &Action| {
        let told =
            [Action::Report(Report::TrainerDied), Action::RestartTrainer { path: Some(PathId(0)) }].contains(action);
        let stuck = matches!(action, Action::Report(Report::TrainerStuck { .. }) | Action::GiveUp { .. });
        told || stuck || matches!(action, Action::Train { .. })
    };
    actions.into_iter().filter(of_it).collect()
}

fn stuck(steps: u64, silent_ms: u64) -> Action {
    Action::Report(Report::TrainerStuck { path: PathId(0), steps: Some(steps), silent_ms })
}

#[test]
fn a_silent_trainer_is_restarted_from_its_last_checkpoint_and_reported() {
    let mut watched = Watched::new();
    watched.signs(0);
    watched.signs(1);
    let blob = BlobRef::of(b"middle");
    watched.node.handle(Millis(0), Event::Checkpointed { path: PathId(0), phase: Phase(0), steps: 7, blob });
    let start = vec![(started_from(genesis()), genesis().state)];
    let resume = Some(Resume { steps: 7, blob });
    let again = Action::Train { path: PathId(0), phase: Phase(0), part: whole(), start, trainer: None, resume };
    assert_eq!(watched.waits(SILENCE_LEAST_MS - 250), []);
    assert_eq!(
        watched.waits(250),
        [stuck(7, SILENCE_LEAST_MS), Action::RestartTrainer { path: Some(PathId(0)) }, again]
    );
}

#[test]
fn the_time_out_of_a_slow_trainer_is_longer() {
    let mut watched = Watched::new();
    watched.signs(0);
    watched.signs(1);
    assert_eq!(watched.waits(10_000), []);
    watched.signs(2);
    assert_eq!(watched.waits(10_000 * SILENCE_FACTOR - 250), []);
    assert_eq!(watched.waits(250).len(), 3);
}

#[test]
fn a_trainer_that_has_not_begun_or_has_just_begun_is_not_considered_stuck() {
    let mut watched = Watched::new();
    assert_eq!(watched.waits(2 * FIRST_STEP_MS), [], "it may be fetching text, or scoring another path");
    watched.signs(0);
    assert_eq!(watched.waits(FIRST_STEP_MS - 250), [], "its first step may take long");
    assert_eq!(watched.waits(250)[..2], [stuck(0, FIRST_STEP_MS), Action::RestartTrainer { path: Some(PathId(0)) }]);
}

#[test]
fn a_process_that_was_frozen_does_not_consider_its_trainer_stuck() {
    let mut watched = Watched::new();
    watched.signs(0);
    watched.signs(1);
    watched.now += 10 * FIRST_STEP_MS;
    assert_eq!(watched.waits(10_000), []);
}

#[test]
fn a_trainer_that_reports_that_it_waits_for_its_turn_is_not_considered_stuck() {
    let mut watched = Watched::new();
    for _ in 0..4 {
        assert_eq!(watched.waits(SILENCE_LEAST_MS - 250), []);
        watched.signs(1);
    }
}

#[test]
fn a_trainer_that_dies_is_restarted_whatever_it_was_doing() {
    let mut watched = Watched::new();
    watched.signs(3);
    let died = of_the_trainer(watched.node.handle(Millis(10), Event::TrainerDied { path: Some(PathId(0)) }));
    let restarted = [Action::Report(Report::TrainerDied), Action::RestartTrainer { path: Some(PathId(0)) }];
    assert_eq!(died, [restarted.to_vec(), vec![train(0, genesis(), None)]].concat());
    watched.node.handle(Millis(20), Event::Trained(trained(0, genesis())));
    let idle = of_the_trainer(watched.node.handle(Millis(30), Event::TrainerDied { path: Some(PathId(0)) }));
    assert_eq!(idle, restarted, "it may have been scoring a path");
}

#[test]
fn a_peer_whose_trainer_makes_no_progress_gives_up() {
    let mut watched = Watched::new();
    let dies = |watched: &mut Watched| {
        of_the_trainer(watched.node.handle(Millis(10), Event::TrainerDied { path: Some(PathId(0)) }))
    };
    for steps in 1..20 {
        watched.signs(steps - 1);
        watched.signs(steps);
        assert!(
            dies(&mut watched).contains(&Action::RestartTrainer { path: Some(PathId(0)) }),
            "it makes one step more each time"
        );
    }
    for _ in 1..MAX_RESTARTS {
        watched.signs(18);
        watched.signs(19);
        assert!(dies(&mut watched).contains(&Action::RestartTrainer { path: Some(PathId(0)) }));
    }
    let told = dies(&mut watched);
    assert!(told.contains(&Action::GiveUp { restarts: MAX_RESTARTS }), "{told:?}");
    assert!(!told.contains(&Action::RestartTrainer { path: Some(PathId(0)) }));
}

#[test]
fn a_trainer_that_hangs_in_the_final_evaluation_is_restarted_and_one_that_has_finished_is_not() {
    let at_the_end = |steps| Event::Progress { path: PathId(0), phase: Phase(PHASES), steps };
    let mut watched = Watched::new();
    watched.node.handle(Millis(0), at_the_end(0));
    watched.node.handle(Millis(0), at_the_end(1));
    let silent_ms = SILENCE_LEAST_MS;
    let told = Action::Report(Report::TrainerStuck { path: PathId(0), steps: None, silent_ms });
    assert_eq!(watched.waits(SILENCE_LEAST_MS)[..2], [told, Action::RestartTrainer { path: Some(PathId(0)) }]);

    let mut watched = Watched::new();
    watched.node.handle(Millis(0), at_the_end(1));
    let millibits_per_byte = Some(1_700);
    watched.node.handle(Millis(0), Event::Evaluated { path: PathId(0), phase: Phase(PHASES), millibits_per_byte });
    assert_eq!(watched.waits(2 * FIRST_STEP_MS), []);
}
