//! A server before a running swarm says what its collected folder says, and a text goes on when the peer that generates it
//! is killed.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use crate::client::{NAME, Served};
use crate::run::{RUN, pathswarm};
use crate::swarm_of::{Swarm, holders, modules};

const PHASES: u64 = 2;

fn fields(more: Value) -> Value {
    let mut fields = json!({ "prompt": "ba ke li mo nu ra se ti vo zu", "max_tokens": 60, "temperature": 0 });
    more.as_object().unwrap().iter().for_each(|(name, value)| fields[name] = value.clone());
    fields
}

#[test]
fn a_swarm_answers_as_its_collected_folder_does_and_goes_on_without_the_peer_that_is_killed() {
    let run =
        RUN.replace("inner_steps = 400", "inner_steps = 100").replace("phases = 12", &format!("phases = {PHASES}"));
    // The fifth peer stands by for one of the paths.
    let mut swarm = Swarm::start(&format!("trainers_per_path = 1\n{run}"), 5);
    let done = |statuses: &[Value]| {
        let at_the_end = |module: &Value| module["version"] == PHASES;
        let standing_by = statuses.iter().filter(|status| status["paths"][0]["stage"] == "standby").count();
        let whole = holders(statuses).len() == 4 && standing_by == 1;
        whole && statuses.iter().all(|status| status["done"] == true && modules(status).iter().all(at_the_end))
    };
    let statuses = swarm.until("all modules at their last version", done);
    let standby = statuses.iter().find(|status| status["paths"][0]["stage"] == "standby").unwrap();
    let path = standby["paths"][0]["path"].as_u64().unwrap();
    let address = standby["addresses"][0].as_str().unwrap();
    let folder = swarm.world.name("model");
    assert!(pathswarm(&["collect", &folder, "--from", address]).status.success());
    let (local, remote) = (Served::start(&folder, &[]), Served::start(address, &[]));

    for more in [
        json!({}),
        json!({ "temperature": 0.9, "seed": 5, "n": 2 }),
        json!({ "route_every": 16 }),
        json!({ "echo": true }),
    ] {
        let [here, there] = [&local, &remote].map(|served| served.complete(fields(more.clone())).ok());
        for index in 0..more["n"].as_u64().unwrap_or(1) as usize {
            let (here, there) = (&here["choices"][index], &there["choices"][index]);
            assert_eq!((&here["text"], &here["finish_reason"]), (&there["text"], &there["finish_reason"]), "{more}");
            assert_eq!(here["x_pathswarm"]["paths"], there["x_pathswarm"]["paths"]);
        }
    }
    for (name, value) in [("logprobs", json!(1)), ("top_p", json!(0.5)), ("logit_bias", json!({ "5": 1 }))] {
        let refused = remote.complete(fields(json!({ name: value })));
        assert!(
            refused.status == 400 && refused.error()["message"].as_str().unwrap().contains("collect"),
            "{refused:?}"
        );
    }

    // The holder of the standby's path goes in the middle of a stream.
    let whole = local.complete(fields(json!({ "path": path, "max_tokens": 400 }))).ok();
    let mut body = fields(json!({ "path": path, "max_tokens": 400, "stream": true }));
    body["model"] = json!(NAME);
    let stream = remote.send("POST /v1/completions", &[], body.to_string().as_bytes());
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let (mut text, mut killed) = (String::new(), false);
    let holder = holders(&statuses).into_iter().find(|(held, _)| *held == path).unwrap().1;
    let number = (0..5).find(|number| swarm.key(*number).as_ref() == Some(&holder)).unwrap();
    for data in lines.by_ref().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)) {
        if data == "[DONE]" {
            break;
        }
        let event: Value = serde_json::from_str(&data).unwrap();
        assert!(event["error"].is_null(), "{event}");
        text.push_str(event["choices"][0]["text"].as_str().unwrap());
        if !killed && !text.is_empty() {
            swarm.kill(number);
            killed = true;
        }
    }
    assert!(killed);
    assert_eq!(text, whole["choices"][0]["text"].as_str().unwrap());
}
