//! The console of a real peer: what its page is told is what `status` says.
#![cfg(all(feature = "learning", feature = "network"))]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run::{Peer, TIMEOUT, World};

fn get(link: &str, path: &str) -> BufReader<TcpStream> {
    let address = link.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let accept = "application/openmetrics-text, */*;q=0.1";
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n").unwrap();
    BufReader::new(stream)
}

fn body(link: &str, path: &str) -> String {
    let mut answer = String::new();
    get(link, path).read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// What does not change while a finished peer is looked at.
fn settled(status: &Value) -> Value {
    let mut status = status.clone();
    for key in ["activity", "traffic", "synced", "parameter_hashes"] {
        status.as_object_mut().unwrap().remove(key);
    }
    status
}

/// Modules and paths by their names, as the page is told them.
fn by_name(status: &Value) -> Value {
    let mut status = status.clone();
    let all = status.as_object_mut().unwrap();
    for (key, name) in [("modules", vec!["module"]), ("paths", vec!["path", "trainer"])] {
        let parts = match &all[key] {
            Value::Object(named) => named.values().cloned().collect(),
            parts => parts.as_array().unwrap().clone(),
        };
        let named = parts.into_iter().map(|part| {
            let name: Vec<String> = name.iter().map(|key| part[*key].to_string()).collect();
            (name.join(" "), part)
        });
        all[key] = named.collect::<serde_json::Map<String, Value>>().into();
    }
    without_nulls(&status)
}

/// A page cannot tell a null from what is not there.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<serde_json::Map<_, _>>().into()
        }
        value => value.clone(),
    }
}

/// Metrics that the dashboard or the alerts name, and no peer has.
fn unknown_metrics(metrics: &str) -> Vec<String> {
    let project = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let dashboard = std::fs::read_to_string(project.join("contrib/grafana.json")).unwrap();
    let read: Value = serde_json::from_str(&dashboard).unwrap();
    assert!(read["panels"].as_array().unwrap().iter().all(|panel| panel["targets"][0]["expr"].is_string()));
    let alerts = std::fs::read_to_string(project.join("docs/guide/operations.md")).unwrap();
    let text = dashboard + &alerts;
    let names = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let named = names.filter(|name| name.starts_with("pathswarm_") && name.len() > "pathswarm_".len());
    // A family says its name even where it has no values yet; a histogram's and a counter's samples have suffixes.
    let family = |name: &str| name.trim_end_matches("_total").trim_end_matches("_bucket").to_owned();
    named.map(family).filter(|name| !metrics.contains(&format!("# TYPE {name} ")) && !has_no_value(name)).collect()
}

/// What a peer that trains alone on the CPU has no value of, and the beginnings of what only a relay or a server has.
fn has_no_value(name: &str) -> bool {
    const ALONE: [&str; 7] = [
        "pathswarm_device_memory_bytes",
        "pathswarm_held_out_bpb",
        "pathswarm_outer_gradient_agreement",
        "pathswarm_relay_",
        "pathswarm_serve_",
        "pathswarm_wait_duration_seconds",
        "pathswarm_waiting_seconds",
    ];
    ALONE.contains(&name)
}

/// Files in a folder for TensorBoard, by curve.
fn curves(folder: &Path) -> BTreeMap<String, usize> {
    let files = |folder: PathBuf| std::fs::read_dir(folder).unwrap().count();
    let entry = |entry: std::fs::DirEntry| (entry.file_name().into_string().unwrap(), files(entry.path()));
    std::fs::read_dir(folder).unwrap().map(|found| entry(found.unwrap())).collect()
}

#[test]
fn the_page_is_told_what_status_says_and_prometheus_the_same() {
    let world = World::new();
    let short = ["phases=2", "inner_steps=3", "ancestor_steps=3", "warmup_steps=1"];
    let short: Vec<String> = short.iter().map(|key| format!("training.{key}")).collect();
    let set: Vec<&str> = short.iter().flat_map(|key| ["--set", key]).collect();
    let board = world.path("board");
    let create = ["create", &world.config, "--corpus", &world.corpus, "--web=127.0.0.1:0", "--tensorboard"];
    let create = [&create[..], &[board.to_str().unwrap()]].concat();
    let mut peer = Peer::start(&world.path("a"), &[&create[..], &set].concat());
    let link = peer.wait_for("web")["link"].as_str().unwrap().to_owned();
    peer.wait_for("result");
    // Until the stream has shown that every path is done.
    let mut frames = get(&link, "/api/stream").lines().map_while(Result::ok);
    frames.find(|line| line.contains("\"done\":true")).unwrap();
    let status = peer.status().unwrap();
    let whole: Value = serde_json::from_str(&body(&link, "/api/state")).unwrap();
    let shown = &whole["state"]["peers"]["this peer"]["status"];
    let told = shown.as_object().unwrap().keys().map(|key| (key.clone(), status[key].clone()));
    let told: Value = told.collect::<serde_json::Map<String, Value>>().into();
    assert_eq!(by_name(&settled(shown)), by_name(&settled(&told)));
    assert!(shown["addresses"][0].is_string() && shown["modules"]["1.1"]["version"].is_u64(), "{shown}");
    let told: Value = serde_json::from_str(&body(&link, "/api/status")).unwrap();
    assert_eq!((settled(&told[0]), &told[0]["parameter_hashes"]), (settled(&status), &status["parameter_hashes"]));
    assert!(whole["points"]["path/0"].as_array().is_some_and(|points| !points.is_empty()), "{whole}");
    let step = &status["outer_steps"]["0.0"];
    assert!(step["average_norm"].as_f64().unwrap() > 0.0, "{status}");
    let outer = whole["points"]["outer/0.0"].as_array().unwrap().last().unwrap();
    assert_eq!((&outer[1], &outer[2]), (&step["version"], &step["contributions"]));
    assert!(status["activity"]["resident_bytes"].as_u64().unwrap() > 1_000_000, "{status}");
    assert!(whole["spans"].as_array().unwrap().iter().any(|span| span["kind"] == "training"), "{whole}");
    let metrics = body(&link, "/metrics");
    let line = |start: &str| metrics.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    assert_eq!(line("pathswarm_done{"), "pathswarm_done{peer=\"this peer\"} 1.0");
    let version = status["modules"][0]["version"].as_u64().unwrap();
    assert!(line("pathswarm_module_version{").ends_with(&format!(" {version}.0")));
    assert_eq!(unknown_metrics(&metrics), Vec::<String>::new());
    let curves = curves(&board);
    let files = |curve: &str| curves.get(curve).copied();
    assert_eq!((files("path-0"), files("module-0.0")), (Some(1), Some(1)), "{curves:?}");
    let recorded = std::fs::read_to_string(world.path("a").join("metrics.jsonl")).unwrap();
    let first: Value = serde_json::from_str(recorded.lines().next().unwrap()).unwrap();
    assert_eq!(first["key"], status["peer"]);
}
