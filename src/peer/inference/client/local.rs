//! Inference with a collected run on this machine.

use crate::config::{DeviceChoice, RunConfig};
use crate::model::PathModel;
use crate::names::{PathId, PeerKey};
use crate::peer::collected::Collected;
use crate::peer::inference::client::{Draw, InferenceClient};
use crate::peer::inference::model_slot::{ModelSlot, Part, continue_text, continue_with_scores, nats, right, routes};
use crate::query::{Prompt, QueriedModel, TokenSpan};
use crate::text::{TokenSet, Tokenizer};

/// A collected run and a network.
pub struct Local {
    collected: Collected,
    slot: ModelSlot,
}

impl Local {
    pub fn new(collected: Collected, device: DeviceChoice) -> anyhow::Result<Self> {
        let slot = ModelSlot::new(&collected.manifest.config, device, &collected.frozen)?;
        Ok(Self { collected, slot })
    }

    fn prompt(&self, path: PathId, text: &[u32], count: usize, draw: &Draw) -> anyhow::Result<Prompt> {
        Ok(Prompt {
            path,
            tokens: text.to_vec(),
            before: 0,
            count: u32::try_from(count)?,
            temperature: draw.temperature.into(),
            top_k: u32::try_from(draw.top_k).unwrap_or(u32::MAX),
            seed: draw.seed,
            stop: self.tokenizer().end_of_document(),
        })
    }

    fn load(&mut self, player: QueriedModel) -> anyhow::Result<&PathModel> {
        load(&self.collected, &mut self.slot, player)
    }
}

/// A model of a collected run in a slot. What the slot has of it already is not read again.
///
/// # Errors
/// If a file is missing or damaged, or the device fails.
pub fn load<'a>(collected: &Collected, slot: &'a mut ModelSlot, player: QueriedModel) -> anyhow::Result<&'a PathModel> {
    match player {
        QueriedModel::Ancestor => slot.load_whole(Part::Ancestor, || Ok(collected.ancestor.to_vec())),
        QueriedModel::Path(path) if let Some(best) = collected.best(path) => {
            slot.load_whole(Part::Own(best), || Ok(collected.levels_of(path)?))
        }
        QueriedModel::Path(path) => {
            let modules = collected.grid.modules_of(path);
            let part = |module| Part::Module(collected.modules[module].parameters);
            let parts: Vec<Part> = modules.iter().map(part).collect();
            slot.load(&parts, &mut |level| Ok(collected.parameters_of(modules[level])?))
        }
    }
}

impl InferenceClient for Local {
    fn config(&self) -> &RunConfig {
        &self.collected.manifest.config
    }

    fn tokenizer(&self) -> &Tokenizer {
        &self.collected.tokenizer
    }

    fn shares_text(&self) -> bool {
        self.collected.manifest.share_text
    }

    fn place(&self) -> String {
        self.collected.folder.display().to_string()
    }

    fn test_text(&mut self, path: PathId) -> anyhow::Result<Option<TokenSet>> {
        Ok(self.collected.test_text(path)?)
    }

    fn ancestor(&mut self) -> anyhow::Result<Vec<f32>> {
        Ok(self.collected.whole_ancestor()?)
    }

    fn routes(&mut self, prefixes: &[&[u32]]) -> anyhow::Result<Vec<PathId>> {
        if self.collected.router.needs_features() {
            self.load(QueriedModel::Ancestor)?;
        }
        routes(&self.collected.router, Some(self.slot.model()), prefixes)
    }

    fn nats(&mut self, readings: &[(QueriedModel, &[TokenSpan])]) -> anyhow::Result<Vec<Vec<f64>>> {
        readings.iter().map(|(player, pieces)| Ok(nats(self.load(*player)?, pieces)?)).collect()
    }

    fn right(&mut self, readings: &[(PathId, &[TokenSpan])]) -> anyhow::Result<Option<Vec<u64>>> {
        readings.iter().map(|(path, pieces)| Ok(Some(right(self.load(QueriedModel::Path(*path))?, pieces)?))).collect()
    }

    fn continue_text(&mut self, path: PathId, text: &[u32], count: usize, draw: &Draw) -> anyhow::Result<Vec<u32>> {
        let prompt = self.prompt(path, text, count, draw)?;
        Ok(continue_text(self.load(QueriedModel::Path(path))?, &prompt)?)
    }

    fn continue_with_scores(
        &mut self,
        path: PathId,
        text: &[u32],
        count: usize,
        draw: &Draw,
    ) -> anyhow::Result<Vec<(u32, f64)>> {
        let prompt = self.prompt(path, text, count, draw)?;
        let scored = continue_with_scores(self.load(QueriedModel::Path(path))?, &prompt)?;
        Ok(scored.into_iter().map(|score| (score.token, score.logprob)).collect())
    }

    fn answered(&self) -> Vec<PeerKey> {
        Vec::new()
    }
}
