//! A run whose creator gives it more phases while it trains: who was there, who was away and who joins afterwards all come to
//! the new end, with the same bytes.

use crate::run::{RUN, mistake, pathswarm};
use crate::swarm::{Swarm, agree, modules, newest};
use serde_json::Value;

fn are_done_with(statuses: &[Value], phases: u64) -> bool {
    let at_the_end = |status: &Value| modules(status).iter().all(|module| module["version"] == phases);
    statuses.iter().all(|status| status["phases"] == phases && status["done"] == true && at_the_end(status))
}

#[test]
fn all_peers_of_an_amended_run_end_with_its_new_phases_and_the_same_bytes() {
    let run = RUN.replace("inner_steps = 400", "inner_steps = 100").replace("phases = 12", "phases = 3");
    let mut swarm = Swarm::start(&run, 5);
    let folder = |swarm: &Swarm, number: usize| swarm.folder(number).display().to_string();
    // The last of them comes later.
    swarm.kill(4);
    swarm
        .until("all have begun", |statuses| newest(statuses) >= 1 && statuses.iter().all(|it| !modules(it).is_empty()));
    swarm.kill(2);

    // Only the creator can, and only to more.
    let (creators, others) = (folder(&swarm, 0), folder(&swarm, 1));
    let refused = |folder: &str, phases: &str| mistake(&["amend", folder, "--phases", phases]);
    assert!(refused(&others, "6").contains("only the peer that has created the run"));
    assert!(refused(&creators, "2").contains("cannot have fewer"));
    let amend = |phases: &str| pathswarm(&["amend", &creators, "--phases", phases, "--format", "json"]);
    let done = amend("6");
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&said["event"], &said["number"], &said["phases"]), (&"amended".into(), &1.into(), &6.into()));

    swarm.until("all hear of it", |statuses| statuses.iter().all(|it| it["phases"] == 6 && it["amendment"] == 1));
    swarm.restart(2);
    swarm.until("the one that was away hears of it", |statuses| statuses.iter().all(|it| it["amendment"] == 1));
    let statuses = swarm.until("all are done", |statuses| are_done_with(statuses, 6));
    assert!(agree(&statuses) && statuses.len() == 4);

    // All are done, and one more time it is amended.
    assert!(amend("7").status.success());
    swarm.restart(4);
    let statuses = swarm.until("all are done again", |statuses| are_done_with(statuses, 7));
    assert!(agree(&statuses) && statuses.len() == 5);

    // A collected run has it, too.
    let model = swarm.world.name("model");
    let address = statuses[1]["addresses"][0].as_str().unwrap();
    let collected = pathswarm(&["collect", &model, "--from", address, "--format", "json"]);
    assert!(collected.status.success(), "{}", String::from_utf8_lossy(&collected.stderr));
    assert!(swarm.world.path("model").join("amendment").exists());
}
