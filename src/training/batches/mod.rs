//! Which sequences a step trains on, and their layout in tensors.
//!
//! The order is a seeded shuffle of each epoch. The position is one number, the sequences taken so far, so that a stop
//! and resume changes nothing. Sequences have different lengths. For inner steps of most networks they lie one after
//! another in a single row ([`Batch::for_step`]). Otherwise a batch is padded at the end to its longest sequence; causal
//! attention hides padding from real tokens. Padding is dropped before the head either way.

pub mod augmented;
pub mod marked;
#[cfg(test)]
mod masked_tests;
#[cfg(test)]
mod packed_tests;

use rand::seq::SliceRandom;
use tch::{Device, TchError, Tensor};

use crate::config::ModelConfig;
use crate::model::PathModel;
use crate::model::layers::packed::Packed;
use crate::seed::Seed;
use crate::text::{TokenSet, is_image};

/// Padded lengths are multiples of this, so that libtorch prepares kernels for few shapes.
const LENGTH_STEP: usize = 32;

/// Rows of the head's input are padded to a multiple of this, which its kernel wants.
const ROW_STEP: usize = 16;

/// The target of a row that is not scored.
pub(crate) const IGNORED: i64 = -100;

#[expect(clippy::len_without_is_empty, reason = "nobody asks")]
pub trait Sequences {
    fn len(&self) -> usize;

    fn sequence(&self, index: usize) -> &[u32];

    /// Whether a sequence is the first of its document. Its first tokens have then chosen the path, and are not scored.
    fn begins_document(&self, _index: usize) -> bool {
        true
    }

    /// The targets of a sequence, in order: pairs of a position and the token to predict after it. By default each
    /// token from `first` on, with `first` at least 1.
    fn targets(&self, index: usize, first: usize) -> Vec<(usize, u32)> {
        let tokens = self.sequence(index).iter().enumerate().skip(first);
        tokens.map(|(position, token)| (position - 1, *token)).collect()
    }

    /// Weights of a sequence's targets, if several share one prediction; `None` if all are 1.
    fn weights(&self, _index: usize) -> Option<Vec<f32>> {
        None
    }
}

impl Sequences for TokenSet {
    fn len(&self) -> usize {
        self.len()
    }

    fn sequence(&self, index: usize) -> &[u32] {
        self.sequence(index)
    }

    fn begins_document(&self, index: usize) -> bool {
        self.begins_document(index)
    }

    fn targets(&self, index: usize, first: usize) -> Vec<(usize, u32)> {
        let tokens = self.sequence(index).iter().enumerate().skip(first);
        let learnt = tokens.filter(|(position, _)| self.is_learnt(index, *position));
        learnt.map(|(position, token)| (position - 1, *token)).collect()
    }
}

impl Sequences for [Vec<u32>] {
    fn len(&self) -> usize {
        self.len()
    }

    fn sequence(&self, index: usize) -> &[u32] {
        &self[index]
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    #[error("the shard has no sequences to train on")]
    NoSequences,
    #[error("the batch order is for {expected} sequences, found {found}")]
    Sequences { expected: usize, found: usize },
    #[error("sequence {sequence} has {found} tokens, more than the context of {context}")]
    TooLong { sequence: usize, found: usize, context: usize },
    #[error("sequence {sequence}: token {token} is outside the vocabulary of {vocabulary}")]
    Token { sequence: usize, token: u32, vocabulary: usize },
    #[error(
        "sequence {sequence} is not an image of this model: expected {bytes} bytes and then a class below {classes}, \
         found {found} values"
    )]
    Image { sequence: usize, found: usize, bytes: usize, classes: usize },
    #[error("batch: {0}")]
    Tensor(#[from] TchError),
}

/// The order in which a path's training takes its sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOrder {
    /// Root of the shuffles.
    pub seed: Seed,
    pub sequences: usize,
}

impl BatchOrder {
    /// The shuffled indices of an epoch.
    pub fn epoch(&self, number: u64) -> Vec<usize> {
        let mut indices: Vec<usize> = (0..self.sequences).collect();
        indices.shuffle(&mut self.seed.number(number).generator());
        indices
    }
}

/// Takes batches in an order. It caches the shuffle of the present epoch, which order and position determine.
#[derive(Default)]
pub struct BatchCursor {
    epoch: Option<(BatchOrder, u64, Vec<usize>)>,
}

impl BatchCursor {
    /// The `count` indices from position `cursor` on, across epochs if needed.
    pub fn take(&mut self, order: &BatchOrder, cursor: u64, count: usize) -> Result<Vec<usize>, BatchError> {
        if order.sequences == 0 {
            return Err(BatchError::NoSequences);
        }
        let size = order.sequences as u64;
        let mut taken = Vec::with_capacity(count);
        for position in (0..count as u64).map(|offset| cursor.wrapping_add(offset)) {
            let epoch = position / size;
            if !self.epoch.as_ref().is_some_and(|(known, number, _)| known == order && *number == epoch) {
                self.epoch = Some((*order, epoch, order.epoch(epoch)));
            }
            taken.extend(self.epoch.as_ref().map(|(_, _, indices)| indices[(position % size) as usize]));
        }
        Ok(taken)
    }
}

/// The limits of a model for its batches.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Longest sequence.
    pub context: usize,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// In the first sequence of a document, targets begin at this index.
    pub first_target: usize,
    /// In every sequence, targets begin at this index, and never at 0.
    pub unscored: usize,
    /// Whether sequences are images: bytes and a class below `vocabulary`.
    pub images: bool,
}

impl BatchLimits {
    /// The limits of a model, with all possible tokens as targets.
    pub fn of(model: &ModelConfig) -> Self {
        let ModelConfig { context, vocabulary, .. } = *model;
        let images = model.reads_images();
        Self { context, vocabulary, first_target: 1, unscored: model.unscored_tokens(), images }
    }

    /// The index of a sequence's first target.
    pub fn first_target(&self, set: &(impl Sequences + ?Sized), index: usize) -> usize {
        let first = if set.begins_document(index) { self.first_target } else { 1 };
        first.max(self.unscored).max(1)
    }
}

/// Some sequences as tensors.
pub struct Batch {
    /// `[sequences, time]`, each sequence without its last token, padded; or `[1, tokens]`, packed.
    pub inputs: Tensor,
    /// Length of each sequence's inputs without padding, `[sequences]`.
    pub lengths: Tensor,
    /// Where the sequences lie, if they are packed.
    pub packed: Option<Packed>,
    /// Rows of the flattened inputs that have a target, padded; `None` if all have one, in order.
    pub rows: Option<Tensor>,
    /// The target of each such row, in the order of sequences; [`IGNORED`] for padding.
    pub targets: Tensor,
    /// Weight of each such row; `None` if all are 1.
    pub weights: Option<Tensor>,
    /// Number of real targets of each sequence.
    pub counts: Vec<usize>,
}

impl Batch {
    /// Lays out the chosen sequences, each in a row, padded.
    pub fn new(
        set: &(impl Sequences + ?Sized),
        chosen: &[usize],
        limits: &BatchLimits,
        device: Device,
    ) -> Result<Self, BatchError> {
        Self::laid_out(set, chosen, limits, (device, false))
    }

    /// Lays out the chosen sequences for an inner step: packed if the network can read them so, which spares it the
    /// padding. The loss and its gradients are those of [`Batch::new`] but for rounding.
    pub fn for_step(
        set: &(impl Sequences + ?Sized),
        chosen: &[usize],
        limits: &BatchLimits,
        model: &PathModel,
    ) -> Result<Self, BatchError> {
        Self::laid_out(set, chosen, limits, (model.device(), model.packs()))
    }

    fn laid_out(
        set: &(impl Sequences + ?Sized),
        chosen: &[usize],
        limits: &BatchLimits,
        (device, packs): (Device, bool),
    ) -> Result<Self, BatchError> {
        let sequences: Vec<&[u32]> =
            chosen.iter().map(|index| checked(set, *index, limits)).collect::<Result<_, _>>()?;
        let sizes: Vec<usize> = sequences.iter().map(|tokens| tokens.len().saturating_sub(1)).collect();
        let packed = packs.then(|| Packed::of(&sizes, device)).transpose()?;
        let longest = sizes.iter().copied().max().unwrap_or(0).max(1);
        let (height, time) = match &packed {
            Some(packed) => (1, packed.tokens()),
            None => (sizes.len(), longest.next_multiple_of(LENGTH_STEP).min(limits.context.max(longest))),
        };
        let mut inputs = vec![0i64; height * time];
        let (mut rows, mut targets, mut counts, mut weights) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for (row, (tokens, index)) in sequences.iter().zip(chosen).enumerate() {
            let inner = &tokens[..sizes[row]];
            inputs[start..start + inner.len()].iter_mut().zip(inner).for_each(|(to, from)| *to = i64::from(*from));
            let scored = set.targets(*index, limits.first_target(set, *index));
            // An image has one prediction.
            let of_target = |position: usize| if limits.images { row } else { start + position };
            rows.extend(scored.iter().map(|(position, _)| of_target(*position) as i64));
            targets.extend(scored.iter().map(|(_, token)| i64::from(*token)));
            let shared = set.weights(*index);
            counts.push(if shared.is_some() { 1 } else { scored.len() });
            weights.extend(shared.into_iter().flatten());
            start += if packs { inner.len() } else { time };
        }
        let all = if limits.images { sizes.len() } else { height * time };
        // As many targets as rows may still be several in some rows and none in others.
        let in_order = rows.iter().copied().eq(0..all as i64);
        let every_row = weights.is_empty() && in_order && rows.len().is_multiple_of(ROW_STEP);
        let padded = rows.len().next_multiple_of(ROW_STEP);
        if !every_row {
            rows.resize(padded, 0);
            targets.resize(padded, IGNORED);
        }
        let lengths: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
        let place = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        Ok(Self {
            inputs: place(&inputs)?.f_view([height as i64, time as i64])?,
            lengths: place(&lengths)?,
            packed,
            rows: if every_row { None } else { Some(place(&rows)?) },
            targets: place(&targets)?,
            weights: shares(weights, padded, device)?,
            counts,
        })
    }

    pub fn target_count(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The rows of `[sequences, time, width]` hidden states that have a target, `[rows, width]`. `[1, tokens, width]` if
    /// they are packed.
    pub fn scored_rows(&self, hidden: &Tensor) -> Result<Tensor, TchError> {
        let flat = hidden.f_flatten(0, 1)?;
        match &self.rows {
            Some(rows) => flat.f_index_select(0, rows),
            None => Ok(flat),
        }
    }
}

/// Weights of rows, padded; `None` if all are 1.
fn shares(mut weights: Vec<f32>, padded: usize, device: Device) -> Result<Option<Tensor>, TchError> {
    if weights.is_empty() {
        return Ok(None);
    }
    weights.resize(padded, 0.0);
    Ok(Some(Tensor::f_from_slice(&weights)?.f_to_device(device)?))
}

fn checked<'a>(
    set: &'a (impl Sequences + ?Sized),
    index: usize,
    limits: &BatchLimits,
) -> Result<&'a [u32], BatchError> {
    if index >= set.len() {
        return Err(BatchError::Sequences { expected: index + 1, found: set.len() });
    }
    let tokens = set.sequence(index);
    if limits.images {
        return image(tokens, index, limits);
    }
    if tokens.len() > limits.context + 1 {
        return Err(BatchError::TooLong { sequence: index, found: tokens.len(), context: limits.context });
    }
    match tokens.iter().find(|token| **token as usize >= limits.vocabulary) {
        Some(token) => Err(BatchError::Token { sequence: index, token: *token, vocabulary: limits.vocabulary }),
        None => Ok(tokens),
    }
}

/// A sequence, if it is an image for the model.
pub(super) fn image<'a>(tokens: &'a [u32], sequence: usize, limits: &BatchLimits) -> Result<&'a [u32], BatchError> {
    let (bytes, classes) = (limits.context, limits.vocabulary);
    match is_image(tokens, bytes, classes) {
        true => Ok(tokens),
        false => Err(BatchError::Image { sequence, found: tokens.len(), bytes, classes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BatchLimits =
        BatchLimits { context: 64, vocabulary: 300, first_target: 0, unscored: 0, images: false };

    /// Sixteen targets at one place.
    struct Often(Vec<u32>);

    impl Sequences for Often {
        fn len(&self) -> usize {
            1
        }

        fn sequence(&self, _: usize) -> &[u32] {
            &self.0
        }

        fn targets(&self, _: usize, _: usize) -> Vec<(usize, u32)> {
            vec![(3, 7); 16]
        }
    }

    #[test]
    fn as_many_targets_as_tokens_are_not_taken_for_one_after_each() {
        let set = Often((0..17).collect());
        for packs in [true, false] {
            let limits = BatchLimits { context: 16, ..LIMITS };
            let batch = Batch::laid_out(&set, &[0], &limits, (Device::Cpu, packs)).unwrap();
            let rows: Vec<i64> = Vec::try_from(batch.rows.expect("chosen rows")).unwrap();
            assert_eq!(rows, [3; 16]);
        }
    }

    fn order(sequences: usize) -> BatchOrder {
        BatchOrder { seed: Seed::root(7), sequences }
    }

    fn values(tensor: &Tensor) -> Vec<i64> {
        Vec::try_from(tensor.flatten(0, -1)).unwrap()
    }

    #[test]
    fn an_epoch_takes_each_sequence_once_and_the_next_in_another_order() {
        let mut cursor = BatchCursor::default();
        let two = cursor.take(&order(20), 0, 40).unwrap();
        let (first, second) = two.split_at(20);
        let sorted = |part: &[usize]| {
            let mut part = part.to_vec();
            part.sort_unstable();
            part
        };
        assert_eq!(sorted(first), (0..20).collect::<Vec<_>>());
        assert_eq!(sorted(second), sorted(first));
        assert_ne!(first, second);
    }

    #[test]
    fn a_position_gives_the_same_batch_wherever_one_comes_from() {
        let mut walked = BatchCursor::default();
        let all: Vec<usize> = (0..10).flat_map(|step| walked.take(&order(7), step * 3, 3).unwrap()).collect();
        for position in [20, 3, 13] {
            let jumped = BatchCursor::default().take(&order(7), position, 3).unwrap();
            assert_eq!(jumped, all[position as usize..position as usize + 3]);
        }
        assert!(walked.take(&order(7), u64::MAX, 3).is_ok());
    }

    #[test]
    fn padding_has_no_targets() {
        let set = [vec![1, 2, 3], (0..40).collect::<Vec<u32>>(), vec![9]];
        let batch = Batch::new(&set[..], &[0, 1, 2], &LIMITS, Device::Cpu).unwrap();
        assert_eq!(batch.inputs.size(), [3, 64]);
        assert_eq!(batch.counts, [2, 39, 0]);
        let (rows, targets) = (values(batch.rows.as_ref().unwrap()), values(&batch.targets));
        assert_eq!((rows[0], rows[1], rows[2]), (0, 1, 64));
        assert_eq!((targets[0], targets[1], targets[2]), (2, 3, 1));
        assert_eq!(targets.len(), 48);
        assert!(targets[41..].iter().all(|target| *target == IGNORED));
    }

    #[test]
    fn a_full_batch_needs_no_selection() {
        let set = vec![(0..33).collect::<Vec<u32>>(); 2];
        let batch = Batch::new(&set[..], &[0, 1], &LIMITS, Device::Cpu).unwrap();
        assert!(batch.rows.is_none());
        assert_eq!(batch.inputs.size(), [2, 32]);
        assert_eq!(batch.target_count(), 64);
    }

    #[test]
    fn a_prefix_is_read_but_not_scored() {
        let set = [vec![1, 2, 3, 4, 5]];
        let limits = BatchLimits { first_target: 3, ..LIMITS };
        let batch = Batch::new(&set[..], &[0], &limits, Device::Cpu).unwrap();
        assert_eq!(batch.counts, [2]);
        assert_eq!(values(batch.rows.as_ref().unwrap())[..2], [2, 3]);
        assert_eq!(values(&batch.targets)[..2], [4, 5]);
    }

    #[test]
    fn an_image_has_one_target_behind_its_bytes() {
        let limits = BatchLimits { context: 12, vocabulary: 5, first_target: 12, unscored: 12, images: true };
        let set = [[vec![255; 12], vec![4]].concat(), [vec![0; 12], vec![0]].concat()];
        let batch = Batch::new(&set[..], &[1, 0], &limits, Device::Cpu).unwrap();
        assert_eq!((batch.inputs.size(), batch.counts.clone()), (vec![2, 12], vec![1, 1]));
        assert_eq!(values(batch.rows.as_ref().unwrap())[..2], [0, 1]);
        assert_eq!(values(&batch.targets)[..3], [0, 4, IGNORED]);
        for wrong in [[vec![256; 12], vec![0]].concat(), [vec![1; 12], vec![5]].concat(), vec![1; 12], vec![1; 14]] {
            let found = Batch::new(&[wrong][..], &[0], &limits, Device::Cpu).err().unwrap();
            assert!(matches!(found, BatchError::Image { bytes: 12, classes: 5, .. }), "{found}");
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let take = |tokens: Vec<u32>| Batch::new(&[tokens][..], &[0], &LIMITS, Device::Cpu).err().unwrap();
        assert!(matches!(take(vec![1, 300]), BatchError::Token { token: 300, .. }));
        assert!(matches!(take(vec![1; 66]), BatchError::TooLong { found: 66, .. }));
        assert!(matches!(BatchCursor::default().take(&order(0), 0, 1), Err(BatchError::NoSequences)));
        assert!(Batch::new(&[][..] as &[Vec<u32>], &[0], &LIMITS, Device::Cpu).is_err());
    }
}
