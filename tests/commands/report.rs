//! `pathswarm report` says of a simulated run what its folder says, in one file that needs no network.
#![cfg(all(feature = "learning", feature = "network"))]

use std::path::Path;

use serde_json::Value;

use crate::run::{RUN, World, mistake, pathswarm};

/// The lines of `metrics.jsonl`.
fn metrics(folder: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{folder}/metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Such as `12 345`, with the page's narrow spaces.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

#[test]
fn a_simulated_run_is_reported_as_its_folder_has_it() {
    let hasty = RUN.replace("inner_steps = 400", "inner_steps = 20").replace("phases = 12", "phases = 3");
    let world = World::of(&hasty, 2);
    let folder = world.simulated();
    let out = world.name("report.html");
    let said = pathswarm(&["report", &folder, "--out", &out, "--format", "json"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let page = std::fs::read_to_string(&out).unwrap();
    let told: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((told["event"].as_str(), told["bytes"].as_u64()), (Some("result"), Some(page.len() as u64)));

    // It loads nothing, and runs nothing.
    assert!(page.contains("default-src 'none'"));
    for loaded in ["src=", "href=", "url(", "@import", "<script", "<link", "http://", "https://"] {
        assert!(!page.contains(loaded), "{loaded}");
    }
    assert!(page.len() < 1 << 20, "{} bytes", page.len());

    // The same numbers as in the folder.
    let lines = metrics(&folder);
    let peers: Vec<&Value> = lines.iter().filter(|line| line["key"].is_string()).collect();
    let mut keys: Vec<&str> = peers.iter().map(|line| line["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 2);
    for key in keys {
        let last = peers.iter().rfind(|line| line["key"] == key).unwrap();
        let tokens = grouped(last["activity"]["tokens"].as_u64().unwrap());
        let row = page.lines().find(|line| line.contains(&format!(">{}…</td>", &key[..8]))).unwrap();
        assert!(row.contains(&format!("<td class=\"number\">{tokens}</td>")), "{tokens}: {row}");
    }
    let trained: Vec<u64> = peers
        .iter()
        .flat_map(|line| line["losses"].as_array().unwrap())
        .map(|mean| mean[1].as_u64().unwrap())
        .collect();
    assert_eq!(trained.iter().max(), Some(&60), "a peer that ends writes what it has trained last");
    let dense: Vec<u64> = lines.iter().filter_map(|line| line["dense"][0].as_u64()).collect();
    assert_eq!(dense, [20, 40, 60]);
    let run = peers[0]["run"].as_str().unwrap();
    let result: Value = serde_json::from_slice(&std::fs::read(format!("{folder}/result.json")).unwrap()).unwrap();
    let score = |name: &str| format!("{:.4}", result[name]["bits_per_byte"].as_f64().unwrap());
    for fact in [run, &score("dense"), &score("dipaco"), &score("ancestor"), "dense control", "What each path reads"] {
        assert!(page.contains(fact), "{fact}");
    }
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(format!("{folder}/peer-0/manifest.json")).unwrap()).unwrap();
    for part in ["tokenizer", "router", "ancestor"] {
        assert!(page.contains(manifest[part]["hash"].as_str().unwrap()), "{part}");
    }

    // Only --force replaces it, and text can be left out.
    assert!(mistake(&["report", &folder, "--out", &out]).contains("this file exists"));
    let again = pathswarm(&["report", &folder, &format!("{folder}/model"), "--out", &out, "--force", "--without-text"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let replaced = std::fs::read_to_string(&out).unwrap();
    assert!(page.contains("Beginnings of documents") && !replaced.contains("Beginnings of documents"));
}

#[test]
fn a_folder_without_a_run_and_a_place_that_cannot_be_written_are_mistakes() {
    let world = World::new();
    let (out, nowhere) = (world.name("report.html"), world.name("nowhere"));
    assert!(mistake(&["report", &world.corpus, "--out", &out]).contains("corpus is no folder of a run"));
    assert!(mistake(&["report", &nowhere, "--out", &out]).contains("nowhere is no folder of a run"));
    assert!(mistake(&["report", &nowhere, "--out", &world.corpus]).contains("is a folder"));
    assert!(mistake(&["report", &nowhere, "--out", &format!("{nowhere}/a.html")]).contains("cannot be written"));
    assert!(!Path::new(&out).exists());
}
