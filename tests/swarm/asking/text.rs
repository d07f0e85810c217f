//! A swarm that runs can be asked: it says what its collected folder says, as long as somebody holds the path, and says so
//! if nobody does.

use std::collections::BTreeSet;

use super::{address, asked, told};
use crate::run::{RUN, mistake};
use crate::swarm::{Swarm, holders, modules, newest};
use serde_json::Value;

const PHASES: u64 = 4;

/// A few documents of each domain.
fn some_text(swarm: &Swarm) -> String {
    let mut lines = String::new();
    for domain in 0..4 {
        let all = std::fs::read_to_string(format!("{}/{domain}.jsonl", swarm.world.corpus)).unwrap();
        lines.extend(all.lines().take(6).map(|line| format!("{line}\n")));
    }
    swarm.world.write("asked.jsonl", lines)
}

/// Whether two evaluations are of the same text on the same paths and say the same.
#[track_caller]
fn assert_same_scores(one: &[Value], other: &[Value]) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        for key in ["event", "path", "documents", "tokens", "bytes", "token_share"] {
            assert_eq!(one[key], other[key], "{key}");
        }
        for who in ["ancestor", "dipaco"] {
            let [one, other] = [one, other].map(|value| value[who]["perplexity"].as_f64().unwrap());
            assert!((one - other).abs() <= 1e-4 * other, "{who}: {one} {other}");
        }
    }
}

fn result(lines: &[Value]) -> &Value {
    lines.last().unwrap()
}

/// Asks the swarm and the folder for everything, with and without routes chosen more often.
fn compare(swarm: &Swarm, address: &str, folder: &str) {
    let file = some_text(swarm);
    let prompt = "ba ke li mo nu ra se ti vo zu pla gre";
    for every in [&[][..], &["--route-every", "8"]] {
        let evaluate = |whom: &[&str]| told(&[&["evaluate", "--text", &file], whom, every].concat());
        let (here, there) = (evaluate(&["--local", folder]), evaluate(&[address]));
        assert_same_scores(&there, &here);
        assert_eq!(result(&here)["peers"], Value::Array(vec![]));
        // Whoever stands by is asked where a holder is busy with the ancestor's part, which falls to the lowest key.
        let answered = result(&there)["peers"].as_array().unwrap().len();
        assert!((4..=5).contains(&answered), "{answered} of five, four of whom hold a path");
        let more = ["--temperature", "0", "--tokens", "75", "--prompt", prompt];
        let generate = |whom: &[&str]| told(&[&["generate"], whom, &more, every].concat());
        let (here, there) = (generate(&["--local", folder]), generate(&[address]));
        for key in ["path", "paths", "modules", "text", "tokens", "ended", "prompt_tokens"] {
            assert_eq!(result(&here)[key], result(&there)[key], "{key}");
        }
    }
    assert_same_scores(&told(&["evaluate", address]), &told(&["evaluate", "--local", folder]));
    by_transducer(swarm, address, folder, &file);
    let warmer = ["--temperature", "1", "--tokens", "40", "--seed", "7", "--prompt", prompt];
    let [here, there] = [&["generate", "--local", folder][..], &["generate", address]]
        .map(|whom| result(&told(&[whom, &warmer].concat()))["text"].clone());
    assert_eq!(here, there, "the same seed draws the same tokens");
}

/// What the folder has taught a transducer, and what the swarm has, route alike.
fn by_transducer(swarm: &Swarm, address: &str, folder: &str, file: &str) {
    let make = |whom: &[&str], name: &str| {
        let out = swarm.world.name(name);
        told(&[&["transducer", "--route-every", "8", "--text", file, "--out", &out], whom].concat());
        out
    };
    let files = [make(&["--local", folder], "by-folder"), make(&[address], "by-swarm")];
    for file_of in &files {
        let by = ["--route-every", "8", "--transducer", file_of.as_str()];
        let evaluate = |whom: &[&str]| told(&[&["evaluate", "--text", file], whom, &by].concat());
        assert_same_scores(&evaluate(&["--local", folder]), &evaluate(&[address]));
        let more = ["--prompt", "ba ke li mo nu ra", "--tokens", "20"];
        let generate = |whom: &[&str]| told(&[&["generate"], whom, &more, &by].concat());
        let (here, there) = (generate(&["--local", folder]), generate(&[address]));
        for key in ["paths", "text", "tokens", "ended"] {
            assert_eq!(result(&here)[key], result(&there)[key], "{key}");
        }
    }
    let said = mistake(&["evaluate", "--local", folder, "--route-every", "9", "--transducer", &files[0]]);
    assert!(said.contains("among 4 paths every 8 tokens, not among 4 paths every 9"), "{said}");
    let said = mistake(&["transducer", "--local", folder, "--text", file, "--out", &files[0]]);
    assert!(said.contains("--route-every"), "{said}");
}

/// The peer that stands by for a path, where it lives, and who holds that path.
fn standby(swarm: &mut Swarm, statuses: &[Value]) -> (Value, usize) {
    let stands_by = |status: &&Value| status["paths"][0]["stage"] == "standby";
    let standby = statuses.iter().find(stands_by).expect("somebody stands by").clone();
    let path = standby["paths"][0]["path"].as_u64().unwrap();
    let (_, holder) = holders(statuses).into_iter().find(|(held, _)| *held == path).unwrap();
    let number = (0..5).find(|number| swarm.key(*number).as_ref() == Some(&holder)).unwrap();
    (standby, number)
}

#[test]
fn a_swarm_says_what_its_modules_say_until_nobody_holds_a_path() {
    let run =
        RUN.replace("inner_steps = 400", "inner_steps = 200").replace("phases = 12", &format!("phases = {PHASES}"));
    // The fifth peer stands by.
    let mut swarm = Swarm::start(&format!("trainers_per_path = 1\n{run}"), 5);
    let held = |statuses: &[Value]| -> BTreeSet<u64> { holders(statuses).into_iter().map(|(path, _)| path).collect() };
    let all_hold = |statuses: &[Value]| {
        let standing_by = statuses.iter().filter(|status| status["paths"][0]["stage"] == "standby").count();
        held(statuses).len() == 4 && holders(statuses).len() == 4 && standing_by == 1
    };
    let statuses =
        swarm.until("a path each, and one that stands by", |statuses| all_hold(statuses) && newest(statuses) > 0);
    let early = told(&["generate", address(&statuses[1]), "--tokens", "3", "--prompt", "ba ke li"]);
    assert!(!result(&early)["peers"].as_array().unwrap().is_empty(), "a swarm that trains answers, too");

    let done = |statuses: &[Value]| {
        let at_the_end = |module: &Value| module["version"] == PHASES;
        all_hold(statuses)
            && statuses.iter().all(|status| status["done"] == true && modules(status).iter().all(at_the_end))
    };
    let statuses = swarm.until("all modules at their last version", done);
    let folder = swarm.world.name("model");
    told(&["collect", &folder, "--from", address(&statuses[0])]);
    compare(&swarm, address(&statuses[0]), &folder);

    // Who stands by has the modules of the path whose holder is killed.
    let (standby, holder) = standby(&mut swarm, &statuses);
    swarm.kill(holder);
    let file = some_text(&swarm);
    let without = told(&["evaluate", address(&standby), "--text", &file]);
    assert_same_scores(&without, &told(&["evaluate", "--local", &folder, "--text", &file]));

    // It alone has not all modules.
    let me = standby["peer"].as_str().unwrap();
    for number in (0..5).filter(|number| *number != holder) {
        if swarm.key(number).as_deref() != Some(me) {
            swarm.kill(number);
        }
    }
    let left = swarm.statuses();
    assert!(left.len() == 1 && modules(&left[0]).len() < 4, "{left:?}");
    let (lines, status, complaints) = asked(&["evaluate", "--text", &file, address(&standby)]);
    assert_eq!(status, Some(1), "{complaints}");
    let message = result(&lines)["message"].as_str().unwrap();
    assert!(message.contains("no peer can answer for path"), "{message}");
    assert!(message.contains("module ") && message.contains("no reachable peer delivers it"), "{message}");
    assert!(complaints.contains("looking for another peer"), "{complaints}");
    assert!(complaints.contains("they are fetched, and the path runs on this machine"), "{complaints}");
}

#[test]
fn whom_to_ask_must_be_clear() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    for command in [&["evaluate"][..], &["generate", "--prompt", "ba ke"]] {
        let wrong = |more: &[&str]| mistake(&[command, more].concat());
        let said = wrong(&[]);
        assert!(said.contains("neither an address nor --local DIR"), "{said}");
        let said = wrong(&["/ip4/127.0.0.1/tcp/1", "--local", name]);
        assert!(said.contains("both an address and --local"), "{said}");
        let said = wrong(&[name]);
        assert!(said.contains(name) && said.contains(&format!("--local {name}")), "{said}");
        assert!(wrong(&["example.org:4001"]).contains("example.org:4001"));
        assert!(wrong(&["/ip4/127.0.0.1/tcp/1"]).contains("/p2p/"));
        assert!(wrong(&["--local", name]).contains("is not a collected run"));
    }
}
