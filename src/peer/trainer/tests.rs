//! Tests of the trainer: phases that are paused, states from other peers, and scores.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::config::{Codec, MachineConfig, OuterConfig, RunConfig, SampleConfig, Streaming};
use crate::model::exchange;
use crate::names::{BlobHash, BlobRef, PathId, Phase};
use crate::outer::ModuleState;
use crate::peer::create::dense::Dense;
use crate::peer::create::dense_trainer::DenseTrainer;
use crate::peer::manifest::genesis;
use crate::peer::tests::tiny_run::{Tiny, machine};
use crate::peer::trainer::device_scheduler::DeviceScheduler;
use crate::peer::trainer::path_state::{PathState, PhaseState};
use crate::peer::trainer::task::{PhaseTask, Task, TrainerReport};
use crate::peer::trainer::thread::TrainerThread;
use crate::peer::trainer::{Phases, work};
use crate::protocol::journal::record::Finished;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::wire::message::GENESIS;
use crate::protocol::{Part, Resume};
use crate::text::{TokenSet, Tokenizer};
use crate::training::Score;

struct Bench {
    tiny: Tiny,
    trainer: TrainerThread,
}

impl Bench {
    fn new(inner_steps: u64) -> Self {
        Self::of(inner_steps, None)
    }

    fn of(inner_steps: u64, sample: Option<SampleConfig>) -> Self {
        let mut tiny = Tiny::create(true);
        tiny.decoded.config.sample = sample;
        Self::on(tiny, inner_steps)
    }

    fn on(tiny: Tiny, inner_steps: u64) -> Self {
        Self::with(machine(), tiny, inner_steps)
    }

    fn with(machine: MachineConfig, mut tiny: Tiny, inner_steps: u64) -> Self {
        tiny.decoded.config.training.inner_steps = inner_steps;
        let work = work(Arc::new(tiny.decoded.clone()), Phases::of(&tiny.decoded), machine, tiny.blobs.clone());
        Self { trainer: TrainerThread::start(work, Arc::new(DeviceScheduler::default())).unwrap(), tiny }
    }

    fn begin(&self, trainer: Option<BlobRef>, resume: Option<Resume>) {
        self.begin_on((PathId(0), Phase(0)), trainer, resume);
    }

    fn begin_on(&self, (drawn, phase): (PathId, Phase), trainer: Option<BlobRef>, resume: Option<Resume>) {
        let start = self.genesis_of(drawn);
        let steps = self.tiny.decoded.config.training.inner_steps;
        let part = Part::whole(steps, start.iter().map(|(from, _)| from.module).collect());
        let path = PathId(0);
        assert!(self.trainer.begin(Task::Train(PhaseTask {
            path,
            drawn,
            trainer_number: 0,
            phase,
            part,
            start,
            trainer,
            resume
        })));
    }

    fn genesis_of(&self, path: PathId) -> Vec<(BaseVersion, BlobRef)> {
        let modules = self.tiny.decoded.config.grid().unwrap().modules_of(path);
        let genesis = self.tiny.decoded.genesis.iter().filter(|(module, _)| modules.contains(module));
        let from = |module| BaseVersion { module, version: crate::names::Version(0), update: GENESIS };
        genesis.map(|(module, state)| (from(*module), *state)).collect()
    }

    /// The outcome of some steps of the first phase, after which one level is due.
    async fn part(
        &mut self,
        steps: std::ops::Range<u64>,
        level: usize,
        start: &[(BaseVersion, BlobRef)],
        trainer: Option<BlobRef>,
    ) -> Finished {
        let part = Part { first: steps.start, last: steps.end, of: 20, due: vec![start[level].0.module] };
        let (path, phase, start) = (PathId(0), Phase(0), start.to_vec());
        let task = PhaseTask { path, drawn: path, trainer_number: 0, phase, part, start, trainer, resume: None };
        assert!(self.trainer.begin(Task::Train(task)));
        self.outcome(false).await.unwrap()
    }

    /// Scales each module of path 0 by a factor, and returns the score of the path with that state at the end of the
    /// run.
    async fn evaluate(&mut self, times: f32, trainer: Option<BlobRef>) -> (Score, Option<(BlobRef, bool)>) {
        let state = |(from, state): (BaseVersion, BlobRef)| (from.module, self.times((from, state), times));
        let states = self.genesis_of(PathId(0)).into_iter().map(state).collect();
        let (path, drawn) = (PathId(0), PathId(0));
        assert!(self.trainer.begin(Task::Evaluate { path, drawn, states, trainer }));
        loop {
            match self.trainer.next_report().await.unwrap() {
                TrainerReport::Evaluated { test, reviewed, .. } => return (test, reviewed),
                TrainerReport::Failed(error) => panic!("{error:#}"),
                _ => {}
            }
        }
    }

    fn module(&self, from: BaseVersion, state: BlobRef) -> ModuleState {
        let Tiny { decoded, blobs, .. } = &self.tiny;
        let bytes = blobs.get(state.hash, state.bytes).unwrap().unwrap();
        let count = decoded.level_counts()[usize::from(from.module.level)];
        ModuleState::decode(&bytes, from.module, count).unwrap()
    }

    /// A module's state, scaled.
    fn times(&self, (from, state): (BaseVersion, BlobRef), times: f32) -> BlobRef {
        let mut state = self.module(from, state);
        state.parameters.iter_mut().for_each(|value| *value *= times);
        self.tiny.blobs.put(&state.encode()).unwrap()
    }

    /// A module's state, with `less` subtracted.
    fn less(&self, from: BaseVersion, state: BlobRef, less: &[f32]) -> BlobRef {
        let mut state = self.module(from, state);
        state.parameters.iter_mut().zip(less).for_each(|(value, less)| *value -= less);
        self.tiny.blobs.put(&state.encode()).unwrap()
    }

    fn state(&self, blob: BlobRef) -> PathState {
        let bytes = self.tiny.blobs.get(blob.hash, blob.bytes).unwrap().unwrap();
        PathState::decode(&bytes, &self.tiny.decoded.level_counts()).unwrap()
    }

    /// The outcome of the task; if it is to be paused, then after the first steps.
    async fn outcome(&mut self, stop: bool) -> Result<Finished, Option<Resume>> {
        loop {
            match self.trainer.next_report().await.unwrap() {
                TrainerReport::Step(_) if stop => self.trainer.pause(),
                TrainerReport::Paused { middle, .. } => return Err(middle.map(|(steps, blob)| Resume { steps, blob })),
                TrainerReport::Trained(finished) => return Ok(finished),
                TrainerReport::Failed(error) => panic!("{error:#}"),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_phase_that_is_stopped_in_the_middle_goes_on_as_if_it_had_not_been() {
    // Enough steps for a report before the last.
    let mut bench = Bench::new(200);
    bench.begin(None, None);
    let whole = bench.outcome(false).await.unwrap();
    bench.begin(None, None);
    let first = bench.outcome(true).await.unwrap_err().expect("steps were made");
    assert!((1..200).contains(&first.steps));
    // By another thread, as after a restart.
    bench.trainer.restart().unwrap();
    bench.begin(None, Some(first));
    let resumed = bench.outcome(false).await.unwrap();
    assert_eq!(resumed, whole);
    bench.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
async fn a_path_of_adapters_learns_and_sends_nothing_of_what_is_frozen() {
    let mut bench = Bench::on(Tiny::with_adapters(), 40);
    let Tiny { decoded, blobs, .. } = &bench.tiny;
    let sizes: Vec<u64> = decoded.genesis.iter().map(|(_, state)| state.bytes).collect();
    assert!(sizes.iter().all(|bytes| *bytes < decoded.ancestor.bytes / 3), "{sizes:?}");
    let modules: Vec<_> = decoded.genesis.iter().map(|(module, _)| *module).collect();
    for module in modules {
        assert!(genesis::make(decoded, blobs, module).unwrap().is_some(), "newcomers make them from the ancestor");
    }
    // Adapters begin without effect: the path is the model beside which they are.
    let (ancestor, model) =
        (blobs.get(decoded.ancestor.hash, decoded.ancestor.bytes).unwrap().unwrap(), &decoded.config.model);
    let plain = RunConfig { model: model.without_adapter(), ..decoded.config.clone() }.undivided();
    let levels = vec![exchange::decode_level(&ancestor, &plain.model, &plain.levels[0]).unwrap()];
    let dense = Dense { levels, ..Dense::initial(&plain) };
    let text = decoded.shard(PathId(0)).test;
    let text = blobs.get(text.hash, text.bytes).unwrap().unwrap();
    let text = TokenSet::decode(&text, 300, 65).unwrap();
    let (scheduler, stop) = (DeviceScheduler::default(), AtomicBool::new(false));
    let mut trainer = DenseTrainer::new(&plain, &machine(), &scheduler, &stop).unwrap();
    let expected = trainer.score(&dense, &text, &[1; 300]).unwrap();
    let found = bench.evaluate(1.0, None).await.0;
    assert_eq!(found.tokens, expected.tokens);
    assert!((found.nats / expected.nats - 1.0).abs() < 1e-6, "{} {}", found.nats, expected.nats);

    bench.begin(None, None);
    let finished = bench.outcome(false).await.unwrap();
    let state = bench.state(finished.trainer);
    let learnt = |[_, second]: &[Vec<f32>; 2]| second.iter().any(|value| *value > 0.0);
    assert_eq!(finished.offers.len(), 2);
    assert!(state.inner.moments.iter().all(learnt), "both levels");
    bench.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
async fn what_was_not_sent_is_trained_on_and_is_what_a_path_counts_as() {
    let mut tiny = Tiny::create(true);
    tiny.decoded.config.outer =
        OuterConfig { codec: Codec::TopK(64), keep_unsent: true, ..tiny.decoded.config.outer.clone() };
    let mut bench = Bench::on(tiny, 8);
    bench.begin(None, None);
    let first = bench.outcome(false).await.unwrap().trainer;
    let state = bench.state(first);
    let unsent = state.residuals.clone();
    assert!(unsent.iter().all(|level| level.iter().any(|value| *value != 0.0)));

    // A trainer without unsent changes begins in the same place, if the modules equal this one's own copy.
    let start = bench.genesis_of(PathId(0));
    let begin = |bench: &Bench, start: Vec<(BaseVersion, BlobRef)>, trainer| {
        let (path, phase) = (PathId(0), Phase(1));
        let part = Part::whole(8, start.iter().map(|(from, _)| from.module).collect());
        let (drawn, trainer) = (path, Some(trainer));
        let task = PhaseTask { path, drawn, trainer_number: 0, phase, part, start, trainer, resume: None };
        assert!(bench.trainer.begin(Task::Train(task)));
    };
    begin(&bench, start.clone(), first);
    let kept = bench.outcome(false).await.unwrap();
    let own = start.iter().zip(&unsent).map(|((from, blob), unsent)| (*from, bench.less(*from, *blob, unsent)));
    let own: Vec<(BaseVersion, BlobRef)> = own.collect();
    let none = PathState { residuals: unsent.iter().map(|level| vec![0.0; level.len()]).collect(), ..state };
    begin(&bench, own.clone(), bench.tiny.blobs.put(&none.encode()).unwrap());
    let other = bench.outcome(false).await.unwrap();
    assert_eq!(bench.state(kept.trainer).inner, bench.state(other.trainer).inner);
    assert_ne!(kept.offers, other.offers, "one has more to send");

    let (test, reviewed) = bench.evaluate(1.0, Some(first)).await;
    let (settled, stands) = reviewed.unwrap();
    let best = bench.state(settled).best.unwrap();
    assert!(stands && best.settled && best.phase.0 == bench.tiny.decoded.config.training.phases);
    let parameters = |(from, blob): &(BaseVersion, BlobRef)| bench.module(*from, *blob).parameters;
    assert_eq!(best.levels, own.iter().map(parameters).collect::<Vec<_>>());
    assert_ne!(test, bench.evaluate(1.0, None).await.0, "modules alone are something else");
    bench.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a second is a second")]
async fn a_trainer_with_a_rate_makes_the_same_of_a_phase_and_takes_its_time() {
    let mut bench = Bench::new(8);
    bench.begin(None, None);
    let whole = bench.outcome(false).await.unwrap();
    bench.trainer.end(Duration::from_secs(60));
    let train_tokens_per_s = 2_000;
    let mut slow = Bench::with(MachineConfig { train_tokens_per_s, ..machine() }, Tiny::create(true), 8);
    let began = std::time::Instant::now();
    slow.begin(None, None);
    let (mut tokens, mut seconds) = (0, 0.0);
    let finished = loop {
        match slow.trainer.next_report().await.unwrap() {
            TrainerReport::Step(stepped) => (tokens, seconds) = (tokens + stepped.tokens, seconds + stepped.seconds),
            TrainerReport::Trained(finished) => break finished,
            TrainerReport::Failed(error) => panic!("{error:#}"),
            _ => {}
        }
    };
    assert_eq!(finished, whole);
    assert!(began.elapsed().as_secs_f64() >= seconds, "after the last step it rests as after any other");
    assert!(tokens > 0 && seconds >= tokens as f64 / train_tokens_per_s as f64 - 1e-6, "{tokens} in {seconds} s");
    slow.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
async fn a_phase_that_is_to_end_contributes_what_it_has_come_to() {
    let mut bench = Bench::new(200);
    bench.begin(None, None);
    let whole = bench.outcome(false).await.unwrap();
    bench.begin(None, None);
    bench.trainer.end_phase();
    let ended = bench.outcome(false).await.unwrap();
    assert_ne!(ended.offers, whole.offers);
    bench.begin(None, None);
    assert_eq!(bench.outcome(false).await.unwrap(), whole, "the next is whole again");
    bench.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
async fn what_another_peer_has_left_that_does_not_do_costs_adamws_state_and_nothing_else() {
    let mut bench = Bench::new(4);
    bench.begin(None, None);
    let fresh = bench.outcome(false).await.unwrap();
    let garbage = bench.tiny.blobs.put(b"no trainer").unwrap();
    let mut absurd = bench.tiny.blobs.get(fresh.trainer.hash, fresh.trainer.bytes).unwrap().unwrap();
    absurd[8..12].copy_from_slice(&f32::MAX.to_le_bytes());
    let absurd = bench.tiny.blobs.put(&absurd).unwrap();
    for trainer in [garbage, absurd, BlobRef::of(b"gone from the disk")] {
        bench.begin(Some(trainer), Some(Resume { steps: 3, blob: garbage }));
        assert_eq!(bench.outcome(false).await.unwrap(), fresh);
        bench.begin(Some(trainer), None);
        assert_eq!(bench.outcome(false).await.unwrap(), fresh);
    }
    bench.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
async fn another_path_goes_on_with_what_compression_left_of_the_modules_that_stay_and_nothing_else() {
    let mut bench = Bench::of(20, Some(SampleConfig { paths: 2, hold_phases: 1 }));
    bench.begin(None, None);
    let first = bench.outcome(false).await.unwrap();
    let bytes = bench.tiny.blobs.get(first.trainer.hash, first.trainer.bytes).unwrap().unwrap();
    let left = PathState::decode(&bytes, &bench.tiny.decoded.level_counts()).unwrap();
    assert_eq!(left.drawn, Some(PathId(0)));

    let second = (PathId(1), Phase(1));
    bench.begin_on(second, Some(first.trainer), None);
    let drawn_anew = bench.outcome(false).await.unwrap();
    let taken = 20 * bench.tiny.decoded.config.training.batch_sequences as u64;
    // Both paths go through module 1.0.
    let expected =
        bench.tiny.blobs.put(&left.clone().drawn_anew(PathId(1), |level| level == 1, taken).encode()).unwrap();
    bench.begin_on(second, Some(expected), None);
    let as_expected = bench.outcome(false).await.unwrap();
    assert_eq!((as_expected.offers, as_expected.trainer), (drawn_anew.offers.clone(), drawn_anew.trainer));
    bench.begin_on(second, None, None);
    let fresh = bench.outcome(false).await.unwrap();
    assert_eq!(fresh.offers[0], drawn_anew.offers[0]);
    assert_ne!(fresh.offers[1], drawn_anew.offers[1], "what was left of module 1.0 is lost");

    // The checkpoint of another path is not used.
    let levels = left.residuals.clone();
    let middle = PhaseState { steps: 3, levels, state: left };
    let middle = bench.tiny.blobs.put(&middle.encode()).unwrap();
    bench.begin_on(second, None, Some(Resume { steps: 3, blob: middle }));
    assert_eq!(bench.outcome(false).await.unwrap(), fresh);
    bench.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
async fn levels_that_are_brought_in_step_in_turn_are_trained_as_one_and_an_update_is_mixed_in() {
    let mut bench = Bench::new(20);
    bench.begin(None, None);
    let whole = bench.outcome(false).await.unwrap();
    let mut tiny = Tiny::create(true);
    tiny.decoded.config.outer.streaming = Some(Streaming { mix: 0.25, overlap: 1 });
    let mut bench = Bench::on(tiny, 20);
    let mut start = bench.genesis_of(PathId(0));
    let lower = bench.part(0..10, 0, &start, None).await;
    let upper = bench.part(10..20, 1, &start, Some(lower.trainer)).await;
    assert_eq!(
        (lower.offers.len(), &upper.offers[..]),
        (1, &whole.offers[1..]),
        "against the version that it stands on"
    );
    assert_ne!(lower.offers[0], whole.offers[0], "half of the steps");
    assert_eq!((&lower.base_states, &upper.base_states), (&start, &start));
    let own = |state: &PathState| state.own.clone().unwrap();
    let trained = bench.state(upper.trainer);

    // No step at all, from an update of the lower level that has arrived meanwhile.
    start[0].0.update = BlobHash([7; 32]);
    start[0].1 = bench.times(start[0], 3.0);
    let mixed = bench.part(20..20, 1, &start, Some(upper.trainer)).await;
    let new = bench.tiny.blobs.get(start[0].1.hash, start[0].1.bytes).unwrap().unwrap();
    let new = ModuleState::decode(&new, start[0].0.module, trained.residuals[0].len()).unwrap().parameters;
    let expected: Vec<f32> =
        own(&trained).levels[0].iter().zip(&new).map(|(own, new)| 0.25 * own + 0.75 * new).collect();
    let state = bench.state(mixed.trainer);
    assert_eq!(own(&state).levels, [expected, own(&trained).levels[1].clone()]);
    assert_eq!(own(&state).base_states, [start[0].0.update, GENESIS]);
    bench.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
async fn a_part_comes_to_the_same_from_memory_as_from_the_disk_whatever_was_scored_before() {
    let mut tiny = Tiny::create(true);
    tiny.decoded.config.outer.streaming = Some(Streaming { mix: 0.25, overlap: 1 });
    let mut bench = Bench::on(tiny, 20);
    let start = bench.genesis_of(PathId(0));
    let lower = bench.part(0..10, 0, &start, None).await;
    bench.evaluate(3.0, None).await;
    let from_memory = bench.part(10..20, 1, &start, Some(lower.trainer)).await;
    // The state in memory is the result of that.
    let from_the_disk = bench.part(10..20, 1, &start, Some(lower.trainer)).await;
    assert_eq!(from_memory, from_the_disk);
    bench.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
async fn a_path_counts_as_what_it_was_best_with_if_that_was_before_the_end() {
    let mut bench = Bench::on(Tiny::stopping_early(), 4);
    let (as_created, none) = bench.evaluate(1.0, None).await;
    assert!(none.is_none());
    bench.begin_on((PathId(0), Phase(0)), None, None);
    let first = bench.outcome(false).await.unwrap();
    assert!(bench.state(first.trainer).best.is_none(), "nobody has been trained yet");
    bench.begin_on((PathId(0), Phase(1)), Some(first.trainer), None);
    let second = bench.outcome(false).await.unwrap();
    let best = bench.state(second.trainer).best.unwrap();
    assert!((best.phase, best.settled) == (Phase(1), false));

    let (test, reviewed) = bench.evaluate(4.0, Some(second.trainer)).await;
    let (trainer, stands) = reviewed.unwrap();
    assert!(stands && test == as_created, "the modules came to something worse: {test:?} {as_created:?}");
    let settled = bench.state(trainer).best.unwrap();
    assert!(settled.settled && settled.levels == best.levels);
    assert_eq!(bench.evaluate(4.0, Some(trainer)).await.1, Some((trainer, true)), "looking again changes nothing");

    let (test, reviewed) = bench.evaluate(1.0, Some(second.trainer)).await;
    let (trainer, stands) = reviewed.unwrap();
    assert!(!stands && test == as_created, "as good in the end");
    assert!(bench.state(trainer).best.is_none());
    bench.trainer.end(Duration::from_secs(60));
}

#[tokio::test]
async fn a_tokenizer_of_little_text_scores_paths_and_dense_paths() {
    let tiny = Tiny::with_vocabulary(4_096, true);
    let manifest = Arc::new(tiny.decoded.clone());
    let blob = |blob: BlobRef| tiny.blobs.get(blob.hash, blob.bytes).unwrap().unwrap();
    let tokenizer = Tokenizer::from_json(&blob(manifest.tokenizer)).unwrap();
    assert!(tokenizer.vocabulary() < 4_096, "the text has words enough");

    let scheduler = Arc::new(DeviceScheduler::default());
    let work = work(manifest.clone(), Phases::of(&manifest), machine(), tiny.blobs.clone());
    let mut trainer = TrainerThread::start(work, scheduler.clone()).unwrap();
    let modules = manifest.config.grid().unwrap().modules_of(PathId(0));
    let states = manifest.genesis.iter().filter(|(module, _)| modules.contains(module)).copied().collect();
    assert!(trainer.begin(Task::Evaluate { path: PathId(0), drawn: PathId(0), states, trainer: None }));
    let mut signs = 0;
    let test = loop {
        match trainer.next_report().await {
            Some(TrainerReport::Alive { path: PathId(0), phase, .. }) if phase.0 == manifest.config.training.phases => {
                signs += 1
            }
            Some(TrainerReport::Evaluated { test, .. }) => break test,
            _ => panic!("not evaluated"),
        }
    };
    assert!(signs > 0, "whoever watches it knows that it lives");
    assert!(test.tokens > 0 && test.bits_per_byte() > Some(0.0), "{test:?}");

    // Before the first update, every path is the ancestor.
    let config = &manifest.config;
    let file = blob(manifest.ancestor);
    let levels = config.levels.iter().map(|level| exchange::decode_level(&file, &config.model, level).unwrap());
    let dense = Dense { levels: levels.collect(), ..Dense::initial(config) };
    let text = blob(manifest.shard(PathId(0)).test);
    let text = TokenSet::decode(&text, config.model.vocabulary, config.model.context + 1).unwrap();
    let stop = AtomicBool::new(false);
    let mut trainer = DenseTrainer::new(config, &machine(), &scheduler, &stop).unwrap();
    assert_eq!(trainer.score(&dense, &text, &tokenizer.token_bytes_for(&config.model)).unwrap(), test);
}
