//! Viewers follow the state, and cost a bounded amount.

use serde_json::{Value, json};

use super::Telemetry;
use super::curves::outer_steps::OuterPoint;
use super::metrics::format::Format;
use super::spans::Doing;
use crate::names::ModuleId;
use crate::peer::aggregator::GradientNorms;

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
