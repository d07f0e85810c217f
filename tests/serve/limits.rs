//! Keys, origins, bounds, and clients that hang up or do not read.

use std::io::Read;

use serde_json::json;

use crate::client::{NAME, Served, collected};
use crate::run::{World, mistake};

/// A text that takes minutes: it must not end by itself.
fn long(folder: &str, stream: bool) -> Vec<u8> {
    let json = std::fs::read(format!("{folder}/tokenizer.json")).unwrap();
    let end = pathswarm::text::Tokenizer::from_json(&json).unwrap().end_of_document().to_string();

    let fields = json!({ "model": NAME, "prompt": "ba ke", "max_tokens": 100_000, "stream": stream, "logit_bias": { end: -100 },
        "temperature": 2 });
    fields.to_string().into_bytes()
}

#[test]
fn a_client_that_hangs_up_stops_the_work_and_one_too_many_is_told_when_to_come_back() {
    let world = World::new();
    let folder = collected(&world);
    let served = Served::start(&folder, &["--max-tokens", "100000", "--requests", "2", "--at-once", "1"]);
    for stream in [true, false] {
        let mut first = served.send("POST /v1/completions", &[], &long(&folder, stream));
        if stream {
            // A stream that is not read ends when buffers are full, so the second comes when the first has begun.
            first.read_exact(&mut [0; 200]).unwrap();
        }
        let second = served.send("POST /v1/completions", &[], &long(&folder, stream));
        served.wait_for_requests(2);
        let third = served.complete(json!({ "prompt": "ba" }));
        assert_eq!((third.status, &third.error()["type"]), (429, &json!("rate_limit_error")));
        assert!(third.head.contains("\r\nretry-after: 2"), "{}", third.head);
        drop((first, second));
        served.wait_until_idle();
        served.complete(json!({ "prompt": "ba" })).ok();
        // Its place is free a moment after its answer, and would be missing to the next two.
        served.wait_until_idle();
    }
}

#[test]
fn one_that_does_not_read_holds_up_nobody() {
    let world = World::new();
    let folder = collected(&world);
    let served = Served::start(&folder, &["--max-tokens", "100000"]);
    let _silent = served.send("POST /v1/completions", &[], &long(&folder, true));
    for _ in 0..20 {
        served.complete(json!({ "prompt": "ba ke", "max_tokens": 20 })).ok();
    }
    // The last one's place is free a moment after its answer.
    served.wait_for_requests(1);
}

#[test]
fn an_answer_ends_when_its_time_is_over() {
    let world = World::new();
    let folder = collected(&world);
    let served = Served::start(&folder, &["--max-tokens", "100000", "--max-seconds", "1"]);
    let ended = served.ask("POST /v1/completions", &[], &long(&folder, false)).ok();
    let choice = &ended["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["x_pathswarm"]["ended_by"]), (&json!("length"), &json!("time")));
    assert!(ended["usage"]["completion_tokens"].as_u64().unwrap() < 100_000);
}

#[test]
fn only_who_shows_a_key_is_answered_and_only_pages_that_are_named_may_ask() {
    let world = World::new();
    let (folder, keys) = (collected(&world), world.write("keys", "# two friends\nsk-one\nsk-two\n"));
    let served = Served::start(&folder, &["--api-keys", &keys, "--allow-origin", "https://chat.example"]);
    let ask = |headers: &[(&str, &str)]| served.ask("GET /v1/models", headers, b"");
    let refused = ask(&[]);
    assert_eq!((refused.status, &refused.error()["code"]), (401, &json!("invalid_api_key")));
    assert!(refused.error()["message"].as_str().unwrap().contains("API key"), "in the words of its clients");
    assert_eq!(ask(&[("authorization", "Bearer sk-three")]).status, 401);
    assert_eq!(ask(&[("authorization", "Bearer sk-two")]).status, 200);
    assert_eq!(served.get("/health").status, 200, "whether it runs is no secret");
    let from = |origin: &str| ask(&[("authorization", "Bearer sk-one"), ("origin", origin)]);
    let allowed = from("https://chat.example");
    assert!(allowed.status == 200 && allowed.head.contains("access-control-allow-origin: https://chat.example"));
    let other = from("https://evil.example");
    assert_eq!((other.status, &other.error()["type"]), (403, &json!("permission_error")));

    for (arguments, said) in [
        (&["serve", &world.name("nowhere")][..], "give the folder of a collected run"),
        (&["serve", &world.corpus], "not a collected run"),
        (&["serve", &folder, "--api-keys", &world.config.replace("run.toml", "none")], "one key a line"),
        (&["serve", &folder, "--listen", "example.org/"], "127.0.0.1:8080"),
    ] {
        let message = mistake(arguments);
        assert!(message.contains(said), "{message}");
    }
    let taken = mistake(&["serve", &folder, "--listen", &served.address]);
    assert!(taken.contains("another program does"), "{taken}");
}
