//! Everything that README.md, the quick start, the guide and the page of commands tell their reader to type is run here,
//! on a small run.
#![cfg(all(feature = "learning", feature = "network"))]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{Peer, RUN, World, dna_run, mistake, pathswarm, program};
use image::{Rgb, RgbImage};
use serde_json::Value;

/// In place of the experiments that the pages name, which take hours.
const EXPERIMENT: &str = r#"
name = "small"
title = "A small experiment"
[run]
model = { blocks = 2, width = 32, heads = 2, vocabulary = 320, context = 64, tied_head = true }
routing = { prefix_tokens = 8 }
training = { batch_sequences = 4, inner_steps = 3, phases = 2, ancestor_steps = 3, learning_rate = 5e-3 }
[[arms]]
name = "grid"
run.levels = [
    { parts = ["embedding", "block.0"], sharing = { experts = 2 } },
    { parts = ["block.1", "final-norm"], sharing = { experts = 2 } },
]
"#;

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All pages whose commands are run.
fn pages() -> String {
    let guide = std::fs::read_dir(project().join("docs/guide")).unwrap().map(|entry| entry.unwrap().path());
    let texts = guide.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let named = ["README.md", "docs/quickstart.md", "docs/reference/commands.md"].map(|page| project().join(page));
    named.into_iter().chain(texts).map(|page| std::fs::read_to_string(page).unwrap()).collect()
}

/// Lines of code blocks, and `code` within a line.
fn code(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            found.insert(line.trim().to_owned());
        } else {
            // Inside of `code` is every other piece.
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

/// Command lines that have not been run yet.
struct ToType(BTreeSet<String>);

impl ToType {
    /// The arguments of all lines that begin so, with these words in the place of others.
    fn take(&mut self, command: &str, replace: &dyn Fn(&str) -> Option<String>) -> Vec<Vec<String>> {
        let prefix = format!("pathswarm {command}");
        let (taken, left): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|line| line.starts_with(&prefix));
        self.0 = left;
        assert!(!taken.is_empty(), "no page mentions {prefix}");
        let word = |word: &str| replace(word).unwrap_or_else(|| word.to_owned());
        taken.iter().map(|line| line.split_whitespace().skip(1).map(word).collect()).collect()
    }
}

/// Runs a command that ends well, and gives the last line that it says to programs.
#[track_caller]
fn ends_well(arguments: &[String], more: &[&str]) -> Value {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let output = pathswarm(&[&arguments[..], &["--format", "json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// Starts a command that shows a page, until it says where.
fn serves_a_page(arguments: &[String]) {
    let mut child = program().args(arguments).args(["--format", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.any(|line| line.contains("\"event\":\"web\""));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said, "{arguments:?}");
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// A configuration is written, and shown; and what shells and man know.
fn configured(world: &World, to_type: &mut ToType, file: &dyn Fn(&str) -> Option<String>) {
    let names = |word: &str| matches!(word, "NAME" | "FOLDER").then(|| world.name("written"));
    for init in to_type.take("init NAME", &|word| (word == "NAME").then(|| "a-run".to_owned())) {
        let out = ["--out", &world.name(&format!("a-run-{}.toml", init.len()))];
        assert_eq!(ends_well(&init, &out)["paths"], 4);
        assert!(mistake(&[&words(&init)[..], &out].concat()).contains("is there already"));
    }
    let of_shell = ["completions", "man", "version"].map(|command| to_type.take(command, &names)).concat();
    assert!(of_shell.iter().all(|line| ends_well(line, &[])["event"] == "result"));
    assert!(world.path("written").join("pathswarm-create.1").exists());
    let key = |word: &str| if word == "KEY" { Some("outer.codec".to_owned()) } else { file(word) };
    for config in ["config show", "config explain", "config parameters", "config memory"] {
        for line in to_type.take(config, &key) {
            ends_well(&line, &[]);
        }
    }
}

/// The collected run goes on.
fn goes_on(world: &World, found: &[Vec<String>], short: &[&str]) {
    let goes_on = |words: &&Vec<String>| words.contains(&"--from".to_owned());
    let command = found.iter().find(goes_on).unwrap().iter().map(|word| match word.as_str() {
        "FOLDER" => world.name("model"),
        "PATH" => world.corpus.clone(),
        word => word.to_owned(),
    });
    let command: Vec<String> = command.collect();
    let mut creator = Peer::start(&world.path("goes-on"), &[&words(&command)[..], short].concat());
    creator.wait_for("result");
}

/// A path goes to a folder of `transformers`, and comes from there as the ancestor of a run.
fn there_and_back(world: &World, to_type: &mut ToType, short: &[&str]) {
    let out = |word: &str| match word {
        "DIR" => Some(world.name("model")),
        "FOLDER" => Some(world.name("exported")),
        _ => None,
    };
    let whole = |word: &str| if word == "FOLDER" { Some(world.name("whole")) } else { out(word) };
    for export in to_type.take("export DIR FOLDER --whole", &whole) {
        assert_eq!(ends_well(&export, &[])["layout"], "pathswarm");
        assert_eq!(pathswarm(&words(&export)).status.code(), Some(2), "what is there is not replaced");
    }
    let alone = |word: &str| if word == "FOLDER" { Some(world.name("alone")) } else { out(word) };
    for export in to_type.take("export DIR FOLDER --path 0 --adapter", &alone) {
        assert!(mistake(&words(&export)).contains("no adapters"));
    }
    for export in to_type.take("export", &out) {
        assert_eq!(ends_well(&export, &[])["layout"], "GPT-NeoX");
        assert_eq!(pathswarm(&words(&export)).status.code(), Some(2), "what is there is not replaced");
        let nowhere = pathswarm(&["export", &world.name("model"), &world.name("none"), "--path", "4"]);
        let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
        assert!(nowhere.status.code() == Some(2) && said.contains("paths 0 to 3"), "{said}");
    }
    for (command, folder) in [("import MODEL FOLDER --adapter", "adapted"), ("import", "imported")] {
        let back = |word: &str| match word {
            "MODEL" => Some(world.name("exported")),
            "FOLDER" => Some(world.name(folder)),
            _ => None,
        };
        for import in to_type.take(command, &back) {
            let told = ends_well(&import, &[]);
            let found = ["create", told["run"].as_str().unwrap(), "--ancestor", &world.name(folder)];
            let create = [&found[..], &["--corpus", &world.corpus], short].concat();
            let mut creator = Peer::start(&world.path(&format!("of-{folder}")), &create);
            assert_eq!(creator.wait_for("result")["event"], "result");
        }
    }
}

/// Runs of networks that are not plain.
fn other_networks(world: &World, to_type: &mut ToType, short: &[&str]) {
    looked_into(world, to_type, short);
    with_images(world, to_type, short);
}

/// A run whose attention is directional is looked into, and one whose tokens choose their way.
fn looked_into(world: &World, to_type: &mut ToType, short: &[&str]) {
    let run = RUN.replace("block.", "layer.").replace("context = 64", "context = 64\ndirectional = { directions = 2 }");
    let (file, folder) = (world.write("directional.toml", run), world.name("directional"));
    let simulate: Vec<String> = ["simulate", &file].map(str::to_owned).into();
    ends_well(&simulate, &[&["--corpus", &world.corpus, "--dir", &folder], short].concat());
    let names = |word: &str| match word {
        "DIR" => Some(format!("{folder}/model")),
        "CORPUS" => Some(world.corpus.clone()),
        "PLOTS" => Some(world.name("plots")),
        _ => None,
    };
    for inspect in to_type.take("inspect directional", &names) {
        assert_eq!(ends_well(&inspect, &[])["event"], "sureness");
        assert!(world.path("plots").join("interventions.svg").exists());
    }
    let (file, folder) = (world.write("dna.toml", dna_run()), world.name("dna"));
    let simulate: Vec<String> = ["simulate", &file].map(str::to_owned).into();
    ends_well(&simulate, &[&["--corpus", &world.corpus, "--dir", &folder], short].concat());
    let names = |word: &str| if word == "DIR" { Some(format!("{folder}/model")) } else { names(word) };
    for inspect in to_type.take("inspect dna", &names) {
        assert_eq!(ends_well(&inspect, &[])["event"], "text");
        assert!(world.path("plots").join("flow.svg").exists());
    }
}

/// Images of three classes are prepared, and a swarm learns from them.
fn with_images(world: &World, to_type: &mut ToType, short: &[&str]) {
    for (number, class) in ["circle", "cross", "square"].iter().enumerate() {
        let folder = world.path("drawn").join(class);
        std::fs::create_dir_all(&folder).unwrap();
        for image in 0..60u32 {
            let pixel = |x: u32, y: u32| Rgb([(x * 8) as u8, (y * image) as u8, (number * 100) as u8]);
            RgbImage::from_fn(32, 32, pixel).save(folder.join(format!("{image}.png"))).unwrap();
        }
    }
    let names = |word: &str| match word {
        "FOLDER" => Some(world.name("drawn")),
        "FILE" | "train.images" => Some(world.name("train.images")),
        word => word.ends_with("swarm-images.toml").then(|| project().join(word).display().to_string()),
    };
    for prepare in to_type.take("prepare", &names) {
        assert_eq!(ends_well(&prepare, &[])["images"], 180);
    }
    for simulate in to_type.take("simulate configs/dna", &names) {
        let result = ends_well(&simulate, &[short, &["--dir", &world.name("with_images")]].concat());
        assert_eq!(result["module_hashes_agree"], true);
    }
}

/// A transducer is made of what the run has learnt.
fn taught(world: &World, to_type: &mut ToType, there: &dyn Fn(&str) -> Option<String>) {
    let training = |word: &str| match word {
        "CORPUS" => Some(world.corpus.clone()),
        "FILE" => Some(world.name("taught")),
        word => there(word),
    };
    for transducer in to_type.take("transducer", &training) {
        assert!(ends_well(&transducer, &[])["bytes"].as_u64().unwrap() > 0);
    }
}

/// A relay says where it is, and what it carries.
fn relayed(world: &World, to_type: &mut ToType) {
    for relay in to_type.take("relay", &|_| None) {
        let mut relay = Peer::start(&world.path("relay"), &words(&relay));
        let address = relay.wait_for("relay")["address"].as_str().unwrap().to_owned();
        assert!(address.contains("/p2p/"));
        let devices = to_type.take("doctor --device", &|word| (word == "cuda").then(|| "cpu".to_owned()));
        for device in devices {
            assert_eq!(ends_well(&device, &["--sizes", "0"])["wrong"], 0);
        }
        for doctor in to_type.take("doctor", &|word| (word == "ADDRESS").then(|| address.clone())) {
            let runs = format!("runs={}", world.name("runs"));
            let here = ["--listen", "/ip4/127.0.0.1/udp/0/quic-v1", "--set", &runs, "--set", "mdns=false"];
            assert_eq!(ends_well(&doctor, &here)["wrong"], 0);
        }
        assert_eq!(relay.wait_for("carries")["counts"]["reservations"], 0);
    }
}

/// A run is served, to be asked until the server is stopped.
fn served(world: &World, to_type: &mut ToType, there: &dyn Fn(&str) -> Option<String>) {
    let (keys, model) = (world.write("keys", "sk-one\n"), world.name("one-model"));
    let run = world.name("model");
    let export = ["export", &run, &model, "--path", "1"].map(str::to_owned);
    assert_eq!(ends_well(&export, &[])["event"], "result");
    let names = |word: &str| match word {
        "DIR" => Some(world.name("model")),
        "FOLDER" => Some(model.clone()),
        "KEYS" => Some(keys.clone()),
        "0.0.0.0:8080" => Some("127.0.0.1:0".to_owned()),
        word => there(word),
    };
    for mut serve in to_type.take("serve", &names) {
        if !serve.contains(&"--listen".to_owned()) {
            serve.extend(["--listen", "127.0.0.1:0"].map(str::to_owned));
        }
        let paths = if serve.contains(&model) { 1 } else { 4 };
        let mut child = program().args(&serve).args(["--format", "json"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let serving: Value = serde_json::from_str(&said.next().unwrap()).unwrap();
        assert_eq!((&serving["event"], &serving["paths"]), (&Value::from("serving"), &Value::from(paths)));
        let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(told.success() && child.wait().unwrap().success());
        assert_eq!(said.last().unwrap(), "{\"event\":\"stopped\"}");
    }
}

/// A run by invitation: somebody is invited, comes, and is sent away.
fn invited(world: &World, to_type: &mut ToType, short: &[&str]) {
    let run = world.write("invited.toml", format!("admission = \"invite\"\n{RUN}"));
    // What create was called first.
    let found = ["found", &run, "--corpus", &world.corpus, "--share-text"];
    let mut creator = Peer::start(&world.path("host"), &[&found[..], short].concat());
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let names = |word: &str| match word {
        "DIR" => Some(world.name("host")),
        "KEY" => Some("01".repeat(32)),
        "ADDRESS" => Some(address.clone()),
        _ => None,
    };
    let mut texts = Vec::new();
    for invite in to_type.take("invite", &names) {
        let said = ends_well(&invite, &[]);
        assert_eq!(said["for"].is_null(), !invite.contains(&"--for".to_owned()));
        texts.extend(said["for"].is_null().then(|| said["invitation"].as_str().unwrap().to_owned()));
    }
    let joins = to_type.take("join ADDRESS --invitation", &|word| match word {
        "TEXT" => Some(texts[0].clone()),
        word => names(word),
    });
    let mut guest = Peer::start(&world.path("guest"), &words(&joins[0]));
    guest.wait_for("result");
    let key = guest.status().unwrap()["peer"].as_str().unwrap().to_owned();
    let whom = |word: &str| if word == "PEER" { Some(key.clone()) } else { names(word) };
    for (command, event) in [("amend", "amended"), ("revoke", "revoked")] {
        to_type.take(command, &whom).iter().for_each(|it| assert_eq!(ends_well(it, &[])["event"], event));
    }
}

/// A whole swarm on this machine, and a page of what it has trained.
fn simulated(world: &World, to_type: &mut ToType, more: &[&str]) {
    let file = |word: &str| matches!(word, "FILE" | "configs/demo.toml").then(|| world.config.clone());
    for simulate in to_type.take("simulate", &file) {
        let folder = world.name("simulated");
        let result = ends_well(&simulate, &[more, &["--dir", &folder]].concat());
        assert_eq!([&result["event"], &result["module_hashes_agree"]], [&Value::from("result"), &Value::from(true)]);
    }
    let sizes = ["model.width=32", "model.heads=2", "model.vocabulary=512", "model.context=64"];
    let small = sizes.map(|key| ["--set", key]).concat();
    for demo in to_type.take("demo", &|_| None) {
        let result = ends_well(&demo, &[&more[2..], &small, &["--dir", &world.name("demo")]].concat());
        assert_eq!(result["paths"].as_array().unwrap().len(), 4, "of the program's own text");
    }
    let reported = |word: &str| match word {
        "DIR" => Some(world.name("simulated")),
        "FILE" => Some(world.name("report.html")),
        _ => None,
    };
    for mut report in to_type.take("report", &reported) {
        report.push("--force".to_owned());
        report.dedup();
        assert!(ends_well(&report, &[])["bytes"].as_u64().unwrap() > 0);
    }
}

/// Peers are followed as a page, and as a screen only in a terminal.
fn watched(to_type: &mut ToType, place: &dyn Fn(&str) -> Option<String>) {
    let seen = |word: &str| match word {
        "TOKEN" => Some("0123456789abcdef".repeat(2)),
        // Another test's page may have the port.
        "--web" => Some("--web=127.0.0.1:0".to_owned()),
        "--web=0.0.0.0:7777" => Some("--web=0.0.0.0:0".to_owned()),
        word => place(word),
    };
    for watch in to_type.take("watch", &seen) {
        match watch.iter().any(|word| word.starts_with("--web=")) {
            true => serves_a_page(&watch),
            false => assert!(mistake(&words(&watch)).contains("standard output is not a terminal")),
        }
    }
}

#[test]
fn every_command_does_what_it_is_there_for() {
    let world = World::new();
    let lines = code(&pages());
    let mut to_type = ToType(lines.into_iter().filter(|line| line.starts_with("pathswarm ")).collect());
    let file = |word: &str| matches!(word, "FILE" | "configs/demo.toml").then(|| world.config.clone());
    let shorter =
        ["phases=2", "inner_steps=3", "ancestor_steps=3", "warmup_steps=1"].map(|key| format!("training.{key}"));
    let short: Vec<&str> = shorter.iter().flat_map(|key| ["--set", key]).collect();

    relayed(&world, &mut to_type);
    invited(&world, &mut to_type, &short);
    let found = to_type.take("create", &file);
    let shared = found.iter().find(|words| words.contains(&"--share-text".to_owned())).unwrap();
    let corpus = ["--corpus", &world.corpus];
    let mut creator = Peer::start(&world.path("a"), &[&words(shared)[..], &corpus, &short].concat());
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();

    let there = |word: &str| (word == "ADDRESS" || word.starts_with("/ip4/")).then(|| address.clone());
    let join = to_type.take("join", &there);
    let profile = ["--machine", "peers/laptop-cpu.toml"];
    let by_address = join.iter().find(|words| words.contains(&address)).unwrap();
    let mut newcomer = Peer::start(&world.path("b"), &[&words(by_address)[..], &profile].concat());
    let run = newcomer.wait_for("joining")["run"].clone();
    let results = [creator.wait_for("result"), newcomer.wait_for("result")];
    assert_eq!([&results[0]["run"], &results[1]["run"]], [&run, &run]);

    // Without --share-text, the text comes from the newcomer's own disk.
    let kept = found.iter().find(|words| !words.contains(&"--share-text".to_owned())).unwrap();
    let mut creator = Peer::start(&world.path("c"), &[&words(kept)[..], &corpus, &short].concat());
    let private = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let mut newcomer = Peer::start(&world.path("d"), &[&["join", &private][..], &corpus].concat());
    assert_eq!(newcomer.wait_for("result")["run"], creator.wait_for("result")["run"]);

    let folder = |word: &str| (word == "DIR").then(|| world.name("a"));
    let seen = |word: &str| if word == "ADDRESS" { Some(address.clone()) } else { folder(word) };
    watched(&mut to_type, &seen);
    for status in to_type.take("status", &seen) {
        let status = ends_well(&status, &[]);
        assert_eq!([&status["event"], &status["run"]], [&Value::from("status"), &run]);
        let addresses: Vec<_> = status["addresses"].as_array().unwrap().iter().collect();
        let once: BTreeSet<_> = addresses.iter().map(ToString::to_string).collect();
        assert_eq!(once.len(), addresses.len(), "an address is told twice");
    }
    let target = |word: &str| match word {
        "DIR" => Some(world.name("model")),
        "TEXT" => Some("ba ke li mo".to_owned()),
        word => there(word),
    };
    for collect in to_type.take("collect", &target) {
        assert_eq!(ends_well(&collect, &[])["run"], run);
    }
    goes_on(&world, &found, &short);
    for evaluate in to_type.take("evaluate", &target) {
        assert!(ends_well(&evaluate, &[])["dipaco"]["perplexity"].as_f64().unwrap() > 1.0);
    }
    for generate in to_type.take("generate", &target) {
        ends_well(&generate, &[]);
    }
    served(&world, &mut to_type, &there);
    taught(&world, &mut to_type, &there);
    there_and_back(&world, &mut to_type, &short);
    other_networks(&world, &mut to_type, &short);
    simulated(&world, &mut to_type, &[&corpus[..], &short].concat());
    let small = world.write("experiment.toml", EXPERIMENT);
    for experiment in to_type.take("experiment", &|word| word.ends_with(".toml").then(|| small.clone())) {
        let (out, kept) = (world.name("tables"), world.name("kept"));
        let result = ends_well(&experiment, &[&corpus[..], &["--out", &out, "--dir", &kept]].concat());
        assert_eq!([&result["event"], &result["arms"][0]["arm"]], ["result", "grid"]);
    }
    for drill in to_type.take("drill", &|_| None) {
        assert_eq!(ends_well(&drill, &[])["event"], "drilled");
    }
    configured(&world, &mut to_type, &file);
    assert_eq!(to_type.0, BTreeSet::new(), "the pages name commands that no test runs");
}

#[test]
fn every_script_is_there_and_can_be_run() {
    let lines = code(&pages());
    let scripts: BTreeSet<&str> =
        lines.iter().flat_map(|line| line.split_whitespace()).filter(|word| word.starts_with("scripts/")).collect();
    assert!(scripts.contains("scripts/demo") && scripts.contains("scripts/test"), "{scripts:?}");
    for script in scripts {
        let about =
            std::fs::metadata(project().join(Path::new(script))).unwrap_or_else(|error| panic!("{script}: {error}"));
        assert!(about.permissions().mode() & 0o111 != 0, "{script} cannot be run");
    }
}
