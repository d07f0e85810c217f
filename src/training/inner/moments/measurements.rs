//! What `docs/results/memory.md` says of moments in fewer bits:
//! `cargo test --release --lib moments::measurements -- --ignored --nocapture`, each in a process of its own.

use std::time::Instant;

use rand::RngExt;
use tch::Device;

use crate::config::{MachineConfig, ModelConfig, MomentFormat, Optimizer, Precision, RunConfig};
use crate::model::{PathModel, initial_levels};
use crate::seed::Seed;
use crate::training::batches::{Batch, BatchLimits};
use crate::training::inner::balance::Tally;
use crate::training::inner::gradients::loss_and_gradients;
use crate::training::memory_plan::Workload;
use crate::training::memory_plan::measured::measured;
use crate::training::samples::small_run;
use crate::training::{BatchOrder, InnerTrainer, target_losses};

const FORMATS: [MomentFormat; 3] = [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Bits8];

/// Text in which each of 64 tokens is followed by one of eight, mostly by the first of them.
fn chain(seed: u64, sequences: usize) -> Vec<Vec<u32>> {
    let mut generator = Seed::root(seed).generator();
    let mut sequence = |_| {
        let mut token = generator.random_range(0..64u32);
        let mut next = || {
            let choice = generator.random_range(0..8u32) & generator.random_range(0..8u32);
            token = (token * 29 + 11 * choice * choice + 7) % 64;
            token
        };
        (0..48).map(|_| next()).collect()
    };
    (0..sequences).map(&mut sequence).collect()
}

/// Nats a token in the last tenth of training, and of text that was held out.
fn learnt(run: &RunConfig, moments: MomentFormat, seed: u64) -> [f64; 2] {
    const STEPS: u64 = 400;
    let machine = MachineConfig { threads: 1, moments, ..MachineConfig::default() };
    let mut trainer = InnerTrainer::new(run, &machine, Device::Cpu).unwrap();
    trainer.load(&initial_levels(&run.model, &run.levels, Seed::root(seed))).unwrap();
    let (set, held_out) = (chain(1, 2000), chain(2, 100));
    let order = BatchOrder { seed: Seed::root(seed), sequences: set.len() };
    let losses: Vec<f64> = (0..STEPS).map(|step| trainer.step(&set[..], &order, step).unwrap().loss).collect();
    let last = &losses[losses.len() * 9 / 10..];
    let scores = target_losses(trainer.model(), &held_out[..], 1, &mut || {}).unwrap().concat();
    let mean = |all: f64, count: usize| all / count as f64;
    [mean(last.iter().sum(), last.len()), mean(scores.iter().map(|nats| f64::from(*nats)).sum(), scores.len())]
}

#[test]
#[ignore = "a measurement of some minutes"]
fn learning_with_each_format() {
    let mut run = small_run();
    (run.model.width, run.training.batch_sequences, run.training.phases) = (32, 8, 80);
    println!("| optimiser | beta2 | moments | training, nats | held out, nats |");
    for (optimizer, beta2) in [(Optimizer::AdamW, 0.95), (Optimizer::AdamW, 0.999), (Optimizer::Muon, 0.95)] {
        run.training.optimizer = optimizer;
        run.training.betas[1] = beta2;
        for format in FORMATS {
            let seeds = [1, 2, 3].map(|seed| learnt(&run, format, seed));
            let column = |at: usize| seeds.map(|seed| format!("{:.4}", seed[at])).join(", ");
            println!("| {optimizer:?} | {beta2} | {format:?} | {} | {} |", column(0), column(1));
        }
    }
}

/// Seconds of a batch's gradient in bfloat16 in several micro-batches: with copies of the weights that they share, and with
/// a copy in each.
#[test]
#[ignore = "a measurement of some minutes"]
#[expect(clippy::disallowed_methods, reason = "how long it takes")]
fn gradients_of_several_micro_batches() {
    let model = ModelConfig::of([6, 512, 8], 8192, 64);
    let mut run = small_run();
    run.levels.truncate(1);
    run.levels[0].parts = ["embedding", "blocks.0-5", "final-norm", "head"].map(str::to_owned).to_vec();
    run.model = model;
    let mut path = PathModel::new(&run.model, &run.levels, Device::Cpu, Precision::Bf16).unwrap();
    path.set_level(0, &initial_levels(&run.model, &run.levels, Seed::root(1))[0]).unwrap();
    let set = chain(1, 16).into_iter().map(|tokens| [&tokens[..], &tokens[..17]].concat()).collect::<Vec<_>>();
    for parts in [1, 4, 16] {
        let chosen: Vec<usize> = (0..16).collect();
        let batch = |chosen| Batch::for_step(&set[..], chosen, &BatchLimits::of(&run.model), &path).unwrap();
        let batches: Vec<Batch> = chosen.chunks(16 / parts).map(batch).collect();
        let of = |batches: &[Batch]| loss_and_gradients(&path, batches, 1024, (&Tally::default(), false)).unwrap();
        let mut best = [f64::MAX; 2];
        for _ in 0..6 {
            let began = Instant::now();
            of(&batches);
            best[0] = best[0].min(began.elapsed().as_secs_f64());
            let began = Instant::now();
            batches.chunks(1).for_each(|batch| drop(of(batch)));
            best[1] = best[1].min(began.elapsed().as_secs_f64());
        }
        println!("{parts} micro-batches: {:.3} s shared, {:.3} s each, {:.2}", best[0], best[1], best[1] / best[0]);
    }
}

/// The first network of `scripts/memory`, in the format of the environment's `MOMENTS`: 0, 1 or 2.
#[test]
#[ignore = "measures the growth of the process: in a process of its own"]
fn memory_with_a_format() {
    let mut run = small_run();
    run.model = ModelConfig { positions: crate::config::Positions::Learned, ..ModelConfig::of([6, 512, 8], 8192, 256) };
    run.levels.truncate(1);
    run.levels[0].parts = ["embedding", "blocks.0-5", "final-norm", "head"].map(str::to_owned).to_vec();
    run.training.batch_sequences = 2;
    let of = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<usize>().ok()).unwrap_or(0);
    run.training.optimizer = [Optimizer::AdamW, Optimizer::Muon][of("MUON")];
    let moments = FORMATS[of("MOMENTS")];
    let machine = MachineConfig { threads: 2, moments, micro_batch_sequences: 2, ..MachineConfig::default() };
    let plan = Workload::of(&run, (Precision::F32, moments), false).plan(2, false);
    let taken = measured(&run, &machine, Device::Cpu, 2).unwrap().bytes.unwrap();
    println!(
        "{:?} {moments:?}: moments {:.1} MB of a plan of {:.1} MB; measured {:.1} MB, plan / measured {:.2}",
        run.training.optimizer,
        plan.moments as f64 / 1e6,
        plan.bytes() as f64 / 1e6,
        taken as f64 / 1e6,
        plan.bytes() as f64 / taken as f64
    );
}
