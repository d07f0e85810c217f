//! The behaviour in drills is unchanged: the hash of a few seeds' traces is that of configs/drills/traces.txt.
//! `scripts/trace-hashes` compares many more seeds, and writes the list.

use std::path::Path;
use std::sync::Arc;

use pathswarm::simulator::Scenario;
use pathswarm::simulator::drill::trace_hash;

/// The lines of the list with these seeds are compared here.
const SEEDS: std::ops::Range<u64> = 0..2;

#[test]
fn every_drill_has_the_listed_trace_hash() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = std::fs::read_to_string(project.join("configs/drills/traces.txt")).unwrap();
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split(' ').collect()).collect();
    for file in std::fs::read_dir(project.join("configs/drills")).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        let name = format!("configs/drills/{file}");
        assert!(!name.ends_with(".toml") || lines.iter().any(|line| line[2] == name), "{name} is not in the list");
    }
    let seeds = format!("{}..{}", SEEDS.start, SEEDS.end);
    let few: Vec<_> = lines.iter().filter(|line| line[1] == seeds).collect();
    assert!(few.len() >= 20, "{} drills are compared", few.len());
    let differs = |line: &&&Vec<&str>| {
        let text = std::fs::read_to_string(project.join(line[2])).unwrap();
        let scenario = Arc::new(Scenario::from_toml(&text).unwrap());
        let hash = trace_hash(&scenario, SEEDS, |_| {}).unwrap_or_else(|failure| panic!("{}: {failure}", line[2]));
        hash.to_string() != line[0]
    };
    let differ: Vec<&str> = few.iter().filter(differs).map(|line| line[2]).collect();
    assert!(
        differ.is_empty(),
        "if the change of behaviour is intended, run scripts/trace-hashes --update: {}",
        differ.join(", ")
    );
}
