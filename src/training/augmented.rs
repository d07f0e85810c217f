//! The pictures of a step, changed by chance before they are trained on.

use super::batches::{BatchError, BatchLimits, Sequences, picture};
use crate::config::Augment;
use crate::pictures::{Augmented, augmented};
use crate::seed::Seed;

/// Pictures that are like some of a set, but none of them. The same seed makes the same of the same.
pub struct AugmentedPictures {
    /// The bytes of each, and a class behind them.
    sequences: Vec<Vec<u32>>,
    /// The classes that share in each, and their shares.
    classes: Vec<Vec<(u32, f32)>>,
}

impl AugmentedPictures {
    /// Of these pictures, in this order; some may be mixed with the next.
    ///
    /// # Errors
    /// If one is none of the model's.
    pub fn of(
        set: &(impl Sequences + ?Sized),
        chosen: &[usize],
        limits: &BatchLimits,
        (how, seed): (&Augment, Seed),
    ) -> Result<Self, BatchError> {
        let bytes = |index: &usize| {
            let tokens = picture(set.sequence(*index), *index, limits)?;
            let pixels: Vec<u8> = tokens[..limits.context].iter().map(|byte| *byte as u8).collect();
            Ok((pixels, tokens[limits.context]))
        };
        let known: Vec<(Vec<u8>, u32)> = chosen.iter().map(bytes).collect::<Result<_, BatchError>>()?;
        let pictures: Vec<(&[u8], u32)> = known.iter().map(|(pixels, class)| (&pixels[..], *class)).collect();
        let side = (limits.context / 3).isqrt();
        let (mut sequences, mut classes) = (Vec::new(), Vec::new());
        for Augmented { pixels, classes: shares } in augmented(&pictures, side, how, seed) {
            let class = shares.first().map_or(0, |(class, _)| *class);
            sequences.push(pixels.into_iter().map(u32::from).chain([class]).collect());
            classes.push(shares);
        }
        Ok(Self { sequences, classes })
    }
}

impl Sequences for AugmentedPictures {
    fn len(&self) -> usize {
        self.sequences.len()
    }

    fn sequence(&self, index: usize) -> &[u32] {
        &self.sequences[index]
    }

    fn targets(&self, index: usize, _first: usize) -> Vec<(usize, u32)> {
        let last = self.sequences[index].len() - 2;
        self.classes[index].iter().map(|(class, _)| (last, *class)).collect()
    }

    fn weights(&self, index: usize) -> Option<Vec<f32>> {
        Some(self.classes[index].iter().map(|(_, share)| *share).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::batches::Batch;
    use tch::Device;

    const LIMITS: BatchLimits =
        BatchLimits { context: 48, vocabulary: 3, first_target: 48, unscored: 48, pictures: true };

    fn set() -> Vec<Vec<u32>> {
        (0..3u32).map(|class| [vec![class * 100; 48], vec![class]].concat()).collect()
    }

    fn batch(how: &Augment) -> Batch {
        let changed = AugmentedPictures::of(&set()[..], &[2, 0, 1], &LIMITS, (how, Seed::root(5))).unwrap();
        Batch::new(&changed, &[0, 1, 2], &LIMITS, Device::Cpu).unwrap()
    }

    #[test]
    fn what_is_not_changed_is_the_picture_itself() {
        let batch = batch(&Augment::default());
        let firsts: Vec<i64> = Vec::try_from(batch.inputs.select(1, 0)).unwrap();
        assert_eq!((firsts, batch.target_count()), (vec![200, 0, 100], 3));
        assert_eq!(Vec::<i64>::try_from(&batch.targets).unwrap()[..3], [2, 0, 1]);
    }

    #[test]
    fn a_picture_that_is_mixed_has_two_targets_that_count_as_one() {
        let batch = batch(&Augment { mixup: 1.0, ..Augment::default() });
        assert_eq!(batch.target_count(), 3);
        let (rows, targets) = (batch.rows.as_ref().unwrap(), &batch.targets);
        assert_eq!(Vec::<i64>::try_from(rows).unwrap()[..6], [0, 0, 1, 1, 2, 2]);
        assert_eq!(Vec::<i64>::try_from(targets).unwrap()[..6], [2, 0, 0, 1, 1, 2]);
        let weights: Vec<f32> = Vec::try_from(batch.weights.as_ref().unwrap()).unwrap();
        assert!(weights.chunks(2).take(3).all(|pair| (pair[0] + pair[1] - 1.0).abs() < 1e-6), "{weights:?}");
        assert!(weights[6..].iter().all(|weight| *weight == 0.0));
    }
}
