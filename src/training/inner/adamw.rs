//! AdamW, as in PyTorch with decay for some tensors and without for others.
//!
//! On the CPU, one pass over vectorised slices reads each gradient and updates both moments and the parameter, on a few
//! threads. No operation is contracted or reordered by the number of threads, so the bits do not depend on it. On CUDA the
//! same rule is libtorch's fused kernel, and elsewhere operations on tensors.

use rayon::ThreadPool;
use rayon::prelude::*;
use tch::{Device, TchError, Tensor};

use crate::model::fused::{self, FusedAdamW};
use crate::model::host_values::{host_values, host_values_mut};
use crate::training::inner::moments::TensorMoments;
use crate::training::inner::moments::blocks::BLOCK;
use crate::training::inner::moments::rounding::Rounding;
use crate::training::inner::moments::store::{PIECE, Piece};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of both moments.
    pub betas: [f64; 2],
    /// ε, added to the root of the second moment, as in PyTorch.
    pub epsilon: f64,
}

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
    /// Updates the tensors of a level, on the CPU. `tensors` has for each the share of its parameters that decay leaves,
    /// or none for a tensor that stays as it is, and how its moments are rounded.
    pub(super) fn update_slices(
        &self,
        pool: &ThreadPool,
        flat: &mut Tensor,
        moments: &mut [TensorMoments],
        (gradients, tensors): (&[Tensor], &[(Option<f32>, Rounding)]),
    ) -> Result<(), TchError> {
        let gradients: Vec<Tensor> = gradients.iter().map(Tensor::f_contiguous).collect::<Result<_, _>>()?;
        let mut rest: &mut [f32] = host_values_mut(flat);
        let mut all = Vec::new();
        for ((gradient, (keep, rounding)), own) in gradients.iter().zip(tensors).zip(moments) {
            let gradient: &[f32] = host_values(gradient);
            let (parameters, after) = std::mem::take(&mut rest).split_at_mut(gradient.len());
            rest = after;
            let (Some(keep), Some(second)) = (keep, &mut own.second) else { continue };
            let values = parameters.chunks_mut(PIECE).zip(gradient.chunks(PIECE));
            let pieces = values.zip(own.first.pieces().into_iter().zip(second.pieces())).enumerate();
            all.extend(pieces.map(|(number, ((parameters, gradient), (first, second)))| Work {
                parameters,
                gradient,
                moments: [first, second],
                keep: *keep,
                rounding: (*rounding, number * PIECE),
            }));
        }
        let rule = &self.constants;
        pool.install(|| all.into_par_iter().for_each(|work| work.done(rule)));
        Ok(())
    }
}

/// A piece of a tensor.
struct Work<'a> {
    parameters: &'a mut [f32],
    gradient: &'a [f32],
    moments: [Piece<'a>; 2],
    keep: f32,
    /// With the place of the piece in its tensor.
    rounding: (Rounding, usize),
}

impl Work<'_> {
    fn done(self, rule: &Constants) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: this processor has AVX2.
            return unsafe { self.done_in_wide_registers(rule) };
        }
        self.done_here(rule);
    }

    /// The same bits, eight values at once: nothing is contracted.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn done_in_wide_registers(self, rule: &Constants) {
        self.done_here(rule);
    }

    #[inline(always)]
    fn done_here(self, rule: &Constants) {
        let Self { parameters, gradient, moments: [mut first, mut second], keep, rounding: (rounding, place) } = self;
        if let (Piece::Wide(first), Piece::Wide(second)) = (&mut first, &mut second) {
            return rule.update_piece([parameters, first, second], gradient, keep);
        }
        let (mut wide, mut noise) = ([[0f32; BLOCK]; 2], [0; BLOCK]);
        for (number, (parameters, gradient)) in parameters.chunks_mut(BLOCK).zip(gradient.chunks(BLOCK)).enumerate() {
            let from = number * BLOCK;
            let [m, v] = wide.each_mut().map(|values| &mut values[..gradient.len()]);
            first.decode(from, m);
            second.decode(from, v);
            rule.update_piece([parameters, m, v], gradient, keep);
            rounding.fill(place + from, &mut noise);
            first.encode(from, m, &noise);
            second.encode(from, v, &noise);
        }
    }
}

impl Constants {
    #[inline(always)]
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
    use crate::config::MomentFormat;
    use tch::{Device, Kind};

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
        Operations,
    }

    /// Three steps on gradients of two tensors.
    fn after_three(way: &Way, format: MomentFormat) -> Vec<f32> {
        let (pool, counts) = (pool(if let Way::Slices(threads) = way { *threads } else { 1 }), [40_000, 1001]);
        let mut flat = wave(41_001, 0.1);
        let mut moments = counts.map(|count| TensorMoments::zeros(count as usize, true, format, Device::Cpu).unwrap());
        for number in 1..=3 {
            let gradients: Vec<Tensor> = counts.map(|count| wave(count, number as f64)).into();
            let step = RULE.step(number, 0.5, 1e-2);
            match way {
                Way::Slices(_) => {
                    let tensors = [0, 1].map(|tensor| (Some(0.99), Rounding::of(number, 0, tensor)));
                    step.update_slices(&pool, &mut flat, &mut moments, (&gradients, &tensors)).unwrap();
                }
                Way::Fused | Way::Operations => {
                    let parts = |whole: &Tensor| whole.split_with_sizes(counts, 0);
                    let first = moments.each_ref().map(|own| own.first.wide().unwrap());
                    let second = moments.each_ref().map(|own| own.second.as_ref().unwrap().wide().unwrap());
                    let rule = FusedAdamW { weight_decay: 1.0, ..step.fused };
                    let moments = [first.as_slice(), second.as_slice()];
                    match way {
                        Way::Fused => rule.update(&parts(&flat), &gradients, moments).unwrap(),
                        _ => rule.by_operations(&parts(&flat), &gradients, moments).unwrap(),
                    }
                }
            }
        }
        host_values(&flat).to_vec()
    }

    #[test]
    fn threads_change_no_bit() {
        for format in [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Bits8] {
            assert_eq!(after_three(&Way::Slices(1), format), after_three(&Way::Slices(3), format));
        }
    }

    #[test]
    fn slices_the_fused_kernel_and_operations_on_tensors_agree() {
        let slices = after_three(&Way::Slices(2), MomentFormat::F32);
        for other in [Way::Fused, Way::Operations] {
            let pairs: Vec<_> = slices.iter().zip(after_three(&other, MomentFormat::F32)).collect();
            assert!(pairs.iter().all(|(a, b)| (*a - b).abs() < 1e-6));
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
