//! The whole screen, on terminals of several sizes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde_json::json;

use super::screen::draw;
use super::theme::Theme;
use super::view::{Limits, View, ViewState};
use crate::telemetry::Telemetry;
use crate::telemetry::overview::samples::{module, small_swarm, status, thousand_peers};
use crate::telemetry::overview::{Curve, EventRow, EventTone, Lane, LaneSpan, Overview, Quantity, Sample, ScoreCurve};

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 60);

fn drawn(size: (u16, u16), overview: &Overview, view: &ViewState) -> (Vec<String>, Limits) {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    let mut limits = Limits::default();
    terminal.draw(|frame| limits = draw(frame, overview, view, Theme::new(true))).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..size.0).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    ((0..size.1).map(row).collect(), limits)
}

fn at(view: View) -> ViewState {
    ViewState { view, ..ViewState::new("runs/demo") }
}

/// The lines have these words, each on one of them.
#[track_caller]
fn has(lines: &[String], words: &[&str]) {
    for word in words {
        assert!(lines.iter().any(|line| line.contains(word)), "{word:?} is not in\n{}", lines.join("\n"));
    }
}

/// A line that has all of these words.
#[track_caller]
fn line_with(lines: &[String], words: &[&str]) {
    let is_it = |line: &&String| words.iter().all(|word| line.contains(word));
    assert!(lines.iter().any(|line| is_it(&line)), "{words:?} are on no line of\n{}", lines.join("\n"));
}

/// All lines of a view, page by page.
fn whole(size: (u16, u16), overview: &Overview, mut view: ViewState) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let (lines, limits) = drawn(size, overview, &view);
        all.extend(lines);
        if view.scrolled() >= limits.farthest {
            return all;
        }
        *view.scrolled_mut() = (view.scrolled() + limits.page).min(limits.farthest);
    }
}

/// The small swarm with curves and events.
fn learning() -> Overview {
    let mut overview = small_swarm().overview();
    let sample = |step: u64, loss: f64| Sample {
        at_s: 1.7e9 + step as f64,
        step,
        tokens: 256 * step,
        loss,
        tokens_per_s: 1_000.0,
        ..Sample::default()
    };
    let curve = |path: u32, from: f64| Curve {
        label: format!("path {path}"),
        path: Some(path),
        samples: (1..=100).map(|step| sample(step, from - 0.02 * step as f64)).collect(),
    };
    overview.curves = vec![curve(0, 6.0), curve(1, 5.5)];
    overview.scores = vec![ScoreCurve { path: 0, points: vec![(1.0, 3.5), (2.0, 2.345)] }];
    let event = |id, tone, line: &str| EventRow {
        id,
        at_ms: 1_700_000_000_000,
        peer: Some("home".to_owned()),
        tone,
        line: line.to_owned(),
    };
    overview.events = vec![
        event(0, EventTone::Note, "module 0.0 is at version 7, with 2 contributions"),
        event(
            1,
            EventTone::Trouble,
            "the disk does not take what is written: no space left on the device, and the path \
                                      waits until there is room",
        ),
    ];
    overview
}

#[test]
fn the_swarm_says_who_owns_what_and_what_is_waited_for_at_every_size() {
    let overview = small_swarm().overview();
    for size in [SMALL, LARGE] {
        let lines = whole(size, &overview, at(View::Swarm));
        line_with(&lines, &["[1 Swarm]", "2 Learning", "3 Bytes and time", "4 Contributions", "5 Events", "demo"]);
        line_with(&lines, &["training: 1 of 2 peers, 1 path waits", "1,234 tokens/s", "24.7 MB out, 47.9 kB in"]);
        line_with(&lines, &["loss 2.500 nats", "held out 2.345 bits/byte"]);
        line_with(&lines, &["path 1 (den) waits for module 0.1: 1 of 2 contributions, missing path 3, 7 s"]);
        has(&lines, &["at most 7 s more · After that time the update is made"]);
        line_with(&lines, &["0.0", "home", "agrees", "7/20", "aaaaaaaa"]);
        line_with(&lines, &["1.0", "den", "DIFFERS"]);
        line_with(&lines, &["1.1", "nobody", "no owner"]);
        line_with(&lines, &["0.1", "…00000003", "6/20"]);
        line_with(&lines, &["home", "training", "7/20", "120", "2.500", "2.345", "1,234"]);
        line_with(&lines, &["…00000003", "silent 42 s"]);
        line_with(&lines, &["…00000003", "quarantined", "1.0@7"]);
        has(&lines, &["contributed outer gradients many times"]);
        line_with(&lines, &["…00000004", "banned"]);
        line_with(&lines, &["1-5 view", "/ find peer", "? help", "q leave"]);
    }
}

#[test]
fn a_large_terminal_shows_the_small_swarm_without_scrolling() {
    let overview = small_swarm().overview();
    for view in View::ALL {
        assert_eq!(drawn(LARGE, &overview, &at(view)).1.farthest, 0, "{view:?}");
    }
    let (lines, _) = drawn(LARGE, &overview, &at(View::Swarm));
    line_with(&lines, &["Waiting", "Paths"]);
}

#[test]
fn curves_have_a_chart_and_their_newest_values() {
    let overview = learning();
    for size in [SMALL, LARGE] {
        let (lines, limits) = drawn(size, &overview, &at(View::Learning));
        has(&lines, &["Training loss by path", "nats/token · inner steps", "▸ all 2 curves"]);
        line_with(&lines, &["path 0", "4.0"]);
        assert_eq!(limits.curves, 2);
        assert!(lines.concat().chars().any(|symbol| ('\u{2801}'..='\u{28ff}').contains(&symbol)), "a line of braille");
        let one = ViewState { curve: 2, ..at(View::Learning) };
        line_with(&drawn(size, &overview, &one).0, &["▸ path 1"]);
    }
    let (lines, _) = drawn(LARGE, &overview, &at(View::Learning));
    has(&lines, &["Held-out text by path", "Speed by path"]);
    let held_out = ViewState { quantity: Quantity::HeldOut, ..at(View::Learning) };
    line_with(&drawn(SMALL, &overview, &held_out).0, &["path 0", "2.345"]);
}

#[test]
fn bytes_and_time_are_told_by_peer() {
    let mut overview = small_swarm().overview();
    let span = LaneSpan { from_ms: overview.now_ms - 60_000, to_ms: overview.now_ms, trains: Some((0, 1)), waits: "" };
    overview.lanes = vec![Lane { label: "home".to_owned(), spans: vec![span] }];
    for size in [SMALL, LARGE] {
        let lines = whole(size, &overview, at(View::BytesAndTime));
        line_with(&lines, &["home", "12.3 MB", "23.5 kB", "2.0 kB", "1.0 kB"]);
        has(&lines, &["A parameter costs 2.00 bits up and 1.00 bits down"]);
        line_with(&lines, &["den", "█████░░░", "25 %"]);
        has(&lines, &["What each peer did when"]);
    }
    for width in 170..174 {
        let (lines, _) = drawn((width, 60), &overview, &at(View::BytesAndTime));
        let cut: Vec<&String> = lines.iter().filter(|line| line.trim_end().ends_with('…')).collect();
        assert!(cut.is_empty(), "at {width} columns: {cut:#?}");
    }
}

#[test]
fn contributions_give_credit_and_say_how_to_join() {
    let overview = small_swarm().overview();
    for size in [SMALL, LARGE] {
        let lines = whole(size, &overview, at(View::Contributions));
        line_with(&lines, &["…00000003", "4", "████████ 100 %", "3"]);
        line_with(&lines, &["home", "50.0 k", "12.3 MB"]);
        has(&lines, &["pathswarm join /ip4/192.0.2.1/udp/4001/quic-v1"]);
    }
}

#[test]
fn events_are_wrapped_counted_and_searched() {
    let overview = learning();
    for size in [SMALL, LARGE] {
        let (lines, _) = drawn(size, &overview, &at(View::Events));
        line_with(&lines, &["home", "TROUBLE", "the disk does not take"]);
        has(&lines, &["until there is room", "module 0.0 is at version 7"]);
        has(&drawn(size, &overview, &at(View::Swarm)).0, &["5 Events 1!"]);
        let warnings = ViewState { warnings_only: true, ..at(View::Events) };
        assert!(!drawn(size, &overview, &warnings).0.concat().contains("version 7"));
        let found = ViewState { wanted: "version".to_owned(), ..at(View::Events) };
        assert!(!drawn(size, &overview, &found).0.concat().contains("TROUBLE"));
    }
    let mut view = at(View::Events);
    view.drawn(&overview, Limits::default());
    view.view = View::Swarm;
    assert_eq!(view.unseen(&overview), 0, "what has been looked at is not new");
}

#[test]
fn one_peer_of_a_thousand_is_found() {
    let overview = thousand_peers().overview();
    for size in [SMALL, LARGE] {
        let mut view = at(View::Swarm);
        let (lines, limits) = drawn(size, &overview, &view);
        has(&lines, &["1,000 known"]);
        assert!(limits.farthest > 900, "{limits:?}");
        view.scrolled = [limits.farthest; 5];
        line_with(&drawn(size, &overview, &view).0, &["…000003e8", "lives", "1000"]);
        view = ViewState { wanted: "000002a".to_owned(), seeks: true, ..at(View::Swarm) };
        let (lines, limits) = drawn(size, &overview, &view);
        has(&lines, &["17 of 1,000, with “000002a”"]);
        line_with(&lines, &["…000002a7", "lives"]);
        assert!(limits.sought.is_some());
    }
    for view in View::ALL {
        let farthest = drawn(SMALL, &overview, &at(view)).1.farthest;
        for scrolled in [farthest / 2, farthest, usize::MAX] {
            drawn(SMALL, &overview, &ViewState { scrolled: [scrolled; 5], ..at(view) });
        }
    }
}

#[test]
fn before_the_first_answer_the_screen_says_where_it_looks() {
    let mut overview = Telemetry::default().overview();
    for view in View::ALL {
        for size in [SMALL, LARGE] {
            let (lines, _) = drawn(size, &overview, &at(view));
            has(&lines, &["No peer has answered yet. Looking in runs/demo", "q leave"]);
        }
    }
    overview.stage = Some(crate::telemetry::overview::StageFacts { name: "tokenizer".to_owned(), done: 1, total: 4 });
    has(&drawn(SMALL, &overview, &at(View::Swarm)).0, &["Preparing: tokenizer", "25 %"]);
}

#[test]
fn a_terminal_that_is_too_small_gets_a_hint_and_one_without_columns_nothing() {
    let overview = small_swarm().overview();
    assert_eq!(drawn((79, 24), &overview, &at(View::Swarm)).0[0], "79x24: 80x24 are needed; q leaves");
    assert_eq!(drawn((10, 3), &overview, &at(View::Swarm)).0, ["10x3: 80x…", "", ""]);
    for size in [(0, 0), (0, 24), (80, 0), (1, 1), (3, 200)] {
        for view in View::ALL {
            drawn(size, &overview, &ViewState { shows_help: true, ..at(view) });
        }
    }
}

#[test]
fn a_terminal_that_is_made_small_and_large_again_stays_where_it_was() {
    let overview = thousand_peers().overview();
    let mut view = at(View::Swarm);
    *view.scrolled_mut() = 400;
    let (_, limits) = drawn((40, 10), &overview, &view);
    view.drawn(&overview, limits);
    assert_eq!(view.scrolled(), 400);
}

#[test]
fn the_help_names_every_key() {
    let view = ViewState { shows_help: true, ..at(View::Swarm) };
    let (lines, _) = drawn(SMALL, &small_swarm().overview(), &view);
    has(&lines, &["any key closes this", "a view by its number", "find a peer by name", "leave; Ctrl-L"]);
}

#[test]
fn what_a_peer_writes_reaches_no_terminal_as_a_command() {
    let telemetry = Telemetry::default();
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}";
    let modules = [module("0.0", Some(1), hostile, Some(1), 1)];
    let bans = json!([{ "peer": "0b".repeat(32), "until_s": 9_000_000_000_u64, "times": 1, "reason": hostile }]);
    let more = json!({ "name": hostile, "modules": modules, "bans": bans, "addresses": [hostile] });
    telemetry.observe("home", status(1, more));
    telemetry.note(hostile);
    let overview = telemetry.overview();
    for view in View::ALL {
        for size in [SMALL, LARGE] {
            let text = whole(size, &overview, at(view)).concat();
            assert!(!text.chars().any(|it| it.is_control() || it == '\u{202e}'), "{view:?}: {text:?}");
        }
    }
}

#[test]
fn without_colours_everything_is_still_told() {
    let overview = learning();
    for view in View::ALL {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal
            .draw(|frame| {
                draw(frame, &overview, &at(view), Theme::new(false));
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset), "{view:?}");
    }
}
