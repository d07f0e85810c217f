//! Initial parameters. The seed of each tensor comes from its name, so the division into levels changes nothing.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::config::model::parts::Initial;
use crate::config::{LevelConfig, ModelConfig, level_tensors};
use crate::seed::Seed;

/// Initial values of each level's buffer. Requires checked levels.
///
/// The creator draws them once and sends them; other machines never need to reproduce them.
pub fn initial_levels(model: &ModelConfig, levels: &[LevelConfig], seed: Seed) -> Vec<Vec<f32>> {
    let seed = seed.child("initial parameters");
    levels
        .iter()
        .map(|level| {
            let mut values = Vec::new();
            for tensor in level_tensors(model, level) {
                let count = tensor.count();
                match tensor.initial {
                    Initial::Ones => values.resize(values.len() + count, 1.0),
                    Initial::Zeros => values.resize(values.len() + count, 0.0),
                    Initial::Constant(value) => values.resize(values.len() + count, value as f32),
                    Initial::Uniform(bound) => {
                        let mut generator = seed.child(&tensor.name).generator();
                        values.extend((0..count).map(|_| generator.random_range(-bound..=bound) as f32));
                    }
                    Initial::Normal(deviation) => {
                        let mut generator = seed.child(&tensor.name).generator();
                        let mut normals = Normals { generator: &mut generator, spare: None };
                        values.extend((0..count).map(|_| (deviation * normals.next()) as f32));
                    }
                    Initial::Truncated(deviation) => {
                        let mut generator = seed.child(&tensor.name).generator();
                        let mut normals = Normals { generator: &mut generator, spare: None };
                        let mut near =
                            std::iter::repeat_with(|| deviation * normals.next()).filter(|value| value.abs() <= 2.0);
                        values.extend(near.by_ref().take(count).map(|value| value as f32));
                    }
                }
            }
            values
        })
        .collect()
}

/// Standard normal numbers by Marsaglia's polar method.
struct Normals<'a> {
    generator: &'a mut ChaCha8Rng,
    spare: Option<f64>,
}

impl Normals<'_> {
    fn next(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (self.generator.random_range(-1.0..1.0), self.generator.random_range(-1.0..1.0));
            let square: f64 = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * scale);
                return x * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ImagesConfig, ModelConfig, Positions};
    use crate::model::samples::{small_levels, small_model};

    #[test]
    fn grouping_into_levels_changes_no_value() {
        let model = small_model();
        let apart = initial_levels(&model, &small_levels(), Seed::root(1));
        let mut whole = small_levels();
        let rest: Vec<String> = whole.drain(1..).flat_map(|level| level.parts).collect();
        whole[0].parts.extend(rest);
        assert_eq!(initial_levels(&model, &whole, Seed::root(1)), [apart.concat()]);
        assert_ne!(initial_levels(&model, &whole, Seed::root(2)), [apart.concat()]);
    }

    #[test]
    fn patches_are_embedded_by_what_a_convolution_starts_with() {
        let images = Some(ImagesConfig { patch: 4 });
        let positions = Positions::Learned;
        let model = ModelConfig { images, positions, context: 3072, tied_head: false, width: 64, ..small_model() };
        let values = &initial_levels(&model, &small_levels(), Seed::root(1))[0][..64 * 48];
        let bound = 1.0 / 48f32.sqrt();
        let furthest = values.iter().fold(0f32, |most, value| most.max(value.abs()));
        let square = values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32;
        assert!(furthest <= bound && furthest > 0.99 * bound, "{furthest}");
        assert!((square / (bound * bound / 3.0) - 1.0).abs() < 0.1, "{square}");
    }

    #[test]
    fn values_have_the_stated_spread() {
        let model = ModelConfig { vocabulary: 4096, width: 64, ..small_model() };
        let values = &initial_levels(&model, &small_levels(), Seed::root(1))[0][..4096 * 64];
        let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / values.len() as f64;
        let stated = if model.tied_head { 0.125 } else { 1.0 };
        assert!(mean.abs() < 1e-2 * stated, "{mean}");
        assert!((square.sqrt() - stated).abs() < 1e-2 * stated, "{}", square.sqrt());
    }
}
