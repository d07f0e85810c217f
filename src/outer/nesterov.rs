//! Nesterov's momentum as in PyTorch's `SGD(nesterov=True)`, the outer optimiser of DiLoCo and DiPaCo.
//!
//! With `d` the average outer gradient, `β` the momentum factor and `η` the learning rate:
//!
//! ```text
//! m ← β·m + d
//! θ ← θ − η·(d + β·m)
//! ```
//!
//! Each of the six operations is one correctly rounded f32 operation, in this order, without fusing. So every member of
//! a module computes the same bits.

use rayon::prelude::*;

use super::CHUNK_VALUES;

/// One outer step, in place.
///
/// # Panics
/// If the three slices differ in length. Decoders have checked that they belong to one module.
pub fn step(parameters: &mut [f32], momentum: &mut [f32], average: &[f32], learning_rate: f32, momentum_factor: f32) {
    assert!(
        parameters.len() == momentum.len() && parameters.len() == average.len(),
        "an outer step needs slices of one module"
    );
    let chunks = parameters.par_chunks_mut(CHUNK_VALUES).zip(momentum.par_chunks_mut(CHUNK_VALUES));
    chunks.zip(average.par_chunks(CHUNK_VALUES)).for_each(|((parameters, momentum), average)| {
        for ((parameter, momentum), average) in parameters.iter_mut().zip(momentum).zip(average) {
            *momentum = momentum_factor * *momentum + *average;
            *parameter -= learning_rate * (*average + momentum_factor * *momentum);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_and_threads_do_not_change_the_result() {
        let count = 3 * CHUNK_VALUES + 17;
        let wave = |phase: f32| (0..count).map(|i| (i as f32 * 0.001 + phase).sin()).collect::<Vec<f32>>();
        let (mut parameters, mut momentum, average) = (wave(0.0), wave(1.0), wave(2.0));
        let mut expected = (parameters.clone(), momentum.clone());
        step(&mut parameters, &mut momentum, &average, 0.7, 0.9);
        for ((parameter, momentum), average) in expected.0.iter_mut().zip(&mut expected.1).zip(&average) {
            let kept = 0.9f32 * *momentum;
            *momentum = kept + *average;
            let ahead = 0.9f32 * *momentum;
            let moved = 0.7f32 * (*average + ahead);
            *parameter -= moved;
        }
        assert_eq!((parameters, momentum), expected);
    }
}
