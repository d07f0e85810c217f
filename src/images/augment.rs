//! Data augmentation: random changes of the images of a step, so that no image occurs twice alike.

use rand::{Rng, RngExt};

use crate::config::Augment;
use crate::images::changes::{cropped, erase, flip, jitter};
use crate::images::mixing::{balanced, mix_in, paste};
use crate::seed::Seed;

/// A changed image.
#[derive(Clone, Debug, PartialEq)]
pub struct Augmented {
    /// Planar, of the original size.
    pub pixels: Vec<u8>,
    /// Classes and their weights, which sum to 1. Two if another image is mixed in.
    pub classes: Vec<(u32, f32)>,
}

impl Augment {
    /// Changes of a single image: crop, mirror, jitter, erase.
    fn change(&self, pixels: &[u8], side: usize, chance: &mut impl Rng) -> Vec<u8> {
        let mut pixels = if self.crop > 0 { cropped(pixels, side, self.crop, chance) } else { pixels.to_vec() };
        if self.flip && chance.random() {
            flip(&mut pixels, side);
        }
        if self.jitter > 0.0 {
            jitter(&mut pixels, self.jitter, chance);
        }
        if self.erase > 0.0 && chance.random::<f64>() < self.erase {
            erase(&mut pixels, side, chance);
        }
        pixels
    }

    /// Mixes another image in, if enabled. Returns the weight of this image. A generator in the same state mixes in the
    /// same way, by the same share, at the same place.
    fn mix(&self, pixels: &mut [u8], other: &[u8], side: usize, chance: &mut impl Rng) -> Option<f32> {
        let laid_over = match (self.mixup > 0.0, self.cutmix > 0.0) {
            (false, false) => return None,
            (true, true) => chance.random(),
            (mixup, _) => mixup,
        };
        Some(match laid_over {
            true => mix_in(pixels, other, balanced(self.mixup, chance)),
            false => paste(pixels, other, side, balanced(self.cutmix, chance), chance),
        })
    }
}

/// Changes images of this side, each with its class. Each image has its own generator for its own changes. It is mixed
/// with its successor, before that one is mixed itself; the last with the first. All are mixed alike (DNA paper,
/// appendix A.1). The same seed gives the same bytes on every machine.
pub fn augmented(images: &[(&[u8], u32)], side: usize, how: &Augment, seed: Seed) -> Vec<Augmented> {
    let change = |(index, (pixels, class)): (u64, &(&[u8], u32))| {
        (how.change(pixels, side, &mut seed.number(index).generator()), *class)
    };
    let changed: Vec<_> = (0..).zip(images).map(change).collect();
    let mixed = |(index, (pixels, class)): (usize, &(Vec<u8>, u32))| {
        let (mut pixels, mut chance) = (pixels.clone(), seed.child("mix").generator());
        let (other, its_class) = &changed[(index + 1) % changed.len()];
        let weight = if changed.len() > 1 { how.mix(&mut pixels, other, side, &mut chance) } else { None };
        let classes = match weight {
            Some(weight) if class != its_class => vec![(*class, weight), (*its_class, 1.0 - weight)],
            _ => vec![(*class, 1.0)],
        };
        Augmented { pixels, classes }
    };
    changed.iter().enumerate().map(mixed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDE: usize = 8;

    /// Images that differ in every pixel, with one class each.
    fn batch(count: u32) -> Vec<(Vec<u8>, u32)> {
        let pixels = |image: u32| (0..3 * SIDE * SIDE).map(|at| (at * 7 + image as usize * 50) as u8).collect();
        (0..count).map(|image| (pixels(image), image)).collect()
    }

    fn changed(batch: &[(Vec<u8>, u32)], how: &Augment, seed: u64) -> Vec<Augmented> {
        how.check(SIDE).unwrap();
        let images: Vec<(&[u8], u32)> = batch.iter().map(|(pixels, class)| (pixels.as_slice(), *class)).collect();
        augmented(&images, SIDE, how, Seed::root(seed))
    }

    fn all() -> Augment {
        Augment { crop: 2, flip: true, jitter: 0.4, erase: 0.5, mixup: 0.8, cutmix: 1.0 }
    }

    #[test]
    fn with_nothing_on_nothing_changes() {
        let batch = batch(3);
        for (image, (pixels, class)) in changed(&batch, &Augment::default(), 1).iter().zip(&batch) {
            assert_eq!(image, &Augmented { pixels: pixels.clone(), classes: vec![(*class, 1.0)] });
        }
        assert!(changed(&[], &all(), 1).is_empty());
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_on_every_machine() {
        let made = changed(&batch(6), &all(), 5);
        assert_eq!(made, changed(&batch(6), &all(), 5));
        assert_ne!(made, changed(&batch(6), &all(), 6));
        let mut hash = blake3::Hasher::new();
        for image in &made {
            hash.update(&image.pixels);
            for (class, weight) in &image.classes {
                hash.update(&class.to_le_bytes()).update(&weight.to_le_bytes());
            }
        }
        assert_eq!(hash.finalize().to_hex()[..16], *"ef13d92da89d78b0");
    }

    #[test]
    fn a_batch_is_mixed_in_one_way_and_by_one_share() {
        let both = Augment { mixup: 0.8, cutmix: 1.0, ..Augment::default() };
        let (mut shares, batch) = (Vec::new(), batch(5));
        for seed in 0..50 {
            let made = changed(&batch, &both, seed);
            assert!(made.iter().all(|image| image.classes[0].1 == made[0].classes[0].1), "{seed}");
            let kept = |image: usize| made[image].pixels.iter().zip(&batch[image].0).map(|(a, b)| a == b);
            assert!(made[0].classes[0].1 > 0.9 || (1..5).all(|image| kept(image).eq(kept(0))), "at one place");
            shares.push(made[0].classes[0].1);
        }
        shares.dedup();
        assert!(shares.len() > 45);
    }

    #[test]
    fn sizes_stay_and_weights_sum_to_one() {
        for seed in 0..200 {
            for (index, image) in (0..).zip(changed(&batch(5), &all(), seed)) {
                assert_eq!(image.pixels.len(), 3 * SIDE * SIDE);
                let [(own, weight), (other, rest)] = image.classes[..] else { panic!("{:?}", image.classes) };
                assert_eq!((own, other), (index, (index + 1) % 5));
                assert!(weight + rest == 1.0 && (0.0..=1.0).contains(&weight), "{weight} and {rest}");
            }
        }
    }

    #[test]
    fn two_images_of_one_class_keep_one_entry_and_a_lone_one_is_not_mixed() {
        let mixing = Augment { mixup: 1.0, ..Augment::default() };
        let same: Vec<_> = batch(3).into_iter().map(|(pixels, _)| (pixels, 4)).collect();
        for (image, (pixels, _)) in changed(&same, &mixing, 1).iter().zip(&same) {
            assert_eq!(image.classes, [(4, 1.0)]);
            assert_ne!(&image.pixels, pixels);
        }
        assert_eq!(changed(&batch(1), &mixing, 1)[0].pixels, batch(1)[0].0);
    }

    #[test]
    fn an_image_is_mixed_with_what_the_next_one_has_become() {
        let alone = Augment { mixup: 0.0, cutmix: 0.0, ..all() };
        let pasting = Augment { cutmix: 1.0, ..alone.clone() };
        let (unmixed, mixed) = (changed(&batch(4), &alone, 3), changed(&batch(4), &pasting, 3));
        for (index, image) in mixed.iter().enumerate() {
            let (own, other) = (&unmixed[index].pixels, &unmixed[(index + 1) % 4].pixels);
            assert!(image.pixels.iter().zip(own.iter().zip(other)).all(|(it, (own, other))| it == own || it == other));
        }
    }

    #[test]
    fn half_of_the_images_are_mirrored_and_half_are_laid_over_where_both_ways_are_on() {
        let flipping = Augment { flip: true, ..Augment::default() };
        let mirrored = (0..1000).filter(|seed| changed(&batch(1), &flipping, *seed)[0].pixels != batch(1)[0].0).count();
        assert!((430..570).contains(&mirrored), "{mirrored}");
        let both = Augment { mixup: 1.0, cutmix: 1.0, ..Augment::default() };
        let two = batch(2);
        let is_pasted = |image: &Augmented| {
            let sources = two[0].0.iter().zip(&two[1].0);
            image.pixels.iter().zip(sources).all(|(it, (own, other))| it == own || it == other)
        };
        let pasted = (0..1000).filter(|seed| is_pasted(&changed(&two, &both, *seed)[0])).count();
        assert!((430..570).contains(&pasted), "{pasted}");
    }

    #[test]
    fn a_key_that_there_is_not_is_refused() {
        assert_eq!(toml::from_str::<Augment>("flip = true").unwrap(), Augment { flip: true, ..Augment::default() });
        assert!(toml::from_str::<Augment>("colour = 3").is_err());
    }
}
