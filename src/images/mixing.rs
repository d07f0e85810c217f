//! Mixing two images: a weighted mean (mixup), or a rectangle of the other (CutMix), with the resulting shares.

use rand::{Rng, RngExt};

use crate::images::changes::{plane, row};

/// Mixes another image in. This image keeps `share`; returns the exact share.
pub(super) fn mix_in(pixels: &mut [u8], other: &[u8], share: f64) -> f32 {
    let weight = share as f32;
    let share = f64::from(weight);
    for (own, other) in pixels.iter_mut().zip(other) {
        *own = (f64::from(*own) * share + f64::from(*other) * (1.0 - share) + 0.5) as u8;
    }
    weight
}

/// Pastes a rectangle of another image around a random place, so that this image keeps `share`. Returns the actual
/// share, which is larger if the rectangle crosses the edge.
pub(super) fn paste(pixels: &mut [u8], other: &[u8], side: usize, share: f64, chance: &mut impl Rng) -> f32 {
    let edge = (side as f64 * (1.0 - share).sqrt()) as usize;
    let mut extent = || {
        let middle = chance.random_range(0..row(side) as u32) as usize;
        middle.saturating_sub(edge / 2)..(middle + edge - edge / 2).min(side)
    };
    let (rows, columns) = (extent(), extent());
    for (to, from) in pixels.chunks_exact_mut(plane(side)).zip(other.chunks_exact(plane(side))) {
        let lines = to.chunks_exact_mut(row(side)).zip(from.chunks_exact(row(side)));
        for (to, from) in lines.skip(rows.start).take(rows.len()) {
            to[columns.clone()].copy_from_slice(&from[columns.clone()]);
        }
    }
    (1.0 - (rows.len() * columns.len()) as f64 / plane(side) as f64) as f32
}

/// A draw from Beta(alpha, alpha), `alpha` above 0. Logarithms and powers have the same bits on every machine.
pub(super) fn balanced(alpha: f64, chance: &mut impl Rng) -> f64 {
    if alpha > 1.0 { by_angle(alpha, chance) } else { by_powers(alpha, chance) }
}

/// Above 0, so that its logarithm is finite.
fn uniform(chance: &mut impl Rng) -> f64 {
    1.0 - chance.random::<f64>()
}

/// Jöhnk's method, for small `alpha`.
fn by_powers(alpha: f64, chance: &mut impl Rng) -> f64 {
    loop {
        let [one, other] = [(); 2].map(|()| libm::log(uniform(chance)) / alpha);
        if libm::exp(one) + libm::exp(other) <= 1.0 {
            // The larger of the two is 1 here, so that they do not both underflow.
            let [one, other] = [one, other].map(|power| libm::exp(power - one.max(other)));
            return one / (one + other);
        }
    }
}

/// Ulrich's method, for `alpha` above a half.
fn by_angle(alpha: f64, chance: &mut impl Rng) -> f64 {
    loop {
        let [x, y] = [(); 2].map(|()| 2.0 * chance.random::<f64>() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square <= 1.0 {
            let width = (1.0 - libm::pow(square, 2.0 / (2.0 * alpha - 1.0))).sqrt();
            return 0.5 + x * y / square * width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    const SIDE: usize = 16;
    const BYTES: usize = 3 * SIDE * SIDE;

    #[test]
    fn a_share_is_as_beta_says() {
        for alpha in [0.01, 0.2, 0.5, 1.0, 1.001, 2.0, 8.0, 100.0] {
            let mut chance = Seed::root(1).generator();
            let draws: Vec<f64> = (0..20_000).map(|_| balanced(alpha, &mut chance)).collect();
            assert!(draws.iter().all(|share| (0.0..=1.0).contains(share)));
            let mean = |of: &dyn Fn(f64) -> f64| draws.iter().map(|share| of(*share)).sum::<f64>() / draws.len() as f64;
            let variance = mean(&|share| (share - 0.5) * (share - 0.5));
            let fourth = mean(&|share| (share - 0.5).powi(4));
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            // The fourth moment is 3 / (16 (2 alpha + 1) (2 alpha + 3)).
            let expected_fourth = 3.0 / (16.0 * (2.0 * alpha + 1.0) * (2.0 * alpha + 3.0));
            assert!((mean(&|share| share) - 0.5).abs() < 0.02, "{alpha}");
            assert!((variance / expected - 1.0).abs() < 0.05, "{alpha}: {variance}, not {expected}");
            assert!((fourth / expected_fourth - 1.0).abs() < 0.1, "{alpha}: {fourth}, not {expected_fourth}");
        }
    }

    #[test]
    fn an_image_laid_over_another_has_something_of_both() {
        let mut pixels = vec![100; BYTES];
        assert_eq!(mix_in(&mut pixels, &[200; BYTES], 0.75), 0.75);
        assert_eq!(pixels, [125; BYTES]);
        assert_eq!(mix_in(&mut pixels, &[200; BYTES], 1.0), 1.0);
        assert_eq!(pixels, [125; BYTES]);
        assert_eq!(mix_in(&mut pixels, &[200; BYTES], 0.0), 0.0);
        assert_eq!(pixels, [200; BYTES]);
    }

    #[test]
    fn the_share_of_an_image_with_anothers_rectangle_is_exact() {
        let mut whole_ones = 0;
        for seed in 0..500 {
            let mut chance = Seed::root(seed).generator();
            let wanted: f64 = chance.random();
            let mut pixels = vec![1; BYTES];
            let share = paste(&mut pixels, &[2; BYTES], SIDE, wanted, &mut chance);
            for colour in pixels.chunks(SIDE * SIDE) {
                let kept = colour.iter().filter(|value| **value == 1).count();
                assert_eq!(share, kept as f32 / 256.0);
            }
            assert!(share >= wanted as f32 - 1e-6, "{share}, not {wanted}");
            let edge = (16.0 * (1.0 - wanted).sqrt()) as usize;
            whole_ones += usize::from(share == (256 - edge * edge) as f32 / 256.0);
        }
        assert!(whole_ones > 50, "{whole_ones}");
    }

    #[test]
    fn all_or_nothing_can_be_pasted() {
        let mut chance = Seed::root(1).generator();
        let mut pixels = vec![1; BYTES];
        assert_eq!(paste(&mut pixels, &[2; BYTES], SIDE, 1.0, &mut chance), 1.0);
        assert_eq!(pixels, [1; BYTES]);
        assert_eq!(paste(&mut [], &[], 0, 0.5, &mut chance), 1.0);
        let mut dot = vec![1; 3];
        assert_eq!(paste(&mut dot, &[2; 3], 1, 0.0, &mut chance), 0.0);
        assert_eq!(dot, [2; 3]);
    }
}
