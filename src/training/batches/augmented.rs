//! Data augmentation of the images of a step.

use crate::config::Augment;
use crate::images::{Augmented, augmented};
use crate::seed::Seed;
use crate::training::batches::{BatchError, BatchLimits, Sequences, image};

/// Augmented copies of some images of a set. The same seed gives the same copies.
pub struct AugmentedImages {
    /// The bytes of each image, followed by a class.
    sequences: Vec<Vec<u32>>,
    /// For each image, the classes that it mixes and their shares.
    classes: Vec<Vec<(u32, f32)>>,
}

impl AugmentedImages {
    /// Augments these images, in this order. Images may be mixed with their successor.
    pub fn of(
        set: &(impl Sequences + ?Sized),
        chosen: &[usize],
        limits: &BatchLimits,
        (how, seed): (&Augment, Seed),
    ) -> Result<Self, BatchError> {
        let bytes = |index: &usize| {
            let tokens = image(set.sequence(*index), *index, limits)?;
            let pixels: Vec<u8> = tokens[..limits.context].iter().map(|byte| *byte as u8).collect();
            Ok((pixels, tokens[limits.context]))
        };
        let known: Vec<(Vec<u8>, u32)> = chosen.iter().map(bytes).collect::<Result<_, BatchError>>()?;
        let images: Vec<(&[u8], u32)> = known.iter().map(|(pixels, class)| (&pixels[..], *class)).collect();
        let side = (limits.context / 3).isqrt();
        let (mut sequences, mut classes) = (Vec::new(), Vec::new());
        for Augmented { pixels, classes: shares } in augmented(&images, side, how, seed) {
            let class = shares.first().map_or(0, |(class, _)| *class);
            sequences.push(pixels.into_iter().map(u32::from).chain([class]).collect());
            classes.push(shares);
        }
        Ok(Self { sequences, classes })
    }
}

impl Sequences for AugmentedImages {
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
    use crate::config::{ImagesConfig, MachineConfig, Positions, RunConfig};
    use crate::model::initial_levels;
    use crate::training::batches::{Batch, BatchOrder};
    use crate::training::samples::small_run;
    use crate::training::{InnerTrainer, StepReport};
    use tch::Device;

    const LIMITS: BatchLimits =
        BatchLimits { context: 48, vocabulary: 3, first_target: 48, unscored: 48, images: true };

    fn set() -> Vec<Vec<u32>> {
        (0..3u32).map(|class| [vec![class * 100; 48], vec![class]].concat()).collect()
    }

    fn batch(how: &Augment) -> Batch {
        let changed = AugmentedImages::of(&set()[..], &[2, 0, 1], &LIMITS, (how, Seed::root(5))).unwrap();
        Batch::new(&changed, &[0, 1, 2], &LIMITS, Device::Cpu).unwrap()
    }

    #[test]
    fn what_is_not_changed_is_the_image_itself() {
        let batch = batch(&Augment::default());
        let firsts: Vec<i64> = Vec::try_from(batch.inputs.select(1, 0)).unwrap();
        assert_eq!((firsts, batch.target_count()), (vec![200, 0, 100], 3));
        assert_eq!(Vec::<i64>::try_from(&batch.targets).unwrap()[..3], [2, 0, 1]);
    }

    #[test]
    fn an_image_that_is_mixed_has_two_targets_that_count_as_one() {
        let batch = batch(&Augment { mixup: 1.0, ..Augment::default() });
        assert_eq!(batch.target_count(), 3);
        let (rows, targets) = (batch.rows.as_ref().unwrap(), &batch.targets);
        assert_eq!(Vec::<i64>::try_from(rows).unwrap()[..6], [0, 0, 1, 1, 2, 2]);
        assert_eq!(Vec::<i64>::try_from(targets).unwrap()[..6], [2, 0, 0, 1, 1, 2]);
        let weights: Vec<f32> = Vec::try_from(batch.weights.as_ref().unwrap()).unwrap();
        assert!(weights.chunks(2).take(3).all(|pair| (pair[0] + pair[1] - 1.0).abs() < 1e-6), "{weights:?}");
        assert!(weights[6..].iter().all(|weight| *weight == 0.0));
    }

    /// Three classes of images of 4 x 4 pixels, four a step, with all changes.
    fn run() -> RunConfig {
        let mut run = small_run();
        run.model.images = Some(ImagesConfig { patch: 2 });
        (run.model.positions, run.model.vocabulary, run.routing.prefix_tokens) = (Positions::Learned, 3, 48);
        let augment = Augment { crop: 1, flip: true, jitter: 0.2, erase: 0.5, mixup: 0.5, cutmix: 1.0 };
        run.training.augment = Some(augment);
        run.check().unwrap();
        run
    }

    fn images() -> Vec<Vec<u32>> {
        let byte = |image: u32, at: u32| (image * 53 + at * at * 7 + (image % 3) * 40) % 256;
        (0..10).map(|image| (0..48).map(|at| byte(image, at)).chain([image % 3]).collect()).collect()
    }

    fn trainer(run: &RunConfig, micro_batch_sequences: usize) -> InnerTrainer {
        let machine = MachineConfig { micro_batch_sequences, threads: 1, ..MachineConfig::default() };
        let mut trainer = InnerTrainer::new(run, &machine, Device::Cpu).unwrap();
        trainer.load(&initial_levels(&run.model, &run.levels, Seed::root(1))).unwrap();
        trainer
    }

    fn steps(trainer: &mut InnerTrainer, steps: std::ops::Range<u64>) -> Vec<StepReport> {
        let (set, order) = (images(), BatchOrder { seed: Seed::root(4), sequences: 10 });
        steps.map(|step| trainer.step(&set[..], &order, step).unwrap()).collect()
    }

    #[test]
    fn whoever_goes_on_changes_images_as_whoever_never_stopped() {
        let run = run();
        let mut through = trainer(&run, 0);
        let expected = steps(&mut through, 0..6);
        let mut first = trainer(&run, 0);
        steps(&mut first, 0..3);
        let mut second = trainer(&run, 0);
        second.load(&first.levels().unwrap()).unwrap();
        second.restore(&first.state().unwrap()).unwrap();
        assert_eq!(steps(&mut second, 3..6), expected[3..]);
        assert!(second.levels().unwrap() == through.levels().unwrap());
        // Four patches an image.
        assert!(expected.iter().all(|report| report.tokens == 16));
    }

    #[test]
    fn images_are_mixed_alike_whatever_the_micro_batch_and_otherwise_each_time() {
        let run = run();
        let losses = [0, 1, 3].map(|micro| steps(&mut trainer(&run, micro), 0..1)[0].loss);
        assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 1e-5), "{losses:?}");
        // The same four images in the first and in the sixth epoch.
        let (set, order) = (images(), BatchOrder { seed: Seed::root(4), sequences: 10 });
        let at = |cursor: u64| {
            let chosen = order.epoch(0)[..4].to_vec();
            let seed = order.seed.child("augment").number(cursor);
            let how = run.training.augment.as_ref().unwrap();
            AugmentedImages::of(&set[..], &chosen, &BatchLimits::of(&run.model), (how, seed)).unwrap().sequences
        };
        assert_eq!(at(0), at(0));
        assert_ne!(at(0), at(50));
    }
}
