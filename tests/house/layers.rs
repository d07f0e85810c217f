//! The house stays tidy: who may import whom, what the core never touches, no dead files, nothing too long. Each rule is
//! tested on made-up sources that break it.

use crate::source::{Source, lines_with};
use crate::tree::{files_of, none, reached, rust};

/// Names, time, chance, the grid, configurations and how blobs are cut: everybody may use them.
const GROUND: [&str; 10] =
    ["names", "clock", "seed", "grid", "sampling", "config", "pieces", "failpoints", "survival", "sizes"];

/// What a module of the crate may import besides itself and [`GROUND`] (docs/architecture.md shows the layers).
const LAYERS: [(&str, &[&str]); 34] = [
    ("names", &[]),
    ("clock", &[]),
    ("seed", &[]),
    ("grid", &[]),
    ("sampling", &[]),
    ("config", &[]),
    ("pieces", &[]),
    ("failpoints", &[]),
    ("survival", &[]),
    ("sizes", &[]),
    ("images", &[]),
    ("text", &["images"]),
    ("routing", &["text"]),
    ("model", &[]),
    ("training", &["images", "text", "model"]),
    ("compress", &[]),
    // An outer step is taken on the bytes that are stored and sent: decoding them is part of it.
    ("outer", &["compress"]),
    ("query", &[]),
    ("protocol", &["query"]),
    ("access", &["protocol::wire", "protocol::limits"]),
    ("store", &[]),
    ("http", &[]),
    ("network", &["protocol::wire", "protocol::limits"]),
    ("observe", &[]),
    ("simulator", &["compress", "outer", "protocol"]),
    (
        "peer",
        &[
            "text", "routing", "model", "training", "compress", "outer", "query", "protocol", "access", "store",
            "network",
        ],
    ),
    ("serve", &["text", "model", "training", "query", "peer", "http"]),
    ("experiment", &["text", "routing", "model", "training", "compress", "outer", "store", "peer"]),
    ("inspect", &["text", "model", "training"]),
    ("telemetry", &["protocol", "peer", "observe"]),
    ("console", &["http", "telemetry", "peer"]),
    ("report", &["text", "peer", "experiment", "inspect"]),
    ("cli", &["*"]),
    ("main", &["cli"]),
];

/// Where a foreign crate may be used; everywhere else it is out of place.
const HOMES: [(&str, &[&str]); 31] = [
    ("aho_corasick", &["text/tokenizer/specials"]),
    ("base64", &["peer/access/invitation_token", "report/html", "serve/response/models"]),
    ("bincode", &["protocol/wire/encoding"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli/manual"]),
    ("clap_mangen", &["cli/manual"]),
    ("console", &["observe/terminal"]),
    ("crc32c", &["telemetry/tensorboard/event"]),
    ("etcetera", &["cli/data_folder"]),
    ("governor", &["network/protection/rate_limiter"]),
    ("hyper", &["http"]),
    ("image", &["images", "inspect/plots/sheet"]),
    ("indicatif", &["observe"]),
    ("libp2p", &["network"]),
    ("libp2p_stream", &["network"]),
    ("minijinja", &["text/chat/template"]),
    ("minijinja_contrib", &["text/chat/template"]),
    ("plotters", &["experiment/results/plots", "inspect/plots"]),
    ("prometheus_client", &["network/traffic", "telemetry/latencies", "telemetry/metrics"]),
    ("prost", &["telemetry/tensorboard/event"]),
    ("rand_distr", &["inspect/dna/dreaming"]),
    ("ratatui", &["cli/swarm/watch"]),
    ("signal_hook_registry", &["cli/process/signals"]),
    ("rquickjs", &["console/page_tests"]),
    ("rust_embed", &["cli/swarm/simulate/demo"]),
    ("sd_notify", &["telemetry/systemd"]),
    ("sled", &["store"]),
    ("tch", &["model", "training", "inspect"]),
    ("tokenizers", &["text"]),
    ("tower_http", &["http"]),
    ("tracing_appender", &["observe"]),
];

/// The core: the same bytes in, the same state out.
const CORE: [&str; 5] = ["protocol", "access", "query", "outer", "compress"];

/// What the core never names.
const NEVER_IN_CORE: [&str; 14] = [
    "HashMap",
    "HashSet",
    "Instant",
    "SystemTime",
    "mul_add",
    "rand",
    "rand_chacha",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "tokio",
    "tracing",
];

const VAGUE_NAMES: [&str; 10] =
    ["base", "common", "helper", "helpers", "manager", "managers", "misc", "shared", "util", "utils"];

const MOST_FILE_LINES: usize = 450;
const MOST_FUNCTION_LINES: usize = 80;

fn imports(source: &Source) -> Vec<String> {
    let module = source.module();
    let (path, home) = (&source.path, module[0]);
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == home) else {
        return vec![format!("{path}:1: tests/house/layers.rs does not say what {home} may import")];
    };
    let may = |named: &[String]| {
        let first = named[0].as_str();
        let whole = named.join("::");
        first == home || GROUND.contains(&first) || allowed.iter().any(|it| ["*", first, &whole].contains(it))
    };
    let wrong = source.crate_paths().into_iter().filter(|(_, named)| !may(named));
    let mut found: Vec<String> =
        wrong.map(|(line, named)| format!("{path}:{line}: {home} may not import {}", named.join("::"))).collect();
    found.extend(
        source.escapes().into_iter().map(|line| format!("{path}:{line}: write crate:: to name another folder")),
    );
    found
}

fn foreign(source: &Source) -> Vec<String> {
    let place = source.module().join("/");
    let inside = |home: &&&str| place == **home || place.starts_with(&format!("{home}/"));
    let mut found = Vec::new();
    for (name, homes) in HOMES.iter().filter(|(_, homes)| !homes.iter().any(|home| inside(&home))) {
        for line in source.uses_crate(name) {
            found.push(format!("{}:{line}: {name} belongs in {}", source.path, homes.join(", ")));
        }
    }
    found
}

/// What the tables above name or allow though nothing of it is there.
fn needless(sources: &[Source]) -> Vec<String> {
    let inside = |home: &str| {
        let below = format!("{home}/");
        let is_inside = move |source: &&Source| {
            let place = source.module().join("/");
            place == below.trim_end_matches('/') || place.starts_with(&below)
        };
        sources.iter().filter(is_inside)
    };
    let rooms = GROUND.iter().chain(LAYERS.iter().map(|(home, _)| home)).chain(&CORE);
    let gone = rooms.filter(|room| inside(room).next().is_none());
    let mut found: Vec<String> = gone.map(|room| format!("there is no src/{room}")).collect();
    for (home, allowed) in &LAYERS {
        let named: Vec<Vec<String>> = inside(home).flat_map(Source::crate_paths).map(|(_, named)| named).collect();
        let is_used = |it: &&str| *it == "*" || named.iter().any(|named| named[0] == *it || named.join("::") == *it);
        found.extend(allowed.iter().filter(|it| !is_used(it)).map(|it| format!("{home} does not import {it}")));
    }
    for (name, homes) in &HOMES {
        let uses = |home: &&&str| inside(home).any(|source| !source.uses_crate(name).is_empty());
        found.extend(homes.iter().filter(|home| !uses(home)).map(|home| format!("{home} does not use {name}")));
    }
    found
}

fn effects(source: &Source) -> Vec<String> {
    if !CORE.contains(&source.module()[0]) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for word in NEVER_IN_CORE {
        for line in lines_with(&source.shipped, word) {
            found.push(format!("{}:{line}: the core never names {word}", source.path));
        }
    }
    found
}

fn lengths(source: &Source) -> Vec<String> {
    let path = &source.path;
    let mut found = Vec::new();
    if source.line_count() > MOST_FILE_LINES {
        found.push(format!("{path}:1: {} lines, at most {MOST_FILE_LINES}: is it one idea?", source.line_count()));
    }
    for function in source.functions() {
        if function.lines > MOST_FUNCTION_LINES {
            let (line, name) = (function.line, &function.name);
            found.push(format!("{path}:{line}: {name} has {} lines, at most {MOST_FUNCTION_LINES}", function.lines));
        }
    }
    found
}

fn vague_names(source: &Source) -> Vec<String> {
    let vague = source.path.trim_end_matches(".rs").split('/').filter(|part| VAGUE_NAMES.contains(part));
    vague.map(|part| format!("{}:1: {part:?} says nothing about what it holds", source.path)).collect()
}

fn sleeps(source: &Source) -> Vec<String> {
    let in_tests: Vec<usize> = if source.path.starts_with("tests/") {
        lines_with(&source.code, "sleep(")
    } else {
        let shipped = lines_with(&source.shipped, "sleep(");
        lines_with(&source.code, "sleep(").into_iter().filter(|line| !shipped.contains(line)).collect()
    };
    in_tests
        .iter()
        .map(|line| format!("{}:{line}: a test does not sleep, it waits for something", source.path))
        .collect()
}

/// Files that no `mod` leads to.
fn dead_files(sources: &[Source]) -> Vec<String> {
    let alive = reached(sources, files_of);
    let dead = sources.iter().filter(|source| !alive.contains(&source.path));
    dead.map(|source| format!("{}:1: no mod leads here", source.path)).collect()
}

#[test]
fn modules_import_only_what_their_layer_may() {
    let sources = rust(&["src"]);
    // The root of the library declares modules and imports none.
    let inside: Vec<&Source> = sources.iter().filter(|source| source.path != "src/lib.rs").collect();
    none(inside.iter().flat_map(|source| [imports(source), foreign(source)].concat()).collect());
}

#[test]
fn nothing_is_allowed_that_nobody_does() {
    none(needless(&rust(&["src"])));
}

#[test]
fn the_core_has_no_clock_chance_hash_order_or_io() {
    none(rust(&["src"]).iter().flat_map(effects).collect());
}

#[test]
fn every_file_is_reached_and_named_for_what_it_holds() {
    let sources = rust(&["src", "tests", "benches"]);
    none(dead_files(&sources));
    none(sources.iter().flat_map(vague_names).collect());
}

#[test]
fn nothing_is_too_long_and_no_test_sleeps() {
    let sources = rust(&["src", "tests", "benches"]);
    none(sources.iter().flat_map(|source| [lengths(source), sleeps(source)].concat()).collect());
}

mod made_up {
    //! Each rule finds what breaks it, and only that.

    use super::*;

    fn at(path: &str, text: &str) -> Source {
        Source::new(path, text)
    }

    #[test]
    fn an_import_of_a_higher_layer_is_found_however_it_is_written() {
        let wrong = |text: &str| imports(&at("src/network/gossip.rs", text));
        assert_eq!(
            wrong("use crate::names::BlobHash;\nuse pathswarm::store::journal::frames;"),
            ["src/network/gossip.rs:2: network may not import store::journal"]
        );
        assert_eq!(wrong("use crate::{names::{PathId, Term}, store, network::gossip};").len(), 1);
        assert_eq!(wrong("fn f() -> crate::peer::Driver { todo }").len(), 1);
        assert_eq!(wrong("use pathswarm::protocol::wire::message::Offer;").len(), 0);
        assert_eq!(wrong("use crate::protocol::{wire::message::Offer, Node};").len(), 1);
        assert_eq!(wrong("// crate::peer\nconst TEXT: &str = \"crate::peer\"; /* crate::peer */").len(), 0);
        assert_eq!(imports(&at("src/unheard.rs", "")).len(), 1);
    }

    #[test]
    fn super_does_not_lead_around_the_layers() {
        let wrong = |text: &str| imports(&at("src/store/blobs.rs", text)).len();
        assert_eq!(wrong("use super::index;"), 0);
        assert_eq!(wrong("use super::super::peer;"), 1);
        assert_eq!(wrong("#[cfg(test)]\nmod tests { use super::super::index; }"), 0);
        assert_eq!(imports(&at("src/names.rs", "use super::peer;")).len(), 1);
    }

    #[test]
    fn a_foreign_crate_out_of_place_is_found() {
        let wrong = |path: &str, text: &str| foreign(&at(path, text)).len();
        assert_eq!(wrong("src/peer/driver.rs", "use tch::Tensor;"), 1);
        assert_eq!(wrong("src/peer/driver.rs", "use patch::Tensor; let tch = own::tch::new();"), 0);
        assert_eq!(wrong("src/model/block.rs", "use tch::Tensor;"), 0);
        assert_eq!(wrong("src/protocol/chain.rs", "fn f() { bincode::serde::encode() }"), 1);
        assert_eq!(wrong("src/protocol/wire/encoding.rs", "use bincode;"), 0);
    }

    #[test]
    fn what_is_allowed_and_not_done_is_found() {
        let found = needless(&[
            at("src/access/mod.rs", "use crate::protocol::wire::message::Offer;"),
            at("src/network/mod.rs", "use crate::protocol::{limits, event};"),
            at("src/store/blobs.rs", "fn f() { sled::open() }"),
        ]);
        let has = |message: &str| found.iter().any(|one| one == message);
        assert!(has("there is no src/peer") && !has("there is no src/store"));
        assert!(has("access does not import protocol::limits") && !has("access does not import protocol::wire"));
        assert!(has("network does not import protocol::wire") && !has("network does not import protocol::limits"));
        assert!(has("network does not use libp2p") && !has("store does not use sled"));
    }

    #[test]
    fn the_core_is_held_to_more_but_its_tests_are_not() {
        let wrong = |path: &str, text: &str| effects(&at(path, text)).len();
        assert_eq!(wrong("src/protocol/chain.rs", "use std::collections::HashMap;\nfn f(now: Instant) {}"), 2);
        assert_eq!(wrong("src/outer/mod.rs", "use std::fs;\nlet randomly = operand;"), 1);
        assert_eq!(wrong("src/outer/mod.rs", "#[cfg(test)]\nmod tests {\n use std::fs; }\n"), 0);
        assert_eq!(wrong("src/store/mod.rs", "use std::fs;"), 0);
    }

    #[test]
    fn a_file_without_a_mod_is_dead() {
        let sources = [
            at("src/lib.rs", "pub mod a;\n// mod dead;\nmod inline { }"),
            at("src/a/mod.rs", "mod b;"),
            at("src/a/b.rs", "mod c;"),
            at("src/a/b/c.rs", ""),
            at("src/a/dead.rs", ""),
            at("tests/promise.rs", "mod source;"),
            at("tests/source/mod.rs", ""),
            at("tests/many/main.rs", "mod one;"),
            at("tests/many/one.rs", "#[path = \"../placed/text.rs\"]\n#[expect(dead_code)]\nmod text;"),
            at("tests/other.rs", "#[path = \"placed/own.rs\"]\nmod own;\n// #[path = \"placed/dead.rs\"] mod dead;"),
            at("tests/placed/own.rs", ""),
            at("tests/placed/text.rs", ""),
            at("tests/placed/dead.rs", ""),
        ];
        let dead = ["src/a/dead.rs:1: no mod leads here", "tests/placed/dead.rs:1: no mod leads here"];
        assert_eq!(dead_files(&sources), dead);
    }

    #[test]
    fn what_is_too_long_is_found_with_its_line() {
        let long =
            format!("// {{\nfn long(values: [u8; 2]) {{\n{}}}\nfn short();\n", "    call('{', \"}\");\n".repeat(79));
        assert_eq!(lengths(&at("src/a.rs", &long)), ["src/a.rs:2: long has 81 lines, at most 80"]);
        assert_eq!(lengths(&at("src/a.rs", &long.replacen("call", "//", 1))).len(), 1);
        assert_eq!(lengths(&at("src/a.rs", &"\n".repeat(451))).len(), 1);
        assert_eq!(lengths(&at("src/a.rs", &"\n".repeat(450))).len(), 0);
    }

    #[test]
    fn literals_and_comments_hide_nothing_and_show_nothing() {
        let code =
            Source::new("a.rs", "let a = r#\"\" { \"#; /* /* } */ { */ let b: &'a str = b\"\\\"{\"; let c = '\\'';x")
                .code;
        assert!(!code.contains(['{', '}', '"']), "{code}");
        assert!(code.contains("let b: &'a str = b") && code.ends_with(";x"), "{code}");
        assert_eq!(lines_with("é\nsleep(1)", "sleep("), [2]);
    }

    #[test]
    fn a_sleeping_test_and_a_vague_name_are_found() {
        assert_eq!(sleeps(&at("tests/a.rs", "fn f() { thread::sleep(SECOND) }")).len(), 1);
        assert_eq!(
            sleeps(&at("src/a.rs", "fn f() { sleep(1) }\n#[cfg(test)]\nmod tests { fn g() { sleep(1) } }")).len(),
            1
        );
        assert_eq!(vague_names(&at("src/net/utils.rs", "")).len() + vague_names(&at("src/common/mod.rs", "")).len(), 2);
        assert_eq!(vague_names(&at("src/database.rs", "")).len(), 0);
    }
}
