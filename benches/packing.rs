//! Tokens a second of inner steps on short documents, padded and packed, in alternating rounds: `cargo bench --bench
//! packing`.
//!
//! A round is the loss and the gradients of a new batch. The documents are as those of web text: 200 tokens in the mean,
//! most of them shorter. `$PATHSWARM_THREADS` (2), `$PATHSWARM_ROUNDS` (5), `$PATHSWARM_SEQUENCES` (32) and
//! `$PATHSWARM_WIDTHS` (512) select what is measured. A GPU is used if there is one.

use std::time::Instant;

use pathswarm::config::{Activation, Biases, LevelConfig, ModelConfig, NormKind, Positions, Precision, RunConfig};
use pathswarm::model::layers::watch::Unwatched;
use pathswarm::model::{PathModel, initial_levels};
use pathswarm::seed::Seed;
use pathswarm::training::batches::{Batch, BatchLimits};
use pathswarm::training::inner::gradients::loss_and_gradients;
use rand_distr::{Distribution, LogNormal};
use tch::Device;

const CONTEXT: usize = 512;
const VOCABULARY: usize = 4096;
/// Mean tokens of a document, and the spread of the logarithm.
const DOCUMENT: (f64, f64) = (200.0, 1.0);

/// Eight blocks as GPT-2's, or as Llama's.
fn network(name: &str, width: usize, device: Device) -> PathModel {
    let run = RunConfig::from_toml(
        r#"
        name = "bench"
        model = { blocks = 8, width = 512, heads = 8, vocabulary = 4096, context = 512 }
        levels = [{ parts = ["embedding", "blocks.0-7", "final-norm", "head"], sharing = "shared" }]
        training = { batch_sequences = 8, inner_steps = 1, phases = 1, ancestor_steps = 0, learning_rate = 1e-2 }
        "#,
    )
    .expect("a run");
    let plain = ModelConfig { width, heads: width / 64, ..run.model };
    let model = match name {
        "GPT-2" => ModelConfig { positions: Positions::Learned, biases: Biases::All, tied_head: true, ..plain },
        _ => ModelConfig { norm: NormKind::Rms, gated: true, activation: Activation::Silu, ..plain },
    };
    let parts = model.parts().iter().map(ToString::to_string).collect();
    let levels = [LevelConfig { parts, ..run.levels[0].clone() }];
    let mut path = PathModel::new(&model, &levels, device, Precision::F32).expect("a model");
    path.set_level(0, &initial_levels(&model, &levels, Seed::root(1)).remove(0)).expect("as many values");
    path
}

/// Sequences of one batch, longest first, as an inner step sorts them.
fn batch(sequences: usize, number: u64) -> Vec<Vec<u32>> {
    let (mean, spread) = DOCUMENT;
    let lengths = LogNormal::new(mean.ln() - spread * spread / 2.0, spread).expect("a spread");
    let mut generator = Seed::root(2).number(number).generator();
    let mut found: Vec<usize> = Vec::new();
    while found.len() < sequences {
        let length = (lengths.sample(&mut generator) as usize).max(2);
        match (length - 1).div_ceil(CONTEXT) {
            1 => found.push(length),
            pieces => found.extend(vec![CONTEXT + 1; pieces]),
        }
    }
    found.truncate(sequences);
    found.sort_by_key(|length| std::cmp::Reverse(*length));
    let token = |place: usize| (place * 7919 % 104_729 % VOCABULARY) as u32;
    found.iter().enumerate().map(|(row, length)| (0..*length).map(|at| token(row * CONTEXT + at)).collect()).collect()
}

/// One way to compute a batch, and what was measured of it.
struct Way {
    micro: usize,
    packs: bool,
    /// Tokens that were learnt, and those that were computed.
    tokens: [usize; 2],
    tokens_per_s: Vec<f64>,
}

impl Way {
    #[expect(clippy::disallowed_methods, reason = "a bench measures time")]
    fn step(&mut self, model: &PathModel, set: &[Vec<u32>]) {
        let (limits, chosen) = (BatchLimits::of(model.config()), (0..set.len()).collect::<Vec<_>>());
        let begin = Instant::now();
        let lay_out = |chosen| match self.packs {
            true => Batch::for_step(set, chosen, &limits, model),
            false => Batch::new(set, chosen, &limits, model.device()),
        };
        let batches: Vec<Batch> = chosen.chunks(self.micro).map(|chosen| lay_out(chosen).expect("it fits")).collect();
        let tokens = batches.iter().map(Batch::target_count).sum();
        let (loss, _) = loss_and_gradients(model, &batches, tokens, (&Unwatched, false)).expect("enough memory");
        assert!(loss.is_finite());
        if let Device::Cuda(index) = model.device() {
            tch::Cuda::synchronize(index as i64);
        }
        self.tokens_per_s.push(tokens as f64 / begin.elapsed().as_secs_f64());
        let computed: usize = batches.iter().map(|batch| batch.inputs.numel()).sum();
        self.tokens = [self.tokens[0] + tokens, self.tokens[1] + computed];
    }
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn compare(name: &str, width: usize, sequences: usize, rounds: usize) {
    let model = network(name, width, Device::cuda_if_available());
    let parameters = model.level_sizes().iter().sum::<usize>() as f64 / 1e6;
    println!("{name}'s blocks, width {width}, {parameters:.1} million parameters, {sequences} sequences");
    let micros = [sequences, sequences.div_ceil(4), sequences.div_ceil(16)];
    let way = |micro, packs| Way { micro, packs, tokens: [0; 2], tokens_per_s: Vec::new() };
    let mut ways: Vec<Way> = micros.iter().flat_map(|micro| [way(*micro, false), way(*micro, true)]).collect();
    // A short one first, so that everything is loaded.
    way(1, true).step(&model, &batch(1, u64::MAX));
    for round in 0..rounds {
        let set = batch(sequences, round as u64);
        ways.iter_mut().for_each(|way| way.step(&model, &set));
    }
    for pair in ways.chunks_exact(2) {
        let padding = |way: &Way| 100.0 * (1.0 - way.tokens[0] as f64 / way.tokens[1] as f64);
        let ratios: Vec<f64> = pair[1].tokens_per_s.iter().zip(&pair[0].tokens_per_s).map(|(a, b)| a / b).collect();
        let [padded, packed] = [&pair[0], &pair[1]].map(|way| median(&way.tokens_per_s));
        println!(
            "  micro-batch {:2}: padded {padded:.0} tokens/s ({:.1}% padding), packed {packed:.0} ({:.1}%), ratio {:.2} \
             ({:.2}-{:.2})",
            pair[0].micro,
            padding(&pair[0]),
            padding(&pair[1]),
            median(&ratios),
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max),
        );
    }
}

fn main() {
    pathswarm::model::spin_briefly();
    let number = |name, default| setting(name, default).parse::<usize>().expect("a number");
    pathswarm::model::set_threads(number("PATHSWARM_THREADS", "2"));
    let (rounds, sequences) = (number("PATHSWARM_ROUNDS", "5"), number("PATHSWARM_SEQUENCES", "32"));
    for width in setting("PATHSWARM_WIDTHS", "512").split(',') {
        for name in ["GPT-2", "Llama"] {
            compare(name, width.parse().expect("a width"), sequences, rounds);
        }
    }
}
