//! Runs that go on from an earlier one: with other text, on a larger grid, from a folder or from a swarm that runs.

use std::path::Path;

use crate::run::{Peer, RUN, World, mistake, pathswarm};
use crate::text::write_domains;
use pathswarm::peer::Collected;
use serde_json::Value;

/// Short phases, with the long outer steps of a few phases that change much; with four experts on the first level, if
/// wanted.
fn run(experts: u32, inner_steps: u64, phases: u64) -> String {
    RUN.replacen("experts = 2", &format!("experts = {experts}"), 1)
        .replace("inner_steps = 400", &format!("inner_steps = {inner_steps}"))
        .replace("phases = 12", &format!("phases = {phases}"))
        + "[outer]\npreset = \"dipaco\"\n"
}

/// The perplexity of this text under a collected run.
fn perplexity(folder: &str, text: &str) -> f64 {
    let output = pathswarm(&["evaluate", "--local", folder, "--text", text, "--format", "json", "--set", "threads=1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = lines.iter().find(|line| line["event"] == "result").unwrap();
    result["dipaco"]["perplexity"].as_f64().unwrap()
}

fn collect(folder: &str, address: &str) -> Collected {
    let output = pathswarm(&["collect", folder, "--from", address]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Collected::open(Path::new(folder)).unwrap()
}

/// The creator of a run that goes on from another, and its address.
fn begin(world: &World, name: &str, run: &str, from: &str, text: &str) -> (Peer, String) {
    let config = world.write(&format!("{name}.toml"), run);
    let mut peer = Peer::start(&world.path(name), &["create", &config, "--from", from, "--corpus", text]);
    let address = peer.wait_for("join")["address"].as_str().unwrap().to_owned();
    (peer, address)
}

#[test]
fn a_finished_run_goes_on_with_other_text_on_the_same_grid_and_on_a_larger_one() {
    let world = World::of(&run(2, 60, 3), 9);
    let earlier = format!("{}/model", world.simulated());
    let other = world.name("other");
    write_domains(Path::new(&other), 12, 60);
    let at_the_end = perplexity(&earlier, &other);

    // No phase ends while these are looked at.
    let (_same, address) = begin(&world, "same", &run(2, 1_000_000, 2), &earlier, &other);
    let first = collect(&world.name("same-model"), &address);
    assert!(first.modules.values().all(|module| module.version.0 == 0));
    assert_eq!(perplexity(&world.name("same-model"), &other), at_the_end, "modules, router and tokenizer are the same");

    let (mut larger, address) = begin(&world, "larger", &run(4, 1_000_000, 2), &earlier, &other);
    let first = collect(&world.name("larger-model"), &address);
    let before = Collected::open(Path::new(&earlier)).unwrap();
    let parameters = |collected: &Collected, module: &str| collected.modules[&module.parse().unwrap()].parameters;
    let origins = [("0.0", "0.0"), ("0.1", "0.0"), ("0.2", "0.1"), ("0.3", "0.1"), ("1.0", "1.0"), ("1.1", "1.1")];
    for (module, origin) in origins {
        assert_eq!(parameters(&first, module), parameters(&before, origin), "{module} begins as {origin}");
    }
    let at_the_beginning = perplexity(&world.name("larger-model"), &other);
    assert!((at_the_beginning / at_the_end - 1.0).abs() < 0.01, "{at_the_beginning} {at_the_end}");

    // From the address of a run that is not over. A newcomer has the first states from the creator alone.
    let (mut creator, join) = begin(&world, "third", &run(4, 60, 3), &address, &other);
    larger.kill();
    let mut newcomer = Peer::start(&world.path("newcomer"), &["join", &join, "--corpus", &other]);
    let done = |peer: &mut Peer| peer.wait_for("result");
    done(&mut creator);
    done(&mut newcomer);
    let trained = collect(&world.name("third-model"), &join);
    assert!(trained.modules.values().all(|module| module.version.0 == 3));
    let now = perplexity(&world.name("third-model"), &other);
    assert!(now < 0.97 * at_the_beginning, "{now} {at_the_beginning}");
    let trained = |peer: &Peer| peer.status().unwrap()["paths"].as_array().unwrap().len();
    assert!(trained(&newcomer) > 0 && trained(&creator) > 0);
    assert!(!world.path("third/earlier").exists(), "what was collected on the way is gone");
}

#[test]
fn a_run_that_does_not_come_of_the_earlier_one_is_refused_before_anything_is_written() {
    let world = World::of(&run(2, 30, 1), 9);
    let earlier = format!("{}/model", world.simulated());
    let refused = |change: (&str, &str), flags: &[&str], words: &[&str]| {
        let config = world.write("refused.toml", run(2, 30, 1).replace(change.0, change.1));
        let folder = world.name("refused");
        let create = ["create", &config, "--corpus", &world.corpus, "--dir", &folder];
        let said = mistake(&[&create[..], flags, &["--listen", "/ip4/127.0.0.1/udp/0/quic-v1"]].concat());
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(!world.path("refused/manifest.json").exists());
    };
    let from = ["--from", &earlier];
    refused(("width = 32", "width = 64"), &from, &["model.width is 64, but 32 in the earlier run", &earlier]);
    refused(("experts = 2", "experts = 3"), &from, &["level 0 has 2 experts in the earlier run and 3 experts"]);
    refused(("prefix_tokens = 8", "prefix_tokens = 9"), &from, &["routing.prefix_tokens is 9, but 8"]);
    refused(("", ""), &["--from", "nowhere"], &["--from nowhere: neither a folder nor an address"]);
    refused(("", ""), &["--from", &world.corpus], &["is not a collected run"]);
}
