//! The cost of directional routing: a block forward and backward, compared with the same block without routing, in
//! alternating rounds: `cargo bench --bench directional`.
//!
//! `$PATHSWARM_THREADS` (2), `$PATHSWARM_ROUNDS` (9) and `$PATHSWARM_WIDTHS` (512,1536) select what is measured. A GPU
//! is used if there is one.

use std::process::Command;
use std::time::Instant;

use pathswarm::config::{DirectionalConfig, LevelConfig, ModelConfig, Pooling, Precision, RunConfig};
use pathswarm::model::initial_levels;
use pathswarm::model::layers::block::{Block, Reading};
use pathswarm::model::layers::linear::{Kernel, Products};
use pathswarm::model::layers::rotary::rotation;
use pathswarm::model::layers::watch::Unwatched;
use pathswarm::model::weights::Weights;
use pathswarm::seed::Seed;
use tch::{Device, Kind, Tensor};

/// Tokens of a batch, for any length of its sequences.
const TOKENS: i64 = 2048;
const HEAD: usize = 128;
/// Tells a child process to measure its memory.
const PEAK: &str = "PATHSWARM_PEAK_OF";

struct Bench {
    weights: Weights,
    block: Block,
    rotation: Option<Tensor>,
    products: Products,
    input: Tensor,
}

impl Bench {
    fn new(width: usize, length: i64, directional: Option<DirectionalConfig>, device: Device) -> Self {
        let mut run = RunConfig::from_toml(
            r#"
            name = "bench"
            model = { blocks = 1, width = 128, heads = 1, vocabulary = 258, context = 1024 }
            levels = [{ parts = ["embedding", "block.0", "final-norm", "head"], sharing = "shared" }]
            training = { batch_sequences = 5, inner_steps = 1, phases = 1, ancestor_steps = 0, learning_rate = 1e-2 }
            "#,
        )
        .expect("a run");
        (run.model.width, run.model.heads, run.model.directional) = (width, width / HEAD, directional);
        let model: ModelConfig = run.model;
        let levels: Vec<LevelConfig> = vec![
            LevelConfig { parts: vec!["layer.0".to_owned()], ..run.levels[0].clone() },
            LevelConfig {
                parts: ["embedding", "final-norm", "head"].map(str::to_owned).to_vec(),
                ..run.levels[0].clone()
            },
        ];
        let mut weights = Weights::new(&model, &levels, device).expect("weights");
        for (level, values) in initial_levels(&model, &levels, Seed::root(1)).iter().enumerate() {
            weights.set(level, values).expect("as many values");
        }
        let block = Block::new(&weights, 0, &model).expect("a block");
        let rotation = rotation(&model, device).expect("a rotation").map(|all| all.narrow(0, 0, length));
        let products = Products { kernel: Kernel::for_device(device), precision: Precision::F32 };
        let input =
            Tensor::randn([TOKENS / length, length, width as i64], (Kind::Float, device)).set_requires_grad(true);
        Self { weights, block, rotation, products, input }
    }

    /// Runs forward and backward, to all parameters and the input.
    fn step(&self) {
        let reading = Reading {
            products: &self.products,
            rotation: self.rotation.as_ref(),
            lengths: None,
            packed: None,
            watch: &Unwatched,
        };
        let output = self.block.forward(&self.input, &reading, None).expect("it fits");
        let leaves = self.weights.leaves().next().expect("a level").iter().map(|leaf| &leaf.tensor);
        let inputs: Vec<&Tensor> = std::iter::once(&self.input).chain(leaves).collect();
        let gradients = Tensor::run_backward(&[output.square().sum(Kind::Float)], &inputs, false, false);
        // Waits for a GPU.
        let _ = gradients[0].double_value(&[0, 0, 0]);
    }

    #[expect(clippy::disallowed_methods, reason = "a bench measures time")]
    fn seconds(&self) -> f64 {
        let begin = Instant::now();
        self.step();
        begin.elapsed().as_secs_f64()
    }
}

/// The peak memory of a step beyond what was held before, measured in a process of its own; nothing if the kernel does
/// not report it.
fn peak_bytes(width: usize, length: i64, pooling: Option<Pooling>) -> Option<u64> {
    let pooling = serde_json::to_string(&pooling).ok()?;
    let mut child = Command::new(std::env::current_exe().ok()?);
    let output = child.env(PEAK, format!("{width} {length} {pooling}")).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Measures the peak memory in the child process.
fn print_peak(of: &str) -> Option<()> {
    let read = |key: &str| -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find(|line| line.starts_with(key))?;
        Some(1024 * line.split_whitespace().nth(1)?.parse::<u64>().ok()?)
    };
    let mut parts = of.split(' ');
    let (width, length, pooling) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
    let pooling: Option<Pooling> = serde_json::from_str(pooling).ok()?;
    let bench = Bench::new(width, length, pooling.map(directional), Device::Cpu);
    let before = read("VmRSS:")?;
    bench.step();
    println!("{}", read("VmHWM:")?.saturating_sub(before));
    Some(())
}

fn directional(pooling: Pooling) -> DirectionalConfig {
    DirectionalConfig { pooling, ..DirectionalConfig::of(4) }
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Floating point operations of the matrix products in a step, without and with routing: three times those of the
/// forward pass.
fn operations(width: usize, length: i64, pooled: bool) -> [f64; 2] {
    let (width, tokens) = (width as f64, TOKENS as f64);
    let attention = 4.0 * length as f64 * width * tokens / 2.0;
    let plain = 24.0 * width * width * tokens + attention;
    let (hidden, outputs) = ((width / 3.0).ceil(), 4.0 * width / HEAD as f64);
    let rows = if pooled { tokens / length as f64 } else { tokens };
    let router = 2.0 * rows * (width * hidden + 2.0 * hidden * hidden + hidden * outputs);
    let taken = 4.0 * tokens * width * outputs;
    [3.0 * plain, 3.0 * (plain + router + taken)]
}

fn compare(width: usize, length: i64, rounds: usize, device: Device) {
    let poolings = [Pooling::Prefix, Pooling::Token, Pooling::Sequence];
    let plain = Bench::new(width, length, None, device);
    let routed = poolings.map(|pooling| Bench::new(width, length, Some(directional(pooling)), device));
    plain.step();
    routed.iter().for_each(Bench::step);
    let mut seconds = vec![Vec::new(); 1 + routed.len()];
    for _ in 0..rounds {
        seconds[0].push(plain.seconds());
        for (bench, seconds) in routed.iter().zip(&mut seconds[1..]) {
            seconds.push(bench.seconds());
        }
    }
    let without = median(&mut seconds[0].clone());
    let [operations_plain, _] = operations(width, length, false);
    println!(
        "width {width}, length {length}: plain {:.1} ms, {:.0} GFLOP/s, {:.0} MB",
        1e3 * without,
        operations_plain / without / 1e9,
        peak_bytes(width, length, None).unwrap_or(0) as f64 / 1e6,
    );
    for (pooling, own) in poolings.into_iter().zip(&seconds[1..]) {
        let mut ratios: Vec<f64> = own.iter().zip(&seconds[0]).map(|(own, plain)| own / plain).collect();
        let [few, more] = operations(width, length, !matches!(pooling, Pooling::Prefix | Pooling::Token));
        println!(
            "  {:9} {:.3} of the time (operations {:.3}), {:.0} MB",
            format!("{pooling:?}").to_lowercase(),
            median(&mut ratios),
            more / few,
            peak_bytes(width, length, Some(pooling)).unwrap_or(0) as f64 / 1e6,
        );
    }
}

fn main() {
    pathswarm::model::spin_briefly();
    let number = |name, default| setting(name, default).parse::<usize>().expect("a number");
    let rounds = number("PATHSWARM_ROUNDS", "9");
    pathswarm::model::set_threads(number("PATHSWARM_THREADS", "2"));
    if let Ok(of) = std::env::var(PEAK) {
        print_peak(&of).expect("a width, a length and a pooling, and a kernel that tells");
        return;
    }
    let device = Device::cuda_if_available();
    for width in setting("PATHSWARM_WIDTHS", "512,1536").split(',') {
        for length in [128, 1024] {
            compare(width.parse().expect("a width"), length, rounds, device);
        }
    }
}
