//! The models of a collected run, or one model, on a device of this machine.

use crate::config::{DeviceChoice, first_block};
use crate::model::PathModel;
use crate::names::PathId;
use crate::peer::Collected;
use crate::peer::inference::client::local::load;
use crate::peer::inference::model_slot::{ModelSlot, features};
use crate::query::QueriedModel;
use crate::serve::engine::backend::{Backend, Next, Text};
use crate::text::TokenSet;
use crate::training::{Decoding, GenerateError, TokenScore, scored, token_scores};

/// Memory for models, in bytes. At least one is kept, however large.
const MODEL_BYTES: usize = 4 << 30;

/// Steps in a row on a model where not all models fit.
const QUANTUM: usize = 32;

/// Tokens of a prompt that are read at once, so that other texts go on meanwhile.
const PIECE: usize = 128;

/// The same where there is no other text: all are read at once if memory allows it.
const PIECE_ALONE: usize = 1_024;

/// A collected run, and the models that are in memory.
pub struct LocalModels {
    collected: Collected,
    device: DeviceChoice,
    /// The last used one last.
    slots: Vec<(QueriedModel, ModelSlot)>,
    /// Models that may be in memory.
    most: usize,
    /// Whether that is all of them.
    all_fit: bool,
    /// The first blocks of levels with several modules, where paths part.
    parting: Vec<usize>,
}

impl LocalModels {
    /// Loads nothing yet.
    pub fn new(collected: Collected, device: DeviceChoice) -> Self {
        let bytes = 4 * (collected.manifest.level_counts().iter().sum::<usize>() + collected.frozen.len());
        let most = (MODEL_BYTES / bytes.max(1)).max(1);
        let all_fit = (collected.grid.path_count() as usize) < most;
        let config = &collected.manifest.config;
        let levels = config.levels.iter().enumerate().filter(|(level, _)| collected.grid.experts(*level) > 1);
        let parting = levels.map(|(_, level)| first_block(&config.model, level)).collect();
        Self { collected, device, slots: Vec::new(), most, all_fit, parting }
    }

    /// The first block by which two paths differ; `None` if one of them keeps parameters of its own.
    fn parted_at(&self, one: PathId, other: PathId) -> Option<usize> {
        let Collected { grid, manifest, .. } = &self.collected;
        if [one, other].iter().any(|path| self.collected.best(*path).is_some()) {
            return None;
        }
        let levels = manifest.config.levels.iter().enumerate();
        let differ = levels.filter(|(level, _)| grid.module_of(one, *level) != grid.module_of(other, *level));
        differ.map(|(_, level)| first_block(&manifest.config.model, level)).min()
    }

    fn model(&mut self, model: QueriedModel) -> anyhow::Result<&PathModel> {
        let slot = match self.slots.iter().position(|(known, _)| *known == model) {
            Some(at) => self.slots.remove(at).1,
            // Levels that two paths share are not read again.
            None if self.slots.len() >= self.most => self.slots.remove(0).1,
            None => {
                let mut slot = ModelSlot::new(&self.collected.manifest.config, self.device, &self.collected.frozen)?;
                slot.keep_streams(self.parting.clone());
                slot
            }
        };
        self.slots.push((model, slot));
        let (_, slot) = self.slots.last_mut().ok_or_else(|| anyhow::anyhow!("a slot was just added"))?;
        load(&self.collected, slot, model)
    }
}

impl Backend for LocalModels {
    fn ranking(&mut self, tokens: &[u32], _: Option<PathId>) -> anyhow::Result<Vec<PathId>> {
        let router = self.collected.router.clone();
        let row = match router.needs_features() {
            true => features(self.model(QueriedModel::Ancestor)?, &[tokens])?,
            false => Vec::new(),
        };
        Ok(router.top(&row, tokens, router.paths() as usize))
    }

    fn features(&mut self, texts: &[Vec<u32>]) -> anyhow::Result<Vec<Vec<f32>>> {
        let width = self.collected.manifest.config.model.width;
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let rows = features(self.model(QueriedModel::Ancestor)?, &texts)?;
        Ok(rows.chunks_exact(width).map(<[f32]>::to_vec).collect())
    }

    fn scores(&mut self, model: QueriedModel, tokens: &[u32], top: usize) -> anyhow::Result<Vec<TokenScore>> {
        scores(self.model(model)?, tokens, top)
    }

    fn read_ahead(&mut self, model: QueriedModel, prompt: &mut Decoding) -> anyhow::Result<()> {
        Ok(prompt.read_ahead(self.model(model)?)?)
    }

    fn moves(&mut self, before: PathId, path: PathId, text: &mut Decoding) {
        // A model that cannot be loaded fails in the next step, in words.
        match (self.parted_at(before, path), self.model(QueriedModel::Path(path))) {
            (Some(block), Ok(model)) => text.go_on_above(model, block),
            _ => text.forget(),
        }
    }

    fn quantum(&self) -> usize {
        if self.all_fit { 1 } else { QUANTUM }
    }

    fn step(&mut self, model: QueriedModel, texts: &mut [&mut Text]) -> Vec<anyhow::Result<Next>> {
        match self.model(model) {
            Ok(model) => step(model, texts),
            Err(error) => {
                let reason = format!("{error:#}");
                texts.iter().map(|_| Err(anyhow::anyhow!("{reason}"))).collect()
            }
        }
    }
}

/// One model, for all texts.
pub struct SingleModel(pub PathModel);

impl Backend for SingleModel {
    fn ranking(&mut self, _: &[u32], _: Option<PathId>) -> anyhow::Result<Vec<PathId>> {
        Ok(vec![PathId(0)])
    }

    fn features(&mut self, _: &[Vec<u32>]) -> anyhow::Result<Vec<Vec<f32>>> {
        anyhow::bail!("one model has no router, and so no features for it")
    }

    fn scores(&mut self, _: QueriedModel, tokens: &[u32], top: usize) -> anyhow::Result<Vec<TokenScore>> {
        scores(&self.0, tokens, top)
    }

    fn read_ahead(&mut self, _: QueriedModel, prompt: &mut Decoding) -> anyhow::Result<()> {
        Ok(prompt.read_ahead(&self.0)?)
    }

    fn step(&mut self, _: QueriedModel, texts: &mut [&mut Text]) -> Vec<anyhow::Result<Next>> {
        step(&self.0, texts)
    }
}

fn scores(model: &PathModel, tokens: &[u32], top: usize) -> anyhow::Result<Vec<TokenScore>> {
    let set = TokenSet::cut_for_scoring(&[tokens.to_vec()], model.config().context);
    let mut scores = Vec::with_capacity(tokens.len());
    for sequence in 0..set.len() {
        scores.extend(token_scores(model, set.sequence(sequence), top)?);
    }
    Ok(scores)
}

/// Continues texts by one token each, or reads a piece of a long prompt.
fn step(model: &PathModel, texts: &mut [&mut Text]) -> Vec<anyhow::Result<Next>> {
    let most = if texts.len() > 1 { PIECE } else { PIECE_ALONE };
    let mut read: Vec<Option<anyhow::Result<Next>>> =
        texts.iter_mut().map(|text| read_piece(model, &mut text.decoding, most)).collect();
    let due = texts.iter_mut().zip(&read).filter(|(_, read)| read.is_none());
    let mut due: Vec<&mut Text> = due.map(|(text, _)| &mut **text).collect();
    let mut decodings: Vec<&mut Decoding> = due.iter_mut().map(|text| &mut text.decoding).collect();
    let logits = Decoding::logits_of_each(model, &mut decodings);
    let made = due.iter_mut().zip(logits).map(|(text, logits)| Ok(next(&logits?, text)?));
    let places = read.iter_mut().filter(|read| read.is_none());
    places.zip(made).for_each(|(place, made)| *place = Some(made));
    read.into_iter().flatten().collect()
}

/// Reads a piece of a prompt that has more tokens than that; `None` if it has not.
fn read_piece(model: &PathModel, text: &mut Decoding, most: usize) -> Option<anyhow::Result<Next>> {
    // A network that looks ahead would read all again with each piece.
    if model.config().looks_ahead() || text.unread(model) <= most {
        return None;
    }
    Some(text.read_some(model, most).map(|_| Next::default()).map_err(Into::into))
}

/// The next token of a text by its logits.
fn next(logits: &[f32], text: &mut Text) -> Result<Next, GenerateError> {
    let token = text.sampler.choose(logits, &text.counts, text.decoding.position())?;
    let score = text.logprobs.map(|top| scored(logits, token, top));
    if text.ends.contains(&token) {
        return Ok(Next { ended: true, end: score.map(|score| (token, score)), ..Next::default() });
    }
    text.push(token);
    Ok(Next { tokens: vec![(token, score)], ..Next::default() })
}
