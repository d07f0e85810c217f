//! Continues a text, token by token.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tch::TchError;

use crate::model::weights::to_values;
use crate::model::{ForwardError, Memory, PathModel};
use crate::seed::Seed;

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
    if prompt.is_empty() {
        return Err(GenerateError::EmptyPrompt);
    }
    if !sampling.temperature.is_finite() || sampling.temperature < 0.0 {
        return Err(GenerateError::Temperature(sampling.temperature));
    }
    let context = model.config().context;
    let seen_from = |tokens: &[u32]| {
        seen_from(sampling.before.saturating_add(tokens.len()), context).saturating_sub(sampling.before)
    };
    let mut tokens = prompt.to_vec();
    let mut first = seen_from(&tokens);
    let (mut memory, mut unread) = (Memory::default(), first);
    let mut made = Vec::new();
    while made.len() < sampling.count {
        if seen_from(&tokens) != first {
            first = seen_from(&tokens);
            (memory, unread) = (Memory::default(), first);
        }
        let hidden = model.read(&mut memory, &tokens[unread..])?;
        let last = hidden.f_narrow(1, (tokens.len() - unread) as i64 - 1, 1)?;
        unread = tokens.len();
        let mut generator = sampling.seed.number(sampling.before as u64 + tokens.len() as u64).generator();
        let logits = {
            let _no_gradient = tch::no_grad_guard();
            to_values(&model.exact().linear(&last, model.head(), None)?)?
        };
        let token = choose(&logits, sampling, &mut generator)?;
        if token == sampling.stop {
            break;
        }
        made.push(token);
        tokens.push(token);
    }
    Ok(made)
}

fn choose(logits: &[f32], sampling: &Sampling, generator: &mut ChaCha8Rng) -> Result<u32, GenerateError> {
    if logits.iter().any(|logit| !logit.is_finite()) {
        return Err(GenerateError::NotFinite);
    }
    // Likeliest first, equals by number, so that the choice is the same everywhere.
    let mut ranked: Vec<usize> = (0..logits.len()).collect();
    ranked.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    let Some(best) = ranked.first().copied() else {
        return Err(GenerateError::NotFinite);
    };
    if sampling.temperature == 0.0 {
        return Ok(best as u32);
    }
    if sampling.top_k > 0 {
        ranked.truncate(sampling.top_k);
    }
    let peak = f64::from(logits[best]);
    let weight = |token: usize| ((f64::from(logits[token]) - peak) / sampling.temperature).exp();
    let total: f64 = ranked.iter().map(|token| weight(*token)).sum();
    let mut left = generator.random_range(0.0..1.0) * total;
    for token in &ranked {
        left -= weight(*token);
        if left < 0.0 {
            return Ok(*token as u32);
        }
    }
    Ok(best as u32)
}

#[cfg(test)]
mod tests {
    use tch::Tensor;

    use super::*;
    use crate::model::samples::{small_levels, small_model, small_path};

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
    fn draws_follow_the_scores() {
        let mut generator = Seed::root(1).generator();
        let logits = [0.0, (3f32).ln()];
        let drawn: u32 = (0..4000).map(|_| choose(&logits, &sampling(), &mut generator).unwrap()).sum();
        assert!((2880..3120).contains(&drawn), "{drawn}");
    }

    #[test]
    fn what_cannot_be_continued_is_an_error() {
        let path = small_path(&small_model(), &small_levels());
        assert!(matches!(generate(&path, &[], &sampling()), Err(GenerateError::EmptyPrompt)));
        assert!(matches!(generate(&path, &[999], &sampling()), Err(GenerateError::Forward(_))));
        let hot = Sampling { temperature: f64::NAN, ..sampling() };
        assert!(matches!(generate(&path, &[1], &hot), Err(GenerateError::Temperature(_))));
        assert!(choose(&[f32::NAN], &sampling(), &mut Seed::root(1).generator()).is_err());
    }
}
