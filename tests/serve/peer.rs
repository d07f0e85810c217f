//! A peer that trains serves the run.

use serde_json::json;

use crate::client::{Client, NAME};
use crate::run::{Peer, RUN, World, mistake, unhurried};

#[test]
fn a_peer_that_trains_answers_programs_that_know_the_api() {
    let world = World::of(RUN, 4);
    let keys = world.write("keys", "sk-one\n");
    let serve = ["--serve=127.0.0.1:0", "--api-keys", &keys];
    let create = ["create", &world.config, "--corpus", &world.corpus];
    let mut peer = Peer::start(&world.path("peer"), &unhurried(&[&create[..], &serve].concat()));
    let client = Client::of(&peer.wait_for("serving"));
    let key = [("authorization", "Bearer sk-one")];
    assert_eq!(client.get("/v1/models").status, 401);
    let models = client.ask("GET /v1/models", &key, b"").ok();
    assert_eq!(models["data"][0]["id"], NAME);
    let body = json!({ "model": NAME, "prompt": "ba ke li mo", "max_tokens": 5, "temperature": 0 }).to_string();
    let answer = client.ask("POST /v1/completions", &key, body.as_bytes()).ok();
    // What it says depends on how far it is trained by now, and may be nothing.
    assert!(answer["choices"][0]["finish_reason"].is_string(), "{answer}");
    assert!(answer["usage"]["prompt_tokens"].as_u64() > Some(0), "{answer}");
    // It goes on training, and tells of both in one place.
    let told = |text: &str| {
        text.contains("pathswarm_serve_requests_admitted_total 1.0") && text.contains("peer=\"this peer\"")
    };
    client.wait_for_metrics(&key, told);

    let other = world.name("other");
    let further = [&create[..], &["--dir", &other]].concat();
    let said = mistake(&[&further[..], &["--api-keys", &keys]].concat());
    assert!(said.contains("add --serve"), "{said}");
    let said = mistake(&[&further[..], &[&format!("--serve={}", client.address)]].concat());
    assert!(said.contains("another program does") && said.contains("--serve"), "{said}");
}
