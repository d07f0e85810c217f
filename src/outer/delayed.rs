//! Nesterov's momentum for contributions that arrive one by one (asynchronous mode): the momentum is delayed.
//!
//! Momentum that moved with every contribution would apply each of them many times. So it moves once per round, when
//! the gathered weight equals that of all the module's paths (Liu et al., "Asynchronous Local-SGD Training for Language
//! Modeling", 2024, algorithm 3, with c = 0). An update may count several contributions. `s` is its share of a round,
//! `d` its average outer gradient, `β` the momentum factor and `η` the learning rate:
//!
//! ```text
//! S ← S + s·d
//! within a round:           θ ← θ − η·s·d
//! when a round is full:     m ← β·m + S,   θ ← θ − η·(s·d + β·m),   S ← 0
//! ```
//!
//! With `N` equal paths and one contribution an update, `s` is 1/N and this is the paper's rule. With all paths in
//! every update `s` is 1, every update fills its round, and this is [`nesterov::step`](super::nesterov::step), bit for
//! bit. Each operation is one correctly rounded f32 operation, in this order, without fusing.

use rayon::prelude::*;

use super::CHUNK_VALUES;

/// The share of a round in an update: its weight, divided by the weight of all the module's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    weight: u64,
    full_weight: u64,
}

impl Share {
    /// A full round.
    pub const FULL: Self = Self { weight: 1, full_weight: 1 };

    /// `weight` of `full_weight`, at most a full round: contributions that accumulated while a module stood still move
    /// it no further than one round.
    pub fn new(weight: u64, full_weight: u64) -> Self {
        let full_weight = full_weight.max(1);
        Self { weight: weight.min(full_weight), full_weight }
    }

    /// The quotient in f64, rounded to f32. 1 for a full round.
    pub fn factor(self) -> f32 {
        (self.weight as f64 / self.full_weight as f64) as f32
    }
}

/// Averages gathered since the momentum last moved.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered {
    pub weight: u64,
    /// `S`, one value for each parameter.
    pub sum: Vec<f32>,
}

impl Gathered {
    /// Zeros.
    pub fn nothing(count: usize) -> Self {
        Self { weight: 0, sum: vec![0.0; count] }
    }
}

/// The position of an update in its round.
#[derive(Clone, Copy)]
struct Place {
    factor: f32,
    begins: bool,
    fills: bool,
}

/// One outer step, in place.
///
/// # Panics
/// If the four slices differ in length. Decoders have checked that they belong to one module.
pub fn step(
    parameters: &mut [f32],
    momentum: &mut [f32],
    gathered: &mut Gathered,
    average: &[f32],
    share: Share,
    learning_rate: f32,
    momentum_factor: f32,
) {
    let count = parameters.len();
    let lengths = [momentum.len(), gathered.sum.len(), average.len()];
    assert!(lengths == [count; 3], "an outer step needs slices of one module");
    let weight = gathered.weight.saturating_add(share.weight);
    let place = Place { factor: share.factor(), begins: gathered.weight == 0, fills: weight >= share.full_weight };
    gathered.weight = if place.fills { 0 } else { weight };
    let chunks = parameters.par_chunks_mut(CHUNK_VALUES).zip(momentum.par_chunks_mut(CHUNK_VALUES));
    let chunks = chunks.zip(gathered.sum.par_chunks_mut(CHUNK_VALUES)).zip(average.par_chunks(CHUNK_VALUES));
    chunks.for_each(|(((parameters, momentum), sum), average)| {
        for (((parameter, momentum), sum), average) in parameters.iter_mut().zip(momentum).zip(sum).zip(average) {
            let part = place.factor * *average;
            // The first one is not added, since 0 + −0 would be 0.
            let gathered = if place.begins { part } else { *sum + part };
            if place.fills {
                *momentum = momentum_factor * *momentum + gathered;
                *parameter -= learning_rate * (part + momentum_factor * *momentum);
                *sum = 0.0;
            } else {
                *parameter -= learning_rate * part;
                *sum = gathered;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::nesterov;
    use super::*;

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    /// The paper's rule for one value, in f64, with `N` paths and one contribution per update.
    fn paper(contributions: &[f64], paths: usize, rate: f64, factor: f64) -> (f64, f64) {
        let (mut parameter, mut momentum, mut sum) = (0.0, 0.0, 0.0);
        let share = 1.0 / paths as f64;
        for (time, gradient) in contributions.iter().enumerate() {
            sum += gradient;
            if (time + 1).is_multiple_of(paths) {
                momentum = factor * momentum + sum * share;
                parameter -= rate * (factor * momentum + gradient * share);
                sum = 0.0;
            } else {
                parameter -= rate * gradient * share;
            }
        }
        (parameter, momentum)
    }

    #[test]
    fn four_paths_one_by_one_follow_the_paper() {
        // By hand, with η = 1/2 and β = 1/2: the first round adds 4 + 8 − 4 + 8 = 16, a quarter of which is m = 4;
        // θ = −½·(1 + 2 − 1 + 2) − ½·½·4 = −3.
        let contributions = [4.0, 8.0, -4.0, 8.0];
        let (mut parameter, mut momentum, mut gathered) = ([0.0], [0.0], Gathered::nothing(1));
        let mut seen = Vec::new();
        for gradient in contributions {
            step(&mut parameter, &mut momentum, &mut gathered, &[gradient], Share::new(5, 20), 0.5, 0.5);
            seen.push((parameter[0], momentum[0], gathered.sum[0], gathered.weight));
        }
        let expected = [(-0.5, 0.0, 1.0, 5), (-1.5, 0.0, 3.0, 10), (-1.0, 0.0, 2.0, 15), (-3.0, 4.0, 0.0, 0)];
        assert_eq!(seen, expected);

        let long: Vec<f64> = (0..40).map(|time| (f64::from(time) * 0.7).sin()).collect();
        let (mut parameter, mut momentum, mut gathered) = ([0.0], [0.0], Gathered::nothing(1));
        for gradient in &long {
            step(&mut parameter, &mut momentum, &mut gathered, &[*gradient as f32], Share::new(1, 4), 0.7, 0.9);
        }
        let (expected, expected_momentum) = paper(&long, 4, 0.7, 0.9);
        assert!((f64::from(parameter[0]) - expected).abs() < 1e-5, "{} {expected}", parameter[0]);
        assert!((f64::from(momentum[0]) - expected_momentum).abs() < 1e-5);
    }

    #[test]
    fn paths_of_unequal_weight_fill_a_round_together() {
        let (mut parameter, mut momentum, mut gathered) = ([0.0], [0.0], Gathered::nothing(1));
        let mut apply = |weight| {
            step(&mut parameter, &mut momentum, &mut gathered, &[1.0], Share::new(weight, 160), 1.0, 0.5);
            (gathered.weight, momentum[0])
        };
        assert_eq!(apply(100), (100, 0.0));
        assert_eq!(apply(60), (0, 1.0));
        // The faster path fills a round alone and the excess is kept.
        assert_eq!(apply(100), (100, 1.0));
        assert_eq!(apply(100), (0, 0.5 + 1.25));
    }

    #[test]
    fn accumulated_weight_moves_a_module_no_further_than_a_round() {
        assert_eq!(Share::new(640, 160), Share::new(160, 160));
        assert_eq!(Share::new(640, 160).factor(), 1.0);
        assert_eq!(Share::new(40, 160).factor(), 0.25);
        assert_eq!(Share::new(1, 0).factor(), 1.0);
    }

    #[test]
    fn chunks_and_threads_do_not_change_the_result() {
        let count = 2 * CHUNK_VALUES + 17;
        let wave = |phase: f32| (0..count).map(|i| (i as f32 * 0.001 + phase).sin()).collect::<Vec<f32>>();
        let (mut parameters, mut momentum, average) = (wave(0.0), wave(1.0), wave(2.0));
        let mut gathered = Gathered { weight: 1, sum: wave(3.0) };
        let mut expected = (parameters.clone(), momentum.clone());
        for (((parameter, momentum), sum), average) in
            expected.0.iter_mut().zip(&mut expected.1).zip(&gathered.sum).zip(&average)
        {
            let part = (2.0f32 / 3.0) * *average;
            let all = *sum + part;
            let kept = 0.9f32 * *momentum;
            *momentum = kept + all;
            let ahead = 0.9f32 * *momentum;
            *parameter -= 0.7f32 * (part + ahead);
        }
        step(&mut parameters, &mut momentum, &mut gathered, &average, Share::new(2, 3), 0.7, 0.9);
        assert_eq!((parameters, momentum), expected);
        assert_eq!(gathered, Gathered::nothing(count));
    }

    proptest! {
        #[test]
        fn with_all_paths_in_every_update_it_equals_the_nesterov_step_to_the_bit(
            averages in prop::collection::vec(prop::collection::vec(-2.0f32..2.0, 6), 1..8),
            weight in 1u64..1 << 40,
        ) {
            let start = [0.0, -0.0, 1.0, -3.5, 1e-30, 7.0];
            let (mut parameters, mut momentum) = (start.to_vec(), vec![0.0, -0.0, -0.0, 0.5, -0.25, 0.0]);
            let mut delayed = (parameters.clone(), momentum.clone(), Gathered::nothing(6));
            for mut average in averages {
                average[0] = -0.0;
                average[1] = 0.0;
                average[2] = -0.0;
                nesterov::step(&mut parameters, &mut momentum, &average, 0.7, 0.9);
                step(&mut delayed.0, &mut delayed.1, &mut delayed.2, &average, Share::new(weight, weight), 0.7, 0.9);
                prop_assert_eq!(bits(&delayed.0), bits(&parameters));
                prop_assert_eq!(bits(&delayed.1), bits(&momentum));
                prop_assert_eq!(&delayed.2, &Gathered::nothing(6));
            }
        }
    }
}
