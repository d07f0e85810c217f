//! Event files have what the curves have, begin anew at each start, and cost a bounded amount.

use std::fs;
use std::path::Path;

use super::event::{self, Event};
use super::*;
use crate::names::ModuleId;
use crate::peer::aggregator::GradientNorms;

/// The events of the files of a run's folder, in order of name, without the first of each.
fn events(folder: &Path) -> Vec<Vec<Event>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: &PathBuf| {
        let mut events = event::read(&fs::read(file).unwrap());
        assert_eq!(events.remove(0).file_version.as_deref(), Some("brain.Event:2"));
        events
    };
    files.iter().map(read).collect()
}

fn values(event: &Event) -> Vec<(&str, f32)> {
    let values = &event.summary.as_ref().unwrap().value;
    values.iter().map(|value| (value.tag.as_str(), value.simple_value.unwrap())).collect()
}

#[test]
fn every_curve_is_a_run_with_its_steps_times_and_tags() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("new/board");
    let (mut files, writing) = open(&folder).unwrap();
    let point = Point {
        at_ms: 1_500,
        step: 20,
        tokens: 640,
        loss: 3.5,
        tokens_per_s: 1_000.0,
        learning_rate: 0.25,
        gradient_norm: 2.0,
    };
    files.point("path/3", &point);
    files.point("path/3/2", &point);
    files.point("dense", &point);
    files.held_out(3, (2_000, 40), 1_250);
    let norms = GradientNorms { contributions: 4, mean_norm: 0.5, average_norm: 0.25, agreement: Some(-0.125) };
    files.outer_step(ModuleId { level: 0, expert: 1 }, &OuterPoint { at_ms: 3_000, version: 7, norms });
    let alone = GradientNorms { agreement: None, contributions: 1, ..norms };
    files.outer_step(ModuleId { level: 0, expert: 1 }, &OuterPoint { at_ms: 3_500, version: 8, norms: alone });
    drop(writing);
    let path = &events(&folder.join("path-3"))[0];
    assert_eq!((path[0].wall_time, path[0].step), (1.5, 20));
    let trained = [("loss", 3.5), ("tokens_per_s", 1_000.0), ("learning_rate", 0.25), ("gradient_norm", 2.0)];
    assert_eq!(values(&path[0]), trained);
    assert_eq!((path[1].step, values(&path[1])), (40, vec![("held_out_bits_per_byte", 1.25)]));
    assert_eq!(values(&events(&folder.join("path-3-2"))[0][0]), trained);
    assert_eq!(values(&events(&folder.join("dense"))[0][0]), [("loss", 3.5)]);
    let module = &events(&folder.join("module-0.1"))[0];
    let outer = [
        ("outer_gradient/norm", 0.25),
        ("outer_gradient/contribution_norm", 0.5),
        ("outer_gradient/contributions", 4.0),
        ("outer_gradient/agreement", -0.125),
    ];
    assert_eq!((module[0].step, values(&module[0])), (7, outer.to_vec()));
    assert_eq!(values(&module[1]).len(), 3, "a single contribution has no agreement");
}

#[test]
fn a_second_start_begins_a_file_with_a_later_name_and_leaves_the_first() {
    let home = tempfile::tempdir().unwrap();
    for step in [10, 5] {
        let (mut files, writing) = open(home.path()).unwrap();
        files.point("path/0", &Point { step, ..Point::default() });
        drop(writing);
    }
    let found = events(&home.path().join("path-0"));
    let steps: Vec<Vec<i64>> = found.iter().map(|file| file.iter().map(|event| event.step).collect()).collect();
    assert_eq!(steps, [[10], [5]]);
}

#[test]
fn another_run_of_the_process_has_folders_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let (mut files, writing) = open(home.path()).unwrap();
    files.point("path/0", &Point::default());
    files.begin("../second stage");
    files.point("path/0", &Point::default());
    drop(writing);
    assert!(home.path().join("path-0").is_dir() && home.path().join("---second-stage/path-0").is_dir());
}

#[test]
fn nobody_waits_for_a_disk_that_refuses_or_is_slow() {
    let home = tempfile::tempdir().unwrap();
    let (mut files, writing) = open(home.path()).unwrap();
    fs::write(home.path().join("path-0"), "a file where a folder should be").unwrap();
    for step in 0..3 * QUEUE as u64 {
        files.point("path/0", &Point { step, ..Point::default() });
    }
    drop(writing);
    files.point("path/0", &Point::default());
    assert!(open(&home.path().join("path-0")).is_err(), "a folder that cannot be is refused at once");
}

#[test]
fn a_file_grows_with_the_logarithm_of_its_events() {
    let mut pace = Pace::default();
    let written = (0..16 * AT_EACH_PACE).filter(|_| pace.writes()).count() as u64;
    assert!((4 * AT_EACH_PACE..=5 * AT_EACH_PACE).contains(&written), "{written}");
    assert_eq!(pace.stride, 16);
}
