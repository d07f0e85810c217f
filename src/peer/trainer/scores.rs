//! Scores that a trainer gives: of a checkpoint, of the slice by which text is shared out anew, of a path in the end; and the
//! parameters with which a path was best, where that is what counts (DiPaCo, section 2.4.4).

use super::{REPORT, Worker};
use crate::names::{BlobRef, ModuleId, PathId, Phase};
use crate::peer::trainer::path_state::{Best, PathState};
use crate::peer::trainer::task::{PhaseTask, TrainerReport};
use crate::peer::trainer::text::Purpose;
use crate::peer::trainer::thread::WorkerHandle;
use crate::routing::resharding::PathScores;
use crate::text::{TokenSet, Tokenizer};
use crate::training::{Score, evaluate, target_losses};

/// Nats a token; nothing of no text.
fn loss(score: &Score) -> Option<f64> {
    (score.tokens > 0).then(|| score.nats / score.tokens as f64)
}

/// Whether the text was shared out anew meanwhile: what a path was best at before was another shard.
fn shared_out_between(reshard: &[u64], before: Phase, now: Phase) -> bool {
    reshard.iter().any(|phase| before.0 < *phase && *phase <= now.0)
}

impl Worker {
    /// Scores a path when its run is over: on its held-out text and on its test text, with what it was best with, or with
    /// what it has not sent.
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
                    // Another may have made it: it costs the path no more than that.
                    Err(error) if self.manifest.config.outer.keep_unsent => {
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

    /// What a trainer carries, if a path may count as something of its own by it.
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

    /// With early stopping, the parameters that a phase begins with, if the path has never been better. They are loaded.
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

    /// What a path makes of the slice, as it is after its inner steps, if the router's next round shares the text out anew.
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

    /// Of one path's text, in turn with the machine's other trainers.
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

    /// A path's texts, as the router shares them out by now.
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

    /// With the parameters that are loaded.
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
