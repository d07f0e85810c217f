//! Paths that count as something of their own, wherever they are asked: as what they were best with, in a swarm whose outer
//! steps overshoot and whose paths stop early; as what they have not sent makes of them, where little of it is sent.

use crate::run::{RUN, World, pathswarm};
use crate::swarm::{Swarm, modules};
use serde_json::Value;

fn run() -> String {
    let phases = "phases = 3\nearly_stopping = true";
    let outer = "[outer]\nlearning_rate = 3.0\nrescale = \"none\"\n[training]";
    RUN.replace("inner_steps = 400", "inner_steps = 60").replace("phases = 12", phases).replace("[training]", outer)
}

/// The perplexity of all test text, as `evaluate` says it.
fn perplexity(whom: &[&str]) -> f64 {
    let output = pathswarm(&[&["evaluate"], whom, &["--format", "json", "--set", "threads=1"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = lines.iter().find(|line| line["event"] == "result").unwrap();
    result["dipaco"]["perplexity"].as_f64().unwrap()
}

/// A swarm of two whose run is over, the address of one of them, and what `collect` says of the folder that it makes.
fn collected(run: &str) -> (Swarm, String, Value) {
    let mut swarm = Swarm::start_on(World::of(run, 9), 2);
    let settled = |statuses: &[Value]| {
        let scored = |status: &Value| {
            let paths = status["paths"].as_array().map_or(0, Vec::len);
            paths > 0 && status["scored"].as_array().is_some_and(|scored| scored.len() >= paths)
        };
        let done = |status: &Value| modules(status).iter().all(|module| module["version"] == 3);
        statuses.len() == 2 && statuses.iter().all(|status| status["done"] == true && done(status) && scored(status))
    };
    let statuses = swarm.until("all paths are done and scored", settled);
    let address = statuses[0]["addresses"][0].as_str().unwrap().to_owned();
    let folder = swarm.world.name("model");
    let collect = pathswarm(&["collect", &folder, "--from", &address, "--format", "json"]);
    assert!(collect.status.success(), "{}", String::from_utf8_lossy(&collect.stderr));
    let said = String::from_utf8(collect.stdout).unwrap();
    let said = said.lines().map(|line| serde_json::from_str(line).unwrap()).next_back().unwrap();
    (swarm, address, said)
}

/// Of what a swarm answers, of a collected run and of its modules alone.
fn perplexities(swarm: &Swarm, address: &str) -> [f64; 3] {
    let folder = swarm.world.name("model");
    let (asked, local) = (perplexity(&[address]), perplexity(&["--local", &folder]));
    std::fs::remove_dir_all(format!("{folder}/best")).unwrap();
    [asked, local, perplexity(&["--local", &folder])]
}

#[test]
fn a_path_that_was_best_before_the_end_is_asked_and_collected_as_it_was_then() {
    let (swarm, address, said) = collected(&run());
    let best = said["best_before"].as_object().expect("outer steps of 3 times the change overshoot");
    assert!(!best.is_empty() && best.values().all(|phase| (1..3).contains(&phase.as_u64().unwrap())), "{said}");

    let [asked, local, in_the_end] = perplexities(&swarm, &address);
    assert!((asked / local - 1.0).abs() < 1e-3, "{asked} {local}");
    assert!(local < in_the_end, "{local} {in_the_end}");
}

#[test]
fn a_path_that_keeps_what_it_has_not_sent_is_asked_and_collected_with_it() {
    let outer = "[outer]\ncodec = { top-k = 64 }\nkeep_unsent = true\n[training]";
    let short = RUN.replace("inner_steps = 400", "inner_steps = 60").replace("phases = 12", "phases = 3");
    let (swarm, address, said) = collected(&short.replace("[training]", outer));
    let paths = said["best_before"].as_object().unwrap();
    assert!(paths.len() == 4 && paths.values().all(|phase| *phase == 3), "all, as they are at the end: {said}");
    let [asked, local, modules] = perplexities(&swarm, &address);
    assert!((asked / local - 1.0).abs() < 1e-3, "{asked} {local}");
    assert!(local < modules, "{local} {modules}: of 4096 values 64 were sent, three times");
}

#[test]
fn who_only_stands_by_such_a_path_has_its_result_as_well() {
    let outer = "[outer]\ncodec = { top-k = 64 }\nkeep_unsent = true\n[training]";
    let run = RUN.replacen("sharing = { experts = 2 }", "sharing = \"shared\"", 1).replace("[training]", outer);
    let mut swarm = Swarm::start(&run, 3);
    let stands_by = |status: &Value| {
        let paths = status["paths"].as_array().map_or(&[][..], Vec::as_slice);
        !paths.is_empty() && paths.iter().all(|path| path["stage"] == "standby")
    };
    swarm.until("one of three stands by, for there are two paths", |statuses| statuses.iter().any(stands_by));
    let results: Vec<_> = swarm.folders().iter().map(|folder| folder.join("result.json")).collect();
    swarm.until("all have their results", |_| results.iter().all(|result| result.exists()));
}
