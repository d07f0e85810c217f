//! Names, units and help of all metrics, by <https://prometheus.io/docs/practices/naming/> and the rules of OpenMetrics.

use std::collections::{BTreeMap, BTreeSet};

use crate::telemetry::Telemetry;
use crate::telemetry::metrics::format::Format;
use crate::telemetry::tests::with_a_peer;

/// Units that are not the base unit of what they measure, and words that say the type. A name has none of them.
const NEVER: [&str; 18] = [
    "ms",
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "kb",
    "mb",
    "kilobytes",
    "megabytes",
    "gigabytes",
    "bits",
    "percent",
    "gauge",
    "counter",
    "histogram",
    "metric",
];

/// Two units in one name, of a rate or of a loss: the field knows them so.
const RATES: [&str; 2] = ["pathswarm_tokens_per_second", "pathswarm_training_loss_nats_per_token"];

#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    unit: Option<String>,
    samples: BTreeSet<String>,
}

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut newest = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(!families.contains_key(name), "{name} is there twice");
                newest = name.to_owned();
                families.entry(newest.clone()).or_default().help = help.to_owned();
            }
            ["#", "TYPE", name, kind] if name == newest => {
                families.entry(newest.clone()).or_default().kind = kind.to_owned()
            }
            ["#", "UNIT", name, unit] if name == newest => {
                families.entry(newest.clone()).or_default().unit = Some(unit.to_owned());
            }
            ["#", "EOF"] => {}
            ["#", ..] => panic!("{line} does not belong to {newest}"),
            _ => {
                let name = line.split(['{', ' ']).next().unwrap();
                families.entry(newest.clone()).or_default().samples.insert(name.to_owned());
            }
        }
    }
    families
}

fn complaints(name: &str, family: &Family) -> Vec<String> {
    let Family { kind, help, unit, samples } = family;
    let mut found = Vec::new();
    let mut wants = |so: bool, what: &str| {
        if !so {
            found.push(format!("{name}: {what}"))
        }
    };
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    wants(plain && !name.contains("__") && name.starts_with("pathswarm_"), "is no name of this program");
    let words: Vec<&str> = name.split('_').collect();
    wants(RATES.contains(&name) || !words.iter().any(|word| NEVER.contains(word)), "another unit, or its type");
    wants(help.len() > 3 && help.ends_with('.') && help.starts_with(|char: char| !char.is_lowercase()), "no help");
    wants(unit.as_ref().is_none_or(|unit| name.ends_with(&format!("_{unit}"))), "its unit is not at its end");
    let ends = |units: &[&str]| units.iter().any(|unit| name.ends_with(unit));
    wants(unit.is_some() || RATES.contains(&name) || !ends(&["_seconds", "_bytes"]), "its unit is not told");
    wants(unit.as_deref().is_none_or(|unit| ["seconds", "bytes"].contains(&unit)), "no base unit");
    // What OpenMetrics appends to the names of samples.
    wants(!ends(&["_total", "_created", "_count", "_sum", "_bucket"]), "ends like a sample");
    let suffixes: &[&str] = match kind.as_str() {
        "counter" => &["_total"],
        "gauge" => &[""],
        "histogram" => &["_sum", "_count", "_bucket"],
        _ => &[],
    };
    let expected: BTreeSet<String> = suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect();
    wants(!samples.is_empty(), "there is no sample of it in this test");
    wants(samples.is_subset(&expected), "samples have other names");
    found
}

#[test]
fn every_metric_keeps_to_the_conventions() {
    let text = with_a_peer().metrics(Format::OpenMetrics).unwrap();
    let families = families(&text);
    assert!(families.len() > 45, "{}", families.len());
    let found: Vec<String> = families.iter().flat_map(|(name, family)| complaints(name, family)).collect();
    assert!(found.is_empty(), "{found:#?}");
    let helps: BTreeSet<&String> = families.values().map(|family| &family.help).collect();
    assert_eq!(helps.len(), families.len(), "two metrics have the same help");
}

#[test]
fn the_lint_finds_what_is_against_the_conventions() {
    let one = |text: &str| families(text).iter().flat_map(|(name, family)| complaints(name, family)).count();
    assert_eq!(one("# HELP pathswarm_a Fine.\n# TYPE pathswarm_a gauge\npathswarm_a 1\n"), 0);
    assert_eq!(one("# HELP pathswarm_a fine\n# TYPE pathswarm_a gauge\npathswarm_a 1\n"), 1, "help");
    assert_eq!(one("# HELP pathswarm_a_ms Fine.\n# TYPE pathswarm_a_ms gauge\npathswarm_a_ms 1\n"), 1, "unit");
    assert_eq!(one("# HELP pathswarm_a_bytes Fine.\n# TYPE pathswarm_a_bytes gauge\npathswarm_a_bytes 1\n"), 1);
    assert_eq!(one("# HELP pathswarm_a_total Fine.\n# TYPE pathswarm_a_total gauge\npathswarm_a_total 1\n"), 1);
    assert_eq!(one("# HELP pathswarm_a Fine.\n# TYPE pathswarm_a counter\npathswarm_a 1\n"), 1, "a counter's sample");
}

#[test]
fn both_formats_have_the_same_samples() {
    let telemetry = with_a_peer();
    let samples = |format| {
        let text = telemetry.metrics(format).unwrap();
        let is_steady = |line: &&str| !line.starts_with('#') && !line.contains("status_age");
        text.lines().filter(is_steady).map(str::to_owned).collect::<BTreeSet<String>>()
    };
    assert_eq!(samples(Format::OpenMetrics), samples(Format::Text));
    let text = Telemetry::default().metrics(Format::Text).unwrap();
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
}
