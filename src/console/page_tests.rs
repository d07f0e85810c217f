//! What the page makes of frames, in an engine without a browser: descriptions of elements, and what charts draw.

use rquickjs::loader::{BuiltinLoader, BuiltinResolver};
use rquickjs::{CatchResultExt, Context, Module, Runtime};
use serde_json::{Value, json};

use super::assets::scripts;

/// What the page expects of a browser while its scripts are loaded.
const BROWSER: &str = "globalThis.location = { hash: '', pathname: '/' };
    globalThis.URLSearchParams = class { get() { return null; } };
    globalThis.Intl = {
        NumberFormat: class { format(value) { return String(value); } },
        DateTimeFormat: class { format(value) { return String(value); } },
        Collator: class { compare(a, b) { return a < b ? -1 : a > b ? 1 : 0; } },
    };";

/// The value of an expression over the page's modules, after a frame.
fn found(frame: &Value, imports: &str, expression: &str) -> Value {
    let runtime = Runtime::new().unwrap();
    let scripts = scripts().map(|(path, text)| (path.trim_start_matches('/'), text));
    let resolver = scripts.clone().fold(BuiltinResolver::default(), |all, (name, _)| all.with_module(name));
    let loader = scripts.fold(BuiltinLoader::default(), |all, (name, text)| all.with_module(name, text));
    runtime.set_loader(resolver, loader);
    let context = Context::full(&runtime).unwrap();
    let text = context.with(|ctx| {
        ctx.eval::<(), _>(BROWSER).catch(&ctx).unwrap();
        let test = format!(
            "import {{ take }} from 'follow.js'; {imports}
             take({frame}); globalThis.found = JSON.stringify({expression});"
        );
        Module::evaluate(ctx.clone(), "test.js", test).catch(&ctx).unwrap().finish::<()>().catch(&ctx).unwrap();
        ctx.globals().get::<_, String>("found").unwrap()
    });
    serde_json::from_str(&text).unwrap()
}

/// Four points of each of three paths and of an arm: time, step, tokens, loss, speed, learning rate, gradient norm.
fn curves() -> Value {
    let point =
        |path: u64, step: u64| json!([1_700_000_000_000_u64 + 1_000 * step, step, 100 * step + path, 5.5, 9.0, 0.1, 1]);
    let points = |path: u64| (1..=4).map(|step| point(path, step)).collect::<Vec<_>>();
    let of = json!({ "path/0": points(0), "path/1": points(1), "path/2": points(2), "arm/dense": points(3) });
    json!({ "at": 1_700_000_009_000_u64, "state": {}, "events": [], "spans": [], "points": of })
}

/// A run of two paths through two levels, with a peer in full. Of it is known since when it has not answered.
fn swarm(silent_since: Option<u64>) -> Value {
    let level = json!({ "experts": 2, "parts": "a" });
    let module = |version: u64| {
        json!({ "version": version, "phase": version, "members": 2, "term": 3, "owner": "aa",
                                        "state_hash": "cc", "staleness_mean": 0.0, "no_replica": false })
    };
    let path = json!({ "path": 0, "trainer": 1, "stage": "training", "phase": 4, "waits_for": null });
    let status = json!({ "peer": "aa", "modules": { "0.0": module(7), "1.0": module(7) }, "paths": { "0": path }, "bans": [],
                         "activity": { "path": 0, "step": 9, "tokens_per_s": 5.0,
                                       "round_trip_ms": { "dd": 0.5, "ee": 2.0 }, "relayed": ["ee"] } });
    let peers = json!({ "a": { "status": status, "silent_since": silent_since, "path_waits": {} } });
    let run = json!({ "phases": 10, "inner_steps": 20, "levels": [level, level], "paths": [[0, 0], [1, 0]] });
    let member = json!({ "modules": {}, "paths": [], "differs": [], "replicas": 0, "silent_s": null, "counted": 0, "faults": 0 });
    let state = json!({ "run": run, "peers": peers, "members": { "dd": member } });
    json!({ "at": 60_000, "state": state, "events": [], "spans": [], "points": {} })
}

#[test]
fn each_curve_is_drawn_against_what_was_chosen() {
    let imports = "import { lines } from 'series.js';";
    let x = |axis: &str| {
        found(&curves(), imports, &format!("lines('{axis}', 3).map(({{ label, points }}) => [label, points[3][0]])"))
    };
    let names = ["dense", "path 0", "path 1", "path 2"];
    let all =
        |values: [f64; 4]| Value::from(names.iter().zip(values).map(|(name, x)| json!([name, x])).collect::<Vec<_>>());
    let same = |found: Value, expected: Value| {
        let numbers = |value: &Value| {
            value.as_array().unwrap().iter().map(|it| (it[0].clone(), it[1].as_f64())).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&found), numbers(&expected));
    };
    same(x("steps"), all([4.0; 4]));
    same(x("tokens"), all([403.0, 400.0, 401.0, 402.0]));
    same(x("time"), all([1_700_000_004.0; 4]));
}

#[test]
fn a_path_whose_peer_does_not_answer_is_not_shown_as_training() {
    let paths = |since| {
        let told = "model().paths.map(({ path, silent, activity }) => [path, silent ?? null, activity?.step ?? null])";
        found(&swarm(since), "import { model } from 'model.js';", told)
    };
    assert_eq!(paths(None), json!([[0, null, 9], [1, null, null]]));
    assert_eq!(paths(Some(50_000)), json!([[0, 10, null], [1, null, null]]));
}

#[test]
fn a_module_that_no_peer_here_has_is_not_said_to_be_without_an_owner() {
    let view = found(
        &swarm(None),
        "import { model } from 'model.js'; import { view } from 'views/swarm.js';",
        "view(model(), () => {})",
    );
    let text = view.to_string();
    assert!(text.contains("elsewhere") && text.contains("version 7") && !text.contains("nobody"), "{text}");
}

#[test]
fn who_is_only_connected_is_no_member() {
    let told = "model().members.map(({ key, round_trip, relayed }) => [key, round_trip, relayed])";
    let members = found(&swarm(None), "import { model } from 'model.js';", told);
    assert_eq!(members, json!([["aa", null, null], ["dd", 0.5, false]]));
}
