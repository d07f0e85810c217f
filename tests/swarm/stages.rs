//! A run of two stages: first all levels are shared, and the swarm grows its own ancestor; then come the paths. Nobody is in
//! charge of going on.

use crate::run::{RUN, World, pathswarm};
use crate::swarm::{Swarm, holders, module_names, modules};
use pathswarm::peer::Collected;
use serde_json::Value;

/// Two paths of levels that are all shared, three phases; then a 2×2 grid, three phases.
fn run() -> String {
    RUN.replace("inner_steps = 400", "inner_steps = 60").replace("phases = 12", "phases = 3\nshared_phases = 3")
}

fn all_at(statuses: &[Value], version: u64) -> bool {
    let at = |status: &Value| {
        status["done"] == true && modules(status).iter().all(|module| module["version"].as_u64() == Some(version))
    };
    statuses.iter().all(at)
}

/// All are in the same run, which is another than this one.
fn all_in_one_after(statuses: &[Value], first: &Value) -> bool {
    statuses.iter().all(|status| status["run"] == statuses[0]["run"] && status["run"] != *first)
}

/// The peer that owns the first module in a run, according to one of them.
fn owner(swarm: &mut Swarm, statuses: &[Value], run: &Value) -> usize {
    let of = |status: &Value| Some(modules(status).iter().find(|module| module["module"] == "0.0")?["owner"].clone());
    let owner = statuses.iter().find(|status| status["run"] == *run).and_then(of).unwrap();
    (0..statuses.len()).find(|number| swarm.key(*number).map(Value::from) == Some(owner.clone())).unwrap()
}

#[test]
fn a_swarm_goes_on_to_paths_though_whoever_prepares_them_is_killed() {
    let mut swarm = Swarm::start_with_own_text(World::of(&run(), 7), 4);
    let statuses = swarm.until("all paths of the first stage are trained", |statuses| holders(statuses).len() == 4);
    let first = statuses[0]["run"].clone();
    assert_eq!(Vec::from_iter(module_names(&statuses)), ["0.0", "1.0"], "every level is one module");
    let some_done = |statuses: &[Value]| statuses.iter().any(|status| status["done"] == true || status["run"] != first);
    let statuses = swarm.until("somebody's first stage is done", some_done);
    let victim = owner(&mut swarm, &statuses, &first);
    swarm.kill(victim);

    let statuses = swarm.until("the others are in the second stage", |statuses| all_in_one_after(statuses, &first));
    let second = statuses[0]["run"].clone();
    swarm.restart(victim);
    let statuses = swarm.until("all four are done with the second stage", |statuses| {
        statuses.len() == 4 && all_in_one_after(statuses, &first) && all_at(statuses, 3)
    });
    assert_eq!(statuses[0]["run"], second, "it has followed the others");
    assert_eq!(Vec::from_iter(module_names(&statuses)), ["0.0", "0.1", "1.0", "1.1"]);

    // Paths began from what all have trained, and the learning rate went on where it was.
    let folder = swarm.world.name("model");
    let address = statuses[0]["addresses"][0].as_str().unwrap();
    let collect = pathswarm(&["collect", &folder, "--from", address]);
    assert!(collect.status.success(), "{}", String::from_utf8_lossy(&collect.stderr));
    let collected = Collected::open(folder.as_ref()).unwrap();
    let manifest = &collected.manifest;
    assert_eq!(manifest.after.map(|run| Value::from(run.to_string())), Some(first));
    assert_eq!(manifest.config.training.ancestor_steps, 30 + 3 * 60);
    assert!(collected.router.needs_features(), "by k-means, where the first stage routed by chance");
}

/// Where the text is shared, whoever prepares the paths gathers it: from the creator, and from whoever trains on it.
#[test]
fn a_swarm_that_shares_its_text_gathers_it_for_the_second_stage_and_comes_back_there() {
    let mut swarm = Swarm::start_on(World::of(&run(), 8), 2);
    let statuses =
        swarm.until("all paths of the first stage are trained by both", |statuses| holders(statuses).len() == 4);
    let first = statuses[0]["run"].clone();
    swarm.kill(0);
    let alone = |statuses: &[Value]| statuses.iter().all(|status| status["done"] == true || status["run"] != first);
    swarm.restart(0);
    swarm.until("both are done with the first stage", alone);
    let statuses = swarm.until("both are done with the second stage", |statuses| {
        statuses.len() == 2 && all_in_one_after(statuses, &first) && all_at(statuses, 3)
    });
    assert_eq!(Vec::from_iter(module_names(&statuses)), ["0.0", "0.1", "1.0", "1.1"]);
    // The creator is started again in the stage that it has come to.
    swarm.kill(0);
    swarm.restart(0);
    let again = swarm.until("it comes back where it was", |statuses| {
        statuses.len() == 2 && all_in_one_after(statuses, &first) && all_at(statuses, 3)
    });
    assert_eq!(again[0]["run"], statuses[0]["run"]);
}

#[test]
fn a_run_of_two_stages_is_simulated_as_well_and_goes_on_where_it_was_stopped() {
    let world = World::of(&run(), 8);
    let folder = world.name("simulated");
    let command = [
        "simulate",
        &world.config,
        "--corpus",
        &world.corpus,
        "--dir",
        &folder,
        "--format",
        "json",
        "--set",
        "threads=1",
    ];
    let result = |output: std::process::Output| -> Value {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        said.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .find(|line: &Value| line["event"] == "result")
            .unwrap()
    };
    let first = result(pathswarm(&command));
    let shared = Collected::open(format!("{folder}/shared/model").as_ref()).unwrap();
    assert_eq!(shared.manifest.config.training.phases, 3);
    assert_eq!(shared.manifest.genesis.len(), 2, "every level was one module");
    let again = result(pathswarm(&command));
    assert_eq!(first["dipaco"], again["dipaco"]);
    let perplexity = |of: &str| first[of]["perplexity"].as_f64().unwrap();
    assert!(perplexity("dipaco") < perplexity("ancestor"));
}
