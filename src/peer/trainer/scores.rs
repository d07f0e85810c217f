//! Scores by the trainer: of a checkpoint, of the slice for resharding, of a finished path; and the best parameters of
//! a path (DiPaCo, section 2.7).

use super::{REPORT, Worker};
use crate::model::tensor_memory::ran_out_of_memory;
use crate::names::{BlobRef, ModuleId, PathId, Phase};
use crate::peer::trainer::path_state::{Best, PathState};
use crate::peer::trainer::task::{PhaseTask, TrainerReport};
use crate::peer::trainer::text::Purpose;
use crate::peer::trainer::thread::WorkerHandle;
use crate::routing::resharding::PathScores;
use crate::text::{TokenSet, Tokenizer};
use crate::training::{Score, evaluate, target_losses};

/// Nats a token; `None` without text.
fn loss(score: &Score) -> Option<f64> {
    (score.tokens > 0).then(|| score.nats / score.tokens as f64)
}

/// Whether the text was resharded in between, so that earlier losses are of another shard.
fn shared_out_between(reshard: &[u64], before: Phase, now: Phase) -> bool {
    reshard.iter().any(|phase| before.0 < *phase && *phase <= now.0)
}

impl Worker {
    /// Scores a finished path on its held-out text and on its test text, with its best parameters, or with its unsent
    /// changes.
    pub(super) fn evaluate(
        &mut self,
        handle: &WorkerHandle,
        (path, drawn): (PathId, PathId),
        states: &[(ModuleId, BlobRef)],
        trainer: Option<BlobRef>,
    ) -> anyhow::Result<TrainerReport> {
        let phase = Phase(self.manifest.config.training.phases);
        let purposes = [Purpose::HeldOut, Purpose::Test];
        handle.report(TrainerReport::Alive { path, phase, steps: 0 });
        let (texts, state) = (self.texts_of(drawn, &purposes, states)?, self.of_its_own(trainer)?);
        let modules = self.parameters(states)?;
        let (own, state, mut scores) = match state {
            Some(state) => {
                let own = state.own_copy(&self.manifest.config, &modules).into_owned();
                match self.score_with(handle, (path, phase), (&own, &texts)) {
                    Ok(scores) => (own, Some(state), scores),
                    // It may come from another peer; the path then only loses its unsent changes.
                    Err(error) if self.manifest.config.outer.keep_unsent && !ran_out_of_memory(error.as_ref()) => {
                        tracing::error!(%path, error = %format!("{error:#}"), "the unsent values do not fit");
                        let scores = self.score_with(handle, (path, phase), (&modules, &texts))?;
                        (modules, None, scores)
                    }
                    Err(error) => return Err(error),
                }
            }
            None => {
                let scores = self.score_with(handle, (path, phase), (&modules, &texts))?;
                (modules, None, scores)
            }
        };
        let mut reviewed = None;
        if let Some(mut state) = state {
            let in_the_end = loss(&scores[0]);
            let reshard = &self.manifest.config.routing.reshard;
            state.best = state.best.take().filter(|best| !shared_out_between(reshard, best.phase, phase));
            state.best = state.best.take().filter(|best| in_the_end.is_some_and(|loss| best.nats < loss));
            if let Some(best) = &mut state.best {
                best.settled = true;
                scores = self.score_with(handle, (path, phase), (&best.levels, &texts))?;
                tracing::info!(%path, before = %best.phase, "it was best before the end");
            } else if self.manifest.config.outer.keep_unsent {
                state.best = Some(Best { phase, nats: in_the_end.unwrap_or(0.0), settled: true, levels: own });
            }
            reviewed = Some((self.put(handle, &state.encode())?, state.best.is_some()));
        }
        Ok(TrainerReport::Evaluated { path, drawn, held_out: scores[0], test: scores[1], reviewed })
    }

    /// The trainer state of a path that may have own parameters.
    fn of_its_own(&self, trainer: Option<BlobRef>) -> anyhow::Result<Option<PathState>> {
        let config = &self.manifest.config;
        if !config.paths_end_apart() {
            return Ok(None);
        }
        let Some(bytes) = self.optional_blob(trainer)? else { return Ok(None) };
        match PathState::decode(&bytes, &self.counts) {
            Ok(state) => Ok(Some(state).filter(|state| state.best.is_some() || config.outer.keep_unsent)),
            Err(error) => {
                tracing::error!(%error, "the residual does not fit and is dropped");
                Ok(None)
            }
        }
    }

    /// With early stopping, records the loaded parameters at the beginning of a phase, if they are the best so far.
    pub(super) fn keep_best(
        &mut self,
        handle: &WorkerHandle,
        task: &PhaseTask,
        (states, parameters): (&[(ModuleId, BlobRef)], &[Vec<f32>]),
        state: &mut PathState,
    ) {
        let PhaseTask { path, drawn, phase, .. } = *task;
        let manifest = self.manifest.clone();
        let config = &manifest.config;
        if !config.training.early_stopping || phase.0 == 0 {
            return;
        }
        let reshard = &config.routing.reshard;
        state.best = state.best.take().filter(|best| !shared_out_between(reshard, best.phase, phase));
        let texts = self.texts_of(drawn, &[Purpose::HeldOut], states);
        let scores = texts.and_then(|texts| self.score_texts(handle, (path, phase), &texts));
        match scores.map(|scores| scores.first().and_then(loss)) {
            Ok(Some(nats)) if state.best.as_ref().is_none_or(|best| nats < best.nats) => {
                state.best =
                    Some(Best { phase, nats, settled: false, levels: state.own_copy(config, parameters).into_owned() });
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%path, %phase, %error, "not scored"),
        }
    }

    /// A path's scores on the slice after its inner steps, if the router's next round reshards.
    pub(super) fn scores_of_the_slice(
        &mut self,
        handle: &WorkerHandle,
        task: &PhaseTask,
        next: u64,
    ) -> anyhow::Result<BlobRef> {
        let PhaseTask { path, drawn, phase, ref part, .. } = *task;
        let routing = &self.manifest.config.routing;
        let mut nats = Vec::new();
        if routing.reshard.contains(&next) {
            let slice = self.texts.slice()?;
            let mut goes_on = || _ = handle.try_report(TrainerReport::Alive { path, phase, steps: part.last });
            let _lease = handle.acquire_device(REPORT, &mut goes_on);
            let losses = target_losses(self.inner.model(), &slice, routing.prefix_tokens, &mut goes_on)?;
            nats = slice.documents().map(|document| losses[document].iter().flatten().sum()).collect::<Vec<f32>>();
            if nats.iter().any(|value| !value.is_finite()) {
                tracing::error!("a path cannot score the slice");
                nats.clear();
            }
        }
        Ok(self.put(handle, &PathScores::encode(&[PathScores { path: drawn, nats }]))?)
    }

    fn read_token_bytes(&mut self) -> anyhow::Result<()> {
        if self.token_bytes.is_empty() {
            let tokenizer = Tokenizer::from_json(&self.read(self.manifest.tokenizer, "the tokenizer")?)?;
            self.token_bytes = tokenizer.token_bytes_for(&self.manifest.config.model);
        }
        Ok(())
    }

    /// Scores one path's text, in turn with the machine's other trainers.
    pub(super) fn score(
        &mut self,
        handle: &WorkerHandle,
        (path, phase): (PathId, Phase),
        (drawn, purposes): (PathId, &[Purpose]),
        states: &[(ModuleId, BlobRef)],
    ) -> anyhow::Result<Vec<Score>> {
        handle.report(TrainerReport::Alive { path, phase, steps: 0 });
        let texts = self.texts_of(drawn, purposes, states)?;
        let levels = self.parameters(states)?;
        self.inner.load(&levels)?;
        self.score_texts(handle, (path, phase), &texts)
    }

    /// A path's texts, by the present router.
    fn texts_of(
        &mut self,
        drawn: PathId,
        purposes: &[Purpose],
        states: &[(ModuleId, BlobRef)],
    ) -> anyhow::Result<Vec<TokenSet>> {
        let router = self.router(states)?;
        purposes.iter().map(|purpose| self.texts.of(drawn, *purpose, router.as_ref())).collect()
    }

    /// With these parameters, which are loaded.
    fn score_with(
        &mut self,
        handle: &WorkerHandle,
        at: (PathId, Phase),
        (levels, texts): (&[Vec<f32>], &[TokenSet]),
    ) -> anyhow::Result<Vec<Score>> {
        self.inner.load(levels)?;
        self.score_texts(handle, at, texts)
    }

    /// With the loaded parameters.
    fn score_texts(
        &mut self,
        handle: &WorkerHandle,
        (path, phase): (PathId, Phase),
        texts: &[TokenSet],
    ) -> anyhow::Result<Vec<Score>> {
        let says = |batches| {
            handle.try_report(TrainerReport::Alive { path, phase, steps: batches });
        };
        self.read_token_bytes()?;
        let _lease = handle.acquire_device(REPORT, &mut || says(0));
        let prefix = self.manifest.config.routing.prefix_tokens;
        let mut batches = 0;
        let mut goes_on = || {
            batches += 1;
            says(batches);
        };
        let score = |text| Ok(evaluate(self.inner.model(), text, prefix, &self.token_bytes, &mut goes_on)?);
        texts.iter().map(score).collect()
    }
}
