//! One inner step: a batch forward and backward, and a step of the optimiser.

pub mod adamw;
pub(super) mod balance;
mod checkpointing;
pub mod gradients;
pub mod loss;
pub mod memory;
pub mod moments;
mod muon;
pub mod optimizer;
pub mod schedule;
pub mod state;

use rayon::ThreadPool;
use tch::{Device, TchError, Tensor};

use super::batches::{Batch, BatchCursor, BatchError, BatchLimits, BatchOrder, Sequences};
use super::errors::{StepError, TrainerError, finite};
use crate::config::{MachineConfig, RunConfig, TrainingConfig};
use crate::model::layers::linear::Kernel;
use crate::model::weights::to_values;
use crate::model::{PathModel, WeightsError, kernels, precision_on, set_threads};
use crate::training::batches::augmented::AugmentedImages;
use crate::training::inner::adamw::norm;
use crate::training::inner::balance::Tally;
use crate::training::inner::gradients::{Gradients, loss_and_gradients};
use crate::training::inner::memory::MemoryUse;
use crate::training::inner::moments::Moments;
use crate::training::inner::optimizer::{InnerOptimizer, StepNow};
use crate::training::inner::schedule::learning_rate_since_rest;
use crate::training::inner::state::InnerState;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Mean loss of the batch's targets before the step, in nats.
    pub loss: f64,
    /// Targets in the batch. For images, their patches.
    pub tokens: u64,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    pub learning_rate: f64,
}

pub struct InnerTrainer {
    model: PathModel,
    training: TrainingConfig,
    optimizer: InnerOptimizer,
    moments: Vec<Moments>,
    steps: u64,
    cursor: u64,
    batches: BatchCursor,
    memory: MemoryUse,
    /// Limits of sequences, and which tokens are targets.
    limits: BatchLimits,
    pool: ThreadPool,
}

impl InnerTrainer {
    /// A trainer with all parameters zero until they are loaded. Sets the thread count of the process.
    pub fn new(run: &RunConfig, machine: &MachineConfig, device: Device) -> Result<Self, TrainerError> {
        set_threads(machine.threads);
        let precision = precision_on(device, machine.precision)?;
        let memory = MemoryUse::of(run, precision, machine, device);
        let mut model = PathModel::new(&run.model, &run.levels, device, precision)?;
        if machine.fused_kernels && kernels::are_there(device) {
            model.set_kernel(Kernel::Fused);
        }
        let training = run.training.clone();
        let threads = usize::try_from(tch::get_num_threads()).unwrap_or(1).max(1);
        let optimizer = InnerOptimizer::new(&training, model.weights());
        Ok(Self {
            moments: optimizer.moments(machine.moments, device)?,
            optimizer,
            memory,
            limits: BatchLimits {
                first_target: if training.predict_prefix { 1 } else { run.routing.prefix_tokens },
                ..BatchLimits::of(&run.model)
            },
            training,
            steps: 0,
            cursor: 0,
            batches: BatchCursor::default(),
            pool: rayon::ThreadPoolBuilder::new().num_threads(threads).build()?,
            model,
        })
    }

    /// The run has so many phases from now on, for the learning rate's schedule.
    pub fn set_phases(&mut self, phases: u64) {
        self.training.phases = phases;
    }

    /// Sets all parameters; keeps the optimiser's state.
    pub fn load(&mut self, levels: &[impl AsRef<[f32]>]) -> Result<(), TrainerError> {
        let expected = self.moments.len();
        if levels.len() != expected {
            return Err(TrainerError::Levels { expected, found: levels.len() });
        }
        for (level, values) in levels.iter().enumerate() {
            self.model.set_level(level, values.as_ref())?;
        }
        Ok(())
    }

    /// Sets the parts that no level lists.
    pub fn load_frozen(&mut self, values: &[f32]) -> Result<(), WeightsError> {
        self.model.set_frozen(values)
    }

    /// Sets the optimiser's state and the data cursor; keeps the parameters.
    pub fn restore(&mut self, state: &InnerState) -> Result<(), TrainerError> {
        let sizes = self.model.level_sizes();
        if state.moments.len() != sizes.len() {
            return Err(TrainerError::Levels { expected: sizes.len(), found: state.moments.len() });
        }
        for (level, (expected, moments)) in sizes.iter().zip(&state.moments).enumerate() {
            if let Some(wrong) = moments.iter().find(|values| values.len() != *expected) {
                return Err(TrainerError::State { level, expected: *expected, found: wrong.len() });
            }
        }
        let device = self.model.device();
        let mut own = self.moments.iter_mut().zip(&state.moments);
        own.try_for_each(|(own, moments)| own.set(&self.pool, moments, device))?;
        (self.steps, self.cursor) = (state.steps, state.cursor);
        Ok(())
    }

    /// The path's network, for evaluation between steps.
    pub fn model(&self) -> &PathModel {
        &self.model
    }

    /// All parameters, by level.
    pub fn levels(&self) -> Result<Vec<Vec<f32>>, WeightsError> {
        (0..self.moments.len()).map(|level| self.model.level(level)).collect()
    }

    /// The state to resume from.
    pub fn state(&self) -> Result<InnerState, TchError> {
        let moments = self.moments.iter().map(Moments::values).collect::<Result<_, _>>()?;
        Ok(InnerState { steps: self.steps, cursor: self.cursor, moments })
    }

    /// Trains on the next batch. The loss is the mean over all its targets, for any micro-batch.
    ///
    /// # Errors
    /// If the batch is invalid, or the loss or gradient is not finite. Nothing has then changed.
    pub fn step(
        &mut self,
        set: &(impl Sequences + ?Sized),
        order: &BatchOrder,
        schedule_step: u64,
    ) -> Result<StepReport, StepError> {
        let Found { loss, tokens, gradients, tally } = self.next_gradient(set, order, schedule_step)?;
        let (gradient_norm, learning_rate) = self.update(&gradients, schedule_step)?;
        if let Some(dna) = self.model.config().dna.clone() {
            tally.settle(&dna, self.model.weights_mut())?;
        }
        self.cursor = self.cursor.wrapping_add(self.training.batch_sequences as u64);
        let model = self.model.config();
        let tokens = if model.reads_images() { tokens * model.stream_length(model.context) as u64 } else { tokens };
        Ok(StepReport { loss, tokens, gradient_norm, learning_rate })
    }

    /// The gradient of the batch at position `cursor`, level by level, and its number of targets. Changes nothing.
    pub fn gradient(
        &mut self,
        set: &(impl Sequences + ?Sized),
        order: &BatchOrder,
        (cursor, schedule_step): (u64, u64),
    ) -> Result<(Vec<Vec<f32>>, u64), StepError> {
        let own = std::mem::replace(&mut self.cursor, cursor);
        let found = self.next_gradient(set, order, schedule_step);
        self.cursor = own;
        let Found { tokens, gradients, .. } = found?;
        let flat =
            |level: &Vec<Tensor>| Ok(level.iter().map(to_values).collect::<Result<Vec<_>, TchError>>()?.concat());
        Ok((gradients.iter().map(flat).collect::<Result<_, TchError>>()?, tokens))
    }

    /// A step of the optimiser with a given gradient, level by level; the data cursor stays.
    ///
    /// # Errors
    /// If the gradient is not finite. Nothing has then changed.
    ///
    /// # Panics
    /// If the gradient belongs to another model.
    pub fn descend(&mut self, gradient: &[Vec<f32>], schedule_step: u64) -> Result<(), StepError> {
        let device = self.model.device();
        assert!(gradient.iter().map(Vec::len).eq(self.model.level_sizes()), "a gradient of this model");
        let place = |(level, values): (usize, &Vec<f32>)| {
            self.optimizer.by_tensor(level, &Tensor::f_from_slice(values)?.f_to_device(device)?)
        };
        let gradients = gradient.iter().enumerate().map(place).collect::<Result<Vec<_>, TchError>>()?;
        self.update(&gradients, schedule_step)?;
        Ok(())
    }

    /// Mean loss, targets, gradients and choices of the next batch. If memory runs out, steps are smaller from then on
    /// ([`MemoryUse::shrinks_after`]).
    fn next_gradient(
        &mut self,
        set: &(impl Sequences + ?Sized),
        order: &BatchOrder,
        schedule_step: u64,
    ) -> Result<Found, StepError> {
        loop {
            match self.gradient_now(set, order, schedule_step) {
                Err(error) if self.memory.shrinks_after(&error, self.training.batch_sequences) => {}
                found => return found,
            }
        }
    }

    /// The same with the present micro-batch.
    fn gradient_now(
        &mut self,
        set: &(impl Sequences + ?Sized),
        order: &BatchOrder,
        schedule_step: u64,
    ) -> Result<Found, StepError> {
        if set.len() != order.sequences {
            return Err(BatchError::Sequences { expected: order.sequences, found: set.len() }.into());
        }
        let size = self.training.batch_sequences;
        let mut chosen = self.batches.take(order, self.cursor, size)?;
        // Longest first: micro-batches of similar length have the least padding.
        chosen.sort_by_key(|index| std::cmp::Reverse(set.sequence(*index).len()));
        let mut batches = match &self.training.augment {
            Some(how) => {
                let seed = order.seed.child("augment").number(self.cursor);
                let changed = AugmentedImages::of(set, &chosen, &self.limits, (how, seed))?;
                let all: Vec<usize> = (0..chosen.len()).collect();
                self.lay_out(&changed, &all, &self.limits)?
            }
            None => self.lay_out(set, &chosen, &self.limits)?,
        };
        if batches.iter().all(|batch| batch.target_count() == 0) {
            // All sequences are short: learning from those that choose the path is better than skipping the batch.
            batches = self.lay_out(set, &chosen, &BatchLimits { first_target: 1, ..self.limits })?;
        }
        let tokens: usize = batches.iter().map(Batch::target_count).sum();
        if tokens == 0 {
            return Err(StepError::NoTargets { cursor: self.cursor });
        }
        let tally = Tally::default();
        let (loss, gradients) = loss_and_gradients(&self.model, &batches, tokens, (&tally, self.memory.checkpointing))?;
        finite(schedule_step, "loss", loss)?;
        Ok(Found { loss, tokens: tokens as u64, gradients, tally })
    }

    /// Returns the norm before clipping and the learning rate.
    fn update(&mut self, gradients: &[Vec<Tensor>], schedule_step: u64) -> Result<(f64, f64), StepError> {
        let gradient_norm = norm(&self.pool, gradients)?;
        finite(schedule_step, "gradient's norm", gradient_norm)?;
        let learning_rate = learning_rate_since_rest(&self.training, schedule_step, self.steps);
        let number = self.steps + 1;
        let now = StepNow { number, norm: gradient_norm, learning_rate };
        self.optimizer.update(&self.pool, self.model.weights_mut(), &mut self.moments, gradients, now)?;
        self.steps = number;
        Ok((gradient_norm, learning_rate))
    }

    /// The chosen sequences in micro-batches.
    fn lay_out(
        &self,
        set: &(impl Sequences + ?Sized),
        chosen: &[usize],
        limits: &BatchLimits,
    ) -> Result<Vec<Batch>, BatchError> {
        let batch = |chosen| Batch::for_step(set, chosen, limits, &self.model);
        chosen.chunks(self.memory.micro_batch).map(batch).collect()
    }
}

/// The results of a batch.
struct Found {
    /// Mean over its targets, in nats.
    loss: f64,
    tokens: u64,
    gradients: Gradients,
    tally: Tally,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Precision;
    use crate::model::initial_levels;
    use crate::seed::Seed;
    use crate::training::samples::{small_run, small_set};

    fn machine(micro_batch_sequences: usize) -> MachineConfig {
        MachineConfig { threads: 2, micro_batch_sequences, ..MachineConfig::default() }
    }

    fn trainer(run: &RunConfig, machine: &MachineConfig) -> InnerTrainer {
        let mut trainer = InnerTrainer::new(run, machine, Device::Cpu).unwrap();
        let levels = initial_levels(&run.model, &run.levels, Seed::root(1));
        trainer.load(&levels.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        trainer
    }

    fn order(sequences: usize) -> BatchOrder {
        BatchOrder { seed: Seed::root(2), sequences }
    }

    fn train(trainer: &mut InnerTrainer, set: &[Vec<u32>], steps: std::ops::Range<u64>) -> Vec<StepReport> {
        steps.map(|step| trainer.step(set, &order(set.len()), step).unwrap()).collect()
    }

    #[test]
    fn the_loss_starts_at_chance_and_falls() {
        let (run, set) = (small_run(), small_set(12));
        let reports = train(&mut trainer(&run, &machine(0)), &set, 0..40);
        // Logits of variance 1 cost half a nat more than zeros.
        assert!((reports[0].loss - 300f64.ln() - 0.5).abs() < 0.5, "{}", reports[0].loss);
        assert!(reports[39].loss < 2.6, "{}", reports[39].loss);
        assert!(reports.iter().all(|report| report.tokens > 0 && report.gradient_norm > 0.0));
    }

    #[test]
    fn the_tokens_that_choose_a_path_need_not_be_learnt() {
        let (mut run, set) = (small_run(), small_set(12));
        let all = train(&mut trainer(&run, &machine(0)), &set, 0..1)[0];
        run.training.predict_prefix = false;
        run.routing.prefix_tokens = 10;
        let rest = train(&mut trainer(&run, &machine(0)), &set, 0..1)[0];
        let epoch = order(12).epoch(0);
        let chosen = epoch[..4].iter().map(|index| set[*index].len());
        let expected: usize = chosen.clone().map(|length| length.saturating_sub(10)).sum();
        assert_eq!((all.tokens, rest.tokens), (chosen.map(|length| length as u64 - 1).sum(), expected as u64));
        assert!(expected > 0 && rest.loss != all.loss);
        run.routing.prefix_tokens = 47;
        let all_prefix: Vec<Vec<u32>> = set.iter().map(|tokens| tokens[..2].to_vec()).collect();
        assert_eq!(train(&mut trainer(&run, &machine(0)), &all_prefix, 0..1)[0].tokens, 4, "better than none");
    }

    #[test]
    fn the_same_steps_give_the_same_bits() {
        let (run, set) = (small_run(), small_set(12));
        let twice = [(); 2].map(|()| {
            let mut trainer = trainer(&run, &machine(0));
            let reports = train(&mut trainer, &set, 0..6);
            (reports, trainer.levels().unwrap(), trainer.state().unwrap())
        });
        assert!(twice[0] == twice[1]);
    }

    #[test]
    fn a_gradient_that_is_taken_and_then_followed_is_a_step() {
        let (run, set) = (small_run(), small_set(12));
        let mut expected = trainer(&run, &machine(0));
        train(&mut expected, &set, 0..3);
        let mut by_hand = trainer(&run, &machine(0));
        for step in 0..3 {
            let cursor = step * run.training.batch_sequences as u64;
            let (gradient, tokens) = by_hand.gradient(&set[..], &order(12), (cursor, step)).unwrap();
            assert!(tokens > 0);
            by_hand.descend(&gradient, step).unwrap();
        }
        let close = |a: f32, b: f32| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
        let (found, expected) = (by_hand.levels().unwrap().concat(), expected.levels().unwrap().concat());
        assert!(found.iter().zip(&expected).all(|(a, b)| close(*a, *b)), "but for the order of the norm's sum");
    }

    #[test]
    fn stopping_and_going_on_gives_the_same_bits_as_never_stopping() {
        let (run, set) = (small_run(), small_set(10));
        let mut through = trainer(&run, &machine(0));
        let expected = train(&mut through, &set, 0..7);
        let mut first = trainer(&run, &machine(0));
        train(&mut first, &set, 0..4);
        let (levels, bytes) = (first.levels().unwrap(), first.state().unwrap().encode());
        drop(first);
        let mut second = InnerTrainer::new(&run, &machine(0), Device::Cpu).unwrap();
        second.load(&levels.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        second.restore(&InnerState::decode(&bytes, &second.model().level_sizes()).unwrap()).unwrap();
        assert_eq!(train(&mut second, &set, 4..7), expected[4..]);
        assert!(second.levels().unwrap() == through.levels().unwrap());
        assert!(second.state().unwrap() == through.state().unwrap());
    }

    #[test]
    fn the_micro_batch_changes_nothing_but_rounding() {
        let set = small_set(12);
        for tied in [false, true] {
            let mut run = small_run();
            if tied {
                run.model.tied_head = true;
                run.levels[1].parts.pop();
            }
            let results = [0, 1, 3].map(|micro| {
                let mut trainer = trainer(&run, &machine(micro));
                // One step only: over several, Adam's division by the root of tiny squares amplifies rounding.
                let reports = train(&mut trainer, &set, 0..1);
                (reports[0], trainer.state().unwrap().moments)
            });
            for (report, moments) in &results[1..] {
                assert!((report.loss - results[0].0.loss).abs() < 1e-5);
                assert!((report.gradient_norm - results[0].0.gradient_norm).abs() < 1e-5);
                assert_eq!(report.tokens, results[0].0.tokens);
                let pairs = moments.iter().flatten().flatten().zip(results[0].1.iter().flatten().flatten());
                assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5));
            }
        }
    }

    #[test]
    fn bfloat16_trains_nearly_as_well_and_leaves_parameters_in_f32() {
        let (run, set) = (small_run(), small_set(12));
        let narrow = MachineConfig { precision: Precision::Bf16.into(), ..machine(0) };
        let wide = train(&mut trainer(&run, &machine(0)), &set, 0..30);
        let narrow = train(&mut trainer(&run, &narrow), &set, 0..30);
        assert!((wide[29].loss - narrow[29].loss).abs() < 0.1, "{} {}", wide[29].loss, narrow[29].loss);
    }

    #[test]
    fn what_is_not_finite_is_an_error_and_changes_nothing() {
        let (run, set) = (small_run(), small_set(12));
        let mut trainer = trainer(&run, &machine(0));
        train(&mut trainer, &set, 0..2);
        let huge: Vec<Vec<f32>> =
            trainer.levels().unwrap().iter().map(|level| level.iter().map(|x| x * 1e30).collect()).collect();
        trainer.load(&huge.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        let before = trainer.state().unwrap();
        let error = trainer.step(&set[..], &order(12), 2).unwrap_err();
        assert!(matches!(error, StepError::NotFinite { step: 2, .. }), "{error}");
        assert!(trainer.state().unwrap() == before);
        assert!(trainer.levels().unwrap() == huge);
    }

    #[test]
    fn unusable_sequences_and_states_are_errors() {
        let run = small_run();
        let mut trainer = trainer(&run, &machine(0));
        let step = |trainer: &mut InnerTrainer, set: Vec<Vec<u32>>| trainer.step(&set[..], &order(set.len()), 0);
        assert!(matches!(step(&mut trainer, vec![]), Err(StepError::Batch(BatchError::NoSequences))));
        assert!(matches!(step(&mut trainer, vec![vec![1], vec![]]), Err(StepError::NoTargets { .. })));
        assert!(matches!(step(&mut trainer, vec![vec![1, 999]]), Err(StepError::Batch(BatchError::Token { .. }))));
        assert!(matches!(
            trainer.step(&small_set(3)[..], &order(4), 0),
            Err(StepError::Batch(BatchError::Sequences { .. }))
        ));
        assert!(matches!(trainer.load(&[&[1.0]]), Err(TrainerError::Levels { .. })));
        assert!(matches!(trainer.restore(&InnerState::fresh(&[1, 1])), Err(TrainerError::State { .. })));
    }
}
