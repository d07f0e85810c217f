//! The programs that people ask a server with, lm-eval, LiteLLM and LangChain, and schemathesis, which makes requests from its
//! description, as they come from PyPI. `scripts/reference
//! --clients` installs them, and `scripts/test --thorough` runs these tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::client::{NAME, Served, collected, project, rewrite};
use crate::clients::examples;
use crate::run::{World, pathswarm};

/// What is installed, and where each program may write. Says so where it is not installed.
fn installed(needs_torch: bool) -> Option<Command> {
    let root = project();
    let (packages, cuda) = (root.join(".clients"), root.join(".venv/without-cuda"));
    if !packages.join("packages").exists() || (needs_torch && !cuda.join("complete").exists()) {
        eprintln!("skipped: scripts/reference --clients has not installed these programs");
        return None;
    }
    let paths = [root.join(".venv"), packages, root.join(".libtorch/site")];
    let count = if needs_torch { 3 } else { 2 };
    let mut python = Command::new("python3");
    // Whatever asks beyond this machine fails at once.
    python
        .env("PYTHONPATH", std::env::join_paths(&paths[..count]).unwrap())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LD_LIBRARY_PATH", cuda)
        .env("OMP_NUM_THREADS", "1")
        .env("HF_HUB_OFFLINE", "1")
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env_remove("OPENAI_API_KEY")
        .env_remove("TIKTOKEN_CACHE_DIR");
    for (name, value) in [("https_proxy", "http://127.0.0.1:1"), ("no_proxy", "127.0.0.1")] {
        python.env(name, value).env(name.to_uppercase(), value);
    }
    Some(python)
}

/// Runs a script to its end, with a home of its own.
fn run(mut python: Command, world: &World, script: &Path, arguments: &[&str]) {
    let home = world.name("home");
    std::fs::create_dir_all(&home).unwrap();
    python.env("HOME", &home).env("HF_HOME", &home).env("TMPDIR", &home).current_dir(&home);
    let output = python.arg(script).args(arguments).output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
    println!("{said}");
}

fn script(name: &str) -> PathBuf {
    project().join("tests/serve/clients").join(name)
}

/// Documents of one line, so that a path learns where they end.
fn short(documents: &[String]) -> Vec<String> {
    let lines = documents.iter().flat_map(|text| text.lines().take(3)).filter(|line| line.ends_with('.'));
    lines.map(str::to_owned).collect()
}

#[test]
#[ignore = "needs scripts/reference --clients: cargo test --release --test serve -- --ignored --nocapture"]
fn lm_eval_measures_what_transformers_computes_of_a_path_and_of_the_routed_run() {
    let Some(python) = installed(true) else { return };
    let world = World::new();
    rewrite(&world, short);
    let (folder, path, whole) = (collected(&world), world.name("path"), world.name("whole"));
    for arguments in [&["export", &folder, &path, "--path", "2"][..], &["export", &folder, &whole, "--whole"]] {
        let output = pathswarm(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (run_url, path_url) = (Served::start(&folder, &[]), Served::start(&path, &[]));
    let home = world.name("tasks");
    std::fs::create_dir_all(&home).unwrap();
    let arguments = [&run_url.url(), &path_url.url(), NAME, "2", &path, &whole, &world.corpus, &home];
    run(python, &world, &script("lm_eval_tasks.py"), &arguments);
}

#[test]
#[ignore = "needs scripts/reference --clients: cargo test --release --test serve -- --ignored --nocapture"]
fn litellm_and_langchain_are_answered_as_the_openai_package_is() {
    let Some(litellm) = installed(false) else { return };
    let Some(langchain) = installed(false) else { return };
    let world = World::new();
    let keys = world.write("keys", "sk-one\n");
    let served = Served::start(&collected(&world), &["--api-keys", &keys]);
    run(litellm, &world, &script("litellm_package.py"), &[&served.url(), "sk-one"]);
    // LiteLLM comes with the vocabulary that LangChain would download.
    let vocabulary = project().join(".clients/litellm/litellm_core_utils/tokenizers");
    let arguments = [&served.url(), "sk-one", vocabulary.to_str().unwrap()];
    run(langchain, &world, &script("langchain_package.py"), &arguments);
}

#[test]
#[ignore = "needs scripts/reference --clients: cargo test --release --test serve -- --ignored --nocapture"]
fn the_examples_of_the_guide_for_litellm_and_langchain_work() {
    let world = World::new();
    if installed(false).is_none() {
        return;
    }
    let served = Served::start(&collected(&world), &[]);
    let examples = examples(&served, "python", |example| !example.starts_with("from openai"));
    assert_eq!(examples.len(), 2);
    for example in examples {
        let file = world.write("example.py", example);
        run(installed(false).unwrap(), &world, Path::new(&file), &[]);
    }
}

/// Requests that schemathesis makes.
const REQUESTS: u64 = 10_000;

/// What the server may keep of them, in bytes, beside its cache of ended texts.
const MORE_BYTES: u64 = 192 << 20;

#[test]
#[ignore = "needs scripts/reference --clients: cargo test --release --test serve -- --ignored --nocapture"]
fn ten_thousand_requests_that_are_made_from_its_description_break_nothing() {
    let Some(mut python) = installed(false) else { return };
    let world = World::new();
    let served = Served::start(&collected(&world), &["--prefix-mib", "16"]);
    served.complete(json!({ "prompt": "ba ke", "max_tokens": 64 })).ok();
    let before = served.resident_bytes();
    let (home, description) = (world.name("home"), served.url().replace("/v1", "/openapi.json"));
    std::fs::create_dir_all(&home).unwrap();
    python.env("HOME", &home).current_dir(&home).args(["-m", "schemathesis.cli", "run", &description]);
    // What depends on two fields at once, such as a sum of tokens, is no part of the description.
    python.args(["--exclude-checks", "positive_data_acceptance", "--phases", "examples,fuzzing", "--seed", "34"]);
    // There are three requests with a body, and few different ones without.
    python.args(["-n", &(REQUESTS / 3 + 100).to_string(), "--workers", "2", "--continue-on-failure", "--no-color"]);
    // On a machine that does other work, too.
    python.args(["--request-timeout", "60"]);
    let output = python.args(["--report", "json", "--report-json-path", "report.json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(world.path("home/report.json")).unwrap()).unwrap();
    let (made, after) = (report["test_cases"]["generated"].as_u64().unwrap(), served.resident_bytes());
    println!("{made} requests in {} s; {before} bytes of memory before, {after} after", report["running_time"]);
    assert!(made >= REQUESTS, "{said}");
    assert!(after < before + MORE_BYTES, "{before} bytes, and {after} after {made} requests");
    served.complete(json!({ "prompt": "ba ke", "max_tokens": 4 })).ok();
}
