//! The state as viewers are shown it: JSON, and what of it has changed (a merge patch, RFC 7396).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::peer::driver::status::Activity;
use crate::telemetry::run::RunOutline;
use crate::telemetry::spans::Doing;
use crate::telemetry::state::{Seen, State};
use crate::telemetry::words::{follows, waits_for};

/// What can be patched: everything but events, curves and spans, which are only added to.
pub(super) fn view(state: &State) -> Value {
    let peers = state.peers.iter().map(|(peer, seen)| (peer.clone(), peer_view(state, peer, seen)));
    let stage = state.stage.as_ref().map(|(name, done, total)| json!({ "name": name, "done": done, "total": total }));
    json!({
        "program": env!("CARGO_PKG_VERSION"),
        "began": state.began_ms,
        "run": state.run.as_ref().map(RunOutline::to_json),
        "stage": stage,
        "peers": peers.collect::<BTreeMap<String, Value>>(),
    })
}

fn peer_view(state: &State, peer: &str, seen: &Seen) -> Value {
    let words = seen.status.iter().flat_map(|status| &status.node.paths).filter_map(|path| {
        let waiting = path.waits_for.as_ref()?;
        let since = seen.waiting.get(&(path.path, path.trainer)).map(|(_, since)| *since);
        let told = json!({ "words": waits_for(waiting), "since": since, "then": follows(waiting) });
        Some((format!("{}.{}", path.path, path.trainer), told))
    });
    let waits = seen.status.as_ref().and_then(|status| status.node.waits_for.as_ref());
    let doing = state.spans.now(peer).map(|span| match &span.doing {
        Doing::Training { path, phase } => json!({ "kind": "training", "path": path, "phase": phase,
                                                   "since": span.from_ms }),
        Doing::Waiting { kind, .. } => json!({ "kind": kind, "since": span.from_ms }),
    });
    let (blobs, bytes, seconds) = seen.fetched;
    json!({
        "status": seen.status,
        "waits": waits.map(|waiting| json!({ "words": waits_for(waiting), "then": follows(waiting) })),
        "path_waits": words.collect::<BTreeMap<String, Value>>(),
        "doing": doing,
        "waited_s": seen.waited_s,
        "fetched": { "blobs": blobs, "bytes": bytes, "seconds": seconds },
        "rounds": seen.rounds,
        // Only if it is late: the time itself would change in every frame.
        "silent_since": (crate::telemetry::now_ms().saturating_sub(seen.answered_ms) > 5_000).then_some(seen.answered_ms),
    })
}

/// A line of `metrics.jsonl`.
pub(super) fn line(peer: &str, seen: &mut Seen, now_ms: u64) -> Option<Value> {
    let status = seen.status.as_ref()?;
    let losses = seen.losses.take();
    // Peers by key would be most of the line.
    let round_trip_ms = status.activity.median_round_trip_ms();
    let activity = Activity { round_trip_ms: BTreeMap::new(), relayed: Vec::new(), ..status.activity.clone() };
    Some(json!({
        "at_ms": now_ms,
        "peer": peer,
        "key": status.node.peer,
        "run": status.run,
        "activity": activity,
        "modules": status.node.modules.iter().map(|it| (&it.module, it.version)).collect::<Vec<_>>(),
        "outer_steps": status.outer_steps,
        "members": status.node.peers.len(),
        "median_round_trip_ms": round_trip_ms,
        "relayed": status.activity.relayed.len(),
        "waits_for": status.node.waits_for,
        "waited_s": seen.waited_s,
        "traffic": status.traffic,
        "synced": status.synced,
        "scores": status.node.scores,
        "losses": losses,
    }))
}

/// The merge patch that makes `after` of `before`; nothing if they are equal. A key that is gone is null.
pub(super) fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return Some(after.clone()) };
    let changed = after.iter().filter_map(|(key, value)| {
        let patch = match before.get(key) {
            Some(earlier) => merge_patch(earlier, value)?,
            None => value.clone(),
        };
        Some((key.clone(), patch))
    });
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    Some(Value::Object(changed.chain(gone).collect::<Map<String, Value>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            match value {
                Value::Null => {
                    target.as_object_mut().unwrap().remove(key);
                }
                value => apply(&mut target[key], value),
            }
        }
    }

    #[test]
    fn a_patch_says_only_what_has_changed_and_makes_the_new_of_the_old() {
        let before = json!({ "a": { "x": 1, "y": [1, 2] }, "b": 2, "gone": { "z": 1 } });
        let after = json!({ "a": { "x": 1, "y": [3] }, "b": 2, "new": "n" });
        let patch = merge_patch(&before, &after).unwrap();
        assert_eq!(patch, json!({ "a": { "y": [3] }, "gone": null, "new": "n" }));
        let mut made = before;
        apply(&mut made, &patch);
        assert_eq!(made, after);
        assert_eq!(merge_patch(&after, &after), None);
    }
}
