//! The state as viewers are shown it: JSON, and what of it has changed (a merge patch, RFC 7396).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::names::PeerKey;
use crate::peer::PeerStatus;
use crate::peer::status::Activity;
use crate::protocol::status::{MemberPath, MemberStatus, PathStatus, PeerScoreStatus};
use crate::telemetry::now_ms;
use crate::telemetry::run::RunOutline;
use crate::telemetry::services::Fact;
use crate::telemetry::spans::Doing;
use crate::telemetry::state::{Seen, State};
use crate::telemetry::words::{follows, waits_for};

/// What viewers have been shown of what can be patched: everything but events, curves and spans, which are only added to.
#[derive(Debug, Default, Serialize)]
pub(super) struct Shown {
    program: &'static str,
    began: u64,
    run: Value,
    stage: Option<Stage>,
    services: BTreeMap<&'static str, Vec<Value>>,
    /// The peers of this process.
    peers: BTreeMap<String, Map<String, Value>>,
    /// All peers, as those of this process describe them.
    members: HashMap<PeerKey, Heard>,
    #[serde(skip)]
    /// Its name and its phases.
    run_name: Option<(String, u64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Stage {
    name: String,
    done: u64,
    total: u64,
}

/// What the peers of this process say of a peer. One of this process is shown in full, so only what others observe.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Heard {
    modules: BTreeMap<String, Option<u64>>,
    differs: BTreeSet<String>,
    paths: Vec<MemberPath>,
    steps_per_1000_s: u32,
    replicas: u32,
    silent_s: Option<u64>,
    counted: u64,
    faults: u64,
    /// The reason, if anybody has quarantined it.
    quarantined: Option<String>,
}

impl Heard {
    fn add(&mut self, member: &MemberStatus) {
        let newest = |modules: &mut BTreeMap<String, Option<u64>>, (name, version): (&String, &Option<u64>)| {
            let known = modules.entry(name.clone()).or_default();
            *known = (*known).max(*version);
        };
        member.modules.iter().for_each(|module| newest(&mut self.modules, module));
        if self.paths.is_empty() {
            self.paths.clone_from(&member.paths);
        }
        self.steps_per_1000_s = self.steps_per_1000_s.max(member.steps_per_1000_s);
        self.replicas = self.replicas.max(member.replicas);
        self.silent_s = self.silent_s.max(member.silent_s);
    }

    fn add_score(&mut self, score: &PeerScoreStatus) {
        self.counted = self.counted.max(score.counted);
        self.faults = self.faults.max(score.faults.values().sum());
        if score.quarantined {
            let reason = score.reason.clone();
            self.quarantined = Some(reason.unwrap_or_else(|| "faulty contributions".to_owned()));
        }
    }
}

/// What this process's peers say of all peers.
fn heard(state: &State) -> HashMap<PeerKey, Heard> {
    let statuses = || state.peers.values().filter_map(|seen| seen.status.as_ref());
    let own: HashSet<PeerKey> = statuses().filter_map(|status| status.node.peer.parse().ok()).collect();
    let mut heard: HashMap<PeerKey, Heard> = HashMap::new();
    for status in statuses() {
        for (peer, member) in &status.node.members {
            let is_own = own.contains(peer);
            if is_own && member.differs.is_empty() {
                continue;
            }
            let of_peer = heard.entry(*peer).or_default();
            of_peer.differs.extend(member.differs.iter().cloned());
            if !is_own {
                of_peer.add(member);
            }
        }
        for score in &status.node.peer_scores {
            heard.entry(score.peer).or_default().add_score(score);
        }
    }
    heard
}

impl Shown {
    /// Shows the state as it is. Returns what has changed, as a merge patch.
    pub(super) fn update(&mut self, state: &State) -> Option<Value> {
        (self.program, self.began) = (env!("CARGO_PKG_VERSION"), state.began_ms);
        let mut patch = Map::new();
        let name = state.run.as_ref().map(|run| (run.name.clone(), run.phases));
        if self.run_name != name {
            self.run = state.run.as_ref().map_or(Value::Null, RunOutline::to_json);
            self.run_name = name;
            patch.insert("run".to_owned(), self.run.clone());
        }
        let stage = state.stage.clone().map(|(name, done, total)| Stage { name, done, total });
        if self.stage != stage {
            patch.insert("stage".to_owned(), json!(stage));
            self.stage = stage;
        }
        let facts = |facts: &Vec<Fact>| facts.iter().map(|fact| fact.to_json()).collect();
        let services = state.services.iter().map(|(service, its)| (*service, facts(its))).collect();
        if self.services != services {
            patch.insert("services".to_owned(), json!(services));
            self.services = services;
        }
        let peers = self.update_peers(state);
        patch.extend((!peers.is_empty()).then(|| ("peers".to_owned(), peers.into())));
        if state.answered {
            let members = self.update_members(heard(state));
            patch.extend((!members.is_empty()).then(|| ("members".to_owned(), members.into())));
        }
        (!patch.is_empty()).then_some(patch.into())
    }

    fn update_peers(&mut self, state: &State) -> Map<String, Value> {
        let mut patch = Map::new();
        for (peer, seen) in &state.peers {
            let is_new = !self.peers.contains_key(peer);
            let shown = self.peers.entry(peer.clone()).or_default();
            let silent_since = json!(seen.silent_since(now_ms()));
            if !seen.touched && !seen.is_newer && !is_new && shown["silent_since"] == silent_since {
                continue;
            }
            let mut change = Change { shown, patch: Map::new() };
            show_peer(&mut change, state, (peer, seen), is_new);
            let change = change.patch;
            patch.extend((!change.is_empty()).then(|| (peer.clone(), change.into())));
        }
        self.peers.retain(|peer, _| {
            let stays = state.peers.contains_key(peer);
            patch.extend((!stays).then(|| (peer.clone(), Value::Null)));
            stays
        });
        patch
    }

    fn update_members(&mut self, now: HashMap<PeerKey, Heard>) -> Map<String, Value> {
        let before = std::mem::replace(&mut self.members, now);
        let changed = self.members.iter().filter_map(|(peer, now)| {
            let patch = match before.get(peer) {
                Some(before) if before == now => return None,
                Some(before) => merge_patch(&json!(before), &json!(now))?,
                None => json!(now),
            };
            Some((peer.to_string(), patch))
        });
        let gone = before.keys().filter(|peer| !self.members.contains_key(*peer));
        changed.chain(gone.map(|peer| (peer.to_string(), Value::Null))).collect()
    }
}

/// An object that viewers have been shown, and what of it changes.
struct Change<'a> {
    shown: &'a mut Map<String, Value>,
    patch: Map<String, Value>,
}

impl Change<'_> {
    fn put(&mut self, key: &str, now: Value) {
        let Some(before) = self.shown.get_mut(key) else {
            self.patch.insert(key.to_owned(), now.clone());
            self.shown.insert(key.to_owned(), now);
            return;
        };
        if let Some(patch) = merge_patch(before, &now) {
            self.patch.insert(key.to_owned(), patch);
            *before = now;
        }
    }

    /// The same for a part that is costly to describe: only if it differs from what was shown.
    fn put_new<T: PartialEq + Serialize>(&mut self, key: &str, before: Option<&T>, now: &T) {
        if before != Some(now) || !self.shown.contains_key(key) {
            self.put(key, json!(now));
        }
    }

    /// Changes an object in it.
    fn within(&mut self, key: &str, change: impl FnOnce(&mut Change<'_>)) {
        let known = self.shown.get(key).is_some_and(Value::is_object);
        if !known {
            self.shown.insert(key.to_owned(), Map::new().into());
        }
        let Some(Value::Object(shown)) = self.shown.get_mut(key) else { return };
        let mut inner = Change { shown, patch: Map::new() };
        change(&mut inner);
        let patch = inner.patch;
        if !patch.is_empty() || !known {
            self.patch.insert(key.to_owned(), patch.into());
        }
    }

    /// Removes what is not kept.
    fn retain(&mut self, kept: impl Fn(&str) -> bool) {
        let Self { shown, patch } = self;
        shown.retain(|key, _| {
            let stays = kept(key);
            patch.extend((!stays).then(|| (key.clone(), Value::Null)));
            stays
        });
    }
}

/// What viewers see of a status. Lists are objects, so that a patch has only the entries that have changed.
fn show_status(change: &mut Change<'_>, before: Option<&PeerStatus>, now: &PeerStatus, started_ms: u64) {
    let path_name = |path: &PathStatus| format!("{}.{}", path.path, path.trainer);
    change.put_new("run", before.map(|it| &it.run), &now.run);
    change.put_new("peer", before.map(|it| &it.node.peer), &now.node.peer);
    change.put_new("done", before.map(|it| &it.node.done), &now.node.done);
    change.within("modules", |change| {
        for (index, module) in now.node.modules.iter().enumerate() {
            change.put_new(&module.module, before.and_then(|it| it.node.modules.get(index)), module);
        }
        change.retain(|name| now.node.modules.iter().any(|module| module.module == name));
    });
    change.within("paths", |change| {
        let names: Vec<String> = now.node.paths.iter().map(path_name).collect();
        for (index, (path, name)) in now.node.paths.iter().zip(&names).enumerate() {
            change.put_new(name, before.and_then(|it| it.node.paths.get(index)), path);
        }
        change.retain(|name| names.iter().any(|known| known == name));
    });
    let shown = change.shown.get("activity").map(|activity| activity["started_ms"] == started_ms);
    if before.is_none_or(|it| it.activity != now.activity) || shown != Some(true) {
        change.put("activity", activity(&now.activity, started_ms));
    }
    change.put_new("traffic", before.map(|it| &it.traffic), &now.traffic);
    change.put_new("synced", before.map(|it| &it.synced), &now.synced);
    change.put_new("addresses", before.map(|it| &it.addresses), &now.addresses);
    change.put_new("bans", before.map(|it| &it.bans), &now.bans);
    change.put_new("phases_trained", before.map(|it| &it.phases_trained), &now.phases_trained);
    change.put_new("audited", before.map(|it| &it.node.audited), &now.node.audited);
}

fn activity(now: &Activity, started_ms: u64) -> Value {
    let mut activity = json!(now);
    if let Value::Object(activity) = &mut activity {
        // The time changes in every frame, its beginning does not.
        activity.remove("uptime_s");
        activity.remove("queues");
        activity.insert("started_ms".to_owned(), json!(started_ms));
    }
    activity
}

fn show_peer(change: &mut Change<'_>, state: &State, (peer, seen): (&str, &Seen), is_new: bool) {
    if is_new || seen.is_newer {
        show_answer(change, seen, is_new);
    }
    if is_new || seen.touched {
        let doing = state.spans.now(peer).map(|span| match &span.doing {
            Doing::Training { path, phase } => json!({ "kind": "training", "path": path, "phase": phase,
                                                       "since": span.from_ms }),
            Doing::Waiting { kind, .. } => json!({ "kind": kind, "since": span.from_ms }),
        });
        let (blobs, bytes, seconds) = seen.fetched;
        change.put("doing", json!(doing));
        change.put("waited_s", json!(seen.waited_s));
        change.put("fetched", json!({ "blobs": blobs, "bytes": bytes, "seconds": seconds }));
        change.put("rounds", json!(seen.rounds));
    }
    change.put("silent_since", json!(seen.silent_since(now_ms())));
}

/// The status, and what it says of waits in words.
fn show_answer(change: &mut Change<'_>, seen: &Seen, is_new: bool) {
    match &seen.status {
        Some(status) => {
            let before = seen.shown_status.as_ref().filter(|_| !is_new);
            change.within("status", |change| show_status(change, before, status, seen.started_ms));
        }
        None => change.put("status", Value::Null),
    }
    let words = seen.status.iter().flat_map(|status| &status.node.paths).filter_map(|path| {
        let waiting = path.waits_for.as_ref()?;
        let since = seen.waiting.get(&(path.path, path.trainer)).map(|(_, since)| *since);
        let told = json!({ "words": waits_for(waiting), "since": since, "then": follows(waiting) });
        Some((format!("{}.{}", path.path, path.trainer), told))
    });
    let waits = seen.status.as_ref().and_then(|status| status.node.waits_for.as_ref());
    let waits = waits.map(|waiting| json!({ "words": waits_for(waiting), "then": follows(waiting) }));
    change.put("waits", json!(waits));
    change.put("path_waits", words.collect::<Map<String, Value>>().into());
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
fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let changed = after.iter().filter_map(|(key, value)| {
        let patch = match before.get(key) {
            Some(earlier) => merge_patch(earlier, value)?,
            None => value.clone(),
        };
        Some((key.clone(), patch))
    });
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let patch: Map<String, Value> = changed.chain(gone).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
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
