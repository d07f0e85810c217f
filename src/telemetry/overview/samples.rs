//! Statuses of made-up peers, for tests.

use serde_json::{Value, json};

use crate::peer::PeerStatus;
use crate::telemetry::Telemetry;
use crate::telemetry::curves::series::Point;
use crate::telemetry::now_ms;

/// The key of a peer.
pub(crate) fn key(number: u32) -> String {
    format!("{number:08x}").repeat(8)
}

/// A module as a peer has it.
pub(crate) fn module(name: &str, version: Option<u64>, hash: &str, owner: Option<u32>, term: u64) -> Value {
    json!({ "module": name, "version": version, "phase": version, "staleness_mean": 0.5, "staleness_most": 2,
            "state_hash": version.map(|_| hash), "owner": owner.map(key), "term": term, "owned_here": false,
            "members": 2, "no_replica": false, "replica": false, "uncounted": 0, "weight_lost": 0 })
}

/// A path as its trainer has it.
pub(crate) fn path(path: u32, stage: &str, phase: u64, waits_for: &Value) -> Value {
    json!({ "path": path, "trainer": 1, "drawn": path, "phase": phase, "stage": stage, "waits_for": waits_for })
}

/// A peer as another one hears it.
pub(crate) fn member(modules: &Value, paths: &[(u32, &str)], silent_s: Option<u64>) -> Value {
    let path = |(path, stage): &(u32, &str)| json!({ "path": path, "trainer": 1, "phase": 5, "stage": stage });
    json!({ "modules": modules, "differs": [], "paths": paths.iter().map(path).collect::<Vec<_>>(),
            "steps_per_1000_s": 1500, "replicas": 0, "silent_s": silent_s })
}

/// The status of a peer without modules and paths, with what `more` has.
pub(crate) fn status(number: u32, more: Value) -> PeerStatus {
    let mut status = json!({
        "run": "feedbeef00112233", "name": "demo", "peer": key(number), "phases": 20, "done": false, "modules": [],
        "paths": [], "peers": [], "members": {}, "waits_for": null, "copied_identities": [], "scores": [],
        "peer_scores": [], "audited": 2, "parameter_hashes": {}, "addresses": ["/ip4/192.0.2.1/udp/4001/quic-v1"],
        "traffic": { "blob_bytes_sent": 12_345_678, "blob_bytes_received": 23_456, "blob_bytes_forwarded": 0,
                     "message_bytes_sent": 1_000, "message_bytes_received": 500 },
        "synced": { "contribution_bytes": 2_000, "contribution_parameters": 8_000, "average_bytes": 1_000,
                    "average_parameters": 8_000 },
        "text": null, "phases_trained": 6, "scored": [], "bans": [], "invited": null,
        "activity": { "uptime_s": 400, "trained_s": 100.0, "tokens": 50_000, "connections": 2, "disk_bytes": 5_000_000 },
    });
    let Value::Object(more) = more else { panic!("an object of what is different") };
    for (name, value) in more {
        status[name] = value;
    }
    serde_json::from_value(status).unwrap()
}

/// A swarm of which two peers are asked: `home` trains, `den` waits for path 3. They have different states of one
/// version of module 1.0. A third is heard of and quarantined, a fourth is banned.
pub(crate) fn small_swarm() -> Telemetry {
    let telemetry = Telemetry::default();
    let waits = json!({ "kind": "contributions", "module": "0.1", "counted": 1, "expected": 2, "missing": [3],
                        "left_s": 7 });
    let training = json!({ "path": 0, "phase": 6, "step": 120, "loss": 2.5, "tokens_per_s": 1_234.0,
                           "uptime_s": 400, "trained_s": 100.0, "tokens": 50_000, "connections": 2,
                           "disk_bytes": 5_000_000 });
    let home = json!({
        "modules": [module("0.0", Some(7), "aaaaaaaaaa", Some(1), 2), module("1.0", Some(7), "cccccccccc", Some(2), 3)],
        "paths": [path(0, "training", 6, &Value::Null), path(3, "standby", 5, &Value::Null)],
        "members": {
            key(2): member(&json!({ "0.1": 6, "1.0": 7 }), &[(1, "waiting")], None),
            key(3): member(&json!({ "1.0": 7 }), &[(3, "training")], Some(42)),
        },
        "peer_scores": [{ "peer": key(3), "counted": 4, "faults": { "overlong": 3 }, "quarantined": true,
                          "reason": "contributed outer gradients many times as long as those of others" }],
        "bans": [{ "peer": key(4), "until_s": 9_000_000_000_u64, "times": 1, "reason": "it flooded" }],
        "scores": [{ "path": 0, "phase": 5, "millibits_per_byte": 2_345, "by": key(2) }],
        "activity": training,
    });
    let den = json!({
        "modules": [module("0.1", Some(6), "bbbbbbbbbb", Some(3), 1), module("1.0", Some(7), "dddddddddd", Some(1), 1),
                    module("1.1", Some(2), "eeeeeeeeee", None, 0)],
        "paths": [path(1, "waiting", 6, &waits)],
    });
    telemetry.observe("home", status(1, home));
    telemetry.observe("den", status(2, den));
    telemetry
}

/// One peer that knows a thousand others, each with a path.
pub(crate) fn thousand_peers() -> Telemetry {
    let telemetry = Telemetry::default();
    let others = (2..=1_000).map(|number| {
        let modules = json!({ format!("0.{}", number % 32): number });
        (key(number), member(&modules, &[(number, "training")], None))
    });
    let members: serde_json::Map<String, Value> = others.collect();
    let modules: Vec<Value> = (0..32).map(|expert| module(&format!("0.{expert}"), Some(7), "aa", Some(2), 1)).collect();
    let paths = [path(1, "training", 6, &Value::Null)];
    telemetry.observe("home", status(1, json!({ "modules": modules, "paths": paths, "members": members })));
    telemetry
}

impl Telemetry {
    /// A peer of another process has given its status, of which a curve has its step.
    pub(crate) fn observe(&self, peer: &str, status: PeerStatus) {
        let activity = &status.activity;
        let point = activity.path.zip(activity.step).zip(activity.loss).map(|((path, step), loss)| {
            let point = Point {
                at_ms: now_ms(),
                step: activity.phase.unwrap_or(0) * 1_000 + step,
                loss,
                tokens_per_s: activity.tokens_per_s.unwrap_or(0.0),
                ..Point::default()
            };
            (format!("path/{path}"), point)
        });
        self.show(peer, status);
        if let Some((name, point)) = point {
            let newest = self.state().series.get(&name).and_then(|series| Some(series.points().last()?.step));
            if newest != Some(point.step) {
                self.point(&name, point);
            }
        }
    }
}
