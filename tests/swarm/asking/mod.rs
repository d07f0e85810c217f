//! A swarm that runs can be asked: for text, and for its status.

mod status;
mod text;

use serde_json::Value;

use crate::run::pathswarm;

/// What a command says to programs, and its exit status.
fn asked(arguments: &[&str]) -> (Vec<Value>, Option<i32>, String) {
    let output = pathswarm(&[arguments, &["--format", "json", "--set", "threads=1"]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    let lines = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// The same of one that ends well.
#[track_caller]
fn told(arguments: &[&str]) -> Vec<Value> {
    let (lines, status, complaints) = asked(arguments);
    assert_eq!(status, Some(0), "{arguments:?}: {complaints}");
    lines
}

fn address(status: &Value) -> &str {
    status["addresses"][0].as_str().unwrap()
}
