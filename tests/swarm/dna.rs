//! Tokens that choose their own way, in a swarm: several processes train a pool of modules together, agree on every bit of it,
//! skips included, and what came of it can be asked and looked into.

use crate::run::{Peer, RUN, World, dna_run, mistake, pathswarm};
use serde_json::Value;

fn run() -> String {
    dna_run().replace("inner_steps = 400", "inner_steps = 30").replace("phases = 12", "phases = 3")
}

fn events(arguments: &[&str]) -> Vec<Value> {
    let output = pathswarm(&[arguments, &["--format", "json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn two_peers_train_a_pool_agree_on_its_balance_and_others_look_into_it() {
    let world = World::of(&run(), 4);
    let found = ["found", &world.config, "--share-text", "--corpus", &world.corpus];
    let mut creator = Peer::start(&world.path("creator"), &found);
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let mut other = Peer::start(&world.path("other"), &["join", &address]);
    let results = [creator.wait_for("result"), other.wait_for("result")];
    assert_eq!(results[0]["run"], results[1]["run"]);
    let hashes = [&creator, &other].map(|peer| {
        let status = peer.status().unwrap();
        let modules = status["modules"].as_array().unwrap();
        let balance = modules.iter().find(|module| module["module"] == "2.0").unwrap();
        assert_eq!(balance["version"], 3, "{balance}");
        balance["state_hash"].clone()
    });
    assert_eq!(hashes[0], hashes[1], "the same biases and usage");

    let model = world.name("model");
    events(&["collect", &model, "--from", &address]);
    let asked = events(&["generate", "--local", &model, "--prompt", "ba ke", "--tokens", "5"]);
    assert!(asked.last().unwrap()["text"].as_str().is_some(), "{asked:?}");

    let images = world.name("images");
    let text = format!("{}/0.jsonl", world.corpus);
    let inspect = ["inspect", "dna", &model, "--text", &text, "--path", "1"];
    let seen = events(&[&inspect[..], &["--against", &model, "--out", &images, "--follow", "* skip"]].concat());
    let found = |name: &str| &seen.iter().find(|event| event["event"] == name).expect(name)["found"];
    let shares = found("flow")["shares"].as_array().unwrap();
    let skipped = |step: &Value| step.as_array().unwrap()[4..].iter().map(|share| share.as_f64().unwrap()).sum::<f64>();
    // Ninety steps by a hundredth each, towards a quarter.
    assert!(shares.iter().all(|step| (0.05..0.5).contains(&skipped(step))), "{shares:?}");
    let routes = &found("routes")["trained"];
    assert!(!routes["routes"].as_array().unwrap().is_empty() && routes["tokens"].as_u64() > Some(0));
    assert!(found("compute")["parameters"].as_f64() > Some(0.0));
    let followers = found("followers")["tokens"].as_array().unwrap().len() as u64;
    let skips_last = |way: &Value| way["modules"][1].as_array().unwrap().is_empty();
    let expected = routes["routes"].as_array().unwrap().iter().filter(|route| skips_last(route));
    assert_eq!(followers, expected.map(|route| route["count"].as_u64().unwrap()).sum::<u64>());
    assert!(mistake(&[&inspect[..], &["--follow", "T9"]].concat()).contains("is not a route"));
    assert!(mistake(&[&inspect[..], &["--dream", "0"]].concat()).contains("dreams are images"));
    assert!((found("likeness")["compute"].as_f64().unwrap() - 1.0).abs() < 1e-6, "it is like itself");
    for name in ["flow", "shares", "routes", "text"] {
        let image = std::fs::read_to_string(format!("{images}/{name}.svg")).unwrap();
        assert!(image.starts_with("<svg"), "{name}");
    }
}

#[test]
fn a_pool_that_makes_no_network_is_refused_in_words() {
    let world = World::of(&run(), 1);
    let wrong = |from: &str, to: &str| {
        let file = world.write("wrong.toml", run().replace(from, to));
        mistake(&["config", "show", &file])
    };
    assert!(
        wrong("top_k = 2", "top_k = 7")
            .contains("model.dna.top_k = 7: 1 to 6, the modules of the pool: a token cannot choose one twice")
    );
    assert!(wrong("steps = 2\n", "steps = 0\n").contains("model.dna.steps = 0: 1 to 1024"));
    assert!(wrong("transformer = 3, mlp = 1, ", "").contains("identities compute nothing"));
    assert!(wrong("architecture = \"dna\"\n", "").contains("must be \"dna\" where the table [model.dna] is set"));
    assert!(wrong("skips = 0.25", "skips = 1.5").contains("dna.skips = 1.5"));
    assert!(wrong("\"router.1\", ", "").contains("no level lists router.1"));
    assert!(
        wrong("parts = [\"balance\"]", "parts = [\"balance\", \"router.1\"]").contains("router.1 is listed in level")
    );
    let mixed = run().replace("\"router.1\", ", "\"router.1\", \"balance\", ");
    let mixed = mixed.replace("\n[[levels]]\nparts = [\"balance\"]\nsharing = \"shared\"\n", "");
    let mixed = mistake(&["config", "show", &world.write("mixed.toml", mixed)]);
    assert!(mixed.contains("give it its own level"), "{mixed}");
    let plain = World::of(&RUN.replace("inner_steps = 400", "inner_steps = 5").replace("phases = 12", "phases = 1"), 1);
    let model = format!("{}/model", plain.simulated());
    let nothing = mistake(&["inspect", "dna", &model, "--text", &format!("{}/0.jsonl", plain.corpus)]);
    assert!(nothing.contains("every token goes through every block"), "{nothing}");
}
