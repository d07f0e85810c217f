//! Tokens per second compared with plain PyTorch, eager and compiled, in alternating rounds, because machines are noisy:
//! `cargo bench --bench versus_torch`.
//!
//! `$PATHSWARM_PYTHON` (else `python3`, with `PYTHONPATH=.libtorch/site` if that is unset) must be able to import
//! torch, and for the compiled arms what torch requires. `$PATHSWARM_SIZES` (3M,25M,135M), `$PATHSWARM_ARMS` (eager,
//! compiled and compiled+fused), `$PATHSWARM_THREADS` (2), `$PATHSWARM_ROUNDS` (9), `$PATHSWARM_POSITIONS` (rotary) and
//! `$PATHSWARM_PRECISION` (f32) select what is measured.

mod shape;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use pathswarm::config::{Positions, Precision};
use pathswarm::training::device::Size;

/// What is measured: a shape, and the steps of a round.
const SIZES: [(Size, usize); 3] = [
    (Size { name: "3M", blocks: 4, width: 192, heads: 6, vocabulary: 4096, context: 256, sequences: 8 }, 5),
    (Size { name: "25M", blocks: 6, width: 512, heads: 8, vocabulary: 8192, context: 512, sequences: 4 }, 2),
    (Size { name: "135M", blocks: 12, width: 768, heads: 12, vocabulary: 32_000, context: 512, sequences: 2 }, 1),
];

/// How PyTorch trains.
const ARMS: [(&str, &[&str]); 4] = [
    ("eager", &[]),
    ("eager+fused", &["--fused"]),
    ("compiled", &["--compile"]),
    ("compiled+fused", &["--compile", "--fused"]),
];

/// What is the same for both programs.
#[derive(Clone)]
struct Settings {
    threads: usize,
    rounds: usize,
    positions: String,
    precision: String,
}

/// The reference, which waits for its next round.
struct Reference {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Reference {
    /// Starts the reference. Returns nothing, and prints a message, if it cannot begin.
    fn start(
        (size, steps): &(Size, usize),
        (name, flags): (&'static str, &[&str]),
        settings: &Settings,
    ) -> Option<Self> {
        let python = setting("PATHSWARM_PYTHON", "python3");
        let root = env!("CARGO_MANIFEST_DIR");
        let mut command = Command::new(&python);
        if std::env::var_os("PYTHONPATH").is_none() && python == "python3" {
            command.env("PYTHONPATH", format!("{root}/.libtorch/site"));
        }
        command.arg(format!("{root}/src/cli/swarm/doctor/torch_reference.py")).arg("--interactive");
        for (key, value) in [
            ("blocks", size.blocks),
            ("width", size.width),
            ("heads", size.heads),
            ("vocabulary", size.vocabulary),
            ("context", size.context),
            ("batch", size.sequences),
            ("threads", settings.threads),
            ("rounds", settings.rounds),
            ("steps", *steps),
        ] {
            command.arg(format!("--{key}={value}"));
        }
        command.arg(format!("--positions={}", settings.positions)).args(flags);
        command.arg(format!("--precision={}", settings.precision));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let input = child.stdin.take()?;
        let mut lines = BufReader::new(child.stdout.take()?).lines();
        match lines.next() {
            Some(Ok(about)) => println!("{}, {name}: {about}", size.name),
            _ => {
                println!("skipped {name}: {python} could not begin (its message is above); set PATHSWARM_PYTHON");
                return None;
            }
        }
        Some(Self { name, child, input, lines })
    }

    /// Tokens per second of one round.
    fn round(&mut self) -> f64 {
        writeln!(self.input).expect("the reference reads a line for each round");
        let line = self.lines.next().expect("the reference answers each round").expect("in UTF-8");
        let report: serde_json::Value = serde_json::from_str(&line).expect("in JSON");
        report["tokens_per_second"].as_f64().expect("with a rate")
    }
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// Median, least and most.
fn spread(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn compare(size: &(Size, usize), mut references: Vec<Reference>, settings: &Settings) {
    let positions = if settings.positions == "learned" { Positions::Learned } else { Positions::Rotary };
    let precision = if settings.precision == "bf16" { Precision::Bf16 } else { Precision::F32 };
    let (shape, steps) = size;
    let mut run = shape.run(shape.sequences);
    run.model.positions = positions;
    let mut ours = shape::Bench::new(&run, precision, settings.threads);
    let mut rates = vec![Vec::new(); references.len()];
    let mut own = Vec::new();
    for _ in 0..settings.rounds {
        references.iter_mut().zip(&mut rates).for_each(|(reference, list)| list.push(reference.round()));
        let begin = Instant::now();
        for _ in 0..*steps {
            ours.step();
        }
        own.push((steps * shape.sequences * shape.context) as f64 / begin.elapsed().as_secs_f64());
    }
    for (reference, mut theirs) in references.into_iter().zip(rates) {
        let mut ratios: Vec<f64> = own.iter().zip(&theirs).map(|(own, theirs)| own / theirs).collect();
        let ([rate, least, most], ratio) = (spread(&mut theirs), spread(&mut ratios));
        println!(
            "{}, {}: {rate:.0} ({least:.0} to {most:.0}) tokens/s; pathswarm / this {:.2} ({:.2} to {:.2})",
            shape.name, reference.name, ratio[0], ratio[1], ratio[2]
        );
        drop((reference.input, reference.child));
    }
    let [rate, least, most] = spread(&mut own);
    println!("{}, pathswarm: {rate:.0} ({least:.0} to {most:.0}) tokens/s", shape.name);
}

fn main() {
    // The references inherit this setting, so all are measured with it.
    pathswarm::model::spin_briefly();
    let number = |name, default| setting(name, default).parse::<usize>().expect("a number");
    let settings = Settings {
        threads: number("PATHSWARM_THREADS", "2"),
        rounds: number("PATHSWARM_ROUNDS", "9"),
        positions: setting("PATHSWARM_POSITIONS", "rotary"),
        precision: setting("PATHSWARM_PRECISION", "f32"),
    };
    let (sizes, arms) =
        (setting("PATHSWARM_SIZES", "3M,25M,135M"), setting("PATHSWARM_ARMS", "eager,compiled,compiled+fused"));
    let is_chosen = |list: &str, name: &str| list.split(',').any(|chosen| chosen == name);
    for size in SIZES.into_iter().filter(|(size, _)| is_chosen(&sizes, size.name)) {
        let chosen = ARMS.into_iter().filter(|(name, _)| is_chosen(&arms, name));
        let references: Vec<Reference> = chosen.filter_map(|arm| Reference::start(&size, arm, &settings)).collect();
        let settings = settings.clone();
        // On a thread of its own, like the trainer of a peer.
        let measured = std::thread::spawn(move || compare(&size, references, &settings));
        measured.join().expect("the comparison does not panic");
    }
}
