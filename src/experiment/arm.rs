//! One arm with one seed, from the ancestor to the scores.

use std::collections::BTreeMap;
use std::ops::Add;
use std::time::Instant;

use super::identity::Identity;
use super::plan::{Arm, Experiment, Kind};
use crate::config::RunConfig;
use crate::experiment::context::{CommonAncestor, Laboratory, News, Tokens};
use crate::experiment::dataset::{Documents, Material};
use crate::experiment::results::outcome::{Honest, Outcome, Point, Routed};
use crate::experiment::results::scoring::{CutOff, From, by_domain, cut_off};
use crate::experiment::training::assignment::{Features, Sharing, SharingError, discriminative, first_router};
use crate::experiment::training::checkpoint::{Best, KeptArm, Unfinished};
use crate::experiment::training::every_step::EveryStep;
use crate::experiment::training::features::Teacher;
use crate::experiment::training::lockstep::Lockstep;
use crate::experiment::training::rerouting::{Judged, reroute};
use crate::experiment::training::trained_arm::{DenseTrainee, Trainee};
use crate::names::{PathId, Phase};
use crate::peer::create::dense_trainer::Stopped;
use crate::routing::Router;
use crate::routing::resharding::{PathScores, labels};
use crate::seed::Seed;
use crate::training::{InnerTrainer, Score, evaluate_each, right_classes, target_losses};

/// An arm in training is written to disk this often, in seconds.
const KEEP_EVERY_S: f64 = 120.0;

/// An arm with a seed, and all it needs.
pub struct Trial<'a> {
    laboratory: &'a Laboratory<'a>,
    arm: &'a Arm,
    run: RunConfig,
    tokens: &'a Tokens,
    material: Material,
    identity: Identity<'a>,
    /// In training.
    kept: KeptArm,
    /// When that is done: all that scores are made from.
    trained: KeptArm,
}

/// The parameters of a path, level by level.
type Levels = Vec<Vec<f32>>;

/// An arm between two phases.
struct State<'a> {
    trainee: Trainee<'a>,
    router: Option<Router>,
    sharing: Sharing,
    /// None where there is but one path.
    features: Option<Features>,
    best: Vec<Best>,
    curve: Vec<Point>,
    seconds: f64,
}

impl State<'_> {
    /// Of each path.
    fn levels(&self) -> Vec<Levels> {
        (0..self.sharing.train.len()).map(|path| self.trainee.levels_of(PathId(path as u32))).collect()
    }
}

impl<'a> Trial<'a> {
    /// # Errors
    /// If it cannot be named.
    pub fn new(identity: Identity<'a>) -> anyhow::Result<Self> {
        let Identity { laboratory, experiment, arm, seed, tokens } = identity;
        let mut run = arm.seeded(seed);
        if arm.kind == Kind::Dense {
            run = run.undivided();
        }
        let material = laboratory.material(experiment, arm, tokens);
        let of = identity.training()?;
        let (kept, trained) = (laboratory.kept(of), laboratory.trained(of));
        Ok(Self { laboratory, arm, run, tokens, material, identity, kept, trained })
    }

    /// Trains the arm, or goes on with it, and scores it.
    ///
    /// # Errors
    /// If a step fails, the disk does, or the user asks to stop: the same call goes on.
    pub fn conduct(&self) -> anyhow::Result<Outcome> {
        let ancestor = self.laboratory.ancestor(&self.run, self.tokens, &self.material.train.set)?;
        let (mut state, done) = self.begin(&ancestor)?;
        self.train(&mut state, done)?;
        if done < self.run.training.phases || !self.trained.file.exists() {
            let mut trained = self.unfinished(&state, self.run.training.phases);
            if !self.run.outer.keep_unsent {
                trained.trainee.paths.clear();
            }
            self.trained.write(&trained)?;
            self.kept.remove();
        }
        self.score(&ancestor, state)
    }

    fn trainee(&self, ancestor: &CommonAncestor) -> anyhow::Result<Trainee<'_>> {
        let (run, machine, stop) = (&self.run, self.laboratory.machine, self.laboratory.stop);
        Ok(match self.arm.kind {
            Kind::Dense => Trainee::Dense(Box::new(DenseTrainee::new(run, machine, ancestor.dense.clone(), stop)?)),
            Kind::EveryStep => {
                Trainee::EveryStep(Box::new(EveryStep::new(run, machine, &ancestor.levels(run)?, stop)?))
            }
            Kind::Paths => Trainee::Paths(Box::new(Lockstep::new(run, machine, &ancestor.levels(run)?, stop)?)),
        })
    }

    /// What the arm begins or goes on with, and the phases done.
    fn begin(&self, ancestor: &CommonAncestor) -> anyhow::Result<(State<'_>, u64)> {
        let features = match self.arm.paths() {
            1 => None,
            _ => Some(self.laboratory.features(ancestor, &self.material)?),
        };
        let mut trainee = self.trainee(ancestor)?;
        let kept = self.begun()?;
        let router = match (&kept, &features) {
            (Some(kept), _) if !kept.router.is_empty() => Some(Router::decode(&kept.router)?),
            (_, Some(features)) => Some(first_router(&self.run, self.arm.paths(), features)?),
            _ => None,
        };
        let sharing = match (&router, &features) {
            (Some(router), Some(features)) => self.share(router, features)?,
            _ => Sharing::undivided(&self.material),
        };
        let Unfinished { phases, seconds, curve, trainee: now, best, .. } = match kept {
            Some(kept) => kept,
            None => Unfinished { trainee: trainee.kept(), ..Unfinished::default() },
        };
        trainee.resume(&now)?;
        Ok((State { trainee, router, sharing, features, best, curve, seconds }, phases))
    }

    /// What is kept of it, or of another arm that was the same as far as it went.
    fn begun(&self) -> anyhow::Result<Option<Unfinished>> {
        let mut files = vec![self.trained.clone(), self.kept.clone()];
        for phase in self.arm.reshard.iter().rev() {
            files.push(self.laboratory.kept(self.identity.before(*phase)?));
        }
        Ok(files.iter().filter(|kept| kept.file.exists()).find_map(KeptArm::read))
    }

    fn share(&self, router: &Router, features: &Features) -> Result<Sharing, SharingError> {
        Sharing::by(router, &self.material, features, self.run.routing.overlap)
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how long training took")]
    fn train(&self, state: &mut State<'_>, done: u64) -> anyhow::Result<()> {
        let training = &self.run.training;
        let (paths, mut written) = (u64::from(self.arm.paths()), Instant::now());
        let title = format!("{} · seed {}", self.arm.name, self.run.seed);
        let partings = self.identity.partings()?;
        for phase in done..training.phases {
            let began = Instant::now();
            for (_, kept) in partings.iter().filter(|(at, kept)| *at == phase && !kept.file.exists()) {
                self.keep(state, phase, kept)?;
            }
            let router = state.router.clone();
            if self.arm.reshard.contains(&phase) {
                self.reshard(state)?;
            }
            let mut step = phase * paths;
            let mut done = || {
                step += 1;
                self.laboratory.tell(News::Phase(&title, step, training.phases * paths));
            };
            if let Err(error) = state.trainee.phase(Phase(phase), &state.sharing.train, &mut done) {
                if error.is::<Stopped>() {
                    // Who goes on shares out the text for this phase again, from the same router.
                    state.router = router;
                    self.keep(state, phase, &self.kept)?;
                }
                return Err(error);
            }
            let loss = self.look(state, phase + 1)?;
            let steps = training.ancestor_steps + (phase + 1) * training.inner_steps;
            state.curve.push(Point { phases: phase + 1, steps, tokens: state.trainee.tokens(), loss });
            state.seconds += began.elapsed().as_secs_f64();
            if written.elapsed().as_secs_f64() >= KEEP_EVERY_S {
                self.keep(state, phase + 1, &self.kept)?;
                written = Instant::now();
            }
        }
        Ok(())
    }

    fn keep(&self, state: &State<'_>, phases: u64, kept: &KeptArm) -> anyhow::Result<()> {
        Ok(kept.write(&self.unfinished(state, phases))?)
    }

    fn unfinished(&self, state: &State<'_>, phases: u64) -> Unfinished {
        Unfinished {
            phases,
            seconds: state.seconds,
            curve: state.curve.clone(),
            router: state.router.as_ref().map(Router::encode).unwrap_or_default(),
            trainee: state.trainee.kept(),
            best: state.best.clone(),
        }
    }

    /// Scores each path on its held out documents, and keeps its parameters if it has never been better: nats a token
    /// of all.
    fn look(&self, state: &mut State<'_>, phases: u64) -> anyhow::Result<f64> {
        let paths = state.levels();
        let scores = self.scores(&mut state.trainee, &paths, &state.sharing.held_out)?;
        for ((at, levels), score) in paths.into_iter().enumerate().zip(&scores) {
            // A path without any is at its best in the end.
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

    /// The score of each path on documents of its own.
    fn scores(&self, trainee: &mut Trainee<'_>, paths: &[Levels], on: &[Documents]) -> anyhow::Result<Vec<Score>> {
        let of_paths = self.each_score(trainee, paths, on)?;
        Ok(of_paths.into_iter().map(|of_sequences| of_sequences.into_iter().sum()).collect())
    }

    /// The same of each of their sequences.
    fn each_score(
        &self,
        trainee: &mut Trainee<'_>,
        paths: &[Levels],
        on: &[Documents],
    ) -> anyhow::Result<Vec<Vec<Score>>> {
        let (prefix, bytes) = (self.run.routing.prefix_tokens, &self.material.token_bytes);
        let first = self.identity.experiment.score_from;
        let score = |inner: &mut InnerTrainer, path: usize| {
            inner.load(&paths[path])?;
            let scored = From { set: &on[path].set, first };
            Ok(evaluate_each(inner.model(), &scored, prefix, bytes, &mut || {})?)
        };
        trainee.crew().each(paths.len(), score, &mut || {})
    }

    /// A sample of tokens, each as in training and with nothing but what comes before it, if the experiment asks for it.
    fn honest(&self, trainee: &mut Trainee<'_>, paths: &[Levels], on: &[Documents]) -> anyhow::Result<Option<Honest>> {
        let Experiment { honest_tokens: count, score_from: first, .. } = *self.identity.experiment;
        let all = self.material.test.set.len().max(1);
        if count == 0 {
            return Ok(None);
        }
        let first = first.max(self.run.model.unscored_tokens());
        let (prefix, bytes) = (self.run.routing.prefix_tokens, &self.material.token_bytes);
        // The same tokens for all seeds.
        let seed = Seed::root(0).child("honest tokens");
        let score = |inner: &mut InnerTrainer, path: usize| {
            inner.load(&paths[path])?;
            let scored = From { set: &on[path].set, first };
            let cut = CutOff::sample(&scored, prefix, count * on[path].set.len() / all, seed.number(path as u64));
            Ok(cut_off(inner.model(), &scored, &cut, prefix, bytes)?)
        };
        let found = trainee.crew().each(paths.len(), score, &mut || {})?;
        Ok(found.into_iter().reduce(Honest::add))
    }

    /// Of how many images paths are right about the class, if they read images.
    fn right(&self, trainee: &mut Trainee<'_>, paths: &[Levels], on: &[Documents]) -> anyhow::Result<Option<u64>> {
        if !self.run.model.reads_images() {
            return Ok(None);
        }
        let right = |inner: &mut InnerTrainer, path: usize| {
            inner.load(&paths[path])?;
            Ok(right_classes(inner.model(), &on[path].set)?)
        };
        Ok(Some(trainee.crew().each(paths.len(), right, &mut || {})?.into_iter().sum()))
    }

    /// The losses of each path on the same documents.
    fn losses(
        &self,
        trainee: &mut Trainee<'_>,
        paths: &[Levels],
        on: &Documents,
    ) -> anyhow::Result<Vec<Vec<Vec<f32>>>> {
        let prefix = self.run.routing.prefix_tokens;
        let losses = |inner: &mut InnerTrainer, path: usize| {
            inner.load(&paths[path])?;
            Ok(target_losses(inner.model(), &on.set, prefix, &mut || {})?)
        };
        trainee.crew().each(paths.len(), losses, &mut || {})
    }

    /// Documents go where those of the slice are predicted best.
    fn reshard(&self, state: &mut State<'_>) -> anyhow::Result<()> {
        let slice = &self.material.slice;
        let levels = state.levels();
        let losses = self.losses(&mut state.trainee, &levels, slice)?;
        let cost = |losses: &[Vec<f32>], document: &std::ops::Range<usize>| -> f32 {
            losses[document.clone()].iter().flatten().map(|loss| f64::from(*loss)).sum::<f64>() as f32
        };
        let nats = |losses: &Vec<Vec<f32>>| slice.sequences().iter().map(|document| cost(losses, document)).collect();
        let scores = (0..).map(PathId).zip(&losses).map(|(path, losses)| PathScores { path, nats: nats(losses) });
        let best = labels(&state.sharing.slice, &scores.collect::<Vec<_>>(), self.arm.paths());
        if let (Some(features), Some(current)) = (&state.features, &state.router) {
            let router = discriminative(current, features, &best)?;
            state.sharing = self.share(&router, features)?;
            state.router = Some(router);
        }
        // What a path was best at was another shard.
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
        let Material { train, slice, test, token_bytes, .. } = &self.material;
        let lesson = self.losses(&mut state.trainee, paths, slice)?;
        let asked = self.losses(&mut state.trainee, paths, test)?;
        let lesson = Judged { documents: slice, losses: &lesson, routes: &state.sharing.slice };
        let asked = Judged { documents: test, losses: &asked, routes: &state.sharing.test };
        let mut starts = self.run.starts();
        starts.of_sequence = starts.of_sequence.max(self.identity.experiment.score_from);
        let mut teacher = Teacher::new(self.laboratory, ancestor);
        teacher.learn_homes(train, &state.sharing.homes, starts)?;
        let reroute = |every| Ok(reroute(&mut teacher, (&lesson, &asked), token_bytes, (starts, every))?.into());
        self.arm.route_every.iter().copied().map(reroute).collect()
    }

    fn score(&self, ancestor: &CommonAncestor, mut state: State<'_>) -> anyhow::Result<Outcome> {
        let (paths, test) = (self.arm.paths(), &self.material.test);
        let last = state.levels();
        let early: Vec<_> = state.best.iter().map(|best| best.levels.clone()).collect();
        let own = |path| test.only((0..test.len()).filter(|document| state.sharing.test[*document] == PathId(path)));
        let own: Vec<Documents> = (0..paths).map(own).collect();
        let at_last: Score = self.scores(&mut state.trainee, &last, &own)?.into_iter().sum();
        let modules: Option<Vec<Levels>> = (0..paths).map(|path| state.trainee.replicated_of(PathId(path))).collect();
        let modules = modules.map(|modules| self.scores(&mut state.trainee, &modules, &own)).transpose()?;
        let each = self.each_score(&mut state.trainee, &early, &own)?;
        let names = &self.tokens.domains;
        let mut domains = BTreeMap::new();
        own.iter().zip(&each).for_each(|(own, scores)| by_domain(own, scores, names, &mut domains));
        let domain = |(name, number): (&str, u32)| Some((name.to_owned(), (*domains.get(&number)?).into()));
        let domains = names.names().filter_map(domain).collect();
        let honest = self.honest(&mut state.trainee, &early, &own)?;
        let right = self.right(&mut state.trainee, &early, &own)?;
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
            parameters: state.trainee.parameters(),
            exchanged: state.trainee.exchanged(),
            modules_alone: modules.map(|scores| scores.into_iter().sum::<Score>().into()),
            steps: training.total_steps(),
            tokens: of_ancestor + state.trainee.tokens(),
            seconds: state.seconds,
            shards: state.sharing.sizes(),
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
