//! Whether a device computes what the CPU computes in f32: losses, gradients, the optimiser's steps, evaluation.

use tch::Device;

use crate::config::{MachineConfig, Optimizer, Precision, RunConfig};
use crate::model::{initial_levels, kernels};
use crate::seed::Seed;
use crate::training::device::networks::text;
use crate::training::device::{DeviceCheckError, Network};
use crate::training::{BatchOrder, InnerTrainer, target_losses};

/// How a device trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub precision: Precision,
    /// With the kernels of this program between products.
    pub fused: bool,
}

impl Mode {
    /// Libtorch's operations alone.
    pub const fn plain(precision: Precision) -> Self {
        Self { precision, fused: false }
    }

    /// The modes that a device has.
    pub fn all(device: Device) -> Vec<Self> {
        let mut all: Vec<Self> = [Precision::F32, Precision::Bf16].map(Self::plain).into();
        if kernels::are_there(device) {
            all.push(Self { precision: Precision::Bf16, fused: true });
        }
        all
    }

    /// The profile of a machine in this mode.
    pub fn of(self, machine: &MachineConfig) -> MachineConfig {
        MachineConfig { precision: self.precision.into(), fused_kernels: self.fused, ..machine.clone() }
    }
}

/// How far a device is from the CPU in one respect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// `loss`, `gradient`, `evaluation`, `AdamW`, `Muon`.
    pub what: &'static str,
    pub mode: Mode,
    /// The norm of the difference, relative to the norm of what the CPU found.
    pub difference: f64,
    /// More than this is a fault, not rounding.
    pub limit: f64,
}

impl Agreement {
    pub fn holds(&self) -> bool {
        // Not a number is no agreement.
        self.difference <= self.limit
    }
}

/// Products of operands with 8 bits of precision, and sums of them in another order. Found: 9e-3, on the CPU and on an
/// H100.
const BF16_LIMITS: Limits = Limits { loss: 5e-3, gradient: 3e-2 };

/// Where tokens choose modules, a few choose others. Found: 3e-2.
const BF16_CHOICES_LIMITS: Limits = Limits { loss: 5e-3, gradient: 0.3 };

/// Sums of products in another order. Found: 1e-6.
const F32_LIMITS: Limits = Limits { loss: 1e-5, gradient: 1e-4 };

/// Changes of parameters. AdamW's are f32 on both sides, found: 1e-5. Muon orthogonalises in bfloat16 on CUDA, found: 1e-2.
const ADAMW_LIMIT: f64 = 1e-4;
const MUON_LIMIT: f64 = 3e-2;

struct Limits {
    loss: f64,
    gradient: f64,
}

/// Steps of the optimiser that are compared.
const DESCENTS: u64 = 3;

/// Compares a device with the CPU on one network at its initial parameters, where a network is well conditioned: losses and
/// gradients in a mode, the rest, which is always f32, with [`Precision::F32`].
pub fn agreement(network: &Network, mode: Mode, device: Device) -> Result<Vec<Agreement>, DeviceCheckError> {
    let run = &network.run;
    let context = run.model.context;
    let set = text(32, (context / 4, context), run.model.vocabulary);
    let order = BatchOrder { seed: Seed::root(3), sequences: set.len() };
    let precision = mode.precision;
    let mut cpu = trainer(run, Mode::plain(Precision::F32), Device::Cpu)?;
    let mut other = trainer(run, mode, device)?;
    let (expected, _) = cpu.gradient(&set[..], &order, (0, 0))?;
    let (found, _) = other.gradient(&set[..], &order, (0, 0))?;
    let limits = match (precision, &run.model.dna) {
        (Precision::F32, _) => F32_LIMITS,
        (Precision::Bf16, None) => BF16_LIMITS,
        (Precision::Bf16, Some(_)) => BF16_CHOICES_LIMITS,
    };
    let mut all = vec![("gradient", difference(&expected, &found), limits.gradient)];
    if precision == Precision::F32 {
        let scores = |trainer: &InnerTrainer| target_losses(trainer.model(), &set[..], 1, &mut || {});
        all.push(("evaluation", difference(&scores(&cpu)?, &scores(&other)?), limits.loss));
        for (what, optimizer, limit) in
            [("AdamW", Optimizer::AdamW, ADAMW_LIMIT), ("Muon", Optimizer::Muon, MUON_LIMIT)]
        {
            let change = |device| changes(run, optimizer, device, &expected);
            all.push((what, difference(&change(Device::Cpu)?, &change(device)?), limit));
        }
    }
    let [expected, found] = [&mut cpu, &mut other].map(|trainer| trainer.step(&set[..], &order, 0));
    let (expected, found) = (expected?.loss, found?.loss);
    all.push(("loss", (expected - found).abs() / expected, limits.loss));
    Ok(all.into_iter().map(|(what, difference, limit)| Agreement { what, mode, difference, limit }).collect())
}

fn trainer(run: &RunConfig, mode: Mode, device: Device) -> Result<InnerTrainer, DeviceCheckError> {
    let mut trainer = InnerTrainer::new(run, &mode.of(&MachineConfig::default()), device)?;
    trainer.load(&initial(run))?;
    Ok(trainer)
}

fn initial(run: &RunConfig) -> Vec<Vec<f32>> {
    initial_levels(&run.model, &run.levels, Seed::root(1))
}

/// What a few steps with a given gradient change.
fn changes(
    run: &RunConfig,
    optimizer: Optimizer,
    device: Device,
    gradient: &[Vec<f32>],
) -> Result<Vec<Vec<f32>>, DeviceCheckError> {
    let mut run = run.clone();
    run.training.optimizer = optimizer;
    let mut trainer = trainer(&run, Mode::plain(Precision::F32), device)?;
    for step in 0..DESCENTS {
        trainer.descend(gradient, step)?;
    }
    let (before, after) = (initial(&run), trainer.levels()?);
    let change = |(before, after): (&Vec<f32>, &Vec<f32>)| after.iter().zip(before).map(|(a, b)| a - b).collect();
    Ok(before.iter().zip(&after).map(change).collect())
}

/// The norm of the difference, relative to the norm of what was expected.
fn difference(expected: &[Vec<f32>], found: &[Vec<f32>]) -> f64 {
    let pairs = || expected.iter().flatten().zip(found.iter().flatten()).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    let apart: f64 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
    let whole: f64 = pairs().map(|(a, _)| a.powi(2)).sum();
    (apart / whole).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::device::networks;

    #[test]
    fn the_cpu_agrees_with_itself_and_in_bfloat16_within_the_limits() {
        for network in networks() {
            for mode in Mode::all(Device::Cpu) {
                for found in agreement(&network, mode, Device::Cpu).unwrap() {
                    assert!(found.holds(), "{}: {found:?}", network.name);
                    let is_exact = mode.precision == Precision::F32;
                    assert_eq!(found.difference == 0.0, is_exact, "{}: {found:?}", network.name);
                }
            }
        }
    }

    #[test]
    fn another_position_scheme_or_one_wrong_value_in_thirty_is_no_agreement() {
        let found = |change: &dyn Fn(&mut RunConfig)| {
            let [one, mut other] = [(); 2].map(|()| networks().remove(1));
            change(&mut other.run);
            let set = text(8, (64, 64), 512);
            let order = BatchOrder { seed: Seed::root(3), sequences: 8 };
            let gradient = |network: &Network| {
                let mut trainer = trainer(&network.run, Mode::plain(Precision::F32), Device::Cpu).unwrap();
                trainer.gradient(&set[..], &order, (0, 0)).unwrap().0
            };
            difference(&gradient(&one), &gradient(&other))
        };
        let base = |base: f64| {
            move |run: &mut RunConfig| {
                run.model.rotary = Some(crate::config::RotaryConfig { base, share: 1.0, scaling: None })
            }
        };
        assert_eq!(found(&|_| ()), 0.0);
        assert!(found(&base(9_000.0)) > F32_LIMITS.gradient, "{}", found(&base(9_000.0)));
        let expected = vec![vec![1.0; 1000]];
        let mut wrong = expected.clone();
        wrong[0][7] = 1.05;
        assert!(difference(&expected, &wrong) > F32_LIMITS.gradient);
        assert!(!Agreement { what: "", mode: Mode::plain(Precision::F32), difference: f64::NAN, limit: 1.0 }.holds());
    }
}
