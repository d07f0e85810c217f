//! One arm with one seed, from the ancestor to the scores.

use std::path::PathBuf;
use std::time::Instant;

use super::kept::{Best, KeptArm, Unfinished};
use super::laboratory::{CommonAncestor, Laboratory, News, Teacher, Tokens, undivided};
use super::lockstep::Lockstep;
use super::material::{Documents, Material};
use super::outcome::{Outcome, Point};
use super::plan::{Arm, Experiment, Kind};
use super::rerouting::{Judged, reroute};
use super::sharing::{Features, Sharing, discriminative, first_router};
use super::trainee::{DenseTrainee, Trainee};
use crate::config::RunConfig;
use crate::names::{BlobHash, PathId, Phase};
use crate::peer::dense_trainer::Stopped;
use crate::routing::Router;
use crate::training::{Score, evaluate, target_losses};

/// An arm in training is written to disk this often, in seconds.
const KEEP_EVERY_S: f64 = 120.0;

/// An arm with a seed, and all it needs.
pub struct Trial<'a> {
    laboratory: &'a Laboratory<'a>,
    arm: &'a Arm,
    run: RunConfig,
    tokens: &'a Tokens,
    material: Material,
    kept: KeptArm,
}

/// An arm between two phases.
struct State<'a> {
    trainee: Trainee<'a>,
    router: Option<Router>,
    sharing: Sharing,
    features: Features,
    best: Vec<Best>,
    curve: Vec<Point>,
    seconds: f64,
}

/// Names what an arm with a seed is trained by and on: its results are used again if nothing of that has changed.
///
/// # Errors
/// If it cannot be written down.
pub fn name_of(experiment: &Experiment, arm: &Arm, seed: u64, tokens: &Tokens) -> anyhow::Result<BlobHash> {
    let apart = (experiment.slice_share, experiment.fitted_paths(), arm.text_share);
    let how = (arm.kind, &arm.reshard, &arm.route_every);
    Ok(BlobHash::of(&serde_json::to_vec(&(arm.seeded(seed), how, apart, tokens.hash))?))
}

impl<'a> Trial<'a> {
    /// # Errors
    /// If it cannot be named.
    pub fn new(
        laboratory: &'a Laboratory<'a>,
        experiment: &Experiment,
        arm: &'a Arm,
        seed: u64,
        tokens: &'a Tokens,
    ) -> anyhow::Result<Self> {
        let of = name_of(experiment, arm, seed, tokens)?;
        let file: PathBuf = laboratory.folder.join(format!("arm-{}.unfinished", &of.to_string()[..16]));
        let mut run = arm.seeded(seed);
        if arm.kind == Kind::Dense {
            run = undivided(&run);
        }
        let material = laboratory.material(experiment, arm, tokens);
        Ok(Self { laboratory, arm, run, tokens, material, kept: KeptArm { file, of } })
    }

    /// Trains the arm, or goes on with it, and scores it.
    ///
    /// # Errors
    /// If a step fails, the disk does, or the user asks to stop: the same call goes on.
    pub fn conduct(&self) -> anyhow::Result<Outcome> {
        let ancestor = self.laboratory.ancestor(&self.run, self.tokens, &self.material.train.set)?;
        let (mut state, done) = self.begin(&ancestor)?;
        self.train(&mut state, done)?;
        let outcome = self.score(&ancestor, state)?;
        self.kept.remove();
        Ok(outcome)
    }

    fn trainee(&self, ancestor: &CommonAncestor) -> anyhow::Result<Trainee<'_>> {
        let (run, machine, stop) = (&self.run, self.laboratory.machine, self.laboratory.stop);
        Ok(match self.arm.kind {
            Kind::Dense => Trainee::Dense(Box::new(DenseTrainee::new(run, machine, ancestor.dense.clone(), stop)?)),
            Kind::Paths => Trainee::Paths(Box::new(Lockstep::new(run, machine, &ancestor.levels(run)?, stop)?)),
        })
    }

    /// What the arm begins or goes on with, and the phases done.
    fn begin(&self, ancestor: &CommonAncestor) -> anyhow::Result<(State<'_>, u64)> {
        let features = self.laboratory.features(ancestor, &self.material)?;
        let mut trainee = self.trainee(ancestor)?;
        let kept = if self.kept.file.exists() { self.kept.read() } else { None };
        let router = match &kept {
            Some(kept) if !kept.router.is_empty() => Some(Router::decode(&kept.router)?),
            _ if self.arm.paths() == 1 => None,
            _ => Some(first_router(&self.run, self.arm.paths(), &features)?),
        };
        let sharing = self.share(router.as_ref(), &features)?;
        let Unfinished { phases, seconds, curve, trainee: now, best, .. } = match kept {
            Some(kept) => kept,
            None => Unfinished { trainee: trainee.kept(), ..Unfinished::default() },
        };
        trainee.resume(&now)?;
        Ok((State { trainee, router, sharing, features, best, curve, seconds }, phases))
    }

    fn share(&self, router: Option<&Router>, features: &Features) -> anyhow::Result<Sharing> {
        match router {
            Some(router) => Ok(Sharing::by(router, &self.material, features, self.run.routing.overlap)?),
            None => Ok(Sharing::undivided(&self.material)),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how long training took")]
    fn train(&self, state: &mut State<'_>, done: u64) -> anyhow::Result<()> {
        let training = &self.run.training;
        let (paths, mut written) = (u64::from(self.arm.paths()), Instant::now());
        let title = format!("{} · seed {}", self.arm.name, self.run.seed);
        for phase in done..training.phases {
            let began = Instant::now();
            if self.arm.reshard.contains(&phase) {
                self.reshard(state)?;
            }
            let mut told = |path: PathId, _: f64| {
                let step = phase * paths + u64::from(path.0) + 1;
                self.laboratory.tell(News::Phase(&title, step, training.phases * paths));
            };
            if let Err(error) = state.trainee.phase(Phase(phase), &state.sharing.train, &mut told) {
                if error.is::<Stopped>() {
                    self.keep(state, phase)?;
                }
                return Err(error);
            }
            let loss = self.look(state, phase + 1)?;
            let steps = training.ancestor_steps + (phase + 1) * training.inner_steps;
            state.curve.push(Point { phases: phase + 1, steps, tokens: state.trainee.tokens(), loss });
            state.seconds += began.elapsed().as_secs_f64();
            if written.elapsed().as_secs_f64() >= KEEP_EVERY_S {
                self.keep(state, phase + 1)?;
                written = Instant::now();
            }
        }
        Ok(())
    }

    fn keep(&self, state: &State<'_>, phases: u64) -> anyhow::Result<()> {
        let unfinished = Unfinished {
            phases,
            seconds: state.seconds,
            curve: state.curve.clone(),
            router: state.router.as_ref().map(Router::encode).unwrap_or_default(),
            trainee: state.trainee.kept(),
            best: state.best.clone(),
        };
        Ok(self.kept.write(&unfinished)?)
    }

    /// Scores each path on its held out documents, and keeps its parameters if it has never been better: nats a token
    /// of all.
    fn look(&self, state: &mut State<'_>, phases: u64) -> anyhow::Result<f64> {
        let mut all = Score::default();
        for path in (0..self.arm.paths()).map(PathId) {
            let at = path.0 as usize;
            let levels = state.trainee.levels_of(path);
            let score = self.score_on(&mut state.trainee, &levels, &state.sharing.held_out[at])?;
            all = all + score;
            // A path without any is at its best in the end.
            let loss = if score.tokens == 0 { 0.0 } else { score.nats / score.tokens as f64 };
            let best = Best { phases, loss, levels };
            match state.best.get_mut(at) {
                Some(known) if score.tokens > 0 && known.loss <= loss => {}
                Some(known) => *known = best,
                None => state.best.push(best),
            }
        }
        Ok(all.nats / all.tokens.max(1) as f64)
    }

    fn score_on(&self, trainee: &mut Trainee<'_>, levels: &[Vec<f32>], on: &Documents) -> anyhow::Result<Score> {
        let prefix = self.run.routing.prefix_tokens;
        let model = trainee.playing(levels)?;
        Ok(evaluate(model, &on.set, prefix, &self.material.token_bytes, &mut || {})?)
    }

    /// The losses of each path on some documents.
    fn losses(
        &self,
        trainee: &mut Trainee<'_>,
        paths: &[Vec<Vec<f32>>],
        on: &Documents,
    ) -> anyhow::Result<Vec<Vec<Vec<f32>>>> {
        let prefix = self.run.routing.prefix_tokens;
        let mut losses = Vec::with_capacity(paths.len());
        for levels in paths {
            losses.push(target_losses(trainee.playing(levels)?, &on.set, prefix, &mut || {})?);
        }
        Ok(losses)
    }

    /// Documents go where those of the slice are predicted best.
    fn reshard(&self, state: &mut State<'_>) -> anyhow::Result<()> {
        let (paths, slice) = (self.arm.paths(), &self.material.slice);
        let levels: Vec<_> = (0..paths).map(|path| state.trainee.levels_of(PathId(path))).collect();
        let losses = self.losses(&mut state.trainee, &levels, slice)?;
        let cost = |losses: &[Vec<f32>], sequences: &std::ops::Range<usize>| -> f64 {
            losses[sequences.clone()].iter().flatten().map(|loss| f64::from(*loss)).sum()
        };
        let best = |sequences: &std::ops::Range<usize>| -> u32 {
            let costs = losses.iter().map(|losses| cost(losses, sequences)).enumerate();
            costs.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(path, _)| path as u32)
        };
        let best: Vec<u32> = slice.sequences().iter().map(best).collect();
        let router = discriminative(&self.run, paths, &state.features, &best)?;
        state.sharing = Sharing::by(&router, &self.material, &state.features, self.run.routing.overlap)?;
        state.router = Some(router);
        // What a path was best at was another shard.
        state.best.clear();
        Ok(())
    }

    fn score(&self, ancestor: &CommonAncestor, mut state: State<'_>) -> anyhow::Result<Outcome> {
        let (paths, test) = (self.arm.paths(), &self.material.test);
        let last: Vec<_> = (0..paths).map(|path| state.trainee.levels_of(PathId(path))).collect();
        let early: Vec<_> = state.best.iter().map(|best| best.levels.clone()).collect();
        let mut routed = |levels: &[Vec<Vec<f32>>]| -> anyhow::Result<Score> {
            let mut sum = Score::default();
            for (path, levels) in levels.iter().enumerate() {
                let own = (0..test.len()).filter(|document| state.sharing.test[*document].0 as usize == path);
                sum = sum + self.score_on(&mut state.trainee, levels, &test.only(own))?;
            }
            Ok(sum)
        };
        let scores = (routed(&last)?, routed(&early)?);
        let mut rerouted = Vec::new();
        if !self.arm.route_every.is_empty() {
            let slice = &self.material.slice;
            let lesson = self.losses(&mut state.trainee, &early, slice)?;
            let asked = self.losses(&mut state.trainee, &early, test)?;
            let lesson = Judged { documents: slice, losses: &lesson };
            let asked = Judged { documents: test, losses: &asked };
            for every in &self.arm.route_every {
                let mut teacher = Teacher { laboratory: self.laboratory, ancestor };
                let (prefix, bytes) = (self.run.routing.prefix_tokens, &self.material.token_bytes);
                let found = reroute(&mut teacher, (&lesson, &asked), &state.sharing.test, bytes, (prefix, *every))?;
                rerouted.push(found.into());
            }
        }
        let training = &self.run.training;
        let of_ancestor = training.ancestor_steps * (training.batch_sequences * self.run.model.context) as u64;
        Ok(Outcome {
            arm: self.arm.name.clone(),
            seed: self.run.seed,
            kind: self.arm.kind,
            paths,
            path_parameters: last.first().map_or(0, |levels| levels.iter().map(|level| level.len() as u64).sum()),
            parameters: state.trainee.parameters(),
            steps: training.total_steps(),
            tokens: of_ancestor + state.trainee.tokens(),
            seconds: state.seconds,
            shards: state.sharing.sizes(),
            curve: state.curve,
            last: scores.0.into(),
            early: scores.1.into(),
            stopped_at: state.best.iter().map(|best| best.phases).collect(),
            rerouted,
        })
    }
}
