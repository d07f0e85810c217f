//! One arm with one seed: from the common ancestor through all phases to the scores on the test text.

use std::collections::BTreeMap;
use std::ops::Add;
use std::time::Instant;

use super::identity::Identity;
use super::plan::{Arm, Experiment, Kind};
use crate::config::RunConfig;
use crate::experiment::checkpoint::{ArmCheckpoint, ArmState, Best};
use crate::experiment::context::{CommonAncestor, ExperimentContext, ExperimentEvent, Tokens};
use crate::experiment::dataset::{Dataset, Documents};
use crate::experiment::results::outcome::{Honest, Outcome, Point, Routed};
use crate::experiment::results::scoring::{CutOff, From, by_domain, cut_off};
use crate::experiment::training::assignment::{Assignment, AssignmentError, Features, discriminative, first_router};
use crate::experiment::training::every_step::EveryStep;
use crate::experiment::training::features::AncestorNetwork;
use crate::experiment::training::lockstep::Lockstep;
use crate::experiment::training::rerouting::{Judged, reroute};
use crate::experiment::training::trained_arm::{DenseArm, TrainedArm};
use crate::names::{PathId, Phase};
use crate::peer::create::dense_trainer::Stopped;
use crate::routing::Router;
use crate::routing::resharding::{PathScores, labels};
use crate::seed::Seed;
use crate::training::{InnerTrainer, Score, evaluate_each, right_classes, target_losses};

/// Interval of checkpoints, in seconds.
const KEEP_EVERY_S: f64 = 120.0;

/// An arm with a seed, its text and its checkpoint.
pub struct Trial<'a> {
    context: &'a ExperimentContext<'a>,
    arm: &'a Arm,
    run: RunConfig,
    tokens: &'a Tokens,
    dataset: Dataset,
    identity: Identity<'a>,
    /// During training.
    checkpoint: ArmCheckpoint,
    /// After training, for all scores.
    trained: ArmCheckpoint,
}

type Levels = Vec<Vec<f32>>;

/// An arm between two phases.
struct State<'a> {
    trained_arm: TrainedArm<'a>,
    router: Option<Router>,
    assignment: Assignment,
    /// `None` with a single path.
    features: Option<Features>,
    best: Vec<Best>,
    curve: Vec<Point>,
    seconds: f64,
}

impl State<'_> {
    /// The parameters of each path.
    fn levels(&self) -> Vec<Levels> {
        (0..self.assignment.train.len()).map(|path| self.trained_arm.levels_of(PathId(path as u32))).collect()
    }
}

impl<'a> Trial<'a> {
    pub fn new(identity: Identity<'a>) -> anyhow::Result<Self> {
        let Identity { context, experiment, arm, seed, tokens } = identity;
        let mut run = arm.seeded(seed);
        if arm.kind == Kind::Dense {
            run = run.undivided();
        }
        let dataset = context.dataset(experiment, arm, tokens);
        let of = identity.training()?;
        let (checkpoint, trained) = (context.checkpoint(of), context.trained(of));
        Ok(Self { context, arm, run, tokens, dataset, identity, checkpoint, trained })
    }

    /// Trains the arm, or resumes, and scores it.
    ///
    /// # Errors
    /// If a step or the disk fails, or the user asks to stop. The same call then resumes.
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let ancestor = self.context.ancestor(&self.run, self.tokens, &self.dataset.train.set)?;
        let (mut state, done) = self.begin(&ancestor)?;
        self.train(&mut state, done)?;
        if done < self.run.training.phases || !self.trained.file.exists() {
            let mut trained = self.arm_state(&state, self.run.training.phases);
            if !self.run.outer.keep_unsent {
                trained.trained_arm.paths.clear();
            }
            self.trained.write(&trained)?;
            self.checkpoint.remove();
        }
        self.score(&ancestor, state)
    }

    fn trained_arm(&self, ancestor: &CommonAncestor) -> anyhow::Result<TrainedArm<'_>> {
        let (run, machine, stop) = (&self.run, self.context.machine, self.context.stop);
        Ok(match self.arm.kind {
            Kind::Dense => TrainedArm::Dense(Box::new(DenseArm::new(run, machine, ancestor.dense.clone(), stop)?)),
            Kind::EveryStep => {
                TrainedArm::EveryStep(Box::new(EveryStep::new(run, machine, &ancestor.levels(run)?, stop)?))
            }
            Kind::Paths => TrainedArm::Paths(Box::new(Lockstep::new(run, machine, &ancestor.levels(run)?, stop)?)),
        })
    }

    /// The state with which the arm begins or resumes, and the phases done.
    fn begin(&self, ancestor: &CommonAncestor) -> anyhow::Result<(State<'_>, u64)> {
        let features = match self.arm.paths() {
            1 => None,
            _ => Some(AncestorNetwork::new(self.context, ancestor).features_of_all(&self.dataset)?),
        };
        let mut trained_arm = self.trained_arm(ancestor)?;
        let checkpoint = self.begun()?;
        let router = match (&checkpoint, &features) {
            (Some(checkpoint), _) if !checkpoint.router.is_empty() => Some(Router::decode(&checkpoint.router)?),
            (_, Some(features)) => Some(first_router(&self.run, self.arm.paths(), features)?),
            _ => None,
        };
        let assignment = match (&router, &features) {
            (Some(router), Some(features)) => self.share(router, features)?,
            _ => Assignment::undivided(&self.dataset),
        };
        let ArmState { phases, seconds, curve, trained_arm: now, best, .. } = match checkpoint {
            Some(checkpoint) => checkpoint,
            None => ArmState { trained_arm: trained_arm.checkpoint(), ..ArmState::default() },
        };
        trained_arm.resume(&now)?;
        Ok((State { trained_arm, router, assignment, features, best, curve, seconds }, phases))
    }

    /// Its checkpoint, or that of another arm with an equal beginning.
    fn begun(&self) -> anyhow::Result<Option<ArmState>> {
        let mut files = vec![self.trained.clone(), self.checkpoint.clone()];
        for phase in self.arm.reshard.iter().rev() {
            files.push(self.context.checkpoint(self.identity.before(*phase)?));
        }
        Ok(files.iter().filter(|checkpoint| checkpoint.file.exists()).find_map(ArmCheckpoint::read))
    }

    fn share(&self, router: &Router, features: &Features) -> Result<Assignment, AssignmentError> {
        Assignment::by(router, &self.dataset, features, self.run.routing.overlap)
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how long training took")]
    fn train(&self, state: &mut State<'_>, done: u64) -> anyhow::Result<()> {
        let training = &self.run.training;
        let (paths, mut written) = (u64::from(self.arm.paths()), Instant::now());
        let title = format!("{} · seed {}", self.arm.name, self.run.seed);
        let branch_points = self.identity.branch_points()?;
        for phase in done..training.phases {
            let began = Instant::now();
            for (_, checkpoint) in
                branch_points.iter().filter(|(at, checkpoint)| *at == phase && !checkpoint.file.exists())
            {
                self.keep(state, phase, checkpoint)?;
            }
            let router = state.router.clone();
            if self.arm.reshard.contains(&phase) {
                self.reshard(state)?;
            }
            let mut step = phase * paths;
            let mut done = || {
                step += 1;
                self.context.tell(ExperimentEvent::Phase(&title, step, training.phases * paths));
            };
            if let Err(error) = state.trained_arm.phase(Phase(phase), &state.assignment.train, &mut done) {
                if error.is::<Stopped>() {
                    // A resumed arm assigns the text of this phase again, by the same router.
                    state.router = router;
                    self.keep(state, phase, &self.checkpoint)?;
                }
                return Err(error);
            }
            let loss = self.look(state, phase + 1)?;
            let steps = training.ancestor_steps + (phase + 1) * training.inner_steps;
            let point = Point { phases: phase + 1, steps, tokens: state.trained_arm.tokens(), loss };
            self.context.tell(ExperimentEvent::Scored(&title, point));
            state.curve.push(point);
            state.seconds += began.elapsed().as_secs_f64();
            if written.elapsed().as_secs_f64() >= KEEP_EVERY_S {
                self.keep(state, phase + 1, &self.checkpoint)?;
                written = Instant::now();
            }
        }
        Ok(())
    }

    fn keep(&self, state: &State<'_>, phases: u64, checkpoint: &ArmCheckpoint) -> anyhow::Result<()> {
        Ok(checkpoint.write(&self.arm_state(state, phases))?)
    }

    fn arm_state(&self, state: &State<'_>, phases: u64) -> ArmState {
        ArmState {
            phases,
            seconds: state.seconds,
            curve: state.curve.clone(),
            router: state.router.as_ref().map(Router::encode).unwrap_or_default(),
            trained_arm: state.trained_arm.checkpoint(),
            best: state.best.clone(),
        }
    }

    /// Scores each path on its held-out documents, and records its parameters if they are the best so far. Returns the
    /// loss per token over all paths.
    fn look(&self, state: &mut State<'_>, phases: u64) -> anyhow::Result<f64> {
        let paths = state.levels();
        let scores = self.scores(&mut state.trained_arm, &paths, &state.assignment.held_out)?;
        for ((at, levels), score) in paths.into_iter().enumerate().zip(&scores) {
            // A path without any is best at the end.
            let loss = if score.tokens == 0 { 0.0 } else { score.nats / score.tokens as f64 };
            let best = Best { phases, loss, levels };
            match state.best.get_mut(at) {
                Some(known) if score.tokens > 0 && known.loss <= loss => {}
                Some(known) => *known = best,
                None => state.best.push(best),
            }
        }
        let all: Score = scores.into_iter().sum();
        Ok(all.nats / all.tokens.max(1) as f64)
    }

    /// The score of each path on its own documents.
    fn scores(
        &self,
        trained_arm: &mut TrainedArm<'_>,
        paths: &[Levels],
        on: &[Documents],
    ) -> anyhow::Result<Vec<Score>> {
        let of_paths = self.each_score(trained_arm, paths, on)?;
        Ok(of_paths.into_iter().map(|of_sequences| of_sequences.into_iter().sum()).collect())
    }

    /// The same for each of their sequences.
    fn each_score(
        &self,
        trained_arm: &mut TrainedArm<'_>,
        paths: &[Levels],
        on: &[Documents],
    ) -> anyhow::Result<Vec<Vec<Score>>> {
        let (prefix, bytes) = (self.run.routing.prefix_tokens, &self.dataset.token_bytes);
        let first = self.identity.experiment.score_from;
        let score = |inner: &mut InnerTrainer, path: usize| {
            inner.load(&paths[path])?;
            let scored = From { set: &on[path].set, first };
            Ok(evaluate_each(inner.model(), &scored, prefix, bytes, &mut || {})?)
        };
        trained_arm.pool().each(paths.len(), score, &mut || {})
    }

    /// A sample of tokens, each as in training and with only the tokens before it, if the experiment asks for it.
    fn honest(
        &self,
        trained_arm: &mut TrainedArm<'_>,
        paths: &[Levels],
        on: &[Documents],
    ) -> anyhow::Result<Option<Honest>> {
        let Experiment { honest_tokens: count, score_from: first, .. } = *self.identity.experiment;
        let all = self.dataset.test.set.len().max(1);
        if count == 0 {
            return Ok(None);
        }
        let first = first.max(self.run.model.unscored_tokens());
        let (prefix, bytes) = (self.run.routing.prefix_tokens, &self.dataset.token_bytes);
        // The same tokens for all seeds.
        let seed = Seed::root(0).child("honest tokens");
        let score = |inner: &mut InnerTrainer, path: usize| {
            inner.load(&paths[path])?;
            let scored = From { set: &on[path].set, first };
            let cut = CutOff::sample(&scored, prefix, count * on[path].set.len() / all, seed.number(path as u64));
            Ok(cut_off(inner.model(), &scored, &cut, prefix, bytes)?)
        };
        let found = trained_arm.pool().each(paths.len(), score, &mut || {})?;
        Ok(found.into_iter().reduce(Honest::add))
    }

    /// The number of images that paths classify right, if they read images.
    fn right(
        &self,
        trained_arm: &mut TrainedArm<'_>,
        paths: &[Levels],
        on: &[Documents],
    ) -> anyhow::Result<Option<u64>> {
        if !self.run.model.reads_images() {
            return Ok(None);
        }
        let right = |inner: &mut InnerTrainer, path: usize| {
            inner.load(&paths[path])?;
            Ok(right_classes(inner.model(), &on[path].set)?)
        };
        Ok(Some(trained_arm.pool().each(paths.len(), right, &mut || {})?.into_iter().sum()))
    }

    /// The losses of each path on the same documents.
    fn losses(
        &self,
        trained_arm: &mut TrainedArm<'_>,
        paths: &[Levels],
        on: &Documents,
    ) -> anyhow::Result<Vec<Vec<Vec<f32>>>> {
        let prefix = self.run.routing.prefix_tokens;
        let losses = |inner: &mut InnerTrainer, path: usize| {
            inner.load(&paths[path])?;
            Ok(target_losses(inner.model(), &on.set, prefix, &mut || {})?)
        };
        trained_arm.pool().each(paths.len(), losses, &mut || {})
    }

    /// Documents go to the paths that predict similar documents of the slice best.
    fn reshard(&self, state: &mut State<'_>) -> anyhow::Result<()> {
        let slice = &self.dataset.slice;
        let levels = state.levels();
        let losses = self.losses(&mut state.trained_arm, &levels, slice)?;
        let cost = |losses: &[Vec<f32>], document: &std::ops::Range<usize>| -> f32 {
            losses[document.clone()].iter().flatten().map(|loss| f64::from(*loss)).sum::<f64>() as f32
        };
        let nats = |losses: &Vec<Vec<f32>>| slice.sequences().iter().map(|document| cost(losses, document)).collect();
        let scores = (0..).map(PathId).zip(&losses).map(|(path, losses)| PathScores { path, nats: nats(losses) });
        let best = labels(&state.assignment.slice, &scores.collect::<Vec<_>>(), self.arm.paths());
        if let (Some(features), Some(current)) = (&state.features, &state.router) {
            let router = discriminative(current, features, &best)?;
            state.assignment = self.share(&router, features)?;
            state.router = Some(router);
        }
        // The best parameters belong to another shard.
        state.best.clear();
        Ok(())
    }

    /// The test text with routes chosen as often as the arm asks for.
    fn rerouted(
        &self,
        ancestor: &CommonAncestor,
        state: &mut State<'_>,
        paths: &[Levels],
    ) -> anyhow::Result<Vec<Routed>> {
        if self.arm.route_every.is_empty() {
            return Ok(Vec::new());
        }
        let Dataset { train, slice, test, token_bytes, .. } = &self.dataset;
        let fit_set = self.losses(&mut state.trained_arm, paths, slice)?;
        let asked = self.losses(&mut state.trained_arm, paths, test)?;
        let fit_set = Judged { documents: slice, losses: &fit_set, routes: &state.assignment.slice };
        let asked = Judged { documents: test, losses: &asked, routes: &state.assignment.test };
        let mut starts = self.run.starts();
        starts.of_sequence = starts.of_sequence.max(self.identity.experiment.score_from);
        let mut network = AncestorNetwork::new(self.context, ancestor);
        network.learn_homes(train, &state.assignment.homes, starts)?;
        let reroute = |every| reroute(&mut network, (&fit_set, &asked), token_bytes, (starts, every));
        self.arm.route_every.iter().copied().map(reroute).collect()
    }

    fn score(&self, ancestor: &CommonAncestor, mut state: State<'_>) -> anyhow::Result<Outcome> {
        let (paths, test) = (self.arm.paths(), &self.dataset.test);
        let last = state.levels();
        let early: Vec<_> = state.best.iter().map(|best| best.levels.clone()).collect();
        let own =
            |path| test.only((0..test.count()).filter(|document| state.assignment.test[*document] == PathId(path)));
        let own: Vec<Documents> = (0..paths).map(own).collect();
        let at_last: Score = self.scores(&mut state.trained_arm, &last, &own)?.into_iter().sum();
        let modules: Option<Vec<Levels>> =
            (0..paths).map(|path| state.trained_arm.replicated_of(PathId(path))).collect();
        let modules = modules.map(|modules| self.scores(&mut state.trained_arm, &modules, &own)).transpose()?;
        let each = self.each_score(&mut state.trained_arm, &early, &own)?;
        let names = &self.tokens.domains;
        let mut domains = BTreeMap::new();
        own.iter().zip(&each).for_each(|(own, scores)| by_domain(own, scores, names, &mut domains));
        let domain = |(name, number): (&str, u32)| Some((name.to_owned(), (*domains.get(&number)?).into()));
        let domains = names.names().filter_map(domain).collect();
        let honest = self.honest(&mut state.trained_arm, &early, &own)?;
        let right = self.right(&mut state.trained_arm, &early, &own)?;
        let rerouted = self.rerouted(ancestor, &mut state, &early)?;
        let training = &self.run.training;
        let of_sequence = self.run.model.stream_length(self.run.model.context);
        let of_ancestor = training.ancestor_steps * (training.batch_sequences * of_sequence) as u64;
        Ok(Outcome {
            identity: String::new(),
            arm: self.arm.name.clone(),
            seed: self.run.seed,
            kind: self.arm.kind,
            paths,
            path_parameters: last.first().map_or(0, |levels| levels.iter().map(|level| level.len() as u64).sum()),
            parameters: state.trained_arm.parameters(),
            exchanged: state.trained_arm.exchanged(),
            modules_alone: modules.map(|scores| scores.into_iter().sum::<Score>().into()),
            steps: training.total_steps(),
            tokens: of_ancestor + state.trained_arm.tokens(),
            seconds: state.seconds,
            shards: state.assignment.sizes(),
            curve: state.curve,
            last: at_last.into(),
            early: each.into_iter().flatten().sum::<Score>().into(),
            stopped_at: state.best.iter().map(|best| best.phases).collect(),
            rerouted,
            domains,
            honest,
            right,
        })
    }
}
