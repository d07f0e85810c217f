//! The inner optimiser: which rule acts on which tensor, with gradients clipped by the norm of all together.
//!
//! AdamW acts on every tensor, or with [Muon](super::muon) on all but the matrices of blocks. Norms and biases do not
//! decay. Muon keeps a matrix's momentum where AdamW keeps its first moment, and leaves the second at zero, so the state
//! of a trainer has one layout for both.

use rayon::ThreadPool;
use tch::{Device, TchError, Tensor};

use crate::config::{Optimizer, TrainingConfig};
use crate::model::fused::FusedAdamW;
use crate::model::weights::{Leaf, Weights};
use crate::training::inner::adamw::{AdamW, Moments};
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
        for (level, (moments, gradients)) in moments.iter_mut().zip(gradients).enumerate() {
            let fixed = weights.fixed(level)?;
            let (treatments, flat) = (&self.levels[level], weights.flat_mut(level));
            if flat.device().is_cuda() {
                fused(&adamw.fused, self.weight_decay, treatments, (flat, moments, gradients))?;
            } else {
                let kept: Vec<Option<f32>> = treatments.iter().map(|treatment| treatment.kept(keep)).collect();
                match flat.device() {
                    Device::Cpu => adamw.update_slices(pool, flat, moments, (gradients, &kept))?,
                    _ => adamw.update_tensors(flat, moments, (gradients, &kept))?,
                }
            }
            by_matrices(&muon, treatments, (flat, moments, gradients))?;
            weights.put_back(level, &fixed)?;
        }
        Ok(())
    }
}

/// Muon, where it acts in a level.
fn by_matrices(
    muon: &MuonStep,
    treatments: &[Treatment],
    (flat, [momentum, _], gradients): (&Tensor, &Moments, &[Tensor]),
) -> Result<(), TchError> {
    let mut from = 0;
    for (treatment, gradient) in treatments.iter().zip(gradients) {
        let count = treatment.count();
        if !treatment.matrices.is_empty() {
            let view = |tensor: &Tensor| tensor.f_narrow(0, from, count)?.f_view(treatment.shape.as_slice());
            muon.update(&mut view(flat)?, &mut view(momentum)?, gradient, &treatment.matrices)?;
        }
        from += count;
    }
    Ok(())
}

/// AdamW in few kernels, where it acts in a level.
fn fused(
    adamw: &FusedAdamW,
    weight_decay: f64,
    treatments: &[Treatment],
    (flat, [first, second], gradients): (&Tensor, &Moments, &[Tensor]),
) -> Result<(), TchError> {
    for decays in [true, false] {
        let mut lists: [Vec<Tensor>; 4] = Default::default();
        let mut from = 0;
        for (treatment, gradient) in treatments.iter().zip(gradients) {
            let count = treatment.count();
            if treatment.matrices.is_empty() && treatment.decays == decays {
                let part = |tensor: &Tensor| tensor.f_narrow(0, from, count);
                let [parameters, gradients, firsts, seconds] = &mut lists;
                parameters.push(part(flat)?);
                gradients.push(gradient.f_flatten(0, -1)?);
                firsts.push(part(first)?);
                seconds.push(part(second)?);
            }
            from += count;
        }
        let [parameters, gradients, firsts, seconds] = &lists;
        let rule = FusedAdamW { weight_decay: if decays { weight_decay } else { 0.0 }, ..*adamw };
        rule.update(parameters, gradients, [firsts, seconds])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::initial_levels;
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
        let zero = |size: &usize| Tensor::zeros([*size as i64], (tch::Kind::Float, Device::Cpu));
        let mut moments: Vec<Moments> = weights.sizes().iter().map(|size| [zero(size), zero(size)]).collect();
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

    #[test]
    fn the_fused_kernel_does_to_every_tensor_what_slices_do() {
        let mut run = small_run();
        (run.training.optimizer, run.training.decay_embeddings) = (Optimizer::Muon, false);
        let weights = Weights::new(&run.model, &run.levels, Device::Cpu).unwrap();
        let optimizer = InnerOptimizer::new(&run.training, &weights);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let wave = |count: i64, pace: f64| (Tensor::arange(count, (tch::Kind::Float, Device::Cpu)) * pace).sin();
        for (level, treatments) in optimizer.levels.iter().enumerate() {
            let count = weights.sizes()[level] as i64;
            let [found, expected] = [true, false].map(|is_fused| {
                // The fused kernel clips them in place.
                let gradients = optimizer.by_tensor(level, &wave(count, 0.7)).unwrap();
                let (mut flat, mut moments) = (wave(count, 0.3), [wave(count, 0.1), wave(count, 0.2).square()]);
                let step = optimizer.adamw.step(3, 0.5, 0.1);
                if is_fused {
                    fused(&step.fused, 1.0, treatments, (&flat, &moments, &gradients)).unwrap();
                } else {
                    let kept: Vec<Option<f32>> = treatments.iter().map(|treatment| treatment.kept(0.9)).collect();
                    step.update_slices(&pool, &mut flat, &mut moments, (&gradients, &kept)).unwrap();
                }
                let [first, second] = moments;
                [flat, first, second]
            });
            assert_ne!(found[0], wave(count, 0.3), "something was done");
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs().max().double_value(&[]) < 1e-5, "level {level}");
            }
        }
    }
}
