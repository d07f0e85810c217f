//! What a step really takes, to compare a plan with.

use std::time::Instant;

use tch::Device;

use crate::config::{LevelConfig, MachineConfig, RunConfig};
use crate::model::fused::cuda_peak_bytes;
use crate::model::{initial_levels, synchronize};
use crate::seed::Seed;
use crate::training::device::{DeviceCheckError, Size};
use crate::training::{BatchOrder, InnerTrainer};

/// A network that needs hardly any memory.
const SMALL: Size = Size { name: "", blocks: 1, width: 64, heads: 2, vocabulary: 512, context: 64, sequences: 1 };

/// What steps took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Bytes of the device at most, where the system tells.
    pub bytes: Option<u64>,
    /// Seconds of the last step.
    pub step_s: f64,
}

/// Trains a run's path on text of full length, at least a step. On the CPU its memory is that by which the process grows, so
/// that it should have done nothing else before.
pub fn measured(
    run: &RunConfig,
    machine: &MachineConfig,
    device: Device,
    steps: u64,
) -> Result<Measured, DeviceCheckError> {
    // Loads what every step needs.
    take_steps(&SMALL.run(1), machine, device, 1)?;
    let before = peak(device)?;
    let step_s = take_steps(run, machine, device, steps)?;
    let bytes = before.zip(peak(device)?).map(|(before, after)| after.saturating_sub(before));
    Ok(Measured { bytes, step_s })
}

/// Takes steps, and returns the seconds of the last.
#[expect(clippy::disallowed_methods, reason = "an edge: how long a step takes")]
fn take_steps(run: &RunConfig, machine: &MachineConfig, device: Device, steps: u64) -> Result<f64, DeviceCheckError> {
    let mut trainer = InnerTrainer::new(run, machine, device)?;
    let initial = |levels: &[LevelConfig]| initial_levels(&run.model, levels, Seed::root(1));
    trainer.load(&initial(&run.levels))?;
    trainer.load_frozen(&run.frozen().map(|frozen| initial(&[frozen]).concat()).unwrap_or_default())?;
    let (vocabulary, context) = (run.model.vocabulary, run.model.context);
    // An image is bytes, followed by a class.
    let below = |place| if run.model.reads_images() && place < context { 256 } else { vocabulary };
    let sequence = |row| (0..=context).map(|at| ((row * 7919 + at * 104_729) % below(at)) as u32).collect();
    let set: Vec<Vec<u32>> = (0..run.training.batch_sequences).map(sequence).collect();
    let order = BatchOrder { seed: Seed::root(3), sequences: set.len() };
    let mut step_s = 0.0;
    for step in 0..steps {
        let began = Instant::now();
        trainer.step(&set[..], &order, step)?;
        synchronize(device);
        step_s = began.elapsed().as_secs_f64();
    }
    Ok(step_s)
}

fn peak(device: Device) -> Result<Option<u64>, DeviceCheckError> {
    match device {
        Device::Cuda(index) => Ok(Some(cuda_peak_bytes(index, false)?.allocated)),
        _ => Ok(peak_resident()),
    }
}

/// The most memory that this process has had, as Linux tells.
fn peak_resident() -> Option<u64> {
    let said = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = said.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(1024 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?)
}
