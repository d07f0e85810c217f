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
mod tests {
    use tch::Tensor;

    use super::*;
    use crate::model::samples::{modern_models, small_levels, small_model, small_path};

    fn sampling() -> Sampling {
        Sampling { count: 40, temperature: 1.0, top_k: 0, seed: Seed::root(4), stop: 9999, before: 0 }
    }

    #[test]
    fn it_goes_on_past_the_context_and_repeats_with_its_seed() {
        let path = small_path(&small_model(), &small_levels());
        let sampling = sampling();
        let text = generate(&path, &[1, 2, 3], &sampling).unwrap();
        assert_eq!(text.len(), 40);
        assert_eq!(generate(&path, &[1, 2, 3], &sampling).unwrap(), text);
        assert_ne!(generate(&path, &[1, 2, 3], &Sampling { seed: Seed::root(5), ..sampling }).unwrap(), text);
    }

    #[test]
    fn a_text_made_in_pieces_is_the_same_text() {
        let path = small_path(&small_model(), &small_levels());
        let context = small_model().context;
        let prompt = [1, 2, 3];
        let whole = generate(&path, &prompt, &Sampling { count: 70, ..sampling() }).unwrap();
        let mut text = prompt.to_vec();
        for count in [1, 30, 9, 30] {
            let before = seen_from(text.len(), context);
            let made = generate(&path, &text[before..], &Sampling { count, before, ..sampling() }).unwrap();
            text.extend(made);
        }
        assert_eq!(text[3..], whole);
    }

    #[test]
    fn a_model_sees_between_half_a_context_and_a_whole_one() {
        for context in [1, 2, 3, 24] {
            for length in 1..200 {
                let seen = length - seen_from(length, context);
                assert!(seen <= context && (seen == length || 2 * seen > context), "{seen} of {length}, {context}");
            }
        }
        assert_eq!([24, 25, 36, 37].map(|length| seen_from(length, 24)), [0, 12, 12, 24]);
    }

    #[test]
    fn what_is_remembered_changes_nothing() {
        let path = small_path(&small_model(), &small_levels());
        let greedy = Sampling { temperature: 0.0, count: 20, ..sampling() };
        let mut text: Vec<i64> = vec![1, 2, 3];
        for token in generate(&path, &[1, 2, 3], &greedy).unwrap() {
            let logits = path.logits(&Tensor::from_slice(&text).unsqueeze(0)).unwrap();
            let likeliest = logits.select(1, text.len() as i64 - 1).argmax(-1, false).int64_value(&[0]);
            assert_eq!(i64::from(token), likeliest);
            text.push(likeliest);
        }
    }

    #[test]
    fn it_ends_at_the_stop_token() {
        let path = small_path(&small_model(), &small_levels());
        let greedy = Sampling { temperature: 0.0, ..sampling() };
        let text = generate(&path, &[1, 2, 3], &greedy).unwrap();
        let stop = text[5];
        let cut = generate(&path, &[1, 2, 3], &Sampling { stop, ..greedy }).unwrap();
        let first = text.iter().position(|token| *token == stop).unwrap();
        assert_eq!(cut, text[..first]);
    }

    #[test]
    fn one_candidate_is_the_greedy_choice() {
        let path = small_path(&small_model(), &small_levels());
        let greedy = generate(&path, &[7], &Sampling { temperature: 0.0, ..sampling() }).unwrap();
        assert_eq!(generate(&path, &[7], &Sampling { top_k: 1, temperature: 3.0, ..sampling() }).unwrap(), greedy);
    }

    #[test]
    fn a_fork_goes_on_by_itself_and_another_network_reads_the_whole_text() {
        let path = small_path(&small_model(), &small_levels());
        let mut text = Decoding::new(vec![1, 2, 3], 0).unwrap();
        text.logits(&path).unwrap();
        let mut ahead = Decoding::new(vec![1, 2, 3], 0).unwrap();
        ahead.read_ahead(&path).unwrap();
        let mut fork = ahead.fork();
        fork.logits(&path).unwrap();
        for token in [7, 8, 9] {
            fork.push(token);
            fork.logits(&path).unwrap();
        }
        assert_eq!((text.tokens(), fork.position()), (&[1, 2, 3][..], 6));
        text.push(4);
        let logits = text.logits(&path).unwrap();
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
        let mut again = Decoding::new(vec![1, 2, 3, 4], 0).unwrap();
        assert!(close(&again.logits(&path).unwrap(), &logits));
        text.push(5);
        text.forget();
        again.push(5);
        assert!(close(&text.logits(&path).unwrap(), &again.logits(&path).unwrap()));
    }

    #[test]
    fn a_prompt_that_begins_like_an_earlier_text_is_not_read_again() {
        for (name, model) in modern_models() {
            let path = small_path(&model, &small_levels());
            let mut earlier = Decoding::new(vec![1, 2, 3, 4], 0).unwrap();
            earlier.logits(&path).unwrap();
            earlier.push(5);
            earlier.logits(&path).unwrap();
            assert_eq!(earlier.begins_like(&[1, 2, 3, 4, 5, 6]), 5);
            assert_eq!((earlier.begins_like(&[1, 2, 3]), earlier.begins_like(&[2, 2, 3])), (2, 0));
            let prompt = vec![1, 2, 3, 7, 8];
            let mut begun = earlier.begin_like(prompt.clone(), 3).unwrap();
            let reused = path.reads_together();
            assert_eq!(begun.unread(&path), if reused { 2 } else { 5 }, "{name}");
            let logits = begun.logits(&path).unwrap();
            let anew = Decoding::new(prompt, 0).unwrap().logits(&path).unwrap();
            assert!(logits.iter().zip(&anew).all(|(a, b)| (a - b).abs() < 1e-4), "{name}");
        }
    }

    #[test]
    fn texts_that_are_read_at_once_continue_as_each_would_alone() {
        let mut models = modern_models();
        models.push(("plain", small_model()));
        for (name, model) in models {
            let path = small_path(&model, &small_levels());
            let prompts: [&[u32]; 4] = [&[1, 2, 3], &[7], &[5, 5, 200, 4, 9, 9], &[40; 20]];
            let mut alone: Vec<Decoding> =
                prompts.iter().map(|prompt| Decoding::new(prompt.to_vec(), 0).unwrap()).collect();
            let mut together: Vec<Decoding> = alone.iter().map(Decoding::fork).collect();
            // Past the context of 24, where each begins anew at another time.
            for step in 0..30 {
                let mut texts: Vec<&mut Decoding> = together.iter_mut().collect();
                let found = Decoding::logits_of_each(&path, &mut texts);
                for ((alone, together), found) in alone.iter_mut().zip(&mut together).zip(found) {
                    let (expected, found) = (alone.logits(&path).unwrap(), found.unwrap());
                    let most = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(most < 1e-3, "{name}, step {step}: {most} apart");
                    let token = (step * 37 + 11) % 300;
                    alone.push(token);
                    together.push(token);
                }
            }
        }
    }

    #[test]
    fn texts_come_and_go_and_a_prompt_is_read_in_pieces() {
        for (name, model) in modern_models() {
            let path = small_path(&model, &small_levels());
            let mut alone: Vec<Decoding> = (0..5).map(|text| Decoding::new(vec![7 + text; 6], 0).unwrap()).collect();
            let mut together: Vec<Decoding> = alone.iter().map(Decoding::fork).collect();
            while together[3].read_some(&path, 2).unwrap() {}
            assert_eq!(together[3].unread(&path), 1);
            for (step, present) in
                [&[0, 1][..], &[0, 1, 2, 3], &[4, 0, 2], &[2], &[0, 1, 2, 3, 4]].into_iter().enumerate()
            {
                let chosen = together.iter_mut().enumerate().filter(|(text, _)| present.contains(text));
                let mut texts: Vec<&mut Decoding> = chosen.map(|(_, text)| text).collect();
                let found = Decoding::logits_of_each(&path, &mut texts);
                let mut present = present.to_vec();
                present.sort_unstable();
                for (text, found) in present.into_iter().zip(found) {
                    let expected = alone[text].logits(&path).unwrap();
                    let most = expected.iter().zip(found.unwrap()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(most < 1e-3, "{name}, step {step}, text {text}: {most} apart");
                    alone[text].push(step as u32);
                    together[text].push(step as u32);
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_continued_is_an_error() {
        let path = small_path(&small_model(), &small_levels());
        assert!(matches!(generate(&path, &[], &sampling()), Err(GenerateError::EmptyPrompt)));
        assert!(matches!(generate(&path, &[999], &sampling()), Err(GenerateError::Forward(_))));
        let hot = Sampling { temperature: f64::NAN, ..sampling() };
        assert!(matches!(generate(&path, &[1], &hot), Err(GenerateError::Temperature(_))));
    }
}
