//! A trainer of one shape on random text, whose steps a bench measures.

use pathswarm::config::{MachineConfig, Precision, RunConfig};
use pathswarm::model::{initial_levels, open_device};
use pathswarm::seed::Seed;
use pathswarm::training::{BatchOrder, InnerTrainer, StepReport};
use rand::RngExt;

/// A trainer and random text of the full context length, so that nothing is padded.
pub struct Bench {
    trainer: InnerTrainer,
    set: Vec<Vec<u32>>,
    order: BatchOrder,
    steps: u64,
}

impl Bench {
    /// A bench with initial parameters and a few steps done, so that everything is allocated.
    pub fn new(run: &RunConfig, precision: Precision, threads: usize) -> Self {
        let machine = MachineConfig { threads, precision: precision.into(), ..MachineConfig::default() };
        let device = open_device(machine.device).expect("the CPU is always there");
        let mut trainer = InnerTrainer::new(run, &machine, device).expect("the bench's run is valid");
        let levels = initial_levels(&run.model, &run.levels, Seed::root(1));
        trainer.load(&levels.iter().map(Vec::as_slice).collect::<Vec<_>>()).expect("initial levels fit");
        let mut generator = Seed::root(2).generator();
        let vocabulary = run.model.vocabulary as u32;
        let mut sequence = || (0..=run.model.context).map(|_| generator.random_range(0..vocabulary)).collect();
        let set: Vec<Vec<u32>> = (0..8 * run.training.batch_sequences).map(|_| sequence()).collect();
        let order = BatchOrder { seed: Seed::root(3), sequences: set.len() };
        let mut bench = Self { trainer, set, order, steps: 0 };
        for _ in 0..3 {
            bench.step();
        }
        bench
    }

    /// One inner step.
    pub fn step(&mut self) -> StepReport {
        self.steps += 1;
        self.trainer.step(&self.set[..], &self.order, self.steps).expect("training random text does not diverge")
    }
}
