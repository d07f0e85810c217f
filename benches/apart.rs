//! How far apart the outer gradients come out that two machines make of one phase, and how far those of whoever makes another:
//! `cargo bench --bench apart`. The text is this project's own, byte by byte: the path's is its documentation.
//!
//! `$PATHSWARM_STEPS` (10,50,100) says after how many inner steps one looks, `$PATHSWARM_BEFORE` (100) how many were made before.

#[expect(dead_code, reason = "the others measure with it")]
mod shape;

use std::path::{Path, PathBuf};

use pathswarm::compress::{decode_as, encode};
use pathswarm::config::{Codec, MachineConfig, Positions, Precision, RunConfig};
use pathswarm::model::{initial_levels, open_device, spin_briefly};
use pathswarm::outer::apart::apart;
use pathswarm::seed::Seed;
use pathswarm::training::{BatchOrder, InnerState, InnerTrainer, outer_gradient};

const CODECS: [(&str, Codec); 3] = [("fp32", Codec::Fp32), ("int4", Codec::Int4), ("top-k 64", Codec::TopK(64))];

/// Who makes the phase, beside one with one thread and f32.
const OTHERS: [(&str, Who); 5] = [
    ("the same machine again", Who { threads: 1, at_once: 0, precision: Precision::F32, lies: false }),
    ("two threads", Who { threads: 2, at_once: 0, precision: Precision::F32, lies: false }),
    ("two sequences at once", Who { threads: 1, at_once: 2, precision: Precision::F32, lies: false }),
    ("bf16", Who { threads: 1, at_once: 0, precision: Precision::Bf16, lies: false }),
    ("on other text", Who { threads: 1, at_once: 0, precision: Precision::F32, lies: true }),
];

#[derive(Clone, Copy)]
struct Who {
    threads: usize,
    at_once: usize,
    precision: Precision,
    lies: bool,
}

/// Where a path stands: its parameters, AdamW, and the steps made.
struct Stands {
    levels: Vec<Vec<f32>>,
    inner: InnerState,
    steps: u64,
}

/// The files of a folder with this ending, one after the other, cut into sequences of bytes.
fn text(folder: &str, ending: &str) -> Vec<Vec<u32>> {
    let mut files = Vec::new();
    find(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), ending, &mut files);
    files.sort();
    let bytes: Vec<u32> = files.iter().flat_map(|file| std::fs::read(file).expect("it reads")).map(u32::from).collect();
    bytes.chunks_exact(shape::CONTEXT + 1).map(<[u32]>::to_vec).collect()
}

fn find(folder: &Path, ending: &str, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("it reads") {
        let path = entry.expect("it reads").path();
        if path.is_dir() {
            find(&path, ending, files);
        } else if path.extension().is_some_and(|found| found == ending) {
            files.push(path);
        }
    }
}

fn number(variable: &str, usual: &str) -> Vec<u64> {
    let said = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    said.split(',').map(|steps| steps.parse().expect("numbers, with commas between them")).collect()
}

/// The parameters after so many steps each, and where that leads.
fn makes(run: &RunConfig, who: Who, from: &Stands, text: &[Vec<u32>], looks: &[u64]) -> (Vec<Vec<Vec<f32>>>, Stands) {
    let Who { threads, at_once, precision, .. } = who;
    let machine = MachineConfig { threads, precision, micro_batch_sequences: at_once, ..MachineConfig::default() };
    let device = open_device(machine.device).expect("the CPU is always there");
    let mut trainer = InnerTrainer::new(run, &machine, device).expect("the bench's run is valid");
    trainer.load(&from.levels).expect("levels fit");
    trainer.restore(&from.inner).expect("AdamW's part fits");
    let order = BatchOrder { seed: Seed::root(3), sequences: text.len() };
    let (mut seen, mut made) = (Vec::new(), 0);
    for look in looks {
        while made < *look {
            trainer.step(text, &order, from.steps + made).expect("training this text does not diverge");
            made += 1;
        }
        seen.push(trainer.levels().expect("they are there"));
    }
    let levels = seen.last().expect("one looks").clone();
    (seen, Stands { levels, inner: trainer.state().expect("it is there"), steps: from.steps + made })
}

fn outer(before: &Stands, after: &[Vec<f32>]) -> Vec<f32> {
    let level = |(before, after): (&Vec<f32>, &Vec<f32>)| outer_gradient(before, after, 1.0, None).expect("finite");
    before.levels.iter().zip(after).flat_map(level).collect()
}

fn main() {
    spin_briefly();
    let mut run = shape::run(Positions::Rotary);
    // More than bytes are never seen.
    run.model.vocabulary = 258;
    let (own, other) = (text("docs", "md"), text("src", "rs"));
    let looks = number("PATHSWARM_STEPS", "10,50,100");
    let levels = initial_levels(&run.model, &run.levels, Seed::root(1));
    let sizes: Vec<usize> = levels.iter().map(Vec::len).collect();
    let fresh = Stands { inner: InnerState::fresh(&sizes), levels, steps: 0 };
    let one = OTHERS[0].1;
    let (_, from) = makes(&run, one, &fresh, &own, &number("PATHSWARM_BEFORE", "100"));
    let (reference, _) = makes(&run, one, &from, &own, &looks);
    println!("| {} parameters | steps | {} |", sizes.iter().sum::<usize>(), CODECS.map(|(name, _)| name).join(" | "));
    println!("|---|---|{}", "---|".repeat(CODECS.len()));
    let far = |name: &str, steps: u64, theirs: &[Vec<f32>], ours: &[Vec<f32>]| {
        let [theirs, ours] = [theirs, ours].map(|after| outer(&from, after));
        let through = |codec: Codec, values: &[f32]| {
            let frame = encode(codec, values).expect("finite");
            decode_as(codec, &frame, values.len()).expect("as it was written")
        };
        let apart = CODECS.map(|(_, codec)| apart(&through(codec, &theirs), &through(codec, &ours)));
        println!("| {name} | {steps} | {} |", apart.map(|apart| format!("{apart:.2e}")).join(" | "));
    };
    for (name, who) in OTHERS {
        let (theirs, _) = makes(&run, who, &from, if who.lies { &other } else { &own }, &looks);
        looks.iter().zip(&theirs).zip(&reference).for_each(|((steps, theirs), ours)| far(name, *steps, theirs, ours));
    }
    for pair in reference.windows(2).zip(looks.windows(2)) {
        let name = format!("no more than {} steps", pair.1[0]);
        far(&name, pair.1[1], &pair.0[0], &pair.0[1]);
    }
}
