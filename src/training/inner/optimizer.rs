//! The inner optimiser: which rule acts on which tensor, with gradients clipped by the norm of all together.
//!
//! AdamW acts on every tensor, or with [Muon](super::muon) on all but the matrices of blocks. Norms and biases do not
//! decay. Muon keeps a matrix's momentum where AdamW keeps its first moment, and has no second one. The encoded state of a
//! trainer has zeros there, so that it has one layout for both.

use rayon::ThreadPool;
use tch::{Device, TchError, Tensor};

use crate::config::{MomentFormat, Optimizer, TrainingConfig};
use crate::model::fused::FusedAdamW;
use crate::model::weights::{Leaf, Weights};
use crate::training::inner::adamw::AdamW;
use crate::training::inner::moments::rounding::Rounding;
use crate::training::inner::moments::store::{CHUNK, Store};
use crate::training::inner::moments::{Moments, TensorMoments};
use crate::training::inner::muon::MuonStep;

/// The values that change from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepNow {
    /// Counts from 1, for the bias correction of the moments.
    pub number: u64,
    /// Norm of all gradients, from [`norm`](super::adamw::norm).
    pub norm: f64,
    pub learning_rate: f64,
}

/// What is done to one tensor.
struct Treatment {
    shape: Vec<i64>,
    decays: bool,
    /// The matrices for Muon; empty where AdamW acts.
    matrices: Vec<usize>,
}

pub struct InnerOptimizer {
    adamw: AdamW,
    weight_decay: f64,
    clip_norm: f64,
    /// By level, in the order of its buffer.
    levels: Vec<Vec<Treatment>>,
}

impl Treatment {
    fn of(leaf: &Leaf, training: &TrainingConfig) -> Self {
        let (shape, embedding) = (leaf.tensor.size(), leaf.name.starts_with("embedding."));
        Self {
            decays: shape.len() > 1 && (training.decay_embeddings || !embedding),
            matrices: match training.optimizer {
                Optimizer::AdamW => Vec::new(),
                Optimizer::Muon => leaf.matrices.clone(),
            },
            shape,
        }
    }

    fn count(&self) -> i64 {
        self.shape.iter().product()
    }

    /// The share of its parameters that decay leaves before a step of AdamW; none where Muon acts.
    fn kept(&self, keep: f64) -> Option<f32> {
        self.matrices.is_empty().then_some(if self.decays { keep as f32 } else { 1.0 })
    }
}

impl InnerOptimizer {
    pub fn new(training: &TrainingConfig, weights: &Weights) -> Self {
        let treatments = |leaves: &[Leaf]| leaves.iter().map(|leaf| Treatment::of(leaf, training)).collect();
        Self {
            adamw: AdamW { betas: training.betas, epsilon: training.epsilon },
            weight_decay: training.weight_decay,
            clip_norm: training.clip_norm,
            levels: weights.leaves().map(treatments).collect(),
        }
    }

    /// The gradients of a level's tensors, from those of its flat buffer.
    pub fn by_tensor(&self, level: usize, flat: &Tensor) -> Result<Vec<Tensor>, TchError> {
        let sizes: Vec<i64> = self.levels[level].iter().map(Treatment::count).collect();
        flat.f_split_with_sizes(sizes.as_slice(), 0)
    }

    /// The moments before the first step, by level.
    pub fn moments(&self, format: MomentFormat, device: Device) -> Result<Vec<Moments>, TchError> {
        let zeros = |tensor: &Treatment| {
            TensorMoments::zeros(tensor.count() as usize, tensor.matrices.is_empty(), format, device)
        };
        self.levels.iter().map(|level| Ok(Moments(level.iter().map(zeros).collect::<Result<_, _>>()?))).collect()
    }

    /// Updates every level, except parameters that are not trained, which do not decay either. `gradients` has each
    /// level's gradients, by tensor in the order of its buffer.
    pub fn update(
        &self,
        pool: &ThreadPool,
        weights: &mut Weights,
        moments: &mut [Moments],
        gradients: &[Vec<Tensor>],
        now: StepNow,
    ) -> Result<(), TchError> {
        let clip = (self.clip_norm / (now.norm + 1e-6)).min(1.0);
        let keep = 1.0 - now.learning_rate * self.weight_decay;
        let adamw = self.adamw.step(now.number, clip, now.learning_rate);
        let muon = MuonStep { clip, learning_rate: now.learning_rate, keep };
        for (level, (Moments(moments), gradients)) in moments.iter_mut().zip(gradients).enumerate() {
            let fixed = weights.fixed(level)?;
            let (treatments, flat) = (&self.levels[level], weights.flat_mut(level));
            let rounding: Vec<Rounding> =
                (0..treatments.len()).map(|tensor| Rounding::of(now.number, level, tensor)).collect();
            if flat.device() != Device::Cpu {
                fused(&adamw.fused, self.weight_decay, treatments, (flat, moments, gradients), &rounding)?;
            } else {
                let kept = treatments.iter().map(|treatment| treatment.kept(keep));
                let tensors: Vec<_> = kept.zip(rounding.iter().copied()).collect();
                adamw.update_slices(pool, flat, moments, (gradients, &tensors))?;
            }
            by_matrices((pool, &muon), treatments, (flat, moments, gradients), &rounding)?;
            weights.put_back(level, &fixed)?;
        }
        Ok(())
    }
}

/// Muon, where it acts in a level.
fn by_matrices(
    (pool, muon): (&ThreadPool, &MuonStep),
    treatments: &[Treatment],
    (flat, moments, gradients): (&Tensor, &mut [TensorMoments], &[Tensor]),
    rounding: &[Rounding],
) -> Result<(), TchError> {
    let mut from = 0;
    for (((treatment, gradient), own), rounding) in treatments.iter().zip(gradients).zip(moments).zip(rounding) {
        let count = treatment.count();
        if !treatment.matrices.is_empty() {
            let shape = treatment.shape.as_slice();
            let momentum = own.first.wide()?;
            let mut parameters = flat.f_narrow(0, from, count)?.f_view(shape)?;
            muon.update(&mut parameters, &mut momentum.f_view(shape)?, gradient, &treatment.matrices)?;
            if !matches!(own.first, Store::Wide(_)) {
                own.first.set(pool, &momentum, *rounding)?;
            }
        }
        from += count;
    }
    Ok(())
}

/// AdamW in few kernels, where it acts in a level. Moments that are not f32 are widened chunk by chunk.
fn fused(
    adamw: &FusedAdamW,
    weight_decay: f64,
    treatments: &[Treatment],
    (flat, moments, gradients): (&Tensor, &mut [TensorMoments], &[Tensor]),
    rounding: &[Rounding],
) -> Result<(), TchError> {
    for decays in [true, false] {
        let rule = FusedAdamW { weight_decay: if decays { weight_decay } else { 0.0 }, ..*adamw };
        let mut lists: [Vec<Tensor>; 4] = Default::default();
        let mut from = 0;
        for (((treatment, gradient), own), rounding) in
            treatments.iter().zip(gradients).zip(&mut *moments).zip(rounding)
        {
            let count = treatment.count();
            let place = from;
            from += count;
            let Some(second) = own.second.as_mut().filter(|_| treatment.decays == decays) else { continue };
            let (parameters, gradient) = (flat.f_narrow(0, place, count)?, gradient.f_flatten(0, -1)?);
            match (&mut own.first, second) {
                (Store::Wide(first), Store::Wide(second)) => {
                    let tensors = [parameters, gradient, first.shallow_clone(), second.shallow_clone()];
                    lists.iter_mut().zip(tensors).for_each(|(list, tensor)| list.push(tensor));
                }
                narrow => by_chunks(&rule, (&parameters, &gradient), narrow.into(), *rounding)?,
            }
        }
        let [parameters, gradients, firsts, seconds] = &lists;
        rule.update(parameters, gradients, [firsts, seconds])?;
    }
    Ok(())
}

/// AdamW of a tensor whose moments are widened chunk by chunk, so that what is wide at once does not grow with the tensor.
fn by_chunks(
    rule: &FusedAdamW,
    (parameters, gradient): (&Tensor, &Tensor),
    moments: [&mut Store; 2],
    rounding: Rounding,
) -> Result<(), TchError> {
    let count = parameters.numel();
    for from in (0..count).step_by(CHUNK) {
        let length = CHUNK.min(count - from);
        let part = |of: &Tensor| of.f_narrow(0, from as i64, length as i64);
        let wide = [moments[0].wide_part(from, length)?, moments[1].wide_part(from, length)?];
        let [first, second] = wide.each_ref().map(std::slice::from_ref);
        rule.update(&[part(parameters)?], &[part(gradient)?], [first, second])?;
        moments[0].set_part(from, &wide[0], rounding)?;
        moments[1].set_part(from, &wide[1], rounding)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::initial_levels;
    use crate::model::weights::to_values;
    use crate::seed::Seed;
    use crate::training::inner::gradients::Gradients;
    use crate::training::samples::small_run;

    /// A network, and what two steps leave of it where every gradient is zero.
    fn after_nothing(change: impl Fn(&mut TrainingConfig)) -> (Weights, Vec<Vec<f32>>) {
        let mut run = small_run();
        change(&mut run.training);
        let mut weights = Weights::new(&run.model, &run.levels, Device::Cpu).unwrap();
        let levels = initial_levels(&run.model, &run.levels, Seed::root(1));
        levels.iter().enumerate().for_each(|(level, values)| weights.set(level, values).unwrap());
        let optimizer = InnerOptimizer::new(&run.training, &weights);
        let zeros = |leaves: &[Leaf]| leaves.iter().map(|leaf| leaf.tensor.zeros_like()).collect();
        let gradients: Gradients = weights.leaves().map(zeros).collect();
        let mut moments = optimizer.moments(MomentFormat::F32, Device::Cpu).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        for number in 1..=2 {
            let now = StepNow { number, norm: 0.0, learning_rate: 0.5 };
            optimizer.update(&pool, &mut weights, &mut moments, &gradients, now).unwrap();
        }
        (weights, levels)
    }

    #[test]
    fn matrices_decay_and_norms_and_biases_do_not_and_embeddings_as_one_wishes() {
        for optimizer in [Optimizer::AdamW, Optimizer::Muon] {
            for decay_embeddings in [true, false] {
                let (weights, before) = after_nothing(|training| {
                    (training.optimizer, training.weight_decay) = (optimizer, 0.1);
                    training.decay_embeddings = decay_embeddings;
                });
                for (leaves, before) in weights.leaves().zip(before) {
                    let mut from = 0;
                    for leaf in leaves {
                        let decays = leaf.tensor.dim() > 1 && (decay_embeddings || !leaf.name.starts_with("embedding"));
                        let expected = if decays { 0.95f32 * 0.95 } else { 1.0 };
                        let (found, own) = (leaf.tensor.numel(), f64::from(before[from] * expected));
                        assert!((leaf.tensor.flatten(0, -1).double_value(&[0]) - own).abs() < 1e-6, "{}", leaf.name);
                        from += found;
                    }
                }
            }
        }
    }

    /// The parameters and the moments of a level after a step from waves.
    fn stepped(
        (optimizer, level): (&InnerOptimizer, usize),
        format: MomentFormat,
        is_fused: bool,
    ) -> (Vec<f32>, [Vec<f32>; 2]) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let treatments = &optimizer.levels[level];
        let count: i64 = treatments.iter().map(Treatment::count).sum();
        let wave = |pace: f64| (Tensor::arange(count, (tch::Kind::Float, Device::Cpu)) * pace).sin();
        let mut moments = optimizer.moments(format, Device::Cpu).unwrap().remove(level);
        let start = [wave(0.1), wave(0.2).square()].map(|moment| to_values(&moment).unwrap());
        moments.set(&pool, &start, Device::Cpu).unwrap();
        // The fused kernel clips them in place.
        let gradients = optimizer.by_tensor(level, &wave(0.7)).unwrap();
        let (mut flat, step) = (wave(0.3), optimizer.adamw.step(3, 0.5, 0.1));
        let rounding: Vec<_> = (0..treatments.len()).map(|tensor| Rounding::of(3, level, tensor)).collect();
        if is_fused {
            fused(&step.fused, 1.0, treatments, (&flat, &mut moments.0, &gradients), &rounding).unwrap();
        } else {
            let kept = treatments.iter().map(|treatment| treatment.kept(0.9));
            let tensors: Vec<_> = kept.zip(rounding).collect();
            step.update_slices(&pool, &mut flat, &mut moments.0, (&gradients, &tensors)).unwrap();
        }
        assert_ne!(flat, wave(0.3), "something was done");
        (to_values(&flat).unwrap(), moments.values().unwrap())
    }

    #[test]
    fn the_fused_kernel_does_to_every_tensor_what_slices_do() {
        let mut run = small_run();
        (run.training.optimizer, run.training.decay_embeddings) = (Optimizer::Muon, false);
        let weights = Weights::new(&run.model, &run.levels, Device::Cpu).unwrap();
        let optimizer = InnerOptimizer::new(&run.training, &weights);
        for format in [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Bits8] {
            for level in 0..optimizer.levels.len() {
                let [found, expected] = [true, false].map(|is_fused| stepped((&optimizer, level), format, is_fused));
                let apart = |(a, b): (&f32, &f32)| (a - b).abs();
                assert!(found.0.iter().zip(&expected.0).map(apart).all(|apart| apart < 1e-5), "level {level}");
                for (found, expected) in found.1.iter().zip(&expected.1) {
                    let differ = found.iter().zip(expected).map(apart).filter(|apart| *apart >= 1e-5).count();
                    // A value that is rounded at random may fall on the other side where it differs in the last place.
                    let most = if format == MomentFormat::F32 { 0 } else { found.len() / 1000 };
                    assert!(differ <= most, "{format:?}, level {level}: {differ} of {}", found.len());
                }
            }
        }
    }
}
