//! Evaluation of a path on sequences: nats, tokens and bytes, which give perplexity and bits per byte.

use std::iter::Sum;
use std::ops::Add;

use tch::TchError;

use super::batches::{Batch, BatchError, BatchLimits, Sequences};
use crate::config::ModelConfig;
use crate::model::PathModel;
use crate::model::weights::to_values;
use crate::training::inner::loss::row_losses;
use crate::training::smaller_batches::in_batches;

/// Padded tokens computed at once.
const BATCH_TOKENS: usize = 8192;

/// Limit of ids given to a network at once. Images have many more ids than positions.
const BATCH_IDS: usize = 1 << 21;

/// The cost of predicting some targets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Sum of their negative log-probabilities.
    pub nats: f64,
    /// Number of targets.
    pub tokens: u64,
    /// Bytes of text that they stand for.
    pub bytes: u64,
}

impl Score {
    /// Perplexity of the mean token. `None` if no token was scored, which says nothing about the network.
    pub fn perplexity(&self) -> Option<f64> {
        (self.tokens > 0).then(|| (self.nats / self.tokens as f64).exp())
    }

    /// Comparable between tokenizers. `None` if there are no bytes, as for classes of images.
    pub fn bits_per_byte(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.nats / std::f64::consts::LN_2 / self.bytes as f64)
    }
}

impl Add for Score {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { nats: self.nats + other.nats, tokens: self.tokens + other.tokens, bytes: self.bytes + other.bytes }
    }
}

impl Sum for Score {
    fn sum<I: Iterator<Item = Self>>(scores: I) -> Self {
        scores.fold(Self::default(), Add::add)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("the vocabulary has {expected} tokens, but the byte lengths of {found} are known")]
    TokenBytes { expected: usize, found: usize },
    #[error("the loss of sequence {sequence} is {nats}; the model diverged")]
    NotFinite { sequence: usize, nats: f64 },
    #[error("evaluation: {0}")]
    Tensor(#[from] TchError),
}

/// The score of all sequences together; see [`evaluate_each`].
pub fn evaluate(
    model: &PathModel,
    set: &(impl Sequences + ?Sized),
    prefix_tokens: usize,
    token_bytes: &[u32],
    goes_on: &mut dyn FnMut(),
) -> Result<Score, EvaluateError> {
    Ok(evaluate_each(model, set, prefix_tokens, token_bytes, goes_on)?.into_iter().sum())
}

/// The score of each sequence. A document's first `prefix_tokens` tokens, which chose its path, are not scored, nor is
/// a sequence's first token, which has no context. `token_bytes` is the number of bytes of text for each token.
/// `goes_on` is called after each batch.
///
/// Computed in f32 without gradient, in batches of similar length, smaller ones where memory runs out; summed in f64.
pub fn evaluate_each(
    model: &PathModel,
    set: &(impl Sequences + ?Sized),
    prefix_tokens: usize,
    token_bytes: &[u32],
    goes_on: &mut dyn FnMut(),
) -> Result<Vec<Score>, EvaluateError> {
    let vocabulary = model.config().ids();
    if token_bytes.len() != vocabulary {
        return Err(EvaluateError::TokenBytes { expected: vocabulary, found: token_bytes.len() });
    }
    let losses = target_losses(model, set, prefix_tokens, goes_on)?;
    let limits = limits(model, prefix_tokens);
    let scores = losses.iter().enumerate().map(|(index, losses)| {
        let targets = set.targets(index, limits.first_target(set, index));
        score(index, &targets, losses, token_bytes)
    });
    scores.collect()
}

/// The limits of a model where a document's first tokens are not scored.
fn limits(model: &PathModel, prefix_tokens: usize) -> BatchLimits {
    BatchLimits { first_target: prefix_tokens, ..BatchLimits::of(model.config()) }
}

/// The loss in nats of each token that [`evaluate_each`] scores, for each sequence. The scored tokens are the sequence's
/// [targets](Sequences::targets), in order.
pub fn target_losses(
    model: &PathModel,
    set: &(impl Sequences + ?Sized),
    prefix_tokens: usize,
    goes_on: &mut dyn FnMut(),
) -> Result<Vec<Vec<f32>>, EvaluateError> {
    let config = model.config();
    let limits = limits(model, prefix_tokens);
    let scored = |index: &usize| !set.targets(*index, limits.first_target(set, *index)).is_empty();
    let mut by_length: Vec<usize> = (0..set.len()).filter(scored).collect();
    by_length.sort_by_key(|index| std::cmp::Reverse(set.sequence(*index).len()));
    let mut found = vec![Vec::new(); set.len()];
    let rows = |rest: &[usize]| rest.first().map_or(1, |longest| rows_at_once(config, set.sequence(*longest).len()));
    in_batches(&by_length, rows, |chosen| {
        let batch = Batch::new(set, chosen, &limits, model.device())?;
        let losses = batch_losses(model, &batch)?;
        let mut losses = losses.as_slice();
        for (sequence, count) in chosen.iter().zip(&batch.counts) {
            let (own, others) = losses.split_at((*count).min(losses.len()));
            losses = others;
            found[*sequence] = own.to_vec();
        }
        goes_on();
        Ok::<_, EvaluateError>(())
    })?;
    Ok(found)
}

/// Number of sequences of a length that are computed at once.
pub(super) fn rows_at_once(model: &ModelConfig, length: usize) -> usize {
    let by_stream = BATCH_TOKENS / model.stream_length(length).max(1);
    by_stream.min(BATCH_IDS / length.max(1)).max(1)
}

fn batch_losses(model: &PathModel, batch: &Batch) -> Result<Vec<f32>, TchError> {
    let _no_gradient = tch::no_grad_guard();
    let products = model.exact();
    let hidden = batch.scored_rows(&model.trunk(&batch.inputs, Some(&batch.lengths), &products)?)?;
    to_values(&row_losses(&products, model.head(), &hidden, &batch.targets)?)
}

fn score(
    sequence: usize,
    targets: &[(usize, u32)],
    losses: &[f32],
    token_bytes: &[u32],
) -> Result<Score, EvaluateError> {
    let nats: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
    if !nats.is_finite() {
        return Err(EvaluateError::NotFinite { sequence, nats });
    }
    let bytes = targets.iter().map(|(_, token)| u64::from(token_bytes[*token as usize])).sum();
    Ok(Score { nats, tokens: targets.len() as u64, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{small_levels, small_model, small_path};
    use crate::training::samples::small_set;
    use tch::{Kind, Tensor};

    fn path() -> PathModel {
        small_path(&ModelConfig { context: 48, ..small_model() }, &small_levels())
    }

    #[test]
    fn it_is_the_sum_over_targets_after_the_prefix_of_each_sequence_alone() {
        let (path, set) = (path(), small_set(40));
        let bytes: Vec<u32> = (0..300).map(|token| token % 5).collect();
        let found = evaluate_each(&path, &set[..], 8, &bytes, &mut || {}).unwrap();
        for (tokens, found) in set.iter().zip(&found) {
            let ids: Vec<i64> = tokens.iter().map(|token| i64::from(*token)).collect();
            let logits = path.logits(&Tensor::from_slice(&ids).view([1, -1])).unwrap();
            let chances = logits.log_softmax(-1, Kind::Double);
            let nats: f64 = (8..ids.len()).map(|index| -chances.double_value(&[0, index as i64 - 1, ids[index]])).sum();
            assert!((found.nats - nats).abs() < 1e-4 * nats.max(1.0), "{} {nats}", found.nats);
            assert_eq!(found.tokens as usize, tokens.len().saturating_sub(8));
            assert_eq!(found.bytes, tokens.iter().skip(8).map(|token| u64::from(token % 5)).sum::<u64>());
        }
        assert_eq!(evaluate(&path, &set[..], 8, &bytes, &mut || {}).unwrap(), found.into_iter().sum());
    }

    #[test]
    fn perplexity_and_bits_per_byte_follow_from_the_sums() {
        let score = Score { nats: 20.0 * 8f64.ln(), tokens: 10, bytes: 0 } + Score { nats: 0.0, tokens: 10, bytes: 30 };
        assert!((score.perplexity().unwrap() - 8.0).abs() < 1e-9);
        assert!((score.bits_per_byte().unwrap() - 2.0).abs() < 1e-9);
        assert_eq!((Score::default().perplexity(), Score::default().bits_per_byte()), (None, None));
    }

    #[test]
    fn nothing_to_score_scores_nothing_and_what_does_not_fit_is_an_error() {
        let path = path();
        let none = evaluate(&path, &[vec![1, 2, 3], vec![]][..], 8, &[1; 300], &mut || {}).unwrap();
        assert_eq!(none, Score::default());
        assert!(matches!(
            evaluate(&path, &small_set(2)[..], 1, &[1; 7], &mut || {}),
            Err(EvaluateError::TokenBytes { .. })
        ));
        assert!(evaluate(&path, &[vec![1, 999]][..], 0, &[1; 300], &mut || {}).is_err());
    }
}
