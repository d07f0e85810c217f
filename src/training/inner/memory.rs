//! How much of a batch an inner step computes at once, and what it does when memory runs out.

use std::error::Error;

use tch::Device;

use crate::config::{Checkpointing, MachineConfig, Precision, RunConfig};
use crate::model::tensor_memory::{ProfileLimit, first_line, lift_profile_limit, ran_out_of_memory};
use crate::training::inner::InnerTrainer;
use crate::training::memory_plan::{Workload, budget, choose};

/// What decides the memory of an inner step. The step's result is the same for all.
#[derive(Debug)]
pub struct MemoryUse {
    /// Sequences computed at once, at least 1.
    pub micro_batch: usize,
    /// Whether the backward pass computes blocks again instead of keeping their activations.
    pub checkpointing: bool,
    /// Whether the machine's profile leaves checkpointing open.
    may_checkpoint: bool,
    /// What was done about memory that ran out, until somebody asks.
    note: Option<String>,
    /// What the profile gives to this trainer, on the CPU.
    _limit: Option<ProfileLimit>,
}

impl MemoryUse {
    /// What a machine's profile says; what it leaves open, as the memory plan of this step has it. If nothing fits, it is
    /// what takes least: `create` and `join` have refused, or another program is to share its memory.
    pub fn of(run: &RunConfig, precision: Precision, machine: &MachineConfig, device: Device) -> Self {
        let work = Workload::of(run, (precision, machine.moments), device.is_cuda());
        let plan = choose(&work, machine, budget(run, machine, device)).unwrap_or_else(|error| {
            tracing::warn!(%error, "training with what takes least");
            error.least
        });
        tracing::debug!(?plan, "memory of an inner step");
        Self {
            micro_batch: plan.micro_batch,
            checkpointing: plan.checkpointing,
            may_checkpoint: machine.checkpointing == Checkpointing::Auto,
            note: None,
            _limit: if device.is_cuda() { None } else { ProfileLimit::new(machine.memory_limit_bytes) },
        }
    }

    /// After an allocation that failed, makes steps smaller, if they can be: the micro-batch is halved, and where it is a
    /// single sequence, blocks are computed again in the backward pass. Then the profile's limit is given up. `batch` is the
    /// batch's number of sequences.
    pub fn shrinks_after(&mut self, error: &(dyn Error + 'static), batch: usize) -> bool {
        if !ran_out_of_memory(error) {
            return false;
        }
        if self.micro_batch.min(batch) > 1 {
            self.micro_batch = self.micro_batch.min(batch).div_ceil(2);
            let sequences = if self.micro_batch == 1 { "sequence is" } else { "sequences are" };
            return self.note(error, format!("{} {sequences} computed at once from now on", self.micro_batch));
        }
        if self.may_checkpoint && !self.checkpointing {
            self.checkpointing = true;
            return self.note(error, "the backward pass computes blocks again from now on".to_owned());
        }
        lift_profile_limit() && self.note(error, "training gets more than memory_limit_bytes from now on".to_owned())
    }

    fn note(&mut self, error: &dyn Error, what: String) -> bool {
        tracing::warn!(reason = %first_line(&error), "memory ran out: {what}");
        self.note = Some(what);
        true
    }
}

impl InnerTrainer {
    /// What was done about memory that ran out since this was last asked.
    pub fn memory_note(&mut self) -> Option<String> {
        self.memory.note.take()
    }
}

#[cfg(test)]
mod tests {
    use tch::{Kind, TchError, Tensor};

    use super::*;
    use crate::model::initial_levels;
    #[cfg(target_os = "linux")]
    use crate::model::samples::is_in_a_process_of_its_own;
    use crate::seed::Seed;
    use crate::training::batches::BatchOrder;
    use crate::training::samples::small_run;

    fn trainer(run: &RunConfig, micro_batch_sequences: usize, checkpointing: Checkpointing) -> InnerTrainer {
        let machine = MachineConfig { threads: 2, micro_batch_sequences, checkpointing, ..MachineConfig::default() };
        let mut trainer = InnerTrainer::new(run, &machine, Device::Cpu).unwrap();
        let levels = initial_levels(&run.model, &run.levels, Seed::root(1));
        trainer.load(&levels.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        trainer
    }

    #[test]
    fn a_step_becomes_smaller_until_it_cannot_and_for_no_other_error() {
        let (run, refused) = (small_run(), TchError::Torch("out of memory: a tensor".to_owned()));
        let of = |checkpointing| {
            let machine = MachineConfig { micro_batch_sequences: 5, checkpointing, ..MachineConfig::default() };
            MemoryUse::of(&run, Precision::F32, &machine, Device::Cpu)
        };
        let mut memory = of(Checkpointing::Auto);
        assert!(!memory.shrinks_after(&TchError::Torch("of another shape".to_owned()), 4));
        let mut taken = Vec::new();
        while memory.shrinks_after(&refused, 4) {
            taken.push((memory.micro_batch, memory.checkpointing));
        }
        assert_eq!(taken, [(2, false), (1, false), (1, true)], "no limit of the profile can be given up");
        let mut memory = of(Checkpointing::Off);
        assert!(memory.shrinks_after(&refused, 4) && memory.shrinks_after(&refused, 4));
        assert!(!memory.shrinks_after(&refused, 4) && !memory.checkpointing);
    }

    #[test]
    fn a_failed_allocation_is_told_from_other_errors() {
        let float = (Kind::Float, Device::Cpu);
        let too_large = Tensor::f_zeros([1i64 << 50].as_slice(), float).unwrap_err();
        assert!(ran_out_of_memory(&too_large), "{too_large}");
        let wrong = Tensor::f_zeros([2i64].as_slice(), float).unwrap().f_reshape([3i64].as_slice()).unwrap_err();
        assert!(!ran_out_of_memory(&wrong), "{wrong}");
    }

    /// Most bytes of address space from now on: what this process has, and `more`.
    #[cfg(target_os = "linux")]
    fn limit_memory(more: u64) {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        let most = pages * 4096 + more;
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the limit is a value of this function.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    }

    /// In a process of its own, since the limit would hold for other tests.
    #[cfg(target_os = "linux")]
    #[test]
    fn where_memory_runs_out_micro_batches_are_smaller_and_the_step_is_the_same() {
        if !is_in_a_process_of_its_own() {
            return;
        }
        let mut run = small_run();
        (run.model.context, run.training.batch_sequences) = (256, 256);
        let set: Vec<Vec<u32>> = (0..256).map(|at| (0..256).map(|token| (token * 7 + at) % 300).collect()).collect();
        let order = BatchOrder { seed: Seed::root(2), sequences: set.len() };
        let step = |trainer: &mut InnerTrainer| trainer.step(&set[..], &order, 0).unwrap();
        let expected = step(&mut trainer(&run, 8, Checkpointing::Off));
        let mut short = [Checkpointing::Off, Checkpointing::On].map(|checkpointing| trainer(&run, 0, checkpointing));
        limit_memory(24 << 20);
        for trainer in &mut short {
            let found = step(trainer);
            assert!(trainer.memory.micro_batch < 256, "{:?}", trainer.memory);
            assert_eq!(found.tokens, expected.tokens);
            let apart = (found.loss - expected.loss).abs().max((found.gradient_norm - expected.gradient_norm).abs());
            assert!(apart < 1e-4, "{apart}");
        }
    }
}
