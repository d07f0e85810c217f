//! Viewers follow the state, and cost a bounded amount.

use serde_json::{Value, json};

use super::Telemetry;

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
    let text = Telemetry::default().metrics().unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("# TYPE pathswarm_fetch_duration_seconds histogram"), "{text}");
    assert!(text.contains("# UNIT pathswarm_round_duration_seconds seconds"), "{text}");
}
