use proptest::prelude::*;

use super::*;
use crate::config::{MachineConfig, Optimizer, RunConfig};
use crate::model::initial_levels;
use crate::seed::Seed;
use crate::training::inner::moments::blocks::BLOCK;
use crate::training::inner::moments::rounding::to_bf16;
use crate::training::samples::{small_run, small_set};
use crate::training::{BatchOrder, InnerState, InnerTrainer};

const FORMATS: [MomentFormat; 3] = [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Bits8];
const BOTH: [Which; 2] = [Which::First, Which::Second];

fn pool() -> ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap()
}

/// What is left of values.
fn rounded(format: MomentFormat, which: Which, values: &[f32], rounding: Rounding) -> Vec<f32> {
    let mut store = Store::zeros(format, which, values.len(), Device::Cpu).unwrap();
    store.set(&pool(), &Tensor::from_slice(values), rounding).unwrap();
    host_values(&store.wide().unwrap()).to_vec()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Finite values of any size, also such that lie together.
fn any_values() -> impl Strategy<Value = Vec<f32>> {
    let value = prop_oneof![
        4 => (any::<u32>()).prop_map(f32::from_bits).prop_filter("finite", |value| value.is_finite()),
        4 => -1f32..1.0,
        2 => (-40f32..20.0, any::<bool>()).prop_map(|(power, up)| power.exp2() * if up { 1.0 } else { -1.0 }),
        1 => Just(0.0),
        1 => Just(-0.0),
        1 => Just(f32::MAX),
        1 => Just(f32::from_bits(1)),
    ];
    let spread = (0u32..255, 0u32..24, prop::collection::vec(any::<u32>(), 1..300)).prop_map(|(power, span, all)| {
        let value = |random: u32| f32::from_bits((power.min(254 - span) + random % (span + 1)) << 23 | random >> 9);
        all.into_iter().map(value).collect::<Vec<_>>()
    });
    prop_oneof![prop::collection::vec(value, 1..600), spread]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A state that goes to another machine, or to the disk, and comes back.
    #[test]
    fn values_that_were_rounded_are_rounded_to_themselves(values in any_values(), step in any::<u64>()) {
        for format in FORMATS {
            for which in BOTH {
                let values: Vec<f32> = match which {
                    Which::First => values.clone(),
                    Which::Second => values.iter().map(|value| value.abs()).collect(),
                };
                for first in [Rounding::Nearest, Rounding::of(step, 1, 2)] {
                    let once = rounded(format, which, &values, first);
                    prop_assert!(once.iter().all(|value| value.is_finite()));
                    prop_assert!(which == Which::First || once.iter().all(|value| value.is_sign_positive()));
                    for again in [Rounding::Nearest, Rounding::of(step + 1, 0, 3)] {
                        prop_assert_eq!(bits(&rounded(format, which, &once, again)), bits(&once));
                    }
                }
            }
        }
    }

    #[test]
    fn operations_of_libtorch_give_the_bits_of_slices(values in any_values(), step in any::<u64>(), place in 0usize..9) {
        for rounding in [Rounding::Nearest, Rounding::of(step, 1, 2)] {
            let place = place * BLOCK;
            let tensor = Tensor::from_slice(&values);
            let (mut narrow, mut noise) = (vec![0u16; values.len()], vec![0; values.len()]);
            rounding.fill(place, &mut noise);
            to_bf16(&values, &mut narrow, &noise);
            let found = by_tensor_ops::to_bf16(&tensor, (rounding, place)).unwrap();
            prop_assert_eq!(host_values::<u16>(&found), &narrow[..]);
            for which in BOTH {
                let tensor = if which == Which::Second { tensor.abs() } else { tensor.shallow_clone() };
                let mut codes = vec![0u8; values.len()];
                let all = host_values::<f32>(&tensor).chunks(BLOCK).zip(codes.chunks_mut(BLOCK)).zip(noise.chunks(BLOCK));
                let ranges: Vec<i32> =
                    all.map(|((values, codes), noise)| blocks::encode(which, values, codes, noise)).collect();
                let (found, of_blocks) = by_tensor_ops::encode(which, &tensor, (rounding, place)).unwrap();
                prop_assert_eq!(host_values::<u8>(&found), &codes[..]);
                prop_assert_eq!(host_values::<i32>(&of_blocks), &ranges[..]);
                let store = Store::Blocks { which, codes: found, ranges: of_blocks };
                let (by_ops, by_slices) = (store.wide_part(0, values.len()).unwrap(), store.wide().unwrap());
                prop_assert_eq!(bits(host_values(&by_ops)), bits(host_values(&by_slices)));
            }
        }
    }
}

/// A block whose values reach over so many factors of two, downwards from one.
fn spread(octaves: f32) -> Vec<f32> {
    (0..BLOCK).map(|at| (-octaves * at as f32 / (BLOCK - 1) as f32).exp2()).collect()
}

#[test]
fn a_second_moment_is_never_lost_and_is_the_finer_the_less_its_block_is_spread() {
    for (octaves, most) in
        [(1.5, 1.0 / 256.0), (3.0, 1.0 / 128.0), (7.0, 1.0 / 64.0), (15.0, 1.0 / 32.0), (31.0, 1.0 / 16.0)]
    {
        let values = spread(octaves);
        let found = rounded(MomentFormat::Bits8, Which::Second, &values, Rounding::Nearest);
        let error = values.iter().zip(&found).map(|(value, found)| (found / value - 1.0).abs()).fold(0.0, f32::max);
        assert!(error <= most * 1.001, "{octaves}: {error}");
    }
    let values = spread(100.0);
    let found = rounded(MomentFormat::Bits8, Which::Second, &values, Rounding::Nearest);
    assert!(values.iter().zip(&found).all(|(value, found)| *found >= value * 0.93), "raised, not lost");
}

#[test]
fn a_first_moment_keeps_its_sign_and_only_what_is_far_below_its_block_becomes_zero() {
    let values: Vec<f32> =
        spread(20.0).into_iter().enumerate().map(|(at, value)| if at % 2 == 0 { value } else { -value }).collect();
    let found = rounded(MomentFormat::Bits8, Which::First, &values, Rounding::Nearest);
    for (value, found) in values.iter().zip(found) {
        let is_lost = value.abs() < 2f32.powi(-15);
        assert!(
            (found / value - 1.0).abs() <= 1.0 / 16.0 || is_lost && found.abs() <= value.abs() * 1.07,
            "{value}: {found}"
        );
    }
}

#[test]
fn rounding_at_random_keeps_the_mean() {
    for format in [MomentFormat::Bf16, MomentFormat::Bits8] {
        for which in BOTH {
            let values = spread(10.0);
            let mut sums = vec![0f64; values.len()];
            for step in 0..1000 {
                let found = rounded(format, which, &values, Rounding::of(step, 0, 0));
                sums.iter_mut().zip(found).for_each(|(sum, value)| *sum += f64::from(value) / 1000.0);
            }
            let apart = |(mean, value): (&f64, &f32)| (mean / f64::from(*value) - 1.0).abs();
            let most = sums.iter().zip(&values).map(apart).fold(0.0, f64::max);
            // A unit is an eighth at most, so the mean of 1000 deviates by some thousandths of the value.
            assert!(most < 0.01, "{format:?} {which:?}: {most}");
        }
    }
}

/// A trainer of a small network.
fn trainer(run: &RunConfig, moments: MomentFormat) -> InnerTrainer {
    let machine = MachineConfig { threads: 2, moments, ..MachineConfig::default() };
    let mut trainer = InnerTrainer::new(run, &machine, Device::Cpu).unwrap();
    trainer.load(&initial_levels(&run.model, &run.levels, Seed::root(1))).unwrap();
    trainer
}

fn train(trainer: &mut InnerTrainer, steps: std::ops::Range<u64>) -> Vec<u64> {
    let (set, seed) = (small_set(12), Seed::root(2));
    let order = BatchOrder { seed, sequences: set.len() };
    steps.map(|step| trainer.step(&set[..], &order, step).unwrap().loss.to_bits()).collect()
}

#[test]
fn training_that_is_resumed_in_the_middle_gives_the_same_bits_with_every_optimiser_and_format() {
    for optimizer in [Optimizer::AdamW, Optimizer::Muon] {
        for format in FORMATS {
            let mut run = small_run();
            run.training.optimizer = optimizer;
            let mut through = trainer(&run, format);
            let expected = train(&mut through, 0..9);
            let mut first = trainer(&run, format);
            train(&mut first, 0..5);
            let (levels, bytes) = (first.levels().unwrap(), first.state().unwrap().encode());
            drop(first);
            let mut second = trainer(&run, format);
            second.load(&levels).unwrap();
            second.restore(&InnerState::decode(&bytes, &second.model().level_sizes()).unwrap()).unwrap();
            assert_eq!(second.state().unwrap().encode(), bytes, "{optimizer:?} {format:?}");
            assert_eq!(train(&mut second, 5..9), expected[5..], "{optimizer:?} {format:?}");
            let all = |trainer: &InnerTrainer| bits(&trainer.levels().unwrap().concat());
            assert_eq!(all(&second), all(&through), "{optimizer:?} {format:?}");
            assert_eq!(second.state().unwrap().encode(), through.state().unwrap().encode());
        }
    }
}

#[test]
fn a_state_goes_from_a_machine_with_one_format_to_a_machine_with_another() {
    let run = small_run();
    for from in FORMATS {
        let mut first = trainer(&run, from);
        train(&mut first, 0..5);
        for to in FORMATS {
            let mut second = trainer(&run, to);
            second.load(&first.levels().unwrap()).unwrap();
            second.restore(&first.state().unwrap()).unwrap();
            let losses = train(&mut second, 5..20);
            let [begin, end] = [losses[0], losses[14]].map(f64::from_bits);
            assert!(end < begin, "{from:?} to {to:?}: {begin} to {end}");
        }
    }
}

#[test]
fn fewer_bits_learn_as_well() {
    let run = small_run();
    let last = |format| f64::from_bits(train(&mut trainer(&run, format), 0..60)[59]);
    let wide = last(MomentFormat::F32);
    for format in [MomentFormat::Bf16, MomentFormat::Bits8] {
        let narrow = last(format);
        assert!((narrow - wide).abs() < 0.1, "{format:?}: {narrow}, f32: {wide}");
    }
}
