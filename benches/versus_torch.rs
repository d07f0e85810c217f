//! Tokens per second compared with plain PyTorch, in alternating rounds, because machines are noisy: `cargo bench
//! --bench versus_torch`.
//!
//! `$PATHSWARM_PYTHON` (else `python3`, with `PYTHONPATH=.libtorch/site` if that is unset) must be able to import
//! torch. `$PATHSWARM_THREADS` (2), `$PATHSWARM_ROUNDS` (9), `$PATHSWARM_POSITIONS` (rotary) and `$PATHSWARM_PRECISION`
//! (f32) select what is measured.

mod shape;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use pathswarm::config::{Positions, Precision};

const STEPS: usize = 5;

/// The reference, which waits for its next round.
struct Reference {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Reference {
    /// Starts the reference. Returns nothing, and prints a message, if torch cannot be imported.
    fn start(threads: usize, rounds: usize, positions: &str, precision: &str) -> Option<Self> {
        let python = std::env::var("PATHSWARM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let root = env!("CARGO_MANIFEST_DIR");
        let mut command = Command::new(&python);
        if std::env::var_os("PYTHONPATH").is_none() && python == "python3" {
            command.env("PYTHONPATH", format!("{root}/.libtorch/site"));
        }
        command.arg(format!("{root}/src/cli/swarm/doctor/torch_reference.py")).arg("--interactive");
        for (key, value) in [("threads", threads), ("rounds", rounds), ("steps", STEPS)] {
            command.arg(format!("--{key}={value}"));
        }
        command.arg(format!("--positions={positions}")).arg(format!("--precision={precision}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let input = child.stdin.take()?;
        let mut lines = BufReader::new(child.stdout.take()?).lines();
        match lines.next() {
            Some(Ok(about)) => println!("reference: {about}"),
            _ => {
                println!("skipped: {python} cannot import torch (its message is above); set PATHSWARM_PYTHON");
                return None;
            }
        }
        Some(Self { child, input, lines })
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

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn main() {
    // The reference inherits this setting, so both are measured with it.
    pathswarm::model::spin_briefly();
    let number = |name, default| setting(name, default).parse::<usize>().expect("a number");
    let (threads, rounds) = (number("PATHSWARM_THREADS", "2"), number("PATHSWARM_ROUNDS", "9"));
    let (positions, precision) = (setting("PATHSWARM_POSITIONS", "rotary"), setting("PATHSWARM_PRECISION", "f32"));
    let Some(mut reference) = Reference::start(threads, rounds, &positions, &precision) else {
        return;
    };
    // On a thread of its own, like the trainer of a peer.
    let compare = move || {
        let positions = if positions == "learned" { Positions::Learned } else { Positions::Rotary };
        let precision = if precision == "bf16" { Precision::Bf16 } else { Precision::F32 };
        let mut ours = shape::Bench::new(&shape::run(positions), precision, threads);
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..rounds {
            let theirs = reference.round();
            let begin = Instant::now();
            for _ in 0..STEPS {
                ours.step();
            }
            let own = (STEPS * shape::TOKENS) as f64 / begin.elapsed().as_secs_f64();
            println!("round {round}: PyTorch {theirs:.0}, pathswarm {own:.0} tokens/s, ratio {:.2}", own / theirs);
            [theirs, own, own / theirs].into_iter().zip(&mut rates).for_each(|(rate, list)| list.push(rate));
        }
        let spread = |list: &[f64]| (list[0], list[list.len() - 1]);
        for (name, list) in ["PyTorch tokens/s", "pathswarm tokens/s", "ratio"].iter().zip(&mut rates) {
            let middle = median(list);
            let (least, most) = spread(list);
            println!("{name}: median {middle:.2}, {least:.2} to {most:.2}");
        }
        drop(reference.input);
        drop(reference.child.wait());
    };
    std::thread::spawn(compare).join().expect("the comparison does not panic");
}
