//! What the last release has written is read, and a run may ask for a newer program. `0.1.0.tar.gz` has the folder of a peer that
//! was killed in the third of six phases, `peer`, and the run as it was collected at its end, `model`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::run::{Peer, RUN, World, mistake, pathswarm, unhurried};

/// The folders of a release.
fn unpacked(world: &World, release: &str) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/compatibility").join(format!("{release}.tar.gz"));
    let unpacked = Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(world.path("")).status().unwrap();
    assert!(unpacked.success());
}

#[test]
fn a_run_of_the_last_release_is_read_and_goes_on() {
    let world = World::new();
    unpacked(&world, "0.1.0");
    let told = pathswarm(&["evaluate", "--local", &world.name("model"), "--format", "json"]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let lines = String::from_utf8(told.stdout).unwrap();
    let result: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    // What that release said; digits differ between processors.
    for (model, bits) in [("dipaco", 1.874_833_5), ("ancestor", 2.145_771_1)] {
        let found = result[model]["bits_per_byte"].as_f64().unwrap();
        assert!((found - bits).abs() < 1e-4, "{model}: {found}, {bits} then");
    }

    let mut peer = Peer::start(&world.path("peer"), &["join"]);
    let result = peer.wait_for("result");
    assert!(result["run"].as_str().unwrap().starts_with("9eaaae11"), "{result}");
    let status = peer.status().unwrap();
    let versions: Vec<&Value> = status["modules"].as_array().unwrap().iter().map(|module| &module["version"]).collect();
    assert_eq!(versions, [6, 6, 6]);
    // It went on from the state on the disk: five of twelve phases of two paths were trained before.
    assert_eq!(status["phases_trained"], 7, "{status}");
}

#[test]
fn a_program_that_is_older_than_its_run_requires_stops_at_the_phase_that_is_named() {
    let short = RUN.replace("inner_steps = 400", "inner_steps = 20");
    let requires = |phase: u64| format!("{short}\n[requires]\nversion = \"99.0.0\"\nfrom_phase = {phase}\n");
    let world = World::of(&requires(2), 4);
    let create = ["create", &world.config, "--corpus", &world.corpus, "--share-text"];
    let folder = world.path("peer");
    let mut peer = Peer::start(&folder, &unhurried(&create));
    let address = peer.wait_for("join")["address"].as_str().unwrap().to_owned();
    assert_eq!(peer.ended(), Some(2));
    let said = std::fs::read_to_string(crate::run::complaints(&folder)).unwrap();
    assert!(said.contains("from phase 2 on, this run needs pathswarm 99.0.0 or newer"), "{said}");
    assert!(said.contains("hint: install the newer version") && !address.is_empty(), "{said}");
    // The same command would go on with a newer program, and this one stops again.
    let again =
        mistake(&[&create[..], &["--dir", &world.name("peer"), "--listen", "/ip4/127.0.0.1/udp/0/quic-v1"]].concat());
    assert!(again.contains("from phase 2 on"), "{again}");

    let from_the_start = world.write("from-the-start.toml", requires(0));
    let corpus = ["--corpus", &world.corpus, "--dir", &world.name("never")];
    for command in ["create", "simulate"] {
        let said = mistake(&[&[command, &from_the_start][..], &corpus].concat());
        assert!(said.contains("from phase 0 on, this run needs pathswarm 99.0.0"), "{said}");
    }
    assert!(!world.path("never").exists());
}

#[test]
fn the_program_tells_its_versions() {
    let told = pathswarm(&["version", "--format", "json"]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["program"], env!("CARGO_PKG_VERSION"));
    let page = include_str!("../../../docs/reference/compatibility.md");
    let row = format!(
        "| {} | {} | {} | {} |",
        env!("CARGO_PKG_VERSION"),
        told["wire_version"],
        told["format_version"],
        told["journal_version"]
    );
    assert!(page.contains(&row), "the page has no row {row}");
}
