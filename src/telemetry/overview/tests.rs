//! What several peers say becomes one overview.

use serde_json::{Value, json};

use super::samples::{key, member, module, path, small_swarm, status, thousand_peers};
use super::{Agreement, Axis, EventTone, Health, ModuleRow, Overview, Quantity, overview};
use crate::config::RunConfig;
use crate::telemetry::curves::series::Point;
use crate::telemetry::run::RunOutline;
use crate::telemetry::state::Tone;
use crate::telemetry::{Telemetry, now_ms};

/// A run of two paths, which share the upper level.
const RUN: &str = r#"
name = "outlined"
[text]
held_out_share = 0.05
test_share = 0.05
[model]
blocks = 2
width = 32
heads = 2
vocabulary = 320
context = 64
[[levels]]
parts = ["embedding", "block.0"]
sharing = { experts = 2 }
[[levels]]
parts = ["block.1", "final-norm", "head"]
sharing = "shared"
[routing]
prefix_tokens = 8
[training]
batch_sequences = 4
inner_steps = 100
phases = 10
ancestor_steps = 10
learning_rate = 1e-3
warmup_steps = 5
"#;

fn named<'a>(overview: &'a Overview, name: &str) -> &'a ModuleRow {
    overview.modules.iter().find(|module| module.name == name).unwrap()
}

#[test]
fn the_highest_term_names_the_owner_and_two_states_of_one_version_are_a_difference() {
    let overview = small_swarm().overview();
    let names: Vec<&str> = overview.modules.iter().map(|module| module.name.as_str()).collect();
    assert_eq!(names, ["0.0", "0.1", "1.0", "1.1"]);
    let shared = named(&overview, "1.0");
    assert_eq!((shared.owner.as_deref(), shared.agreement), (Some("den"), Agreement::Differs));
    assert_eq!(
        (named(&overview, "0.0").agreement, named(&overview, "1.1").agreement),
        (Agreement::Agrees, Agreement::NoOwner)
    );
    assert_eq!(named(&overview, "0.1").owner.as_deref(), Some("…00000003"), "a peer that is only heard of");
    assert_eq!((named(&overview, "0.0").version, named(&overview, "0.0").members), (Some(7), 2));
}

#[test]
fn what_a_peer_says_of_itself_counts_more_than_what_others_have_heard() {
    let overview = small_swarm().overview();
    let rows: Vec<(u32, Option<&str>, &str)> =
        overview.paths.iter().map(|row| (row.path, row.who.as_deref(), row.stage.as_str())).collect();
    let expected = [(0, Some("home"), "training"), (1, Some("den"), "waiting"), (3, Some("…00000003"), "training")];
    assert_eq!(rows, expected, "a standby is no trainer");
    let home = &overview.paths[0];
    assert_eq!((home.phase, home.step, home.loss, home.bits_per_byte), (Some(7), Some(120), Some(2.5), Some(2.345)));
    assert_eq!((overview.paths[1].phase, overview.paths[2].silent_s), (Some(6), Some(42)));
}

#[test]
fn a_wait_says_for_what_until_when_and_what_follows() {
    let overview = small_swarm().overview();
    assert_eq!(overview.waits.len(), 1);
    let wait = &overview.waits[0];
    assert_eq!((wait.who.as_slice(), wait.left_s), (["path 1 (den)".to_owned()].as_slice(), Some(7)));
    assert_eq!(wait.words, "module 0.1: 1 of 2 contributions, missing path 3, 7 s left");
    assert!(wait.since_ms.is_some() && wait.then.starts_with("After that time"));
}

#[test]
fn paths_that_wait_for_one_thing_are_told_together() {
    let telemetry = Telemetry::default();
    let waits = json!({ "kind": "unowned", "module": "1.0" });
    for number in 1..=3 {
        let paths = [path(number, "waiting", 1, &waits)];
        telemetry.observe(&format!("p{number}"), status(number, json!({ "paths": paths })));
    }
    let idle = json!({ "waits_for": { "kind": "nobody", "asked": 2 } });
    telemetry.observe("p10", status(10, idle));
    let overview = telemetry.overview();
    let who: Vec<String> = overview.waits.iter().map(|wait| wait.who.join(" + ")).collect();
    assert_eq!(who, ["path 1 (p1) + path 2 (p2) + path 3 (p3)", "p10"]);
}

#[test]
fn peers_are_asked_heard_of_quarantined_or_banned() {
    let overview = small_swarm().overview();
    let rows: Vec<(Option<&str>, &Health)> =
        overview.peers.iter().map(|peer| (peer.label.as_deref(), &peer.health)).collect();
    let expected = [
        (Some("den"), &Health::Lives),
        (Some("home"), &Health::Lives),
        (None, &Health::Quarantined),
        (None, &Health::Banned),
    ];
    assert_eq!(rows, expected);
    let third = &overview.peers[2];
    assert_eq!((third.counted, third.faults, third.paths.as_slice(), third.steps_per_s), (4, 3, &[3][..], Some(1.5)));
    assert_eq!(overview.peers[3].why.as_deref(), Some("it flooded"));
    assert_eq!((&overview.peers[1].paths, &overview.peers[1].stands_by), (&vec![0], &vec![3]));
}

#[test]
fn a_peer_that_somebody_hears_is_not_silent_and_one_that_does_not_answer_is_told() {
    let telemetry = Telemetry::default();
    for (number, silent_s) in [(1, Some(50)), (2, None)] {
        let members = json!({ key(7): member(&json!({}), &[], silent_s) });
        telemetry.observe(&format!("p{number}"), status(number, json!({ "members": members })));
    }
    telemetry.state().has_not_answered("p2", now_ms() - 60_000);
    let overview = telemetry.overview();
    let health: Vec<&Health> = overview.peers.iter().map(|peer| &peer.health).collect();
    assert_eq!(health, [&Health::Lives, &Health::Unanswered, &Health::Lives]);
    assert_eq!(overview.silences.iter().map(|it| it.label.as_str()).collect::<Vec<_>>(), ["p2"]);
}

#[test]
fn the_grid_of_a_known_run_shows_what_nobody_has_and_nobody_trains() {
    let telemetry = Telemetry::default();
    let run = RunConfig::from_toml(RUN).unwrap();
    telemetry.begin(&RunOutline::new(&run).unwrap());
    let held = [module("0.0", Some(3), "aa", Some(1), 1), module("1.0", Some(3), "bb", Some(1), 1)];
    let home = json!({ "modules": held, "paths": [path(0, "training", 3, &Value::Null)] });
    telemetry.observe("home", status(1, home));
    let overview = telemetry.overview();
    let agreement: Vec<(&str, Agreement)> =
        overview.modules.iter().map(|module| (module.name.as_str(), module.agreement)).collect();
    assert_eq!(agreement, [("0.0", Agreement::Agrees), ("0.1", Agreement::Elsewhere), ("1.0", Agreement::Agrees)]);
    assert_eq!((overview.paths[1].stage.as_str(), &overview.paths[1].who), ("no trainer", &None));
    assert_eq!(overview.routes, [[0, 0], [1, 0]]);
    assert_eq!((overview.run.phases, overview.run.inner_steps), (Some(10), Some(100)));
    assert_eq!(overview.run.levels[0], "embedding, block.0");
}

#[test]
fn curves_are_shown_by_path_and_by_module_against_steps_tokens_or_time() {
    let telemetry = Telemetry::default();
    telemetry.begin(&RunOutline::new(&RunConfig::from_toml(RUN).unwrap()).unwrap());
    for (path, loss) in [(0, 4.0), (1, 2.0)] {
        for step in 1..=3 {
            let point = Point { at_ms: 1_000 * step, step, tokens: 256, loss, tokens_per_s: 10.0, ..Point::default() };
            telemetry.point(&format!("path/{path}"), point);
        }
    }
    telemetry.point("path/10/2", Point { step: 1, loss: 1.0, ..Point::default() });
    let overview = telemetry.overview();
    let labels = |quantity| {
        let lines = overview.lines(quantity, Axis::Steps);
        lines.into_iter().map(|line| line.label).collect::<Vec<_>>()
    };
    assert_eq!(labels(Quantity::Loss), ["path 0", "path 1", "path 10, trainer 2"]);
    assert_eq!(labels(Quantity::ModuleLoss), ["module 0.0", "module 0.1"]);
    assert_eq!(labels(Quantity::GradientNorm), [""; 0], "what is not known is not drawn as 0");
    let tokens = &overview.lines(Quantity::Loss, Axis::Tokens)[0];
    assert_eq!(tokens.points, [(256.0, 4.0), (512.0, 4.0), (768.0, 4.0)]);
    let time = &overview.lines(Quantity::Speed, Axis::Time)[1];
    assert_eq!(time.points, [(1.0, 10.0), (2.0, 10.0), (3.0, 10.0)]);
}

#[test]
fn the_summary_is_of_the_peers_that_are_asked() {
    let summary = small_swarm().overview().summary;
    assert_eq!((summary.asked, summary.known, summary.training, summary.waiting), (2, 4, 1, 1));
    assert_eq!((summary.loss, summary.bits_per_byte, summary.tokens_per_s), (Some(2.5), Some(2.345), 1_234.0));
    assert!((summary.progress - 22.0 / 4.0 / 20.0).abs() < 1e-9, "by the rounds of the modules: {}", summary.progress);
    let exchange = small_swarm().overview().exchange;
    assert_eq!((exchange.bits_up, exchange.bits_down), (Some(2.0), Some(1.0)));
}

#[test]
fn events_keep_their_order_and_their_tone() {
    let telemetry = Telemetry::default();
    telemetry.note("first");
    telemetry.log(Some("home"), Tone::Bad, "second".to_owned());
    let events = telemetry.overview().events;
    assert_eq!(
        events.iter().map(|event| (event.line.as_str(), event.tone)).collect::<Vec<_>>(),
        [("first", EventTone::Note), ("second", EventTone::Trouble)]
    );
    assert!(events[1].id > events[0].id && events[1].tone.is_warning() && !events[0].tone.is_warning());
}

#[test]
fn a_large_swarm_and_an_empty_one_make_an_overview() {
    let large = thousand_peers().overview();
    assert_eq!((large.peers.len(), large.paths.len(), large.modules.len()), (1_000, 1_000, 32));
    let empty = Telemetry::default().overview();
    assert!(empty.modules.is_empty() && empty.peers.is_empty() && empty.run.name.is_empty() && empty.address.is_none());
    assert_eq!((empty.summary.asked, empty.summary.loss), (0, None));
}

#[test]
fn names_that_no_module_has_are_passed_over() {
    let telemetry = Telemetry::default();
    let modules = [module("0.0", None, "", None, 0), module("\u{1b}[2J", Some(1), "aa", None, 0)];
    telemetry.observe("home", status(1, json!({ "modules": modules })));
    let overview = overview(&telemetry.state(), now_ms());
    assert_eq!(overview.modules.iter().map(|module| module.name.as_str()).collect::<Vec<_>>(), ["0.0"]);
}
