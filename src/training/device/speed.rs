//! How fast a device trains.

use std::time::{Duration, Instant};

use tch::Device;

use crate::config::MachineConfig;
use crate::model::fused::{PeakBytes, cuda_peak_bytes};
use crate::model::{initial_levels, synchronize};
use crate::seed::Seed;
use crate::training::device::networks::text;
use crate::training::device::{DeviceCheckError, Size};
use crate::training::{BatchOrder, InnerTrainer};

/// How fast one size trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub parameters: usize,
    /// Sequences of a step.
    pub sequences: usize,
    /// Of the median round.
    pub tokens_per_s: f64,
    /// Least and greatest of the rounds.
    pub spread: [f64; 2],
    /// Most memory of a step, on CUDA.
    pub peak_bytes: Option<PeakBytes>,
}

/// Timed rounds of steps.
const ROUNDS: usize = 5;

/// Steps before the clock runs, so that everything is allocated and every kernel chosen.
const WARM_UP_STEPS: u64 = 3;

/// Trains on random text of full length and measures it. A round is as many steps as fit into `round`, at least one.
#[expect(clippy::disallowed_methods, reason = "an edge: how long steps take")]
pub fn rate(
    size: &Size,
    sequences: usize,
    (machine, device): (&MachineConfig, Device),
    round: Duration,
) -> Result<Rate, DeviceCheckError> {
    let run = size.run(sequences);
    let mut trainer = InnerTrainer::new(&run, machine, device)?;
    let levels = initial_levels(&run.model, &run.levels, Seed::root(1));
    trainer.load(&levels)?;
    let set = text(4 * sequences, (size.context, size.context), size.vocabulary);
    let order = BatchOrder { seed: Seed::root(3), sequences: set.len() };
    let mut steps = 0;
    let mut step = || {
        steps += 1;
        trainer.step(&set[..], &order, steps).map(|report| report.tokens)
    };
    for _ in 0..WARM_UP_STEPS {
        step()?;
    }
    let peak = |reset| match device {
        Device::Cuda(index) => cuda_peak_bytes(index, reset).map(Some),
        _ => Ok(None),
    };
    peak(true)?;
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        synchronize(device);
        let (began, mut tokens) = (Instant::now(), 0);
        while tokens == 0 || began.elapsed() < round {
            tokens += step()?;
        }
        synchronize(device);
        rates.push(tokens as f64 / began.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    Ok(Rate {
        parameters: levels.iter().map(Vec::len).sum(),
        sequences,
        tokens_per_s: rates[ROUNDS / 2],
        spread: [rates[0], rates[ROUNDS - 1]],
        peak_bytes: peak(false)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_measured_and_is_below_that_of_matrix_products() {
        let size = Size { name: "", blocks: 1, width: 32, heads: 2, vocabulary: 300, context: 64, sequences: 2 };
        let machine = MachineConfig { threads: 1, ..MachineConfig::default() };
        let found = rate(&size, 2, (&machine, Device::Cpu), Duration::from_millis(1)).unwrap();
        assert_eq!(found.peak_bytes, None);
        assert_eq!((found.sequences, found.parameters), (2, 32 * 300 * 2 + 12 * 32 * 32 + 3 * 32));
        let [least, most] = found.spread;
        assert!(0.0 < least && least <= found.tokens_per_s && found.tokens_per_s <= most);
        let peak = crate::model::matrix_flops_per_s(crate::config::Precision::F32, Device::Cpu).unwrap();
        assert!(most * size.flops_per_token() < peak);
    }
}
