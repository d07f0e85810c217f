//! What fits into a machine: the largest micro-batch, and checkpointing only where nothing fits without.

use crate::config::{Checkpointing, MachineConfig};
use crate::model::tensor_memory::keeps_limits;
use crate::sizes::in_words;
use crate::training::memory_plan::{MemoryPlan, Workload};

/// No plan fits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an inner step takes about {} even with {} of its sequences at once{}, this machine gives {} to it: what it has, or \
    memory_limit_bytes, less what the program and the states of modules take",
    in_words(least.bytes()),
    least.micro_batch,
    if least.checkpointing { " and checkpointing" } else { "" },
    in_words(*budget)
)]
pub struct TooLarge {
    /// The plan that takes least, of those that the profile allows.
    pub least: MemoryPlan,
    /// Bytes that a step may take.
    pub budget: u64,
}

/// A plan may take more than it turns out to, by this much of it (docs/results/memory.md). Only what would not fit even then
/// is refused.
const ERROR_PERCENT: u64 = 15;

/// The plan by which a machine trains. What its profile leaves open is chosen: the whole batch at once if it fits, else the
/// first half of it that does, halved again and again. Checkpointing costs time, so it is taken last. Without a known
/// `budget`, the whole batch is. A micro-batch that the profile gives is kept where memory that runs out is noticed, since it
/// is then halved.
pub fn choose(work: &Workload<'_>, machine: &MachineConfig, budget: Option<u64>) -> Result<MemoryPlan, TooLarge> {
    let sizes: Vec<usize> = match machine.micro_batch_sequences {
        0 => std::iter::successors(Some(work.batch.max(1)), |size| (*size > 1).then(|| size.div_ceil(2))).collect(),
        given => vec![given],
    };
    let checkpointing: &[bool] = match machine.checkpointing {
        Checkpointing::Auto => &[false, true],
        Checkpointing::Off => &[false],
        Checkpointing::On => &[true],
    };
    let plans = || checkpointing.iter().flat_map(|on| sizes.iter().map(|size| work.plan(*size, *on)));
    let budget = budget.unwrap_or(u64::MAX);
    if let Some(fits) = plans().find(|plan| plan.bytes() <= budget) {
        return Ok(fits);
    }
    let least = plans().min_by_key(MemoryPlan::bytes).unwrap_or_else(|| work.plan(1, true));
    let is_halved = machine.micro_batch_sequences > 0 && (work.cuda || keeps_limits(machine.memory_limit_bytes));
    if is_halved && checkpointing.iter().any(|on| work.plan(1, *on).bytes() <= budget) {
        return Ok(least);
    }
    let at_least = least.bytes() / 100 * (100 - ERROR_PERCENT);
    if at_least <= budget { Ok(least) } else { Err(TooLarge { least, budget }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MomentFormat, Precision};
    use crate::training::samples::small_run;

    #[test]
    fn the_largest_micro_batch_that_fits_is_taken_and_checkpointing_last() {
        let mut run = small_run();
        (run.model.context, run.training.batch_sequences) = (4096, 32);
        let work = Workload::of(&run, (Precision::F32, MomentFormat::F32), false);
        let machine = MachineConfig::default();
        let chosen = |budget| choose(&work, &machine, budget).map(|plan| (plan.micro_batch, plan.checkpointing));
        assert_eq!(chosen(None), Ok((32, false)));
        let bytes = |size, checkpointing| work.plan(size, checkpointing).bytes();
        assert_eq!(chosen(Some(bytes(32, false))), Ok((32, false)));
        assert_eq!(chosen(Some(bytes(32, false) - 1)), Ok((16, false)));
        assert_eq!(chosen(Some(bytes(1, false) - 1)).map(|(_, checkpointing)| checkpointing), Ok(true));
        let least = bytes(1, true);
        assert_eq!(chosen(Some(least / 100 * 90)), Ok((1, true)), "it may fit: the plan is not exact");
        assert!(choose(&work, &machine, Some(least / 100 * 80)).is_err());
        let refused = choose(&work, &machine, Some(1000)).unwrap_err();
        assert_eq!((refused.least.micro_batch, refused.least.checkpointing), (1, true));
        assert!(refused.to_string().contains("1 of its sequences at once and checkpointing"), "{refused}");
    }

    #[test]
    fn what_a_profile_says_is_kept_whether_it_fits_or_not() {
        let mut run = small_run();
        run.training.batch_sequences = 32;
        let work = Workload::of(&run, (Precision::F32, MomentFormat::F32), false);
        let machine =
            MachineConfig { micro_batch_sequences: 8, checkpointing: Checkpointing::Off, ..MachineConfig::default() };
        let plan = choose(&work, &machine, None).unwrap();
        assert_eq!((plan.micro_batch, plan.checkpointing), (8, false));
        assert_eq!(choose(&work, &machine, Some(1)).unwrap_err().least, plan);
        let card = Workload { cuda: true, ..work };
        let (smallest, given) = (card.plan(1, false), card.plan(8, false));
        assert!(smallest.bytes() < given.bytes());
        assert_eq!(choose(&card, &machine, Some(smallest.bytes())), Ok(given), "it is halved where it does not fit");
        assert_eq!(choose(&card, &machine, Some(smallest.bytes() / 2)).unwrap_err().least, given);
    }
}
