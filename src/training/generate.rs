//! Continues a text, token by token.

use std::collections::BTreeMap;

use tch::TchError;

use crate::model::weights::to_values;
use crate::model::{ForwardError, Memory, PathModel};
use crate::seed::Seed;
use crate::training::sampler::{Sampler, SamplerError};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Limit of new tokens.
    pub count: usize,
    /// Divisor of the logits; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Only this many of the likeliest tokens are drawn from; 0 for all.
    pub top_k: usize,
    /// Seed of the draws.
    pub seed: Seed,
    /// The end-of-document token, which is not returned.
    pub stop: u32,
    /// Number of tokens before the prompt. Draws and the visible context depend on the position in the whole text, so
    /// that generating a text in pieces gives the same result.
    pub before: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    #[error("temperature = {0}: must be 0 or more, and finite")]
    Temperature(f64),
    #[error("the model's logits are not finite; it diverged or was never loaded")]
    NotFinite,
    #[error(transparent)]
    Forward(#[from] ForwardError),
}

impl From<SamplerError> for GenerateError {
    fn from(error: SamplerError) -> Self {
        match error {
            SamplerError::Temperature(temperature) => Self::Temperature(temperature),
            SamplerError::NotFinite => Self::NotFinite,
        }
    }
}

impl From<TchError> for GenerateError {
    fn from(error: TchError) -> Self {
        Self::Forward(error.into())
    }
}

/// The first token that a model still sees in a text of `length` tokens. When a text exceeds `context`, the older half
/// is dropped, so that most tokens are computed once. At least half a context stays visible.
pub fn seen_from(length: usize, context: usize) -> usize {
    let half = (context / 2).max(1);
    length.saturating_sub(context).div_ceil(half) * half
}

/// The tokens that follow the prompt. The model sees the text from [`seen_from`] on.
pub fn generate(model: &PathModel, prompt: &[u32], sampling: &Sampling) -> Result<Vec<u32>, GenerateError> {
    generate_each(model, prompt, sampling, |_, token| token)
}

/// The same, with what `told` makes of the logits and each token.
pub(super) fn generate_each<T>(
    model: &PathModel,
    prompt: &[u32],
    sampling: &Sampling,
    told: impl Fn(&[f32], u32) -> T,
) -> Result<Vec<T>, GenerateError> {
    let sampler = Sampler::new(sampling.temperature, sampling.top_k, sampling.seed);
    sampler.check()?;
    let mut text = Decoding::new(prompt.to_vec(), sampling.before)?;
    let mut made = Vec::new();
    while made.len() < sampling.count {
        let logits = text.logits(model)?;
        let token = sampler.choose(&logits, &BTreeMap::new(), text.position())?;
        if token == sampling.stop {
            break;
        }
        made.push(told(&logits, token));
        text.push(token);
    }
    Ok(made)
}

/// A text that is being generated, and what the network remembers of it.
pub struct Decoding {
    tokens: Vec<u32>,
    /// Number of tokens before these.
    before: usize,
    memory: Memory,
    /// The first of the tokens that the memory begins with.
    first: usize,
    /// The first token that the network has not read.
    unread: usize,
}

impl Decoding {
    /// Begins with a prompt, which has so many tokens before it.
    ///
    /// # Errors
    /// If the prompt is empty.
    pub fn new(prompt: Vec<u32>, before: usize) -> Result<Self, GenerateError> {
        match prompt.is_empty() {
            true => Err(GenerateError::EmptyPrompt),
            false => Ok(Self { tokens: prompt, before, memory: Memory::default(), first: usize::MAX, unread: 0 }),
        }
    }

    /// The prompt and what was generated.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The position of the next token in the whole text.
    pub fn position(&self) -> u64 {
        self.before as u64 + self.tokens.len() as u64
    }

    /// Appends a token.
    pub fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Goes on with another network, which remembers nothing.
    pub fn forget(&mut self) {
        self.first = usize::MAX;
    }

    /// Goes on with another network, which computes the same below a block. What the two have in common is remembered if the
    /// stream that enters the block was [kept](PathModel::keep_streams).
    pub fn go_on_above(&mut self, model: &PathModel, block: usize) {
        if !model.takes_over(&mut self.memory, block) {
            self.forget();
        }
    }

    /// Another continuation of the same text. What is remembered is shared.
    pub fn fork(&self) -> Self {
        Self { tokens: self.tokens.clone(), memory: self.memory.fork(), ..*self }
    }

    /// Tokens at the beginning of a prompt that this text's network has read here, and would see there. The last of a
    /// prompt is always read anew.
    pub fn begins_like(&self, prompt: &[u32]) -> usize {
        if self.before > 0 || self.first > 0 || !self.memory.is_by_token() {
            return 0;
        }
        let read = self.tokens.iter().take(self.memory.read);
        let same = read.zip(prompt).take_while(|(own, other)| own == other).count();
        same.min(prompt.len().saturating_sub(1))
    }

    /// A prompt, of whose tokens the first are remembered, if this text has read them.
    ///
    /// # Errors
    /// If the prompt is empty.
    pub fn begin_like(&self, prompt: Vec<u32>, tokens: usize) -> Result<Self, GenerateError> {
        let memory = self.memory.first(tokens).filter(|_| tokens <= self.begins_like(&prompt));
        let begun = Self::new(prompt, 0)?;
        Ok(match memory {
            Some(memory) => Self { memory, first: 0, unread: tokens, ..begun },
            None => begun,
        })
    }

    /// Keeps what is remembered apart from other texts. Returns its bytes.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn detach(&mut self) -> Result<usize, GenerateError> {
        Ok(self.memory.detach()?)
    }

    /// Logits of the next token by a network, `[vocabulary]`. It reads what it has not read; when the text exceeds its
    /// context, it begins anew from [`seen_from`].
    pub fn logits(&mut self, model: &PathModel) -> Result<Vec<f32>, GenerateError> {
        self.begin_anew_if_due(model);
        let unread = &self.tokens[self.unread..];
        let hidden = model.read(&mut self.memory, unread)?;
        let last = hidden.f_narrow(1, unread.len() as i64 - 1, 1)?;
        self.unread = self.tokens.len();
        let _no_gradient = tch::no_grad_guard();
        Ok(to_values(&model.exact().linear(&last, model.head(), None)?)?)
    }

    /// Reads all tokens but the last, so that forks need not.
    pub fn read_ahead(&mut self, model: &PathModel) -> Result<(), GenerateError> {
        while self.read_some(model, usize::MAX)? {}
        Ok(())
    }

    /// Reads at most so many tokens, and not the last one. Returns whether there was one to read.
    ///
    /// # Errors
    /// If the network fails, or a token is foreign.
    pub fn read_some(&mut self, model: &PathModel, most: usize) -> Result<bool, GenerateError> {
        self.begin_anew_if_due(model);
        let end = (self.tokens.len() - 1).min(self.unread.saturating_add(most));
        if self.unread >= end {
            return Ok(false);
        }
        drop(model.read(&mut self.memory, &self.tokens[self.unread..end])?);
        self.unread = end;
        Ok(true)
    }

    /// Tokens that the network has to read for the next one.
    pub fn unread(&mut self, model: &PathModel) -> usize {
        self.begin_anew_if_due(model);
        self.tokens.len() - self.unread
    }

    fn begin_anew_if_due(&mut self, model: &PathModel) {
        let begin = seen_from(self.before.saturating_add(self.tokens.len()), model.config().context);
        let begin = begin.saturating_sub(self.before);
        if begin != self.first {
            (self.memory, self.first, self.unread) = (Memory::default(), begin, begin);
        }
    }

    /// The same of several texts. Those of which the network has read all but the last token are read at once.
    pub fn logits_of_each(model: &PathModel, texts: &mut [&mut Self]) -> Vec<Result<Vec<f32>, GenerateError>> {
        texts.iter_mut().for_each(|text| text.begin_anew_if_due(model));
        let goes_on = |text: &Self| text.memory.read > 0 && text.unread + 1 == text.tokens.len();
        let count = texts.iter().filter(|text| goes_on(text)).count();
        let mut together = match count > 1 && model.reads_together() {
            true => {
                let mut those: Vec<&mut Self> =
                    texts.iter_mut().filter(|text| goes_on(text)).map(|text| &mut **text).collect();
                Some(Self::read_each(model, &mut those).map(Vec::into_iter))
            }
            false => None,
        };
        let each = texts.iter_mut().map(|text| match &mut together {
            Some(Ok(logits)) if text.unread == text.tokens.len() => logits.next().ok_or(GenerateError::NotFinite),
            // If it fails for all, each learns by itself why.
            _ => text.logits(model),
        });
        each.collect()
    }

    fn read_each(model: &PathModel, texts: &mut [&mut Self]) -> Result<Vec<Vec<f32>>, GenerateError> {
        let last: Vec<u32> = texts.iter().filter_map(|text| text.tokens.last().copied()).collect();
        let mut memories: Vec<&mut Memory> = texts.iter_mut().map(|text| &mut text.memory).collect();
        let hidden = model.read_each(&mut memories, &last)?;
        let _no_gradient = tch::no_grad_guard();
        let logits = to_values(&model.exact().linear(&hidden, model.head(), None)?)?;
        texts.iter_mut().for_each(|text| text.unread = text.tokens.len());
        Ok(logits.chunks_exact(logits.len() / last.len().max(1)).map(<[f32]>::to_vec).collect())
    }
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
