//! docs/reference/formats/ suffices: a program written from it alone reads what this one writes, with the same bits.
#![cfg(all(feature = "learning", feature = "network"))]

use std::path::Path;
use std::process::Command;

use crate::run::{RUN, World, pathswarm};
use pathswarm::compress::{decode, encode};
use pathswarm::config::Codec;
use serde_json::Value;

/// What the other program prints; nothing where what it needs is not installed, which is said.
fn read(arguments: &[&str]) -> Option<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join(".venv/packages").exists() {
        eprintln!("skipped: scripts/reference has not installed what tests/reference/read_frame.py needs");
        return None;
    }
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", root.join(".venv")).arg(root.join("tests/reference/read_frame.py")).args(arguments);
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn every_codec_is_read_by_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..300_000u32)
        .map(|at| {
            let noise = at.wrapping_mul(2_654_435_761) >> 8;
            (noise as f32 / 16_777_216.0 - 0.5).powi(5) * 0.1
        })
        .collect();
    let few: Vec<f32> = values.iter().map(|value| if value.abs() > 1.5e-3 { *value } else { 0.0 }).collect();
    let codecs = [
        ("fp32", Codec::Fp32, &values[..]),
        ("fp16", Codec::Fp16, &values),
        ("int8", Codec::Int8, &values),
        ("int4", Codec::Int4, &values),
        ("int2", Codec::Int2, &values[..70_001]),
        ("sparse", Codec::Sparse, &few),
        ("largest", Codec::TopK(64), &values),
        ("none", Codec::TopK(64), &[]),
        ("zeros", Codec::Sparse, &[0.0; 5000]),
    ];
    for (name, codec, values) in codecs {
        std::fs::write(folder.path().join(format!("{name}.frame")), encode(codec, values).unwrap()).unwrap();
    }
    let Some(told) = read(&["frames", folder.path().to_str().unwrap()]) else { return };
    for (name, codec, values) in codecs {
        let decoded = decode(&encode(codec, values).unwrap(), values.len()).unwrap();
        let expected: Vec<u8> = decoded.iter().flat_map(|value| value.to_le_bytes()).collect();
        let found = std::fs::read(folder.path().join(format!("{name}.values"))).unwrap();
        assert!(found == expected, "{name}: {}", told[name]);
        assert_eq!(told[name]["count"], values.len());
    }
}

#[test]
fn every_module_is_replayed_by_another_program() {
    let hasty = RUN.replace("inner_steps = 400", "inner_steps = 20").replace("phases = 12", "phases = 3");
    for codec in ["\"int4\"", "{ top-k = 64 }"] {
        let world = World::of(&format!("{hasty}\n[outer]\ncodec = {codec}"), 2);
        let folder = world.simulated();
        let Some(told) = read(&["peer", &format!("{folder}/peer-0"), &format!("{folder}/peer-1")]) else { return };
        let again = world.name("again");
        let collected = pathswarm(&["collect", &again, "--from", &folder, "--format", "json"]);
        let lines = String::from_utf8(collected.stdout).unwrap();
        let summary: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!(told["run"], summary["run"]);
        for (name, module) in summary["modules"].as_object().unwrap() {
            let found = &told["modules"][name];
            assert_eq!((&found["state_hash"], &found["checked"]), (&module["state_hash"], &3.into()), "{codec} {name}");
        }
    }
}
