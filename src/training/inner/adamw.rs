//! AdamW, as in PyTorch with decay for some tensors and without for others.
//!
//! On the CPU, one pass over vectorised slices reads each gradient and updates both moments and the parameter, on a few
//! threads. No operation is contracted or reordered by the number of threads, so the bits do not depend on it. On CUDA the
//! same rule is libtorch's fused kernel, and elsewhere operations on tensors.

use rayon::ThreadPool;
use rayon::prelude::*;
use tch::{Device, TchError, Tensor};

use crate::model::fused::{self, FusedAdamW};
use crate::model::weights::{host_values, host_values_mut};

/// Values in one piece of work. The sum of squares of a piece is a partial sum, so this is part of the arithmetic.
const PIECE: usize = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of both moments.
    pub betas: [f64; 2],
    /// ε, added to the root of the second moment, as in PyTorch.
    pub epsilon: f64,
}

/// The two moments of one level, in the order of its buffer.
pub type Moments = [Tensor; 2];

/// One step of the rule.
#[derive(Clone, Copy)]
pub(super) struct AdamWStep {
    /// For libtorch's kernel, without decay.
    pub fused: FusedAdamW,
    constants: Constants,
}

/// The constants of one step, in the precision in which they act.
#[derive(Clone, Copy)]
struct Constants {
    clip: f32,
    first: f32,
    second: [f32; 2],
    step_size: f32,
    root: f32,
    epsilon: f32,
}

impl AdamW {
    /// The step with this number, which counts from 1. Gradients are multiplied by `clip`.
    pub(super) fn step(&self, number: u64, clip: f64, learning_rate: f64) -> AdamWStep {
        let Self { betas, epsilon } = *self;
        let fused = FusedAdamW { number, clip, learning_rate, betas, weight_decay: 0.0, epsilon };
        let (number, [beta1, beta2]) = (number as f64, betas);
        let constants = Constants {
            clip: clip as f32,
            first: (1.0 - beta1) as f32,
            second: [beta2 as f32, (1.0 - beta2) as f32],
            step_size: (learning_rate / (1.0 - beta1.powf(number))) as f32,
            root: (1.0 - beta2.powf(number)).sqrt() as f32,
            epsilon: epsilon as f32,
        };
        AdamWStep { fused, constants }
    }
}

impl AdamWStep {
    /// Updates the tensors of a level, on the CPU. `kept` has for each the share of its parameters that decay leaves,
    /// or none for a tensor that stays as it is.
    pub(super) fn update_slices(
        &self,
        pool: &ThreadPool,
        flat: &mut Tensor,
        [first, second]: &mut Moments,
        (gradients, kept): (&[Tensor], &[Option<f32>]),
    ) -> Result<(), TchError> {
        let gradients: Vec<Tensor> = gradients.iter().map(Tensor::f_contiguous).collect::<Result<_, _>>()?;
        let mut rest = [host_values_mut(flat), host_values_mut(first), host_values_mut(second)];
        let mut pieces = Vec::new();
        for (gradient, keep) in gradients.iter().map(host_values).zip(kept) {
            for piece in gradient.chunks(PIECE) {
                let [(p, p_rest), (m, m_rest), (v, v_rest)] = rest.map(|slice| slice.split_at_mut(piece.len()));
                rest = [p_rest, m_rest, v_rest];
                pieces.extend(keep.map(|keep| (p, m, v, piece, keep)));
            }
        }
        let rule = &self.constants;
        pool.install(|| pieces.into_par_iter().for_each(|(p, m, v, g, keep)| rule.update_piece([p, m, v], g, keep)));
        Ok(())
    }

    /// The same on any device, with operations on tensors.
    pub(super) fn update_tensors(
        &self,
        flat: &Tensor,
        [first, second]: &Moments,
        (gradients, kept): (&[Tensor], &[Option<f32>]),
    ) -> Result<(), TchError> {
        let Constants { clip, first: rate, second: [keeps, takes], step_size, root, epsilon } = self.constants;
        let [clip, rate, keeps, takes, root, epsilon] = [clip, rate, keeps, takes, root, epsilon].map(f64::from);
        let mut from = 0;
        for (gradient, keep) in gradients.iter().zip(kept) {
            let count = gradient.numel() as i64;
            if let Some(keep) = keep {
                let part = |tensor: &Tensor| tensor.f_narrow(0, from, count);
                let (mut parameters, mut first, mut second) = (part(flat)?, part(first)?, part(second)?);
                let gradient = gradient.f_flatten(0, -1)?.f_mul_scalar(clip)?;
                let _ = first.f_lerp_(&gradient, rate)?;
                let _ = second.f_mul_scalar_(keeps)?.f_add_(&gradient.f_square()?.f_mul_scalar(takes)?)?;
                let change = first.f_div(&second.f_sqrt()?.f_div_scalar(root)?.f_add_scalar(epsilon)?)?;
                let change = change.f_mul_scalar(f64::from(step_size))?;
                let _ = parameters.f_mul_scalar_(f64::from(*keep))?.f_sub_(&change)?;
            }
            from += count;
        }
        Ok(())
    }
}

impl Constants {
    fn update_piece(&self, [parameters, first, second]: [&mut [f32]; 3], gradient: &[f32], keep: f32) {
        for (((p, m), v), g) in parameters.iter_mut().zip(first).zip(second).zip(gradient) {
            let g = g * self.clip;
            *m += self.first * (g - *m);
            *v = *v * self.second[0] + self.second[1] * g * g;
            *p = *p * keep - self.step_size * (*m / (v.sqrt() / self.root + self.epsilon));
        }
    }
}

/// The norm of all gradients together. It is not finite if one of them is not.
pub fn norm(pool: &ThreadPool, gradients: &[Vec<Tensor>]) -> Result<f64, TchError> {
    let gradients: Vec<Tensor> = gradients.iter().flatten().map(Tensor::f_contiguous).collect::<Result<_, _>>()?;
    if gradients.iter().any(|gradient| gradient.device() != Device::Cpu) {
        return fused::norm(&gradients)?.f_double_value(&[]);
    }
    let pieces: Vec<&[f32]> = gradients.iter().flat_map(|gradient| host_values(gradient).chunks(PIECE)).collect();
    let sums: Vec<f64> = pool.install(|| pieces.into_par_iter().map(sum_of_squares).collect());
    Ok(sums.iter().sum::<f64>().sqrt())
}

/// In sixteen lanes, which the compiler keeps in vector registers. f32 is precise enough for the values of one piece.
fn sum_of_squares(values: &[f32]) -> f64 {
    let mut lanes = [0f32; 16];
    let (whole, rest) = values.as_chunks::<16>();
    for chunk in whole {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane += value * value);
    }
    let rest: f64 = rest.iter().map(|value| f64::from(*value).powi(2)).sum();
    lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    fn pool(threads: usize) -> ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
    }

    fn wave(count: i64, pace: f64) -> Tensor {
        (Tensor::arange(count, (Kind::Float, Device::Cpu)) * pace).sin()
    }

    const RULE: AdamW = AdamW { betas: [0.9, 0.95], epsilon: 1e-8 };

    enum Way {
        /// On so many threads.
        Slices(usize),
        Fused,
        Tensors,
    }

    /// Three steps on gradients of two tensors.
    fn after_three(way: &Way) -> Vec<f32> {
        let (pool, counts) = (pool(if let Way::Slices(threads) = way { *threads } else { 1 }), [40_000, 1001]);
        let mut flat = wave(41_001, 0.1);
        let mut moments = [flat.zeros_like(), flat.zeros_like()];
        for number in 1..=3 {
            let gradients: Vec<Tensor> = counts.map(|count| wave(count, number as f64)).into();
            let step = RULE.step(number, 0.5, 1e-2);
            let kept = [Some(0.99), Some(0.99)];
            match way {
                Way::Tensors => step.update_tensors(&flat, &moments, (&gradients, &kept)).unwrap(),
                Way::Slices(_) => {
                    step.update_slices(&pool, &mut flat, &mut moments, (&gradients, &kept)).unwrap();
                }
                Way::Fused => {
                    let parts = |whole: &Tensor| whole.split_with_sizes(counts, 0);
                    let [first, second] = moments.each_ref().map(parts);
                    let rule = FusedAdamW { weight_decay: 1.0, ..step.fused };
                    rule.update(&parts(&flat), &gradients, [&first, &second]).unwrap();
                }
            }
        }
        host_values(&flat).to_vec()
    }

    #[test]
    fn threads_change_no_bit() {
        assert_eq!(after_three(&Way::Slices(1)), after_three(&Way::Slices(3)));
    }

    #[test]
    fn slices_the_fused_kernel_and_operations_on_tensors_agree() {
        for other in [Way::Fused, Way::Tensors] {
            let pairs: Vec<_> = after_three(&Way::Slices(2)).into_iter().zip(after_three(&other)).collect();
            assert!(pairs.iter().all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }

    #[test]
    fn the_norm_is_that_of_all_tensors_together_and_shows_what_is_not_finite() {
        let gradients = [vec![Tensor::from_slice(&[3f32; 100])], vec![Tensor::from_slice(&[4f32; 100])]];
        assert!((norm(&pool(2), &gradients).unwrap() - 50.0).abs() < 1e-6);
        for broken in [f32::NAN, f32::INFINITY] {
            assert!(!norm(&pool(2), &[vec![Tensor::from_slice(&[1.0, broken])]]).unwrap().is_finite());
        }
    }
}
