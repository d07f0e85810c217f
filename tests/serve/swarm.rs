//! A server before a running swarm says what its collected folder says, and a text goes on when the peer that generates it
//! is killed.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use crate::client::{NAME, Served, collected, rewrite};
use crate::run::{RUN, World, pathswarm};
use crate::swarm_of::{Swarm, holders, modules};

const PHASES: u64 = 2;

/// Tokens of a stream: 200 queries, one after the other, so that it is far from its end when its first text has come.
const TOKENS: u64 = 1_600;

/// Documents that are so long that a text does not end before it has all its tokens.
fn long(documents: &[String]) -> Vec<String> {
    documents.chunks(4).map(<[String]>::concat).collect()
}

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
    let world = World::of(&format!("trainers_per_path = 1\n{run}"), 5);
    rewrite(&world, long);
    let mut swarm = Swarm::start_on(world, 5);
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
    let whole = local.complete(fields(json!({ "path": path, "max_tokens": TOKENS }))).ok();
    let holder = holders(&statuses).into_iter().find(|(held, _)| *held == path).unwrap().1;
    let number = (0..5).find(|number| swarm.key(*number).as_ref() == Some(&holder)).unwrap();
    assert_eq!(whole["choices"][0]["finish_reason"], "length", "{whole}");
    let text = streamed(&remote, fields(json!({ "path": path, "max_tokens": TOKENS })), || {
        swarm.kill(number);
        assert_eq!(remote.requests(), 1, "it is in the middle");
    });
    assert_eq!(text, whole["choices"][0]["text"].as_str().unwrap());
}

/// The text of a stream, and something happens when the first of it has come.
fn streamed(served: &Served, mut fields: Value, happen: impl FnOnce()) -> String {
    (fields["model"], fields["stream"]) = (json!(NAME), json!(true));
    let stream = served.send("POST /v1/completions", &[], fields.to_string().as_bytes());
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let (mut text, mut happen) = (String::new(), Some(happen));
    for data in lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)) {
        if data == "[DONE]" {
            assert!(happen.is_none(), "an empty text");
            return text;
        }
        let event: Value = serde_json::from_str(&data).unwrap();
        assert!(event["error"].is_null(), "{event}");
        text.push_str(event["choices"][0]["text"].as_str().unwrap());
        if let Some(happen) = happen.take_if(|_| !text.is_empty()) {
            happen();
        }
    }
    panic!("the stream breaks off after {text:?}")
}

/// The phase does not end here, so the modules stay as the earlier run left them: only then is there one text to expect.
#[test]
fn a_stream_goes_on_with_the_same_text_when_the_one_peer_that_trains_its_path_is_killed() {
    let run = RUN.replace("inner_steps = 400", "inner_steps = 1000000").replace("phases = 12", "phases = 2");
    let world = World::of(&format!("trainers_per_path = 1\n{run}"), 4);
    rewrite(&world, long);
    let earlier = collected(&world);
    let local = Served::start(&earlier, &[]);
    let mut swarm = Swarm::start_from(world, earlier, 4);
    let trains = |status: &Value| {
        let paths = status["paths"].as_array().unwrap();
        paths.len() == 1 && paths[0]["stage"] == "training" && modules(status).len() == 2
    };
    let statuses = swarm.until("each of four trains a path", |statuses| {
        statuses.len() == 4 && statuses.iter().all(trains) && holders(statuses).len() == 4
    });
    let key = swarm.key(1).unwrap();
    let (path, _) = holders(&statuses).into_iter().find(|(_, holder)| *holder == key).unwrap();
    let contact = statuses.iter().find(|status| status["peer"] != key.as_str()).unwrap();
    let remote = Served::start(contact["addresses"][0].as_str().unwrap(), &[]);

    let drawn = fields(json!({ "path": path, "max_tokens": TOKENS, "temperature": 0.9, "top_k": 8, "seed": 5 }));
    let whole = local.complete(drawn.clone()).ok();
    assert_eq!(whole["choices"][0]["finish_reason"], "length", "{whole}");
    let expected = whole["choices"][0]["text"].as_str().unwrap();
    let mut beginning = drawn.clone();
    beginning["max_tokens"] = json!(TOKENS / 8);
    assert!(expected.starts_with(&streamed(&remote, beginning, || {})), "all four are there");
    let text = streamed(&remote, drawn, || {
        swarm.kill(1);
        assert_eq!(remote.requests(), 1, "it is in the middle");
    });
    assert_eq!(text, expected);
    let others = swarm.until("the others train", |statuses| statuses.len() == 3);
    // Who takes the path that was lost has not all of its modules yet.
    let mut versions = others.iter().flat_map(modules).filter_map(|module| module["version"].as_u64());
    assert!(versions.all(|version| version == 0), "no phase has ended");
}
