//! What is fuzzed is known: every target is built and described, and every decoder is in one, or it is said why not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// By which a decoder is known.
const DECODERS: [&str; 8] = [
    "fn decode",
    "fn from_json(",
    "fn from_text(",
    "fn from_toml(",
    "fn of_bytes(",
    "fn read_prefixed",
    "FromStr for",
    "Codec for",
];

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(project().join(path)).unwrap()
}

/// All Rust files below a folder of the project, without it.
fn rust_files(folder: &str) -> BTreeSet<String> {
    let top = project().join(folder);
    let mut found = BTreeSet::new();
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.insert(path.strip_prefix(&top).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

/// Each target of `fuzz/Cargo.toml` and the file that it is built from.
fn built() -> Vec<(String, String)> {
    let cargo: toml::Table = read("fuzz/Cargo.toml").parse().unwrap();
    let mut built = Vec::new();
    for target in cargo["bin"].as_array().unwrap() {
        let (name, path) = (target["name"].as_str().unwrap(), target["path"].as_str().unwrap());
        let Some(file) = path.strip_prefix("targets/") else { continue };
        let folder = if target.get("required-features").is_some() { "all" } else { "core" };
        assert_eq!(file, format!("{folder}/{name}.rs"), "a target is in the folder of what it needs");
        built.push((name.to_owned(), file.to_owned()));
    }
    built
}

#[test]
fn every_fuzz_target_is_built_and_described() {
    let (names, files): (BTreeSet<String>, BTreeSet<String>) = built().into_iter().unzip();
    assert_eq!(files, rust_files("fuzz/targets"));
    let rows = read("fuzz/README.md");
    let described = rows.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(described.map(str::to_owned).collect::<BTreeSet<_>>(), names);
}

#[test]
fn every_decoder_is_fuzzed_or_it_is_said_why_not() {
    let said = read("fuzz/README.md");
    let is_said = |file: &str| said.contains(&format!("`{file}`"));
    for file in rust_files("src") {
        let text = read(Path::new("src").join(&file));
        let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let found = DECODERS.iter().find(|decoder| shipped.contains(**decoder));
        assert!(
            found.is_none() || is_said(&file),
            "src/{file} has {found:?}: say in fuzz/README.md which target it is in"
        );
    }
}
