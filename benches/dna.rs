//! The cost of token-level module choice: forward and backward of a whole network, compared with a dense network of the
//! same compute per token, in alternating rounds, and the savings of skips: `cargo bench --bench dna`.
//!
//! `$PATHSWARM_THREADS` (2), `$PATHSWARM_ROUNDS` (9) and `$PATHSWARM_SIZES` (tiny,medium) select what is measured. A
//! GPU is used if there is one.

use std::process::Command;
use std::time::Instant;

use pathswarm::config::{Architecture, DnaConfig, LevelConfig, ModelConfig, Pool, Precision, RunConfig};
use pathswarm::model::layers::watch::Unwatched;
use pathswarm::model::{PathModel, initial_levels};
use pathswarm::seed::Seed;
use pathswarm::training::batches::{Batch, BatchLimits};
use pathswarm::training::inner::gradients::loss_and_gradients;
use tch::Device;

/// Blocks that every token goes through before it chooses.
const BLOCKS: usize = 2;
/// Modules that a token goes through after that.
const CHOSEN: usize = 4;
/// Sequences of a batch.
const SEQUENCES: usize = 8;
/// Tells a child process to measure its memory.
const PEAK: &str = "PATHSWARM_PEAK_OF";

#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    width: usize,
    heads: usize,
    vocabulary: usize,
    context: usize,
}

const SIZES: [Size; 3] = [
    Size { name: "tiny", width: 128, heads: 4, vocabulary: 1024, context: 256 },
    Size { name: "medium", width: 512, heads: 8, vocabulary: 4096, context: 256 },
    Size { name: "large", width: 1024, heads: 16, vocabulary: 50_257, context: 1024 },
];

/// A network, by what its tokens choose.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// This many blocks, without a choice.
    Dense(usize),
    /// This many of eight modules at a time, until a token has gone through four.
    Top(usize),
    /// Two of eight modules and an identity at a time. One of the two is always, or never, the identity.
    Skipping(bool),
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Dense(blocks) => format!("dense, {blocks} blocks"),
            Self::Top(k) => format!("top-{k}"),
            Self::Skipping(true) => "top-2, half skipped".to_owned(),
            Self::Skipping(false) => "top-2, none skipped".to_owned(),
        }
    }

    fn dna(self) -> Option<DnaConfig> {
        let (top_k, steps, identity) = match self {
            Self::Dense(_) => return None,
            Self::Top(k) => (k, CHOSEN / k, 0),
            Self::Skipping(_) => (2, CHOSEN / 2, 1),
        };
        let modules = Pool { transformer: 8, identity, ..Pool::default() };
        Some(DnaConfig { modules, steps, top_k, skips: None, bias_rate: 1e-3, fixed_routers: false })
    }
}

struct Bench {
    model: PathModel,
    batch: Batch,
}

impl Bench {
    fn new(size: Size, way: Way, device: Device) -> Self {
        let run = RunConfig::from_toml(
            r#"
            name = "bench"
            model = { blocks = 1, width = 128, heads = 4, vocabulary = 1024, context = 256 }
            levels = [{ parts = ["embedding", "block.0", "final-norm", "head"], sharing = "shared" }]
            training = { batch_sequences = 8, inner_steps = 1, phases = 1, ancestor_steps = 0, learning_rate = 1e-2 }
            "#,
        )
        .expect("a run");
        let Size { width, heads, vocabulary, context, .. } = size;
        let dna = way.dna();
        let blocks = if let Way::Dense(blocks) = way { blocks } else { BLOCKS };
        let architecture = if dna.is_some() { Architecture::Dna } else { Architecture::Transformer };
        let model = ModelConfig { architecture, blocks, width, heads, vocabulary, context, dna, ..run.model };
        let parts = model.parts().iter().map(ToString::to_string).collect();
        let level = LevelConfig { parts, ..run.levels[0].clone() };
        let levels = [level];
        let mut path = PathModel::new(&model, &levels, device, Precision::F32).expect("a model");
        let mut values = initial_levels(&model, &levels, Seed::root(1)).remove(0);
        if let Way::Skipping(skips) = way {
            let bias = if skips { 10.0 } else { -10.0 };
            values[bias_places(&model)].fill(bias);
        }
        path.set_level(0, &values).expect("as many values");
        let token = |place: usize| (place * 7919 % 104_729 % vocabulary) as u32;
        let text: Vec<Vec<u32>> =
            (0..SEQUENCES).map(|row| (0..=context).map(|place| token(row * context + place)).collect()).collect();
        let limits = BatchLimits { context: context + 1, ..BatchLimits::of(&model) };
        let batch = Batch::new(&text[..], &(0..SEQUENCES).collect::<Vec<_>>(), &limits, device).expect("a batch");
        Self { model: path, batch }
    }

    /// Runs forward and backward, to all parameters.
    fn step(&self) {
        let tokens = self.batch.target_count();
        let (loss, _) = loss_and_gradients(&self.model, std::slice::from_ref(&self.batch), tokens, (&Unwatched, false))
            .expect("enough memory");
        assert!(loss.is_finite());
    }

    #[expect(clippy::disallowed_methods, reason = "a bench measures time")]
    fn seconds(&self) -> f64 {
        let begin = Instant::now();
        self.step();
        if let Device::Cuda(index) = self.model.device() {
            tch::Cuda::synchronize(index as i64);
        }
        begin.elapsed().as_secs_f64()
    }
}

/// The range of the identities' biases in the flat buffer.
fn bias_places(model: &ModelConfig) -> std::ops::Range<usize> {
    let mut first = 0;
    for tensor in model.parts().into_iter().flat_map(|part| model.tensors(part)) {
        if tensor.name == "balance.biases" {
            return first..first + tensor.count();
        }
        first += tensor.count();
    }
    first..first
}

const WAYS: [Way; 6] = [
    Way::Dense(BLOCKS + CHOSEN),
    Way::Dense(BLOCKS),
    Way::Top(1),
    Way::Top(2),
    Way::Skipping(false),
    Way::Skipping(true),
];

/// The peak memory of a step beyond what was held before, measured in a process of its own; nothing if the kernel does
/// not report it.
fn peak_bytes(size: usize, way: usize) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().ok()?);
    let output = child.env(PEAK, format!("{size} {way}")).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Measures the peak memory in the child process.
fn print_peak(of: &str) -> Option<()> {
    let read = |key: &str| -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find(|line| line.starts_with(key))?;
        Some(1024 * line.split_whitespace().nth(1)?.parse::<u64>().ok()?)
    };
    let (size, way) = of.split_once(' ')?;
    let bench = Bench::new(SIZES[size.parse::<usize>().ok()?], WAYS[way.parse::<usize>().ok()?], Device::Cpu);
    let before = read("VmRSS:")?;
    bench.step();
    println!("{}", read("VmHWM:")?.saturating_sub(before));
    Some(())
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(place: usize, rounds: usize, device: Device) {
    let size = SIZES[place];
    let benches = WAYS.map(|way| Bench::new(size, way, device));
    // Twice, because choices of other sizes need other kernels.
    benches.iter().chain(&benches).for_each(Bench::step);
    let mut seconds = vec![Vec::new(); WAYS.len()];
    for _ in 0..rounds {
        for (bench, seconds) in benches.iter().zip(&mut seconds) {
            seconds.push(bench.seconds());
        }
    }
    println!("{}: width {}, {} sequences of {}", size.name, size.width, SEQUENCES, size.context);
    for (way, (name, own)) in WAYS.iter().map(|way| way.name()).zip(&seconds).enumerate() {
        let against = |base: usize| median(own.iter().zip(&seconds[base]).map(|(own, base)| own / base).collect());
        let peak = peak_bytes(place, way).filter(|_| !device.is_cuda()).unwrap_or(0) as f64 / 1e6;
        println!("  {name:20} {:8.1} ms, {:.3} of dense, {peak:.0} MB", 1e3 * median(own.clone()), against(0));
    }
    let routed = |way: usize| seconds[way].iter().zip(&seconds[1]).map(|(own, blocks)| own - blocks);
    let saved = routed(5).zip(routed(4)).map(|(half, none)| half / none).collect();
    println!("  the routed steps with half the choices skipped: {:.3} of the time with none", median(saved));
}

fn main() {
    pathswarm::model::spin_briefly();
    let number = |name, default| setting(name, default).parse::<usize>().expect("a number");
    let rounds = number("PATHSWARM_ROUNDS", "9");
    pathswarm::model::set_threads(number("PATHSWARM_THREADS", "2"));
    if let Ok(of) = std::env::var(PEAK) {
        print_peak(&of).expect("a size and a way, and a kernel that tells");
        return;
    }
    let device = Device::cuda_if_available();
    for name in setting("PATHSWARM_SIZES", "tiny,medium").split(',') {
        let place = SIZES.iter().position(|size| size.name == name).expect("tiny, medium or large");
        compare(place, rounds, device);
    }
}
