//! Peers with two devices each, as processes: both of a peer's paths are trained at once, and after a kill as well.

use std::collections::BTreeSet;

use crate::run::RUN;
use crate::swarm::{Swarm, agree, newest};
use serde_json::Value;

/// The paths that a peer's devices work on now.
fn at_work(status: &Value) -> BTreeSet<u64> {
    let devices = status["activity"]["devices"].as_array().into_iter().flatten();
    devices.filter_map(|device| device["path"].as_u64()).collect()
}

/// Whether each of two peers trains two of four paths at this moment.
fn four_at_once(statuses: &[Value]) -> bool {
    let paths: Vec<u64> = statuses.iter().flat_map(at_work).collect();
    paths.len() == 4 && paths.iter().collect::<BTreeSet<_>>().len() == 4
}

#[test]
fn two_peers_with_two_devices_train_four_paths_at_once_and_resume_them_after_a_kill() {
    let run = RUN.replace("inner_steps = 400", "inner_steps = 100").replace("phases = 12", "phases = 1000");
    let mut swarm = Swarm::start_with(&run, 2, &["--set", "devices=[\"cpu\", \"cpu\"]"]);
    swarm.until("a path on each of four devices", |statuses| four_at_once(statuses) && newest(statuses) >= 2);
    let statuses = swarm.until("agreement", agree);
    let two = |status: &Value| status["paths"].as_array().is_some_and(|paths| paths.len() == 2);
    assert!(statuses.iter().all(two), "{}", crate::swarm::summary(&statuses));

    let before = newest(&statuses);
    swarm.kill(1);
    swarm.restart(1);
    let statuses = swarm.until("all four again", |statuses| four_at_once(statuses) && newest(statuses) >= before + 2);
    assert!(statuses.iter().all(two));
    swarm.until("agreement", agree);
}
