//! No cycles: inside a room of src, neither files nor the folders of the room import each other in a ring. A folder's
//! `mod.rs` and the files below it may, as they are one thing.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;
use crate::tree::{none, rust, shipped};

/// One file of a room names another of the same room.
struct Import {
    path: String,
    line: usize,
    from: Vec<String>,
    to: Vec<String>,
}

impl Import {
    /// Between the files themselves.
    fn files(&self) -> Option<(String, String)> {
        Some((self.from.join("/"), self.to.join("/")))
    }

    /// Between what stands directly in the room: two of its folders, or files beside them.
    fn folders(&self) -> Option<(String, String)> {
        let (from, to) = (self.from.get(..2)?.join("/"), self.to.get(..2)?.join("/"));
        (from != to).then_some((from, to))
    }
}

/// All imports between files of one room, but for those between a `mod.rs` and the files below it.
fn imports(sources: &[Source]) -> Vec<Import> {
    let module = |source: &Source| source.module().into_iter().map(str::to_owned).collect::<Vec<String>>();
    let modules: BTreeSet<Vec<String>> = sources.iter().map(module).collect();
    let file_of = |path: &[String]| {
        let lengths = (1..=path.len()).rev();
        lengths.map(|length| path[..length].to_vec()).find(|path| modules.contains(path))
    };
    let mut found = Vec::new();
    for source in sources {
        let from = module(source);
        for (line, named) in source.named_paths() {
            let Some(to) = file_of(&named).filter(|to| to[0] == from[0]) else { continue };
            if !to.starts_with(&from) && !from.starts_with(&to) {
                found.push(Import { path: source.path.clone(), line, from: from.clone(), to });
            }
        }
    }
    found
}

/// The imports that are part of a ring between these ends of each: one message for each two of them.
fn rings(imports: &[Import], ends: impl Fn(&Import) -> Option<(String, String)>) -> Vec<String> {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut first: BTreeMap<(String, String), &Import> = BTreeMap::new();
    for import in imports {
        let Some((from, to)) = ends(import) else { continue };
        graph.entry(from.clone()).or_default().insert(to.clone());
        first.entry((from, to)).or_insert(import);
    }
    let mut found = Vec::new();
    for ((from, to), import) in first {
        let Some(back) = way(&graph, &to, &from) else { continue };
        let (path, line, back) = (&import.path, import.line, back.join(", then "));
        found.push(format!("{path}:{line}: {from} imports {to}, which leads back: {back}"));
    }
    found
}

/// The shortest way from one end to another, both of them named.
fn way(graph: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut reached = vec![from];
    let mut next = 0;
    while let Some(here) = reached.get(next).copied() {
        if here == to {
            let mut way = vec![here.to_owned()];
            while way.last().is_some_and(|last| last != from) {
                way.push(before[way.last()?.as_str()].to_owned());
            }
            way.reverse();
            return Some(way);
        }
        for there in graph.get(here).into_iter().flatten() {
            if there != from && !before.contains_key(there.as_str()) {
                before.insert(there, here);
                reached.push(there);
            }
        }
        next += 1;
    }
    None
}

fn cycles(imports: &[Import]) -> Vec<String> {
    [rings(imports, Import::files), rings(imports, Import::folders)].concat()
}

#[test]
fn no_files_and_no_folders_of_a_room_import_each_other_in_a_ring() {
    let imports = imports(&shipped(rust(&["src"])));
    assert!(imports.len() > 100, "the imports of the rooms are read");
    none(cycles(&imports));
}

mod made_up {
    //! The rule finds what breaks it, and only that.

    use super::*;

    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = sources.iter().map(|(path, text)| Source::new(path, text)).collect();
        cycles(&imports(&sources))
    }

    #[test]
    fn two_files_that_import_each_other_are_found_however_it_is_written() {
        let back = |text: &str| found(&[("src/a/b.rs", "use crate::a::c::C;"), ("src/a/c.rs", text)]).len();
        // Both imports, between files, and the same between what stands in the room.
        for text in [
            "use crate::a::b::B;",
            "use crate::{clock, a::{b::{self, B}}};",
            "use super::b;",
            "use super::{d::D, b::B};",
            "fn f(b: super::b::B) {}",
            "fn f() -> Vec<crate::a::b::B> {}",
            "mod deeper { use super::super::b::B; }",
            "mod deeper { use self::super::super::b::B; }",
        ] {
            assert_eq!(back(text), 4, "{text}");
        }
        for text in [
            "use crate::d::b::B;",
            "use super::super::b;",
            "// use super::b;\nconst TEXT: &str = \"crate::a::b\";",
            "#[cfg(test)]\nmod tests { use super::super::b; }",
            "mod b {}\nuse self::b::B;",
        ] {
            assert_eq!(back(text), 0, "{text}");
        }
    }

    #[test]
    fn a_ring_is_told_from_what_leads_into_it() {
        let sources = [
            ("src/a/b/mod.rs", "use super::c::C;"),
            ("src/a/c.rs", "use super::d::{D, E};"),
            ("src/a/d.rs", "use crate::a::e::{E, F};\nuse crate::a::c;"),
            ("src/a/e.rs", ""),
        ];
        let between_files = &found(&sources)[..2];
        assert_eq!(
            between_files,
            [
                "src/a/c.rs:1: a/c imports a/d, which leads back: a/d, then a/c",
                "src/a/d.rs:2: a/d imports a/c, which leads back: a/c, then a/d"
            ]
        );
        assert_eq!(found(&sources).len(), 4);
    }

    #[test]
    fn a_folder_and_what_is_below_it_may_import_each_other() {
        let sources = [
            ("src/a/mod.rs", "pub mod b;\nuse crate::a::b::B;\nuse b::c::C;"),
            ("src/a/b/mod.rs", "use super::A;\nuse self::c::C;"),
            ("src/a/b/c.rs", "use super::B;\nuse crate::a::A;"),
        ];
        assert_eq!(found(&sources), [""; 0]);
    }

    #[test]
    fn two_folders_that_import_each_other_are_found_though_no_two_files_do() {
        let sources = [
            ("src/a/b/one.rs", "use crate::a::c::one::One;"),
            ("src/a/b/two.rs", ""),
            ("src/a/c/one.rs", ""),
            ("src/a/c/two.rs", "\nuse crate::a::b::two::Two;"),
            ("src/d/one.rs", "use crate::a::b::one;"),
        ];
        assert_eq!(
            found(&sources),
            [
                "src/a/b/one.rs:1: a/b imports a/c, which leads back: a/c, then a/b",
                "src/a/c/two.rs:2: a/c imports a/b, which leads back: a/b, then a/c"
            ]
        );
    }
}
