//! The shape that the benches measure: 3.34 million parameters per path, 8 sequences of 256 tokens per step.

use pathswarm::config::{MachineConfig, Positions, Precision, RunConfig};
use pathswarm::model::{initial_levels, open_device};
use pathswarm::seed::Seed;
use pathswarm::training::{BatchOrder, InnerTrainer, StepReport};
use rand::RngExt;

pub const SEQUENCES: usize = 8;
pub const CONTEXT: usize = 256;
pub const TOKENS: usize = SEQUENCES * CONTEXT;

/// Four blocks of width 192 in two levels, a vocabulary of 4096, no biases, untied head.
pub fn run(positions: Positions) -> RunConfig {
    let mut run = RunConfig::from_toml(
        r#"
        name = "bench"
        [model]
        blocks = 4
        width = 192
        heads = 6
        vocabulary = 4096
        context = 256
        [[levels]]
        parts = ["embedding", "blocks.0-1"]
        sharing = { experts = 2 }
        [[levels]]
        parts = ["blocks.2-3", "final-norm", "head"]
        sharing = { experts = 2 }
        [training]
        batch_sequences = 8
        inner_steps = 100
        phases = 100
        ancestor_steps = 0
        learning_rate = 1e-3
        "#,
    )
    .expect("the bench's run is valid");
    run.model.positions = positions;
    run
}

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
        let mut sequence = || (0..=CONTEXT).map(|_| generator.random_range(0..4096)).collect();
        let set: Vec<Vec<u32>> = (0..8 * SEQUENCES).map(|_| sequence()).collect();
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
