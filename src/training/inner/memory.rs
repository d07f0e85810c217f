//! How much of a batch an inner step computes at once, and what it does when memory runs out.

use tch::{Device, TchError};

use crate::config::{MachineConfig, Precision, RunConfig};
use crate::training::memory_plan::{Workload, budget, choose};

/// What decides the memory of an inner step. The step's result is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Sequences computed at once, at least 1.
    pub micro_batch: usize,
    /// Whether the backward pass computes blocks again instead of keeping their activations.
    pub checkpointing: bool,
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
        Self { micro_batch: plan.micro_batch, checkpointing: plan.checkpointing }
    }

    /// Halves the micro-batch if an allocation has failed and there is something to halve. `batch` is the batch's number of
    /// sequences.
    pub fn shrinks_after(&mut self, error: &TchError, batch: usize) -> bool {
        if self.micro_batch <= 1 || !is_out_of_memory(error) {
            return false;
        }
        self.micro_batch = self.micro_batch.min(batch).div_ceil(2);
        tracing::warn!(%error, sequences = self.micro_batch, "memory ran out: smaller micro-batches now");
        true
    }
}

/// What libtorch's allocators say, on the CPU and on CUDA.
const SAID: [&str; 3] = ["can't allocate memory", "not enough memory", "out of memory"];

/// Whether an allocation failed. libtorch has no kind of its own for it.
pub fn is_out_of_memory(error: &TchError) -> bool {
    matches!(error, TchError::Torch(said) if SAID.iter().any(|phrase| said.to_lowercase().contains(phrase)))
}

#[cfg(test)]
mod tests {
    use tch::{Kind, Tensor};

    use super::*;
    use crate::config::Checkpointing;
    use crate::model::initial_levels;
    use crate::seed::Seed;
    use crate::training::batches::BatchOrder;
    use crate::training::inner::InnerTrainer;
    use crate::training::samples::small_run;

    fn trainer(run: &RunConfig, micro_batch_sequences: usize, checkpointing: Checkpointing) -> InnerTrainer {
        let machine = MachineConfig { threads: 2, micro_batch_sequences, checkpointing, ..MachineConfig::default() };
        let mut trainer = InnerTrainer::new(run, &machine, Device::Cpu).unwrap();
        let levels = initial_levels(&run.model, &run.levels, Seed::root(1));
        trainer.load(&levels.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        trainer
    }

    #[test]
    fn a_failed_allocation_is_told_from_other_errors() {
        let float = (Kind::Float, Device::Cpu);
        let too_large = Tensor::f_zeros([1i64 << 50].as_slice(), float).unwrap_err();
        assert!(is_out_of_memory(&too_large), "{too_large}");
        let wrong = Tensor::f_zeros([2i64].as_slice(), float).unwrap().f_reshape([3i64].as_slice()).unwrap_err();
        assert!(!is_out_of_memory(&wrong), "{wrong}");
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
        const INSIDE: &str = "PATHSWARM_TEST_INSIDE";
        if std::env::var_os(INSIDE).is_none() {
            let this = std::thread::current().name().unwrap().to_owned();
            let mut inside = std::process::Command::new(std::env::current_exe().unwrap());
            let ended = inside.args([&this, "--exact", "--nocapture"]).env(INSIDE, "1").output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{this} was run");
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
