//! However eight processes come up, they are one swarm: one run, each path held once, one owner of each module.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::swarm::{EIGHT, Swarm, holders, modules, run_of_eight};
use serde_json::Value;

/// One run, each path with one holder, each peer with one path, and all members of a module name the same owner, which
/// says so itself.
fn is_one_swarm(statuses: &[Value]) -> bool {
    let holders = holders(statuses);
    let paths: Vec<u64> = holders.iter().map(|(path, _)| *path).collect();
    let mut peers: Vec<&str> = holders.iter().map(|(_, peer)| peer.as_str()).collect();
    peers.sort_unstable();
    peers.dedup();
    let mut owners: BTreeMap<&str, Vec<(&str, &str, bool)>> = BTreeMap::new();
    for status in statuses {
        for module in modules(status) {
            let (Some(name), Some(owner)) = (module["module"].as_str(), module["owner"].as_str()) else { return false };
            let own = module["owned_here"] == true;
            owners.entry(name).or_default().push((status["peer"].as_str().unwrap(), owner, own));
        }
    }
    let agreed = |members: &Vec<(&str, &str, bool)>| {
        members.iter().all(|(peer, owner, own)| *owner == members[0].1 && *own == (peer == owner))
            && members.iter().any(|(.., own)| *own)
    };
    statuses.iter().all(|status| status["run"] == statuses[0]["run"])
        && paths == (0..EIGHT as u64).collect::<Vec<_>>()
        && peers.len() == EIGHT
        && owners.len() == 6
        && owners.values().all(agreed)
}

#[expect(clippy::disallowed_methods, reason = "it is measured how long it takes")]
fn start(times: usize) {
    let mut took = Vec::new();
    for time in 1..=times {
        let began = Instant::now();
        let mut swarm = Swarm::start(&run_of_eight(200, 1_000), EIGHT);
        swarm.until("one swarm", is_one_swarm);
        took.push(began.elapsed().as_secs_f64());
        println!("start {time}: one swarm after {:.1} s", took[time - 1]);
    }
    took.sort_by(f64::total_cmp);
    println!("{times} starts, one swarm each time: median {:.1} s, slowest {:.1} s", took[times / 2], took[times - 1]);
}

#[test]
fn eight_processes_are_one_swarm_each_time() {
    start(3);
}

#[test]
#[ignore = "takes half an hour: cargo test --release --test swarm -- --ignored --nocapture starts"]
fn eight_processes_are_one_swarm_a_hundred_times() {
    start(100);
}
