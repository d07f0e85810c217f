//! An experiment trains what it says, goes on after it was stopped as if it had not been, and writes tables of it.
#![cfg(all(feature = "learning", feature = "network"))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::text;
use pathswarm::config::MachineConfig;
use pathswarm::experiment::context::{ExperimentContext, ExperimentEvent};
use pathswarm::experiment::files::read;
use pathswarm::experiment::plan::Experiment;
use pathswarm::experiment::results::outcome::Outcome;
use pathswarm::experiment::{Results, Source, run};
use pathswarm::text::CorpusSource;

const FILE: &str = r#"
name = "small"
title = "A small experiment"
route_every = [8]

[run]
text = { held_out_share = 0.1, test_share = 0.1 }
model = { blocks = 2, width = 32, heads = 2, vocabulary = 320, context = 64, tied_head = true }
routing = { prefix_tokens = 8 }
training = { batch_sequences = 4, inner_steps = 10, phases = 3, ancestor_steps = 20, learning_rate = 5e-3 }
levels = [
    { parts = ["embedding", "block.0"], sharing = { experts = 2 } },
    { parts = ["block.1", "final-norm"], sharing = { experts = 2 } },
]

[[arms]]
name = "dense"
kind = "dense"
run.levels = [{ parts = ["embedding", "blocks.0-1", "final-norm"], sharing = "shared" }]

[[arms]]
name = "grid"
seeds = [1, 2]
reshard = [2]
run.routing.overlap = 2

[[arms]]
name = "random"
run.routing.method = "random"

[[arms]]
name = "every step"
kind = "every-step"

[[arms]]
name = "in turn"
run.outer.streaming = true

[[arms]]
name = "kept"
run.outer = { codec = { top-k = 64 }, keep_unsent = true }

[[claims]]
better = "grid"
better_every = 8
than = "dense"
"#;

/// Experiments on one corpus, each with folders of its own.
struct Bench {
    home: tempfile::TempDir,
    experiment: Experiment,
}

impl Bench {
    fn new(file: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        text::write_domains(&home.path().join("text"), 3, 120);
        Self { home, experiment: Experiment::from_toml(file).unwrap() }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }

    /// PeerScores it in a folder.
    fn run(&self, name: &str) -> anyhow::Result<Vec<Outcome>> {
        self.run_until(name, &|_| false)
    }

    /// The same, until something happens that one stops at.
    fn run_until(&self, name: &str, stops: &dyn Fn(ExperimentEvent<'_>) -> bool) -> anyhow::Result<Vec<Outcome>> {
        let stop = AtomicBool::new(false);
        let watch = |event: ExperimentEvent<'_>| stop.store(stops(event), Ordering::Relaxed);
        let machine = MachineConfig { threads: 1, ..MachineConfig::default() };
        let source = Source { corpus: CorpusSource::Paths(vec![self.at("text")]), test_corpus: None, tokenizer: None };
        let mut context = ExperimentContext::new(&machine, self.at(name), source, &stop, &watch);
        let results = Results { folder: &self.at(name).join("results"), command: "pathswarm experiment small.toml" };
        run(&self.experiment, &mut context, &results)
    }
}

fn without_times(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    outcomes.iter_mut().for_each(|outcome| outcome.seconds = 0.0);
    outcomes
}

/// As text of fewer digits than are lost on the way through a file.
fn shown(outcomes: &[Outcome]) -> String {
    fn round(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Array(values) => values.iter_mut().for_each(round),
            serde_json::Value::Object(values) => values.values_mut().for_each(round),
            serde_json::Value::Number(number) if number.is_f64() => {
                *value = format!("{:.9}", number.as_f64().unwrap()).into();
            }
            _ => {}
        }
    }
    let mut value = serde_json::to_value(outcomes).unwrap();
    round(&mut value);
    value.to_string()
}

#[test]
fn every_arm_is_trained_with_its_seeds_and_the_tables_say_so() {
    let bench = Bench::new(FILE);
    let outcomes = bench.run("whole").unwrap();
    let arms: Vec<(&str, u64)> = outcomes.iter().map(|it| (it.arm.as_str(), it.seed)).collect();
    let expected =
        [("dense", 1), ("grid", 1), ("random", 1), ("every step", 1), ("in turn", 1), ("kept", 1), ("grid", 2)];
    assert_eq!(arms, expected);
    let [dense, grid, random, every_step, in_turn, kept, other] = &outcomes[..] else { panic!("seven") };
    assert_eq!((in_turn.paths, in_turn.parameters, in_turn.steps), (4, grid.parameters, 50));
    assert_eq!((dense.paths, grid.paths, grid.steps), (1, 4, 50));
    assert_eq!(grid.parameters, 2 * grid.path_parameters);
    assert_eq!((every_step.paths, every_step.parameters, every_step.steps), (4, grid.parameters, 50));
    assert!(dense.rerouted.is_empty() && grid.rerouted.len() == 1 && random.rerouted.len() == 1);
    for outcome in &outcomes {
        assert_eq!(outcome.last.tokens, dense.last.tokens, "all are scored on the same tokens");
        assert_eq!((outcome.curve.len(), outcome.stopped_at.len()), (3, outcome.paths as usize));
        assert!(outcome.curve[2].loss < outcome.curve[0].loss, "{}: it learns", outcome.arm);
        for routed in &outcome.rerouted {
            assert_eq!(routed.oracle.tokens, outcome.last.tokens);
            let found = [routed.so_far.nats, routed.transducer.nats, outcome.early.nats];
            assert!(found.iter().all(|nats| *nats >= routed.oracle.nats), "nothing is better than the bound");
        }
    }
    assert!(grid.stopped_at.iter().all(|phases| *phases == 3), "a shard of before is no matter: {:?}", grid.stopped_at);
    assert!(grid.shards.iter().sum::<usize>() > random.shards.iter().sum::<usize>(), "two paths a document");
    let alone = kept.modules_alone.expect("its modules are behind it");
    assert!(kept.last.nats < alone.nats && alone.tokens == kept.last.tokens, "{kept:?}");
    assert_eq!([dense, grid, in_turn].map(|outcome| outcome.modules_alone), [None; 3]);
    assert_ne!(grid.last.nats, other.last.nats, "another seed");

    let read = |name: &str| std::fs::read_to_string(bench.at("whole/results").join(name)).unwrap();
    let page = read("README.md");
    for row in ["| dense | 1 |", "| grid | 4 |", "| grid | 8 |", "| grid, every 8 | dense |", "small.toml"] {
        assert!(page.contains(row), "{row} is not in\n{page}");
    }
    assert_eq!(shown(&serde_json::from_str::<Vec<Outcome>>(&read("results.json")).unwrap()), shown(&outcomes));
    assert!(read("steps.svg").contains("grid") && read("tokens.svg").ends_with("</svg>\n"));

    // What is done is not done again.
    let again = bench
        .run_until("whole", &|event| {
            matches!(event, ExperimentEvent::Ancestor(..) | ExperimentEvent::Phase(..) | ExperimentEvent::Done(_))
                && panic!("{event:?}")
        })
        .unwrap_or_default();
    assert_eq!(shown(&again), shown(&outcomes), "with its times");

    // Not even if nothing is left but the results.
    for entry in std::fs::read_dir(bench.at("whole")).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_file() {
            std::fs::remove_file(entry).unwrap();
        }
    }
    let trains = |event: ExperimentEvent<'_>| {
        matches!(event, ExperimentEvent::Phase(..) | ExperimentEvent::Done(_)) && panic!("{event:?}")
    };
    let again = bench.run_until("whole", &trains).unwrap();
    assert_eq!(shown(&again), shown(&outcomes));
}

#[test]
fn an_arm_that_was_stopped_goes_on_as_if_it_had_not_been() {
    let arms = FILE.find("[[arms]]").unwrap();
    let grid = FILE.find("[[arms]]\nname = \"grid\"").unwrap();
    let random = FILE.find("[[arms]]\nname = \"random\"").unwrap();
    let every_step = FILE.find("[[arms]]\nname = \"every step\"").unwrap();
    let claims = FILE.find("[[claims]]").unwrap();
    let bench = Bench::new(&format!("{}{}{}", &FILE[..arms], &FILE[every_step..claims], &FILE[grid..random]));
    let whole = bench.run("whole").unwrap();

    // In the ancestor, in the first phase, and in the phase before which the text is shared out anew.
    let places: [&dyn Fn(ExperimentEvent<'_>) -> bool; 3] = [
        &|event| matches!(event, ExperimentEvent::Ancestor(7, _)),
        &|event| matches!(event, ExperimentEvent::Phase(_, 2, _)),
        &|event| matches!(event, ExperimentEvent::Phase("grid · seed 2", 10, _)),
    ];
    for stops in places {
        let error = bench.run_until("parts", stops).unwrap_err();
        assert!(format!("{error:#}").contains("stopped before the end"), "{error:#}");
    }
    let phases = AtomicU64::new(0);
    let count = |event: ExperimentEvent<'_>| {
        phases.fetch_add(u64::from(matches!(event, ExperimentEvent::Phase(..))), Ordering::Relaxed);
        false
    };
    let parts = bench.run_until("parts", &count).unwrap();
    assert_eq!(phases.load(Ordering::Relaxed), 4, "the last phase of four paths, and nothing that was done before");
    assert_eq!(shown(&without_times(parts)), shown(&without_times(whole)));
    let left = std::fs::read_dir(bench.at("parts")).unwrap().map(|entry| entry.unwrap().file_name());
    let unfinished = left.filter(|name| name.to_string_lossy().ends_with(".unfinished")).count();
    assert_eq!(unfinished, 0);
}

#[test]
fn every_experiment_that_comes_along_can_be_conducted() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/experiments");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let found = read(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap().to_str().unwrap(), found.name);
        names.push(found.name);
    }
    assert!(names.len() >= 6, "{names:?}");
}

#[test]
fn arms_that_begin_alike_are_trained_once_as_far_as_they_are_alike() {
    let arms = FILE.find("[[arms]]").unwrap();
    let arm = |name: &str, reshard: &str| format!("[[arms]]\nname = \"{name}\"\n{reshard}\n");
    let (never, once) = (arm("never", ""), arm("once", "reshard = [1]"));
    let (twice, again) = (arm("twice", "reshard = [1, 2]"), arm("never again", ""));
    let bench = |arms_of: &[&String]| {
        let arms_of: String = arms_of.iter().map(|arm| arm.as_str()).collect();
        Bench::new(&format!("{}{arms_of}", &FILE[..arms]))
    };
    let phases = AtomicU64::new(0);
    let count = |event: ExperimentEvent<'_>| {
        phases.fetch_add(u64::from(matches!(event, ExperimentEvent::Phase(..))), Ordering::Relaxed);
        false
    };
    let together = bench(&[&never, &once, &twice, &again]);
    let found = without_times(together.run_until("together", &count).unwrap());
    assert_eq!(phases.load(Ordering::Relaxed), 4 * (3 + 2 + 1), "of four paths");
    assert_eq!(shown(&found[..1]).replace("never", ""), shown(&found[3..]).replace("never again", ""));
    for (number, arm) in [&never, &once, &twice].into_iter().enumerate() {
        let alone = without_times(bench(&[arm]).run("alone").unwrap());
        assert_eq!(shown(&found[number..=number]), shown(&alone));
    }
    let left = std::fs::read_dir(together.at("together")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().ends_with(".unfinished")).count(), 0);
}

#[test]
fn an_arm_that_is_scored_in_another_way_is_not_trained_again() {
    let arms = FILE.find("[[arms]]").unwrap();
    let arm = |every: &str| format!("{}[[arms]]\nname = \"never\"\nroute_every = [{every}]\n", &FILE[..arms]);
    let phases = AtomicU64::new(0);
    let count = |event: ExperimentEvent<'_>| {
        phases.fetch_add(u64::from(matches!(event, ExperimentEvent::Phase(..))), Ordering::Relaxed);
        false
    };
    let mut bench = Bench::new(&arm("8"));
    let once = without_times(bench.run_until("here", &count).unwrap());
    let trained = phases.swap(0, Ordering::Relaxed);
    bench.experiment = Experiment::from_toml(&arm("8, 16")).unwrap();
    let more = without_times(bench.run_until("here", &count).unwrap());
    assert_eq!((trained > 0, phases.load(Ordering::Relaxed)), (true, 0));
    assert_eq!((once[0].rerouted.len(), more[0].rerouted.len()), (1, 2));
    let (identity, rerouted) = (once[0].identity.clone(), once[0].rerouted.clone());
    let less = Outcome { identity, rerouted, ..more[0].clone() };
    assert_eq!(shown(&[less]), shown(&once));
    assert_eq!(shown(&more), shown(&without_times(Bench::new(&arm("8, 16")).run("there").unwrap())));
}

#[test]
fn networks_that_look_ahead_are_told_from_those_that_do_not() {
    let arms = FILE.find("[[arms]]").unwrap();
    let arm = |pooling: &str| {
        let levels = "[{ parts = [\"embedding\", \"layers.0-1\", \"final-norm\"], sharing = \"shared\" }]";
        format!(
            "[[arms]]\nname = \"{pooling}\"\nkind = \"dense\"\nrun.levels = {levels}\n\
             run.model.directional = {{ directions = 2, pooling = \"{pooling}\" }}\n"
        )
    };
    let all: String = ["sequence", "prefix", "token"].map(arm).concat();
    let head = FILE[..arms].replace("route_every = [8]", "score_from = 12\nhonest_tokens = 200");
    let bench = Bench::new(&format!("{head}{all}"));
    for domain in 0..3 {
        let file = bench.at("text").join(format!("{domain}.jsonl"));
        let lines = std::fs::read_to_string(&file).unwrap();
        let told = format!("{{\"domain\":\"of {domain}\",\"text\"");
        std::fs::write(file, lines.replace("{\"text\"", &told)).unwrap();
    }
    let outcomes = bench.run("directional").unwrap();
    for outcome in &outcomes {
        let honest = outcome.honest.unwrap();
        assert_eq!((honest.honest.tokens, honest.as_trained.bytes), (200, honest.honest.bytes));
        let differs = (honest.honest.nats - honest.as_trained.nats).abs() / honest.honest.nats;
        assert_eq!(differs > 1e-5, outcome.arm == "sequence", "{}: {differs}", outcome.arm);
        assert_eq!(outcome.early.tokens, outcomes[0].early.tokens, "all are scored on the same tokens");
        let of_domains: u64 = outcome.domains.iter().map(|(_, numbers)| numbers.tokens).sum();
        assert_eq!((outcome.domains.len(), of_domains), (3, outcome.early.tokens));
    }
    let page = std::fs::read_to_string(bench.at("directional").join("results/README.md")).unwrap();
    assert!(page.contains("## By domain") && page.contains("| sequence | 200 |"), "{page}");
}
