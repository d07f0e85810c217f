//! Whole pages of made folders: what they say, and what they cannot do.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::peer::collect_from_stores;
use crate::peer::tests::tiny_run::Tiny;
use crate::report::Subjects;

const HOSTILE: &str = "</pre></svg><img src='x' onerror=\"alert(1)\"><script>alert(2)</script>";

fn page(folders: &[&Path]) -> String {
    let folders: Vec<PathBuf> = folders.iter().map(|folder| (*folder).to_owned()).collect();
    Subjects::read(&folders).unwrap().page().unwrap()
}

/// A stopped peer's folder, with the losses of two phases of path 0 in its metrics.
fn peer(tiny: &Tiny, name: &str, losses: [f64; 2]) -> PathBuf {
    let folder = tiny.peer(name, &[("0.0", 1)]);
    let line = |(phase, loss): (usize, &f64)| {
        let step = (phase as u64 + 1) * tiny.decoded.config.training.inner_steps;
        let line = json!({
            "at_ms": 60_000 * (phase + 1), "peer": name, "key": "15c62c9d336ea86e", "run": tiny.run.to_string(),
            "losses": [[0, step, loss]], "activity": { "tokens": 1_000 * (phase + 1), "trained_s": 2.0 },
            "traffic": { "blob_bytes_sent": 5_000_000, "message_bytes_sent": 0 }, "modules": [["0.0", phase + 1]],
            "waited_s": { "owner": 3.0 },
        });
        format!("{line}\n")
    };
    let lines: String = losses.iter().enumerate().map(line).collect();
    std::fs::write(folder.join("metrics.jsonl"), lines).unwrap();
    folder
}

/// The section with this id.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let from = page.split_once(&format!("<section id=\"{id}\"")).unwrap().1;
    from.split_once("</section>").unwrap().0
}

/// The lines of a figure, and how many there are.
fn curves(section: &str, id: &str) -> usize {
    let figure = section.split_once(&format!("aria-labelledby=\"{id}-name {id}-desc\"")).unwrap().1;
    // A legend has a line for each curve, too.
    let figure = figure.split_once("</svg>").unwrap().0;
    let long = |line: &&str| {
        line.contains("<polyline") && line.matches(',').count() >= 2 && line.contains("stroke-width=\"2\"")
    };
    figure.lines().filter(long).count()
}

#[track_caller]
fn can_do_nothing(page: &str) {
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\""));
    for dangerous in ["<script", "<img", "<link", "<iframe", "src=", "href=", "url(", "@import", "http:", "https:"] {
        assert!(!page.contains(dangerous), "{dangerous}");
    }
}

#[test]
fn a_peers_folder_says_what_is_in_it_and_what_is_not() {
    let tiny = Tiny::create(true);
    let page = page(&[&peer(&tiny, "a", [5.0, 4.0])]);
    can_do_nothing(&page);
    assert!(page.contains(&tiny.run.to_string()) && section(&page, "what").contains("2\u{202f}000"), "{page}");
    assert_eq!(curves(section(&page, "curves"), "loss"), 1);
    assert!(section(&page, "bytes").contains("5.0 MB") && section(&page, "bytes").contains("owners of modules 3 s"));
    for (id, missing) in [
        ("curves", "no curve of a dense control"),
        ("comparison", "There are no scores yet"),
        ("routing", "Collect the run"),
        ("samples", "There is no sample"),
        ("faults", "There is no pathswarm.log"),
    ] {
        assert!(section(&page, id).contains(missing), "{id}: {}", section(&page, id));
    }
}

#[test]
fn runs_are_laid_over_each_other() {
    let tiny = Tiny::create(true);
    let (one, other) = (peer(&tiny, "one", [5.0, 4.0]), peer(&tiny, "other", [5.0, 3.0]));
    let page = page(&[&one, &other]);
    let shown = section(&page, "curves");
    assert_eq!(curves(shown, "loss"), 2);
    let name = &tiny.decoded.config.name;
    assert!(shown.contains(&format!("{name} (one)")) && shown.contains(&format!("{name} (other)")), "{shown}");
    assert_eq!(section(&page, "hashes").matches("<h3>").count(), 2);
}

#[test]
fn nothing_that_came_from_others_is_markup() {
    let tiny = Tiny::create(true);
    let folder = peer(&tiny, "a", [5.0, 4.0]);
    let line = json!({
        "at_ms": 1, "peer": HOSTILE, "key": HOSTILE, "run": tiny.run.to_string(), "activity": { "tokens": 1 },
        "modules": [[HOSTILE, 1]], "waited_s": { HOSTILE: 9.0 },
    });
    std::fs::write(folder.join("metrics.jsonl.1"), format!("{line}\n{HOSTILE}\n")).unwrap();
    let log = format!("2026-01-01T00:00:01Z  WARN peer{{key=1}}: pathswarm::peer: {HOSTILE} reason={HOSTILE}\n");
    std::fs::write(folder.join("pathswarm.log"), log).unwrap();
    let score = json!({ "perplexity": 9.0, "bits_per_byte": 2.0 });
    let result = json!({
        "dipaco": score, "paths": [{ "path": HOSTILE, "test": score, "held_out": HOSTILE }],
        "sample": { "path": 0, "prompt": HOSTILE, "text": HOSTILE }, "modules": { HOSTILE: HOSTILE },
    });
    std::fs::write(folder.join("result.json"), result.to_string()).unwrap();
    let page = page(&[&folder]);
    assert!(!page.contains("<img") && !page.contains("<script"), "{page}");
    for id in ["what", "bytes", "faults", "samples", "hashes"] {
        assert!(
            section(&page, id).contains("&lt;/svg&gt;&lt;img") || section(&page, id).contains("&lt;/pre&g"),
            "{id}"
        );
    }
    assert!(section(&page, "what").contains("1 lines of metrics.jsonl cannot be read"));
}

#[test]
fn a_collected_run_shows_what_its_paths_read_unless_text_is_left_out() {
    let tiny = Tiny::create(true);
    let modules: Vec<String> = tiny.decoded.genesis.iter().map(|(module, _)| module.to_string()).collect();
    let modules: Vec<(&str, u64)> = modules.iter().map(|module| (module.as_str(), 1)).collect();
    let (stopped, model) = (tiny.peer("a", &modules), tiny.home.path().join("model"));
    collect_from_stores(&tiny.manifest, &[stopped], &model).unwrap();
    let mut subjects = Subjects::read(&[model]).unwrap();
    let page = subjects.page().unwrap();
    can_do_nothing(&page);
    let routing = section(&page, "routing");
    assert!(!routing.contains("held held"), "each token once: {routing}");
    assert!(routing.contains("river (") && routing.contains("Beginnings of documents of path 0"), "{routing}");
    assert!(section(&page, "hashes").contains("<th scope=\"row\">0.0</th><td class=\"number\">1</td>"));
    assert!(section(&page, "faults").contains("There is no pathswarm.log"));
    subjects.leave_out_text();
    let page = subjects.page().unwrap();
    assert!(!page.contains("river"), "{page}");
}

#[test]
fn domains_are_told_where_the_run_was_created() {
    let tiny = Tiny::create(true);
    let folder = peer(&tiny, "a", [5.0, 4.0]);
    let without = page(&[&folder]);
    let of_path = |law: u64| json!({ "documents": 10, "domains": [[HOSTILE, 9 - law], ["law", law]] });
    let paths: Vec<Value> = (0..4).map(of_path).collect();
    let domains = json!({ "run": tiny.run.to_string(), "paths": paths });
    std::fs::write(folder.join("domains.json"), domains.to_string()).unwrap();
    let page = page(&[&folder]);
    can_do_nothing(&page.replace("src=&#39;x&#39;", ""));
    let routing = section(&page, "routing");
    assert!(!without.contains("law ") && routing.contains("path 3") && routing.contains("law 30 %"), "{routing}");
}

/// An arm's outcome with this held-out loss at the end.
fn outcome(arm: &str, seed: u64, loss: f64) -> Value {
    let numbers = json!({ "nats": 200.0, "tokens": 100, "bytes": 250 });
    let point = |phases: u64, loss: f64| json!({ "phases": phases, "steps": 10 * phases, "tokens": 100 * phases, "loss": loss });
    json!({
        "arm": arm, "seed": seed, "kind": "dense", "paths": 1, "path_parameters": 1_000, "parameters": 1_000, "steps": 20,
        "tokens": 2_000, "seconds": 3.0, "shards": [7], "curve": [point(1, 5.0), point(2, loss)], "last": numbers,
        "early": numbers, "stopped_at": [2], "rerouted": [], "honest": null, "right": null, "modules_alone": null,
        "exchanged": null,
    })
}

#[test]
fn an_experiment_has_its_arms_and_their_curves() {
    let folder = tempfile::tempdir().unwrap();
    let outcomes = json!([outcome(HOSTILE, 1, 4.0), outcome(HOSTILE, 2, 3.0), outcome("grid", 1, 2.0)]);
    std::fs::write(folder.path().join("results.json"), outcomes.to_string()).unwrap();
    let page = page(&[folder.path()]);
    assert!(!page.contains("<img") && !page.contains("<script"), "{page}");
    let shown = section(&page, "experiment-0");
    assert!(shown.contains("7.39 (7.39–7.39)"), "e^2, of two seeds: {shown}");
    assert_eq!((curves(shown, "steps-0"), curves(shown, "tokens-0")), (2, 2));
}
