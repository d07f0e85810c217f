//! How much memory an inner step takes, before it is taken: parameters, moments, gradients, activations, logits and copies
//! of weights, added up for each moment at which a step may need most.
//!
//! [`activations`] has what a token leaves behind in a block, [`choice`] takes what fits into a machine, [`budget`] says how
//! much it has, [`host`] what a peer holds besides its trainer, [`measured`] what a step really took.

pub mod activations;
pub mod budget;
pub mod choice;
pub mod host;
pub mod logit_chunks;
pub mod measured;

use serde::Serialize;
use tch::{Device, TchError};

use crate::config::{
    LevelConfig, MachineConfig, ModelConfig, MomentFormat, Optimizer, Precision, RunConfig, TensorSpec, frozen_parts,
    level_parameters, level_parts, level_tensors,
};
use crate::model::precision_on;
use crate::model::weights::{is_kept_narrow, narrow_operands};
use crate::training::memory_plan::activations::{TokenBytes, copied_weight_bytes};
use crate::training::memory_plan::logit_chunks::chunk_rows;

pub use budget::budget;
pub use choice::{TooLarge, choose};
pub use host::host_bytes;

/// Logits of a chunk in tensors of their size that live at once: logits, their softmax, and the gradients of both.
const LOGIT_TENSORS: u64 = 4;

/// Tensors of the head's size while the loss is computed: its gradient so far and that of a chunk. In f32 on the CPU, oneDNN
/// holds the head and its gradient in its own order as well (fitted to measurements).
const HEAD_TENSORS: [u128; 2] = [2, 4];

/// Percent by which the C library's heap is larger on the CPU than the tensors in it that come and go: it is kept for later
/// steps, in pieces. Fitted to measurements; with a mapping for each tensor it would be none.
const FRAGMENTED_PERCENT: u128 = 30;

/// What libtorch's libraries keep besides tensors as soon as they compute: kernels that are made at run time, and their
/// scratch memory.
const CPU_BUFFERS: u64 = 24 << 20;

/// The same of a card: CUDA's context and its libraries' workspaces.
const CUDA_BUFFERS: u64 = 600 << 20;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The precision of a card could not be measured.
    #[error("{0}")]
    Tensor(#[from] TchError),
}

/// The plan by which this machine trains a path of a run on this device.
///
/// # Errors
/// If nothing that the machine's profile allows fits.
pub fn planned(run: &RunConfig, machine: &MachineConfig, device: Device) -> Result<MemoryPlan, PlanError> {
    let work = Workload::of(run, (precision_on(device, machine.precision)?, machine.moments), device.is_cuda());
    Ok(choose(&work, machine, budget(run, machine, device))?)
}

/// An inner step, as far as its memory depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    pub model: &'a ModelConfig,
    pub levels: &'a [LevelConfig],
    /// Parameters of a path that gradients change.
    pub trained: u64,
    /// Parameters of a path that no gradient changes: they have neither gradients nor moments.
    pub frozen: u64,
    /// Of those that gradients change, parameters with a first moment only: matrices that Muon changes.
    pub by_muon: u64,
    /// How moments are kept.
    pub moments: MomentFormat,
    /// Whether the head is among those that gradients change.
    pub trains_head: bool,
    /// Sequences of a batch.
    pub batch: usize,
    /// Of matrix products.
    pub precision: Precision,
    /// Whether a card computes.
    pub cuda: bool,
}

/// The device memory of an inner step, in bytes, at the moment when it needs most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// Sequences computed at once.
    pub micro_batch: usize,
    pub checkpointing: bool,
    pub parameters: u64,
    /// The moments of the inner optimiser.
    pub moments: u64,
    pub gradients: u64,
    /// What the backward pass needs of the forward pass, and its own intermediate values.
    pub activations: u64,
    /// Logits of a chunk and their gradients, and the head's.
    pub logits: u64,
    /// Weights in another order or precision, kept for the backward pass.
    pub copies: u64,
    /// Of the heap, what lies between tensors.
    pub fragmentation: u64,
    /// What libraries keep besides tensors.
    pub buffers: u64,
}

impl<'a> Workload<'a> {
    /// The inner step of a run's path.
    pub fn of(run: &'a RunConfig, (precision, moments): (Precision, MomentFormat), cuda: bool) -> Self {
        let model = &run.model;
        let frozen = run.frozen().map_or(0, |level| level_parameters(model, &level) as u64);
        let mut work = Self {
            model,
            levels: &run.levels,
            trained: 0,
            frozen,
            by_muon: 0,
            moments,
            trains_head: false,
            batch: run.training.batch_sequences,
            precision,
            cuda,
        };
        let head = if model.tied_head { "embedding.tokens.weight" } else { "head.weight" };
        for tensor in run.levels.iter().flat_map(|level| level_tensors(model, level)) {
            *(if tensor.trained { &mut work.trained } else { &mut work.frozen }) += tensor.count() as u64;
            work.trains_head |= tensor.trained && tensor.name == head;
            if run.training.optimizer == Optimizer::Muon && tensor.trained && !tensor.matrices.is_empty() {
                work.by_muon += tensor.count() as u64;
            }
        }
        work
    }

    /// The memory of a step with so many sequences at once.
    pub fn plan(&self, micro_batch: usize, checkpointing: bool) -> MemoryPlan {
        let micro_batch = micro_batch.clamp(1, self.batch.max(1));
        let model = self.model;
        let parameters = self.trained + self.frozen;
        let frozen = self.frozen_level();
        let mut plan = MemoryPlan {
            micro_batch,
            checkpointing,
            parameters: 4 * parameters - self.narrow_bytes(frozen.as_ref()),
            // The state of a trainer has moments for every parameter of its levels that it trains.
            moments: self.moments.bytes(self.trained) + self.moments.bytes(self.trained - self.by_muon),
            gradients: 0,
            activations: 0,
            logits: 0,
            copies: 0,
            fragmentation: 0,
            buffers: if self.cuda { CUDA_BUFFERS } else { CPU_BUFFERS },
        };
        let tokens = micro_batch as u128 * model.stream_length(model.context) as u128;
        let scored = if model.reads_images() { micro_batch as u128 } else { tokens };
        let moments = self.moments_of_need(tokens, scored, micro_batch < self.batch, checkpointing);
        let most = moments.into_iter().max_by_key(Moment::bytes).unwrap_or_default();
        plan.fragmentation = if self.cuda { 0 } else { narrow(most.bytes() * FRAGMENTED_PERCENT / 100) };
        let Moment { gradients, activations, logits, copies } = most;
        (plan.gradients, plan.activations, plan.logits, plan.copies) =
            (narrow(gradients), narrow(activations), narrow(logits), narrow(copies));
        plan
    }

    fn frozen_level(&self) -> Option<LevelConfig> {
        frozen_parts(self.model, self.levels)
    }

    /// Bytes that are saved where what is frozen is kept in bfloat16.
    fn narrow_bytes(&self, frozen: Option<&LevelConfig>) -> u64 {
        let Some(frozen) = frozen.filter(|_| self.precision == Precision::Bf16) else { return 0 };
        let tensors = level_tensors(self.model, frozen);
        let is_narrow = |tensor: &&TensorSpec| is_kept_narrow(self.model, tensor);
        2 * tensors.iter().filter(is_narrow).map(|tensor| tensor.count() as u64).sum::<u64>()
    }

    /// The moments at which a step may need most. A manifest can ask for more bytes than 64 bits count.
    fn moments_of_need(&self, tokens: u128, scored: u128, several: bool, checkpointing: bool) -> [Moment; 4] {
        let model = self.model;
        let bytes = TokenBytes::of(model, self.precision, self.cuda);
        let segments = model.blocks as u128 + u128::from(model.dna.is_some());
        let (kept, live) = match checkpointing {
            true => (tokens * bytes.input * segments, bytes.most),
            false => (tokens * bytes.all, 0),
        };
        let frozen = self.frozen_level().map_or_else(Vec::new, |level| level_parts(model, &level));
        let [copied, copied_at_once] = copied_weight_bytes(model, self.precision, &frozen).map(u128::from);
        let trained = u128::from(self.trained);
        let copies = if checkpointing { copied_at_once } else { copied };
        // The sums of the micro-batches before.
        let sums = if several { 4 * trained } else { 0 };
        let head = 4 * (model.vocabulary * model.width) as u128;
        let ends = tokens * bytes.input + scored * bytes.ends;
        let logits = u128::from(logit_bytes(model, narrow(scored), (self.precision, self.cuda)));
        // A frozen head has no gradient, and oneDNN holds it in its own order alone.
        let reordered = usize::from(!self.cuda && self.precision == Precision::F32);
        let head_tensors = if self.trains_head { HEAD_TENSORS[reordered] } else { reordered as u128 };
        let at_loss = Moment {
            gradients: sums,
            activations: kept + ends + scored * bytes.input,
            logits: head_tensors * head + logits,
            copies: if checkpointing { 0 } else { copies } + self.narrow_head(),
        };
        let by_head = if self.trains_head { head } else { 0 };
        let backward = |gradients, activations| Moment { gradients, activations, logits: by_head, copies };
        let begins = backward(sums, kept + tokens * (live + bytes.passing));
        // Then all gradients are there, and those of a tied head are not yet in the embedding's.
        let last = tokens * (if checkpointing { bytes.input } else { 0 } + bytes.least + bytes.passing);
        let own = 4 * trained - if model.tied_head { 0 } else { by_head.min(4 * trained) };
        // Several micro-batches share the weights' copies in bfloat16.
        let is_narrow = self.precision == Precision::Bf16 && narrow_operands(model);
        let shared = several && !checkpointing && is_narrow;
        let copies = if shared { copied + self.narrow_head() } else { copied_at_once };
        let ending = Moment { copies, ..backward(sums + own, last) };
        // Parameters come as values of the host.
        let values = if self.cuda { 0 } else { 8 * u128::from(self.trained + self.frozen) };
        let loading = Moment { copies: values, ..Moment::default() };
        [at_loss, begins, ending, loading]
    }

    /// A copy of the head in bfloat16. A frozen one is kept in it.
    fn narrow_head(&self) -> u128 {
        match self.precision {
            Precision::F32 => 0,
            Precision::Bf16 if !self.trains_head && narrow_operands(self.model) => 0,
            Precision::Bf16 => 2 * (self.model.vocabulary * self.model.width) as u128,
        }
    }
}

/// Bytes of the logits of a chunk, with what is computed from them.
fn logit_bytes(model: &ModelConfig, rows: u64, (precision, cuda): (Precision, bool)) -> u64 {
    let vocabulary = model.vocabulary.max(1) as u64;
    let chunk = (chunk_rows(vocabulary as i64, cuda) as u64).min(rows);
    let each = match precision {
        Precision::F32 => 4,
        Precision::Bf16 => 2,
    };
    LOGIT_TENSORS * each * chunk * vocabulary
}

/// What a step holds at one moment besides parameters and the optimiser's moments, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    gradients: u128,
    activations: u128,
    logits: u128,
    copies: u128,
}

/// Bytes that no machine has stay so many.
fn narrow(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl Moment {
    fn bytes(&self) -> u128 {
        self.gradients + self.activations + self.logits + self.copies
    }
}

impl MemoryPlan {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.parts().iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Each part with its name.
    pub fn parts(&self) -> [(&'static str, u64); 8] {
        [
            ("parameters", self.parameters),
            ("moments", self.moments),
            ("gradients", self.gradients),
            ("activations", self.activations),
            ("logits", self.logits),
            ("copies", self.copies),
            ("fragmentation", self.fragmentation),
            ("buffers", self.buffers),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AdapterConfig, Part};
    use crate::grid::Sharing;
    use crate::training::samples::small_run;

    fn run() -> RunConfig {
        let mut run = small_run();
        (run.model.blocks, run.model.width, run.model.context, run.training.batch_sequences) = (8, 128, 512, 32);
        run.levels[1].parts.extend((2..8).map(|block| format!("block.{block}")));
        run
    }

    #[test]
    fn fewer_sequences_at_once_and_checkpointing_take_less() {
        let run = run();
        let work = Workload::of(&run, (Precision::F32, MomentFormat::F32), false);
        let bytes = |micro_batch, checkpointing| work.plan(micro_batch, checkpointing).bytes();
        assert!(bytes(32, false) > bytes(16, false) && bytes(16, false) > bytes(1, false));
        assert!(bytes(32, true) < bytes(32, false) / 3);
        assert_eq!(bytes(99, false), bytes(32, false), "a batch has no more");
        let narrow = Workload { precision: Precision::Bf16, ..work }.plan(32, false).bytes();
        assert!(narrow < bytes(32, false));
    }

    #[test]
    fn frozen_parameters_have_neither_gradients_nor_moments() {
        let run = run();
        let work = Workload::of(&run, (Precision::F32, MomentFormat::F32), false);
        let half = work.trained / 2;
        let adapted = Workload { trained: work.trained - half, frozen: work.frozen + half, ..work };
        let (all, fewer) = (work.plan(1, true), adapted.plan(1, true));
        assert_eq!(all.parameters, fewer.parameters);
        assert_eq!(all.moments - fewer.moments, 8 * half);
        assert!(fewer.gradients < all.gradients);
    }

    #[test]
    fn moments_in_fewer_bits_take_less_and_muon_has_one_of_a_matrix() {
        let mut run = run();
        let of = |run: &RunConfig, format| Workload::of(run, (Precision::F32, format), false).plan(4, false).moments;
        let wide = of(&run, MomentFormat::F32);
        assert_eq!(of(&run, MomentFormat::Bf16), wide / 2);
        assert!(of(&run, MomentFormat::Bits8).abs_diff(wide / 4 + wide / 4 / 64) < 2);
        run.training.optimizer = Optimizer::Muon;
        let matrices = Workload::of(&run, (Precision::F32, MomentFormat::F32), false).by_muon;
        assert!(matrices > 0);
        assert_eq!(of(&run, MomentFormat::F32), wide - 4 * matrices);
    }

    #[test]
    fn the_largest_network_that_a_manifest_may_ask_for_is_planned_and_fits_nowhere() {
        let mut run = run();
        let model = &mut run.model;
        (model.blocks, model.width, model.heads, model.head_width) = (1024, 1 << 16, 1024, Some(1 << 14));
        (model.context, model.vocabulary, model.feed_forward) = (1 << 20, 1 << 20, Some(1 << 18));
        (run.training.batch_sequences, model.gated) = (1 << 20, true);
        model.adapter = Some(AdapterConfig { rank: 1024, alpha: None });
        assert_eq!(model.check(), Ok(()));
        run.levels = vec![LevelConfig { parts: vec!["adapters.0-1023".to_owned()], sharing: Sharing::Shared }];
        for checkpointing in [true, false] {
            let work = Workload::of(&run, (Precision::F32, MomentFormat::F32), false);
            assert!(work.plan(1 << 20, checkpointing).bytes() > 1 << 60);
        }
        assert!(planned(&run, &MachineConfig::default(), Device::Cpu).is_err());
    }

    #[test]
    fn adapters_keep_their_narrow_products_and_nothing_of_what_is_frozen() {
        let mut run = run();
        run.model.adapter = Some(AdapterConfig { rank: 64, alpha: None });
        run.levels = vec![LevelConfig { parts: vec!["adapters.0-7".to_owned()], sharing: Sharing::Shared }];
        let whole = run.model.without_adapter();
        let [of_all, of_adapters] = [&whole, &run.model].map(|model| TokenBytes::of(model, Precision::F32, false).all);
        assert_eq!(of_adapters - of_all, 8 * 4 * 6 * 64, "three of queries, keys and values, and one of each other");
        let work = Workload::of(&run, (Precision::F32, MomentFormat::F32), false);
        assert!(!work.trains_head && work.frozen > work.trained);
        assert_eq!(work.plan(1, false).moments, 8 * work.trained);
    }

    #[test]
    fn what_is_frozen_takes_half_where_products_are_in_bfloat16() {
        let mut run = run();
        run.model.adapter = Some(AdapterConfig { rank: 4, alpha: None });
        run.levels = vec![LevelConfig { parts: vec!["adapters.0-7".to_owned()], sharing: Sharing::Shared }];
        let plan = |precision| Workload::of(&run, (precision, MomentFormat::F32), false).plan(1, false);
        let [wide, narrow] = [Precision::F32, Precision::Bf16].map(plan);
        let share = narrow.parameters as f64 / wide.parameters as f64;
        assert!((0.5..0.55).contains(&share), "{share}");
        let copied = |frozen: &[Part]| copied_weight_bytes(&run.model, Precision::Bf16, frozen)[0];
        assert!(3 * copied(&run.model.parts()) < copied(&[]), "no copies of what is bfloat16 already");
    }

    #[test]
    fn a_plan_is_the_sum_of_its_parts() {
        let run = run();
        let plan = Workload::of(&run, (Precision::F32, MomentFormat::F32), false).plan(4, false);
        assert!(plan.parts().iter().all(|(_, bytes)| *bytes < plan.bytes()));
        assert_eq!(
            plan.parameters,
            4 * run.levels.iter().map(|level| crate::config::level_parameters(&run.model, level)).sum::<usize>() as u64
        );
    }
}
