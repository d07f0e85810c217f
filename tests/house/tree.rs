//! The project's files: on the disk, and which of them a `mod` leads to.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::source::Source;

pub fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A file named from a folder, `..` included.
pub fn joined(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in file.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The paths of all files below a folder of the project, in order. What `fuzz/.gitignore` names is left out.
pub fn paths(folder: &str) -> Vec<String> {
    let ignored = std::fs::read_to_string(project().join("fuzz/.gitignore")).unwrap();
    let ignored: Vec<PathBuf> = ignored.lines().map(|name| project().join("fuzz").join(name)).collect();
    let mut found = Vec::new();
    let mut folders = vec![project().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()).filter(|path| !ignored.contains(path)) {
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(project()).unwrap().to_str().unwrap().replace('\\', "/"));
            }
        }
    }
    found.sort();
    found
}

/// All files below a folder of the project with this ending, and what is in them.
pub fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let named =
        paths(folder).into_iter().filter(|path| path.rsplit_once('.').is_some_and(|(_, found)| found == ending));
    let read = |path: String| {
        let text = std::fs::read_to_string(project().join(&path)).unwrap();
        (path, text)
    };
    named.map(read).collect()
}

pub fn rust(folders: &[&str]) -> Vec<Source> {
    let texts = folders.iter().flat_map(|folder| files(folder, "rs"));
    texts.map(|(path, text)| Source::new(&path, &text)).collect()
}

/// Those of a library's sources that are part of the program: without what only tests see.
pub fn shipped(sources: Vec<Source>) -> Vec<Source> {
    let reached = reached(&sources, shipped_files_of);
    sources.into_iter().filter(|source| reached.contains(&source.path)).collect()
}

#[track_caller]
pub fn none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Whether a file is the root of a crate.
fn is_root(path: &str) -> bool {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let of_a_folder = file == "main.rs" && ["tests/", "benches/"].iter().any(|home| folder.starts_with(home));
    matches!(path, "src/lib.rs" | "src/main.rs") || matches!(folder, "tests" | "benches") || of_a_folder
}

/// The files that the `mod`s of a source may lead to, those for tests included.
pub fn files_of(source: &Source) -> Vec<String> {
    places(source, source.placed_modules(), source.declared_modules())
}

/// The same, without those for tests.
fn shipped_files_of(source: &Source) -> Vec<String> {
    places(source, source.shipped_placed_modules(), source.shipped_modules())
}

fn places(source: &Source, placed: &[String], named: Vec<String>) -> Vec<String> {
    let path = &source.path;
    let here = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let stem = path.trim_end_matches(".rs");
    let folder = match stem.strip_suffix("/mod") {
        Some(folder) => folder,
        None if is_root(path) => here,
        None => stem,
    };
    let placed = placed.iter().map(|file| joined(here, file));
    let named = named.into_iter().flat_map(|name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]);
    placed.chain(named).collect()
}

/// The files to which the roots of crates lead, when a source leads to `files_of` it.
pub fn reached(sources: &[Source], files_of: impl Fn(&Source) -> Vec<String>) -> BTreeSet<String> {
    let mut reached: BTreeSet<String> =
        sources.iter().map(|source| source.path.clone()).filter(|path| is_root(path)).collect();
    let mut waiting: Vec<String> = reached.iter().cloned().collect();
    while let Some(path) = waiting.pop() {
        let Some(source) = sources.iter().find(|source| source.path == path) else { continue };
        for file in files_of(source) {
            if reached.insert(file.clone()) {
                waiting.push(file);
            }
        }
    }
    reached
}

mod made_up {
    use super::*;

    #[test]
    fn what_only_tests_see_is_not_shipped() {
        let at = |path: &str, text: &str| Source::new(path, text);
        let sources = vec![
            at("src/lib.rs", "pub mod a;\n#[cfg(test)]\nmod tests;"),
            at("src/tests.rs", "mod deeper;"),
            at("src/tests/deeper.rs", ""),
            at("src/a/mod.rs", "mod b;\n#[cfg(test)]\npub(crate) mod samples;"),
            at("src/a/samples.rs", ""),
            at("src/a/b.rs", "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n#[path = \"c_c.rs\"]\nmod c;"),
            at("src/a/b_tests.rs", ""),
            at("src/a/c_c.rs", ""),
        ];
        let paths: Vec<String> = shipped(sources).into_iter().map(|source| source.path).collect();
        assert_eq!(paths, ["src/lib.rs", "src/a/mod.rs", "src/a/b.rs", "src/a/c_c.rs"]);
    }
}
