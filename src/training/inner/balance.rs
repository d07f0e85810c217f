//! Counts of the modules that tokens choose, and the bias that holds skips at their target share.
//!
//! Identities compute nothing, so no gradient decides how often they are chosen. All identities of a step have one bias
//! b, which is added to their scores only for the choice. After each inner step `b += u·sign(r·k·n - skipped)`, with
//! `n` the tokens that entered the step and `skipped` those of their `k·n` choices that fell on an identity.

use std::cell::RefCell;

use tch::TchError;

use crate::config::DnaConfig;
use crate::model::layers::watch::Routed;
use crate::model::layers::watch::Watch;
use crate::model::weights::{Weights, WeightsError, to_values};

/// Weight of one inner step in the running shares of choices.
const NEW_SHARE: f32 = 0.01;

/// Counts the choices of one inner step, over all its micro-batches.
#[derive(Default)]
pub struct Tally {
    /// For each routed step, the number of tokens that chose each module.
    counts: RefCell<Vec<Vec<u64>>>,
}

impl Watch for Tally {
    fn routed(&self, routed: &Routed<'_>) -> Result<(), TchError> {
        let mut steps = self.counts.borrow_mut();
        if steps.len() <= routed.step {
            steps.resize(routed.step + 1, vec![0; routed.counts.len()]);
        }
        steps[routed.step].iter_mut().zip(routed.counts).for_each(|(sum, count)| *sum += count);
        Ok(())
    }
}

impl Tally {
    /// Updates the balance of a network from the counts.
    pub fn settle(self, dna: &DnaConfig, weights: &mut Weights) -> Result<(), WeightsError> {
        let counts = self.counts.into_inner();
        let mut biases = to_values(&weights.tensor("balance.biases")?)?;
        let mut usage = to_values(&weights.tensor("balance.usage")?)?;
        for (step, (counts, usage)) in counts.iter().zip(usage.chunks_mut(dna.modules.count())).enumerate() {
            let choices: u64 = counts.iter().sum();
            if choices == 0 {
                continue;
            }
            for (share, count) in usage.iter_mut().zip(counts) {
                *share += NEW_SHARE * (*count as f32 / choices as f32 - *share);
            }
            if let Some(skips) = dna.skips {
                let skipped: u64 = counts[dna.modules.identities()].iter().sum();
                let missing = skips * choices as f64 - skipped as f64;
                // Unlike signum, 0 at the target.
                let sign = if missing == 0.0 { 0.0 } else { missing.signum() };
                biases[step] += (dna.bias_rate * sign) as f32;
            }
        }
        weights.write("balance.biases", &biases)?;
        weights.write("balance.usage", &usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MachineConfig;
    use crate::model::initial_levels;
    use crate::model::samples::{dna_levels, dna_model};
    use crate::seed::Seed;
    use crate::training::samples::{small_run, small_set};
    use crate::training::{BatchOrder, InnerTrainer};
    use tch::Device;

    /// Recent shares of choices that fall on identities, for each routed step, after so many inner steps.
    fn skipped(skips: f64, steps: u64) -> Vec<f32> {
        let mut run = small_run();
        (run.model, run.levels) = (dna_model(), dna_levels());
        run.model.context = 48;
        run.training.learning_rate = 1e-3;
        let dna = run.model.dna.as_mut().unwrap();
        (dna.top_k, dna.skips, dna.bias_rate) = (2, Some(skips), 2e-3);
        let (modules, identities) = (dna.modules.count(), dna.modules.identities());
        let machine = MachineConfig { threads: 1, ..MachineConfig::default() };
        let mut trainer = InnerTrainer::new(&run, &machine, Device::Cpu).unwrap();
        let levels = initial_levels(&run.model, &run.levels, Seed::root(1));
        trainer.load(&levels.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        let (set, order) = (small_set(12), BatchOrder { seed: Seed::root(2), sequences: 12 });
        for step in 0..steps {
            trainer.step(&set[..], &order, step).unwrap();
        }
        let balance = trainer.levels().unwrap().pop().unwrap();
        let usage = &balance[run.model.dna.as_ref().unwrap().steps..];
        // At first, running shares do not add up to one yet.
        let share = |step: &[f32]| step[identities.clone()].iter().sum::<f32>() / step.iter().sum::<f32>();
        usage.chunks(modules).map(share).collect()
    }

    #[test]
    fn skips_come_within_two_points_of_the_wanted_share_while_a_network_is_trained() {
        for wanted in [0.1, 0.25, 0.4] {
            let shares = skipped(wanted, 500);
            assert!(shares.iter().all(|share| (f64::from(*share) - wanted).abs() < 0.02), "{wanted}: {shares:?}");
        }
    }

    #[test]
    fn biases_move_towards_the_wanted_share_and_usage_follows() {
        let model = dna_model();
        let mut dna = model.dna.clone().unwrap();
        (dna.skips, dna.bias_rate) = (Some(0.25), 0.5);
        let modules = dna.modules.count();
        let identity = dna.modules.identities().start;
        let mut weights = Weights::new(&model, &dna_levels(), Device::Cpu).unwrap();
        let counts = |skipped: u64| {
            let mut counts = vec![0; modules];
            (counts[0], counts[identity]) = (100 - skipped, skipped);
            counts
        };
        let tally = Tally { counts: RefCell::new(vec![counts(10), counts(25), counts(40)]) };
        tally.settle(&dna, &mut weights).unwrap();
        assert_eq!(to_values(&weights.tensor("balance.biases").unwrap()).unwrap(), [0.5, 0.0, -0.5]);
        let usage = to_values(&weights.tensor("balance.usage").unwrap()).unwrap();
        assert_eq!((usage[0], usage[identity]), (NEW_SHARE * 0.9, NEW_SHARE * 0.1));
    }
}
