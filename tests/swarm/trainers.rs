//! More peers than paths, as processes: all of them train, and a path that loses its trainers gets others.

use std::collections::BTreeMap;

use crate::run::RUN;
use crate::swarm::{Swarm, holders, newest};
use serde_json::Value;

/// How many trainers each path has.
fn trainers(statuses: &[Value]) -> BTreeMap<u64, usize> {
    let mut trainers = BTreeMap::new();
    holders(statuses).into_iter().for_each(|(path, _)| *trainers.entry(path).or_default() += 1);
    trainers
}

/// Whether each peer has contributed to a module's newest updates: it trains, and its own contributions are counted.
fn all_train(statuses: &[Value]) -> bool {
    let trains = |status: &Value| status["phases_trained"].as_u64() >= Some(2);
    statuses.iter().all(trains)
}

#[test]
fn eight_peers_of_four_paths_all_train_and_a_path_that_loses_its_trainers_gets_another() {
    let run = RUN.replace("inner_steps = 400", "inner_steps = 100").replace("phases = 12", "phases = 1000");
    let mut swarm = Swarm::start(&run, 8);
    // Paths with larger shards may have more of them.
    let statuses = swarm.until("eight trainers of four paths", |statuses| {
        let trainers = trainers(statuses);
        trainers.len() == 4 && trainers.values().sum::<usize>() == 8 && newest(statuses) >= 3 && all_train(statuses)
    });

    let fewest = trainers(&statuses).into_iter().min_by_key(|(_, trainers)| *trainers).unwrap().0;
    let of_path = holders(&statuses).into_iter().filter(|(held, _)| *held == fewest);
    let gone: Vec<String> = of_path.map(|(_, peer)| peer).collect();
    for number in 0..8 {
        if swarm.key(number).is_some_and(|key| gone.contains(&key)) {
            swarm.kill(number);
        }
    }
    let before = newest(&statuses);
    swarm.until("the path is trained again, and nobody trains two", |statuses| {
        let trainers = trainers(statuses);
        let each = statuses.iter().all(|status| status["paths"].as_array().is_some_and(|paths| paths.len() == 1));
        trainers.len() == 4 && each && newest(statuses) >= before + 3
    });
}

#[test]
fn every_trainer_of_a_path_has_the_result_at_the_end() {
    let run = RUN.replace("inner_steps = 400", "inner_steps = 50").replace("phases = 12", "phases = 6");
    let mut swarm = Swarm::start(&run, 6);
    let folders = swarm.folders();
    let statuses = swarm.until("a result of each peer", |statuses| {
        statuses.iter().all(|status| status["done"] == true)
            && folders.iter().all(|folder| folder.join("result.json").exists())
    });
    assert!(holders(&statuses).len() > 4, "some path has several trainers: {:?}", holders(&statuses));
}
