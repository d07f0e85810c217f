//! Viewers follow the state, and cost a bounded amount.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::curves::outer_steps::OuterPoint;
use super::metrics::format::Format;
use super::spans::Doing;
use super::{ASKED_PER_TICK, Telemetry};
use crate::names::ModuleId;
use crate::peer::PeerStatus;
use crate::peer::aggregator::GradientNorms;
use crate::peer::driver::handle::PeerHandle;

/// What a peer answers.
const STATUS: &str = include_str!("metrics/status_of_tests.json");

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_viewer_gets_the_whole_state_and_then_only_what_is_new() {
    let telemetry = Telemetry::default();
    telemetry.note("before");
    let mut viewer = telemetry.subscribe();
    let whole = parsed(&viewer.whole);
    assert_eq!((whole["events"][0]["line"].as_str(), whole["state"]["stage"].is_null()), (Some("before"), true));
    telemetry.send_frame();
    assert!(viewer.frames.try_recv().is_err(), "nothing is sent when nothing has changed");
    telemetry.note("after");
    telemetry.stage("tokenizer", 1, 4);
    telemetry.send_frame();
    let frame = parsed(&viewer.frames.try_recv().unwrap());
    assert_eq!(frame["events"].as_array().unwrap().len(), 1);
    assert_eq!(frame["patch"], json!({ "stage": { "name": "tokenizer", "done": 1, "total": 4 } }));
}

#[test]
fn a_viewer_that_never_reads_loses_frames_and_nobody_waits_for_it() {
    let telemetry = Telemetry::default();
    let mut viewer = telemetry.subscribe();
    for number in 0..1_000 {
        telemetry.note(&format!("event {number}"));
        telemetry.send_frame();
    }
    let lost = viewer.frames.try_recv().unwrap_err();
    assert!(matches!(lost, tokio::sync::broadcast::error::TryRecvError::Lagged(more) if more > 900), "{lost:?}");
    let again = parsed(&telemetry.subscribe().whole);
    assert_eq!(again["events"].as_array().unwrap().len(), 400, "the log is bounded");
    assert_eq!(again["events"][399]["line"], "event 999");
}

fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target[key] = Value::Null;
        } else {
            apply(&mut target[key], value);
        }
    }
}

/// The same without nulls: a patch cannot tell them from what is not there.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<serde_json::Map<_, _>>().into()
        }
        value => value.clone(),
    }
}

/// A status, with what changes in it.
fn status(peer: &str, uptime_s: u64, modules: &[(&str, u64)], known: &[(&str, u64)]) -> PeerStatus {
    let key = |of: &str| blake3::hash(of.as_bytes()).to_string();
    let module = |(name, version): &(&str, u64)| {
        json!({ "module": name, "version": version, "phase": version, "staleness_mean": 0.0, "staleness_most": 0,
                "state_hash": null, "owner": null, "term": 1, "owned_here": false, "members": 2, "no_replica": false,
                "replica": false, "uncounted": 0, "weight_lost": 0 })
    };
    let member = |(peer, version): &(&str, u64)| {
        let path = json!({ "path": 1, "trainer": 1, "phase": version, "stage": "training" });
        (
            key(peer),
            json!({ "modules": { "0.0": version }, "differs": [], "paths": [path], "steps_per_1000_s": 1,
                            "replicas": 0, "silent_s": null }),
        )
    };
    let score = |(peer, counted): &(&str, u64)| json!({ "peer": key(peer), "counted": counted, "faults": {}, "quarantined": false, "reason": null });
    let traffic = json!({ "blob_bytes_sent": uptime_s, "blob_bytes_received": 0, "blob_bytes_forwarded": 0,
                          "message_bytes_sent": 0, "message_bytes_received": 0 });
    let synced = json!({ "contribution_bytes": 0, "contribution_parameters": 0, "average_bytes": 0,
                         "average_parameters": 0 });
    let status = json!({
        "run": key("run"), "name": "run", "peer": key(peer), "phases": 9,
        "modules": modules.iter().map(module).collect::<Vec<Value>>(), "paths": [],
        "peers": [], "members": known.iter().map(member).collect::<serde_json::Map<_, _>>(), "done": false,
        "waits_for": null, "copied_identities": [], "scores": [],
        "peer_scores": known.iter().map(score).collect::<Vec<Value>>(), "audited": 0, "parameter_hashes": {},
        "addresses": [], "traffic": traffic, "synced": synced, "text": null, "phases_trained": 0, "scored": [],
        "bans": [], "invited": null, "activity": { "uptime_s": uptime_s, "tokens": 10 * uptime_s },
    });
    serde_json::from_value(status).unwrap()
}

#[test]
fn patches_make_of_the_state_that_a_viewer_began_with_what_another_begins_with() {
    let telemetry = Telemetry::default();
    telemetry.show("a", status("a", 1, &[("0.0", 1)], &[("b", 1), ("c", 1)]));
    let mut viewer = telemetry.subscribe();
    let mut followed = parsed(&viewer.whole)["state"].clone();
    type Step<'a> = (&'a str, u64, &'a [(&'a str, u64)], &'a [(&'a str, u64)]);
    let steps: [Step<'_>; 5] = [
        ("a", 2, &[("0.0", 1)], &[("b", 1), ("c", 1)]),
        ("a", 3, &[("0.0", 2), ("1.0", 0)], &[("b", 2)]),
        // A peer of which others were told is here itself.
        ("b", 1, &[("0.0", 2)], &[("a", 2)]),
        ("a", 4, &[("1.0", 1)], &[("b", 2), ("c", 3)]),
        ("b", 2, &[("0.0", 3)], &[("a", 2), ("d", 1)]),
    ];
    for (peer, uptime_s, modules, known) in steps {
        telemetry.show(peer, status(peer, uptime_s, modules, known));
        telemetry.send_frame();
        apply(&mut followed, &parsed(&viewer.frames.try_recv().unwrap())["patch"]);
        let whole = parsed(&telemetry.subscribe().whole)["state"].clone();
        assert_eq!(without_nulls(&followed), without_nulls(&whole), "{peer} after {uptime_s} s");
    }
    telemetry.detach("a");
    telemetry.send_frame();
    apply(&mut followed, &parsed(&viewer.frames.try_recv().unwrap())["patch"]);
    assert!(followed["peers"]["a"].is_null() && followed["peers"]["b"].is_object());
}

#[test]
fn a_frame_says_nothing_of_a_peer_that_has_only_grown_older() {
    let telemetry = Telemetry::default();
    let idle = |uptime_s| {
        let mut status = status("a", 1, &[("0.0", 1)], &[("b", 1)]);
        status.activity.uptime_s = uptime_s;
        status
    };
    telemetry.show("a", idle(1));
    let mut viewer = telemetry.subscribe();
    telemetry.show("a", idle(2));
    telemetry.send_frame();
    assert!(viewer.frames.try_recv().is_err());
}

#[test]
fn in_a_process_of_very_many_peers_each_is_asked_in_its_turn() {
    let telemetry = Telemetry::default();
    let count = 2 * ASKED_PER_TICK + 1;
    let (commands, _driver) = tokio::sync::mpsc::channel(1);
    for peer in 0..count {
        telemetry.attach(&peer.to_string(), PeerHandle { commands: commands.clone() });
    }
    assert_eq!(telemetry.state().take_turn().len(), count, "of which nothing is known");
    for peer in 0..count {
        telemetry.show(&peer.to_string(), status(&peer.to_string(), 1, &[], &[]));
    }
    let turns: Vec<Vec<String>> =
        (0..3).map(|_| telemetry.state().take_turn().into_iter().map(|(peer, _)| peer).collect()).collect();
    assert!(turns.iter().all(|turn| turn.len() <= ASKED_PER_TICK));
    assert_eq!(turns.concat().iter().collect::<BTreeSet<_>>().len(), count);
}

#[test]
fn metrics_of_a_process_without_a_peer_are_well_formed() {
    let text = Telemetry::default().metrics(Format::OpenMetrics).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("# TYPE pathswarm_fetch_duration_seconds histogram"), "{text}");
    assert!(text.contains("# UNIT pathswarm_round_duration_seconds seconds"), "{text}");
}

/// Telemetry with one peer whose status leaves nothing out.
pub(super) fn with_a_peer() -> Telemetry {
    let telemetry = Telemetry::default();
    telemetry.fetched("a", 1_000, 0.5);
    telemetry.does("a", 1_000, Doing::Waiting { kind: "owner".to_owned(), module: None }, String::new());
    telemetry.does("a", 3_000, Doing::Training { path: 0, phase: 0 }, String::new());
    telemetry.idles("a");
    for version in [1, 2] {
        telemetry.advanced("a", ModuleId { level: 0, expert: 1 }, version, 2);
    }
    telemetry.answered("a", serde_json::from_str(STATUS).unwrap());
    telemetry
}

#[test]
fn an_outer_step_is_a_point_of_its_modules_curve_and_in_metrics() {
    let telemetry = with_a_peer();
    let mut viewer = telemetry.subscribe();
    let norms = GradientNorms { contributions: 3, mean_norm: 0.004, average_norm: 0.0025, agreement: Some(0.25) };
    let module = ModuleId { level: 0, expert: 1 };
    telemetry.outer_step(module, OuterPoint { at_ms: 5, version: 7, norms });
    telemetry.send_frame();
    let frame = parsed(&viewer.frames.try_recv().unwrap());
    let points = json!([[5, 7, 3, 0.004, 0.0025, 0.25]]);
    assert_eq!(frame["points"]["outer/0.1"], points);
    assert_eq!(parsed(&telemetry.subscribe().whole)["points"]["outer/0.1"], points);
    let text = telemetry.metrics(Format::OpenMetrics).unwrap();
    let has = |sample: &str| assert!(text.contains(sample), "{sample} in {text}");
    has("pathswarm_outer_gradient_norm{peer=\"a\",module=\"0.1\",of=\"average\"} 0.25");
    has("pathswarm_outer_gradient_norm{peer=\"a\",module=\"0.1\",of=\"contributions\"} 0.5");
    has("pathswarm_outer_gradient_agreement{peer=\"a\",module=\"0.1\"} 0.125");
    has("pathswarm_reachability{peer=\"a\",state=\"public\"} 1");
    has("pathswarm_median_round_trip_seconds{peer=\"a\"} 0.02");
    has("pathswarm_resident_memory_bytes{peer=\"a\"} 3000000");
}

#[test]
fn a_line_of_metrics_has_the_median_of_round_trips_and_not_the_peers() {
    let telemetry = with_a_peer();
    let mut state = telemetry.state();
    let line = super::view::line("a", state.peers.get_mut("a").unwrap(), 7).unwrap();
    assert_eq!((&line["median_round_trip_ms"], &line["relayed"]), (&json!(20.0), &json!(1)));
    assert_eq!(line["outer_steps"]["0.1"]["agreement"], json!(0.125));
    assert!(line["activity"].get("round_trip_ms").is_none() && line["activity"]["reachability"] == "public");
}
