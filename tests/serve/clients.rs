//! The programs that people use: the `openai` package for Python, and `lm-eval`'s way to ask.

use std::path::Path;
use std::process::Command;

use crate::client::{NAME, Served, collected, project};
use crate::run::World;

/// Runs a script. `None` where what it needs is not installed, which is said.
fn script(file: &Path, arguments: &[&str]) -> Option<()> {
    let root = project();
    if !root.join(".venv/packages").exists() {
        eprintln!("skipped: scripts/reference has not installed what {} needs", file.display());
        return None;
    }
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", root.join(".venv")).arg(file).args(arguments);
    let output = python.output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
    Some(())
}

#[test]
fn the_openai_package_is_answered_as_by_openai() {
    let world = World::new();
    let keys = world.write("keys", "sk-one\n");
    let served = Served::start(&collected(&world), &["--api-keys", &keys, "--requests", "8"]);
    script(&project().join("tests/serve/openai_package.py"), &[&served.url(), "sk-one"]);
}

/// The code blocks of the guide in a language that are asked for, for a server.
pub fn examples(served: &Served, language: &str, which: impl Fn(&str) -> bool) -> Vec<String> {
    let page = std::fs::read_to_string(project().join("docs/guide/serve.md")).unwrap();
    let fence = format!("```{language}\n");
    let blocks = page.split(&fence).skip(1).map(|block| block.split("```").next().unwrap());
    let here = |example: &str| example.replace("http://127.0.0.1:8080/v1", &served.url()).replace("NAME", NAME);
    blocks.filter(|block| which(block)).map(here).collect()
}

#[test]
fn every_example_of_the_guide_works() {
    let world = World::new();
    let served = Served::start(&collected(&world), &[]);
    let shown = examples(&served, "sh", |block| block.starts_with("curl "));
    assert_eq!(shown.len(), 3);
    for example in shown {
        let output = Command::new("sh").args(["-c", &example.replace("curl ", "curl -sS --fail-with-body ")]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains(NAME), "{example}: {said}");
        assert_eq!(said.ends_with("data: [DONE]\n\n"), example.contains("\"stream\": true"), "{said}");
    }
    // Those for other packages are tried in installed.rs.
    let shown = examples(&served, "python", |block| block.starts_with("from openai"));
    assert_eq!(shown.len(), 1);
    for example in shown {
        let file = world.write("example.py", example);
        script(Path::new(&file), &[]);
    }
}
