//! Deterministic simulations: the same digits each time, whatever else the machine does.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::run::{RUN, World, pathswarm};

/// The result of a simulation, without what depends on time and place.
fn simulated(world: &World, name: &str, peers: &str) -> Value {
    let folder = world.name(name);
    let simulate = ["simulate", &world.config, "--corpus", &world.corpus, "--dir", &folder, "--deterministic"];
    let output = pathswarm(&[&simulate[..], &["--peers", peers, "--format", "json", "--set", "threads=1"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let result: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(result["dipaco"].is_object() && result["sample"].is_object(), "{result}");
    ["dipaco", "paths", "dense", "ancestor", "sample", "module_hashes_agree"]
        .iter()
        .map(|key| result[key].clone())
        .collect()
}

/// Ends what takes the processor, also if the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn equal_seeds_give_the_same_digits_beside_other_work_and_on_fewer_peers() {
    let world =
        World::of(&RUN.replace("inner_steps = 400", "inner_steps = 30").replace("phases = 12", "phases = 4"), 4);
    let alone = simulated(&world, "alone", "4");
    let stop = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _stops = Stops(&stop);
        simulated(&world, "beside", "4")
    });
    assert_eq!(alone, beside);
    assert_eq!(alone, simulated(&world, "fewer", "3"), "one of three peers trains two paths");
}
