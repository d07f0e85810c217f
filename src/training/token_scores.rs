//! Log-probabilities of tokens, and of the likeliest tokens in their places.

use tch::{Kind, Tensor};

use crate::model::PathModel;
use crate::model::weights::to_values;
use crate::training::generate::{GenerateError, Sampling, generate_each};
use crate::training::sampler::{likeliest, log_normalizer};

/// Logits computed at once, in values.
const CHUNK_VALUES: usize = 1 << 21;

/// What a network says about a token in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    pub token: u32,
    /// Natural logarithm of its probability.
    pub logprob: f64,
    /// The likeliest tokens and their logarithms, likeliest first.
    pub top: Vec<(u32, f64)>,
}

/// The tokens that follow the prompt, as [`generate`](super::generate) makes them, with the probability of each before
/// temperature and top-k.
pub fn generate_with_scores(
    model: &PathModel,
    prompt: &[u32],
    sampling: &Sampling,
) -> Result<Vec<TokenScore>, GenerateError> {
    generate_each(model, prompt, sampling, |logits, token| scored(logits, token, 0))
}

/// The score of a token from the logits of its place, with so many of the likeliest tokens.
pub fn scored(logits: &[f32], token: u32, top: usize) -> TokenScore {
    let normalizer = log_normalizer(logits);
    let logprob = |token: u32| f64::from(logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY)) - normalizer;
    let top = likeliest(logits, top).into_iter().map(|token| (token, logprob(token))).collect();
    TokenScore { token, logprob: logprob(token), top }
}

/// The scores of the tokens of a sequence after its first, each by all tokens before it. The sequence has at most one
/// token more than the context.
///
/// # Errors
/// If the sequence has fewer than two tokens, too many, or foreign ones, or the model has diverged.
pub fn token_scores(model: &PathModel, tokens: &[u32], top: usize) -> Result<Vec<TokenScore>, GenerateError> {
    let (Some((_, read)), Some((_, targets))) = (tokens.split_last(), tokens.split_first()) else {
        return Err(GenerateError::EmptyPrompt);
    };
    let ids: Vec<i64> = read.iter().map(|token| i64::from(*token)).collect();
    let hidden = model.hidden(&Tensor::f_from_slice(&ids)?.f_unsqueeze(0)?)?.f_squeeze_dim(0)?;
    let vocabulary = model.config().ids();
    let rows = (CHUNK_VALUES / vocabulary).max(1);
    let mut scores = Vec::with_capacity(targets.len());
    let _no_gradient = tch::no_grad_guard();
    for (chunk, targets) in targets.chunks(rows).enumerate() {
        let part = hidden.f_narrow(0, (chunk * rows) as i64, targets.len() as i64)?;
        let logits = to_values(&model.exact().linear(&part, model.head(), None)?.f_to_kind(Kind::Float)?)?;
        for (logits, target) in logits.chunks_exact(vocabulary).zip(targets) {
            let score = scored(logits, *target, top);
            if !score.logprob.is_finite() {
                return Err(GenerateError::NotFinite);
            }
            scores.push(score);
        }
    }
    Ok(scores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{small_levels, small_model, small_path};
    use crate::training::evaluate::target_losses;

    #[test]
    fn tokens_are_the_same_with_their_scores() {
        let path = small_path(&small_model(), &small_levels());
        let seed = crate::seed::Seed::root(4);
        let sampling = Sampling { count: 40, temperature: 1.0, top_k: 0, seed, stop: 9999, before: 0 };
        let scores = generate_with_scores(&path, &[1, 2, 3], &sampling).unwrap();
        let tokens: Vec<u32> = scores.iter().map(|score| score.token).collect();
        assert_eq!(tokens, crate::training::generate(&path, &[1, 2, 3], &sampling).unwrap());
        assert!(scores.iter().all(|score| score.logprob < 0.0 && score.logprob > -20.0 && score.top.is_empty()));
    }

    #[test]
    fn they_are_the_losses_of_an_evaluation() {
        let path = small_path(&small_model(), &small_levels());
        let tokens: Vec<u32> = (0..25).map(|place| place * 37 % 300).collect();
        let losses = target_losses(&path, &[tokens.clone()][..], 1, &mut || {}).unwrap().remove(0);
        let scores = token_scores(&path, &tokens, 3).unwrap();
        assert_eq!(scores.len(), 24);
        for ((score, loss), token) in scores.iter().zip(losses).zip(&tokens[1..]) {
            assert_eq!((score.token, score.top.len()), (*token, 3));
            assert!((score.logprob + f64::from(loss)).abs() < 1e-4, "{} {loss}", score.logprob);
            assert!(score.top[0].1 >= score.top[1].1 && score.top[0].1 >= score.logprob);
        }
    }

    #[test]
    fn a_sequence_without_a_target_or_too_long_a_one_is_an_error() {
        let path = small_path(&small_model(), &small_levels());
        assert!(token_scores(&path, &[], 0).is_err() && token_scores(&path, &[1], 0).is_err());
        assert!(token_scores(&path, &[1; 26], 0).is_err() && token_scores(&path, &[1, 999, 1], 0).is_err());
    }
}
