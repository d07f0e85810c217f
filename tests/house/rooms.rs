//! The rooms stay rooms: a folder is small enough to be seen at a glance, and the core's parts keep their state to themselves.

use std::collections::{BTreeMap, BTreeSet};

use crate::items::{Struct, implementations, structs};
use crate::source::{Source, identifier, is_in_identifier};
use crate::tree::{none, paths, rust, shipped};

const MOST_FILES: usize = 15;

/// Where the rules of the core's node live, and nowhere else.
const NODE: &str = "src/protocol/node/";
const MOST_PARTS: usize = 15;

/// Fields of the node that are plain data: made once, or sent and stored as they are. All of their fields are public.
const RECORDS: [&str; 2] = ["RunPlan", "SignedUpdate"];

/// Folders with too many files side by side, of all files with these paths.
fn full_folders(paths: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in paths {
        *counts.entry(path.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default() += 1;
    }
    let full = counts.into_iter().filter(|(_, count)| *count > MOST_FILES);
    full.map(|(folder, count)| format!("{folder}: {count} files side by side, at most {MOST_FILES}")).collect()
}

/// Implementations of the node outside of its room.
fn node_elsewhere(source: &Source) -> Vec<String> {
    if !source.path.starts_with("src/protocol/") || source.path.starts_with(NODE) {
        return Vec::new();
    }
    let found = implementations(&source.shipped).into_iter().filter(|(_, of)| of == "Node");
    found.map(|(line, _)| format!("{}:{line}: impl Node stands in {NODE} alone", source.path)).collect()
}

/// What is wrong with the fields of the node: too many, or open to everybody.
fn open_node(sources: &[Source]) -> Vec<String> {
    let Some((path, node)) = node(sources) else { return vec![format!("{NODE}mod.rs:1: there is no struct Node")] };
    let mut found = Vec::new();
    if node.fields.len() > MOST_PARTS {
        found.push(format!("{path}:1: Node has {} fields, at most {MOST_PARTS}", node.fields.len()));
    }
    for field in node.fields.iter().filter(|field| field.visibility == "pub") {
        found.push(format!("{path}:{}: Node::{} is open to everybody", field.line, field.name));
    }
    found
}

/// Fields of the node's parts that others may name.
fn open_parts(sources: &[Source]) -> Vec<String> {
    let Some((_, node)) = node(sources) else { return Vec::new() };
    let parts: BTreeSet<&str> = node.fields.iter().flat_map(|field| types(&field.of)).collect();
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("src/protocol/")) {
        let structs = structs(&source.shipped);
        for part in structs.iter().filter(|part| parts.contains(part.name.as_str())) {
            if RECORDS.contains(&part.name.as_str()) {
                continue;
            }
            for field in part.fields.iter().filter(|field| !field.visibility.is_empty()) {
                let (path, line, name) = (&source.path, field.line, &field.name);
                found.push(format!(
                    "{path}:{line}: {}::{name} is {}, a part's are private",
                    part.name, field.visibility
                ));
            }
        }
    }
    found
}

fn node(sources: &[Source]) -> Option<(String, Struct)> {
    let source = sources.iter().find(|source| source.path == format!("{NODE}mod.rs"))?;
    let node = structs(&source.shipped).into_iter().find(|found| found.name == "Node")?;
    Some((source.path.clone(), node))
}

/// The names of all types in a type, those in `<…>` included.
fn types(of: &str) -> Vec<&str> {
    let starts =
        of.char_indices().filter(|(at, character)| character.is_uppercase() && !of[..*at].ends_with(is_in_identifier));
    starts.map(|(at, _)| identifier(&of[at..])).collect()
}

#[test]
fn no_folder_is_too_full_to_be_seen_at_a_glance() {
    let all: Vec<String> = ["src", "tests", "benches", "fuzz"].into_iter().flat_map(paths).collect();
    none(full_folders(&all));
}

#[test]
fn the_node_is_implemented_in_its_room_alone() {
    none(shipped(rust(&["src"])).iter().flat_map(node_elsewhere).collect());
}

#[test]
fn the_node_has_few_parts_and_its_parts_keep_their_state_to_themselves() {
    let sources = shipped(rust(&["src"]));
    none([open_node(&sources), open_parts(&sources)].concat());
}

mod made_up {
    //! Each rule finds what breaks it, and only that.

    use super::*;

    fn at(path: &str, text: &str) -> Source {
        Source::new(path, text)
    }

    #[test]
    fn a_folder_of_sixteen_files_is_found_and_folders_do_not_count() {
        let beside = |count: usize| (0..count).map(|number| format!("src/a/{number}.rs"));
        let below = (0..16).map(|number| format!("src/a/{number}/mod.rs"));
        let paths: Vec<String> = beside(15).chain(below).collect();
        assert_eq!(full_folders(&paths), [""; 0]);
        let paths: Vec<String> = beside(16).collect();
        assert_eq!(full_folders(&paths), ["src/a: 16 files side by side, at most 15"]);
    }

    #[test]
    fn an_implementation_of_the_node_elsewhere_is_found() {
        let wrong = |path: &str, text: &str| node_elsewhere(&at(path, text)).len();
        for text in [
            "impl Node {}",
            "impl crate::protocol::Node {}",
            "impl super::node::Node {}",
            "impl Default for Node {}",
            "#[expect(dead_code)]\nimpl Node {}",
        ] {
            assert_eq!(wrong("src/protocol/status/mod.rs", text), 1, "{text}");
            assert_eq!(wrong("src/protocol/node/heartbeat.rs", text), 0, "{text}");
            assert_eq!(wrong("src/simulator/mod.rs", text), 0, "{text}: one of another name");
        }
        for text in ["impl NodeStatus {}", "impl From<Node> for Status {}", "#[cfg(test)]\nmod tests { impl Node {} }"]
        {
            assert_eq!(wrong("src/protocol/status/mod.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn a_node_of_too_many_parts_or_open_to_everybody_is_found() {
        let found =
            |fields: &str| open_node(&[at("src/protocol/node/mod.rs", &format!("pub struct Node {{{fields}}}"))]);
        assert_eq!(found(&"pub(super) part: Part,".repeat(15)), [""; 0]);
        assert_eq!(found(&"part: Part,".repeat(16)), ["src/protocol/node/mod.rs:1: Node has 16 fields, at most 15"]);
        assert_eq!(found("\npub part: Part"), ["src/protocol/node/mod.rs:2: Node::part is open to everybody"]);
        assert_eq!(open_node(&[]).len(), 1);
    }

    #[test]
    fn an_open_field_of_a_part_is_found_wherever_the_part_stands() {
        let sources = [
            at(
                "src/protocol/node/mod.rs",
                "struct Node { modules: BTreeMap<ModuleId, Module>, blobs: blobs::Blobs, plan: Arc<RunPlan> }
struct Module { pub(super) chain: Chain, term: Term }",
            ),
            at(
                "src/protocol/blobs/mod.rs",
                "pub struct Blobs { fetches: Fetches }\npub struct Fetches { pub open: u8 }",
            ),
            at("src/protocol/module/chain.rs", "pub struct Chain { pub head: Head }"),
            at("src/protocol/plan/mod.rs", "pub struct RunPlan { pub phases: u64 }"),
            at("src/names.rs", "pub struct ModuleId { pub level: u8 }"),
        ];
        assert_eq!(
            open_parts(&sources),
            ["src/protocol/node/mod.rs:2: Module::chain is pub(super), a part's are private"]
        );
    }
}
