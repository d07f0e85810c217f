//! What a user gets wrong is said in one clear line, with what to do about it in another; the exit status is 2, and
//! nothing is written.
#![cfg(all(feature = "learning", feature = "network"))]

use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use crate::run::{Peer, RUN, World, pathswarm, program};
use crate::text;
use pathswarm::network::{Identity, Multiaddr, NetworkConfig, NetworkEvent, with_peer};
use pathswarm::peer::StoredBlobs;
use pathswarm::protocol::Response;
use pathswarm::protocol::wire::encoding;
use tokio::runtime::Runtime;

/// Runs a command that the user got wrong and gives its one line.
#[track_caller]
fn mistake(arguments: &[&str]) -> String {
    said_in_one_line(pathswarm(arguments), arguments)
}

#[track_caller]
fn said_in_one_line(output: Output, arguments: &[&str]) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[1].starts_with("hint: "), "{arguments:?}: {said}");
    lines[0].strip_prefix("error: ").unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// The same for a command that is given a new folder: it has not made one. The line names all of these.
#[track_caller]
fn refused(world: &World, arguments: &[&str], named: &[&str]) {
    let folder = world.name("refused");
    let said = mistake(&[arguments, &["--dir", &folder]].concat());
    for name in named {
        assert!(said.contains(name), "{name:?} is not in: {said}");
    }
    assert!(!Path::new(&folder).exists(), "{arguments:?} left a folder behind");
}

/// Every file below a folder, and its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            found.insert(entry.path(), std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// Begins a run whose ancestor has hardly learnt anything.
fn found(world: &World, folder: &Path, seed: &str) -> Peer {
    let seed = format!("seed={seed}");
    let hasty = ["--set", "training.ancestor_steps=1", "--set", "training.phases=1", "--set", &seed];
    let command = ["found", &world.config, "--share-text", "--corpus", &world.corpus];
    Peer::start(folder, &[&command[..], &hasty].concat())
}

fn address(peer: &mut Peer) -> String {
    peer.wait_for("join")["address"].as_str().unwrap().to_owned()
}

#[test]
fn a_configuration_that_cannot_be_trained() {
    let world = World::new();
    for command in ["simulate", "found"] {
        let wrong = |from: &str, to: &str, named: &[&str]| {
            let config = world.write("wrong.toml", RUN.replace(from, to));
            refused(&world, &[command, &config, "--corpus", &world.corpus], &[named, &["wrong.toml"]].concat());
        };
        wrong("phases = 12", "phases = 12\ncolour = 3", &["colour"]);
        wrong(r#"["block.1","#, r#"["block.0", "block.1","#, &["block.0"]);
        wrong(r#", "final-norm""#, "", &["final-norm"]);
        wrong("experts = 2", "experts = 0", &["experts"]);
        let missing = world.name("missing.toml");
        refused(&world, &[command, &missing], &["missing.toml"]);
        let unknown = [command, &world.config, "--set", "training.colour=3"];
        refused(&world, &unknown, &["training.colour"]);
    }
}

#[test]
fn a_run_that_does_not_fit_into_memory() {
    let world = World::new();
    let created = ["found", &world.config, "--corpus", &world.corpus, "--set", "memory_limit_bytes=1000"];
    refused(&world, &created, &["an inner step takes about", "this machine gives"]);
}

#[test]
fn a_corpus_that_cannot_be_used() {
    let world = World::new();
    let small = world.name("small");
    text::write_domains(Path::new(&small), 2, 3);
    let missing = world.name("missing");
    let broken = world.write("broken.jsonl.zst", "this is no zstd");
    let binary = world.write("binary.txt", [0xff; 4_000]);
    for command in ["simulate", "found"] {
        let wrong = |corpus: &str, named: &[&str]| {
            refused(&world, &[command, &world.config, "--corpus", corpus], &[named, &[corpus]].concat());
        };
        wrong(&small, &["training documents for 4 paths", "at least 32"]);
        wrong(&missing, &["No such file"]);
        wrong(&broken, &[]);
        wrong(&binary, &["found no documents", "1 not UTF-8"]);
    }
}

#[test]
fn what_is_not_utf8_is_left_out_and_counted() {
    let world = World::new();
    world.write("corpus/binary.txt", [0xff; 4_000]);
    let mut creator = found(&world, &world.path("a"), "0");
    loop {
        let said = creator.event();
        assert_ne!(said["event"], "join", "nothing was said about the binary file");
        if said["text"].as_str().is_some_and(|text| text.contains("left out: 1 not UTF-8")) {
            break;
        }
    }
}

#[test]
fn an_address_where_nobody_is() {
    let world = World::new();
    let at = |place: String| with_peer(&place.parse::<Multiaddr>().unwrap(), Identity::generate().key()).to_string();
    // Nobody reads what arrives here.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let silent_address = at(format!("/ip4/127.0.0.1/udp/{port}/quic-v1"));
    refused(&world, &["join", &silent_address], &[&silent_address, "nobody answered", " s:"]);
    let closed = at("/ip4/127.0.0.1/tcp/1".to_owned());
    refused(&world, &["join", &closed], &[&closed, "refused the connection after"]);
}

/// The address of a peer that answers every request with these bytes, for as long as the runtime lives.
fn answering(runtime: &Runtime, answer: Vec<u8>) -> String {
    runtime.block_on(async {
        let listen = vec!["/ip4/127.0.0.1/udp/0/quic-v1".parse().unwrap()];
        let config = NetworkConfig { listen, ..NetworkConfig::visitor(Identity::generate()) };
        let (network, mut events) = pathswarm::network::start(config, Arc::new(StoredBlobs::default())).await.unwrap();
        let address = network.join_addresses().await.unwrap().remove(0).to_string();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                if let NetworkEvent::Request { token, .. } = event {
                    network.respond(token, answer.clone()).unwrap();
                }
            }
        });
        address
    })
}

#[test]
fn a_peer_of_another_version() {
    let (world, runtime) = (World::new(), Runtime::new().unwrap());
    let mut newer = encoding::encode(&Response::Refused(String::new())).unwrap();
    newer[4] = 9;
    let address = answering(&runtime, newer);
    let ours = format!("this program speaks {}", encoding::WIRE_VERSION);
    refused(&world, &["join", &address], &[&address, "wire version 9", &ours]);
    let manifest = br#"{ "format_version": 7, "wire_version": 1 }"#.to_vec();
    let address = answering(&runtime, encoding::encode(&Response::Manifest(manifest)).unwrap());
    refused(&world, &["join", &address], &[&address, "format version 7", "use the creator's version of pathswarm"]);
}

#[test]
fn a_file_that_cannot_be_read() {
    let world = World::new();
    // Whoever runs the tests may read everything, but nobody gets through this.
    let circle = world.name("circle.toml");
    std::os::unix::fs::symlink(&circle, &circle).unwrap();
    for command in ["simulate", "found"] {
        refused(&world, &[command, &circle], &[&circle]);
        refused(&world, &[command, &world.config, "--corpus", &circle], &[&circle]);
        refused(&world, &[command, &world.config, "--machine", &circle], &[&circle]);
        refused(&world, &[command, &world.config, "--corpus", &world.corpus, "--tokenizer", &circle], &[&circle]);
    }
}

#[test]
fn a_log_level_that_is_none() {
    let world = World::new();
    let folder = world.name("refused");
    for command in ["simulate", "found"] {
        let arguments = [command, &world.config, "--corpus", &world.corpus, "--dir", &folder];
        let said = said_in_one_line(program().args(arguments).env("RUST_LOG", "loud").output().unwrap(), &arguments);
        assert!(said.contains("RUST_LOG") && said.contains("loud"), "{said}");
        assert!(!Path::new(&folder).exists(), "{arguments:?} left a folder behind");
    }
}

#[test]
fn an_address_that_is_none() {
    let world = World::new();
    refused(&world, &["join", "example.org:4001"], &["example.org:4001"]);
    refused(&world, &["join", "/ip4/127.0.0.1/tcp/1", "--set", "training.phases=3"], &["--set", "training.phases"]);
    refused(&world, &["join", "/ip4/127.0.0.1/udp/4001/quic-v1"], &["/ip4/127.0.0.1/udp/4001/quic-v1", "/p2p/"]);
    let no_transport = with_peer(&"/ip4/127.0.0.1/udp/4001".parse().unwrap(), Identity::generate().key()).to_string();
    refused(&world, &["join", &no_transport], &[&no_transport]);
    let found = ["found", &world.config, "--corpus", &world.corpus];
    refused(&world, &[&found[..], &["--listen", "port 4001"]].concat(), &["port 4001"]);
    refused(&world, &[&found[..], &["--listen", "/ip4/127.0.0.1"]].concat(), &["/ip4/127.0.0.1"]);
    let nobodys = "/ip4/203.0.113.7/udp/4001/quic-v1";
    refused(&world, &[&found[..], &["--relay", nobodys]].concat(), &[nobodys, "not the address of a relay"]);
    refused(&world, &["join", &no_transport, "--relay", "example.org"], &["example.org"]);
    refused(&world, &[&found[..], &["--set", "relays=[\"here\"]"]].concat(), &["here"]);
}

#[test]
fn a_port_that_is_taken() {
    let world = World::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("/ip4/127.0.0.1/tcp/{}", taken.local_addr().unwrap().port());
    let found = ["found", &world.config, "--corpus", &world.corpus, "--listen", &address];
    refused(&world, &found, &[&address, "in use"]);
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("/ip4/127.0.0.1/udp/{}/quic-v1", taken.local_addr().unwrap().port());
    let anybody = with_peer(&"/ip4/127.0.0.1/tcp/1".parse().unwrap(), Identity::generate().key()).to_string();
    refused(&world, &["join", &anybody, "--listen", &address], &[&address, "in use"]);
}

#[test]
fn a_folder_for_tensorboard_that_cannot_be_made() {
    let world = World::new();
    let (file, taken) = (world.config.as_str(), world.name("taken"));
    let below = format!("{file}/board");
    std::fs::write(&taken, "a file").unwrap();
    for board in [&below, &taken] {
        let refuses = |command: &[&str]| refused(&world, &[command, &["--tensorboard", board]].concat(), &[board]);
        refuses(&["create", file, "--corpus", &world.corpus]);
        refuses(&["simulate", file, "--corpus", &world.corpus]);
        let anybody = with_peer(&"/ip4/127.0.0.1/tcp/1".parse().unwrap(), Identity::generate().key()).to_string();
        refuses(&["join", &anybody]);
    }
}

#[test]
fn a_status_where_no_peer_runs() {
    let world = World::new();
    let folder = world.name("nobody");
    let said = mistake(&["status", &folder]);
    assert!(said.contains(&folder) && said.contains("does not exist"), "{said}");
    std::fs::create_dir(&folder).unwrap();
    let said = mistake(&["status", &folder]);
    assert!(said.contains(&folder) && said.contains("no peer is running"), "{said}");
}

#[test]
fn a_file_where_a_folder_should_be() {
    let world = World::new();
    let file = world.write("file", "no folder");
    for command in ["simulate", "found", "join"] {
        let begun = match command {
            "join" => vec![command, "/ip4/127.0.0.1/tcp/1"],
            _ => vec![command, &world.config, "--corpus", &world.corpus],
        };
        let said = mistake(&[&begun[..], &["--dir", &file]].concat());
        assert!(said.contains(&file), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "no folder");
}

#[test]
fn a_run_that_cannot_be_deterministic() {
    let world = World::new();
    let config = world.write("asynchronous.toml", format!("{RUN}[outer]\nmode = \"asynchronous\"\n"));
    refused(
        &world,
        &["simulate", &config, "--deterministic", "--corpus", &world.corpus],
        &["outer.deterministic", "asynchronous"],
    );
}

#[test]
fn a_folder_of_another_run() {
    let world = World::new();
    let (folder, other_folder) = (world.path("a/peer-0"), world.path("b"));
    let mut creator = found(&world, &folder, "0");
    address(&mut creator);
    creator.wait_for("peer");
    creator.kill();
    let mut other = found(&world, &other_folder, "1");
    let others_address = address(&mut other);
    let before = files(&folder);
    let name = folder.to_str().unwrap();
    let unchanged = |said: &str, named: &[&str]| {
        for part in named {
            assert!(said.contains(part), "{part:?} is not in: {said}");
        }
        assert!(files(&folder) == before, "{said}, and yet something was written");
    };

    let corpus = ["--corpus", &world.corpus];
    let said = mistake(&[&["found", &world.config, "--dir", name], &corpus[..]].concat());
    unchanged(&said, &[name, "another configuration: ", " there, and is to be "]);
    let simulated = world.name("a");
    let said = mistake(&[&["simulate", &world.config, "--dir", &simulated], &corpus[..]].concat());
    unchanged(&said, &[name, "another configuration"]);
    // Without its key, it is not the creator's folder any more, and gets no new one.
    let (key, away) = (folder.join("key"), world.path("key-away"));
    std::fs::rename(&key, &away).unwrap();
    let said = mistake(&["amend", name, "--phases", "9"]);
    assert!(said.contains("key is missing, so this folder is not the peer that it was"), "{said}");
    assert!(!key.exists());
    std::fs::rename(&away, &key).unwrap();

    let listen = ["--listen", "/ip4/127.0.0.1/udp/0/quic-v1"];
    let said = mistake(&[&["join", &others_address, "--dir", name], &listen[..]].concat());
    unchanged(&said, &[&others_address, "answers for run", "this folder holds run"]);

    // Only the store is another run's.
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    let before = files(&folder);
    let said = mistake(&[&["join", &others_address, "--dir", name], &listen[..]].concat());
    assert!(said.contains(name) && said.contains("is the store of another run"), "{said}");
    let said = mistake(&[&["found", &world.config, "--dir", name], &corpus[..]].concat());
    assert!(said.contains(name), "{said}");
    assert!(files(&folder) == before, "something was written");

    // A peer that runs keeps its folder to itself.
    let said = mistake(&[&["join", &others_address, "--dir", other_folder.to_str().unwrap()], &listen[..]].concat());
    assert!(said.contains("in use by process "), "{said}");
}

#[test]
fn a_created_run_that_is_asked_to_be_another() {
    let world = World::new();
    let folder = world.path("a");
    let mut creator = found(&world, &folder, "0");
    address(&mut creator);
    creator.kill();
    let (before, name) = (files(&folder), folder.to_str().unwrap());
    let other = world.name("other");
    text::write_domains(Path::new(&other), 3, 40);
    let hasty = ["--set", "training.ancestor_steps=1", "--set", "training.phases=1", "--set", "seed=0"];
    let again = |more: &[&str]| mistake(&[&["found", &world.config, "--dir", name], &hasty[..], more].concat());
    let said = again(&["--corpus", &world.corpus]);
    assert!(said.contains(name) && said.contains("shares its text"), "{said}");
    let said = again(&["--share-text", "--corpus", &other]);
    assert!(said.contains(name) && said.contains("another corpus") && said.contains(&other), "{said}");
    assert!(files(&folder) == before, "something was written");
}

#[test]
fn text_that_is_not_the_runs() {
    let world = World::new();
    let hasty = ["--set", "training.ancestor_steps=1", "--set", "training.phases=1"];
    let command = ["found", &world.config, "--corpus", &world.corpus];
    let mut creator = Peer::start(&world.path("a"), &[&command[..], &hasty].concat());
    let address = address(&mut creator);
    let join = ["join", &address, "--listen", "/ip4/127.0.0.1/udp/0/quic-v1"];
    refused(&world, &join, &["does not send its text", "hash"]);
    let other = world.name("other");
    text::write_domains(Path::new(&other), 3, 40);
    refused(&world, &[&join[..], &["--corpus", &other]].concat(), &[&other, "hash"]);
}

#[test]
fn a_model_of_transformers_that_cannot_be_imported() {
    let world = World::new();
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/hugging_face/gpt2");
    let (model, new) = (world.path("model"), world.name("new"));
    std::fs::create_dir(&model).unwrap();
    let model = model.to_str().unwrap();
    let import = |more: &[&str]| mistake(&[&["import", model, &new], more].concat());
    assert!(import(&[]).contains("config.json"));
    let config = std::fs::read_to_string(reference.join("config.json")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(Path::new(model).join(name), bytes).unwrap();
    write("config.json", config.replace("\"gpt2\"", "\"mamba\"").as_bytes());
    assert!(import(&[]).contains("model_type = \"mamba\""));
    write("config.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
    assert!(import(&[]).contains("config.json is a pointer of Git LFS"));
    write("config.json", config.as_bytes());
    assert!(import(&[]).contains("tokenizer.json"));
    write("tokenizer.json", b"{}");
    assert!(import(&[]).contains("tokenizer"));
    let tokenizer = pathswarm::text::Tokenizer::train(&["ba ke li mo".to_owned()], 258).unwrap();
    write("tokenizer.json", tokenizer.json());
    assert!(import(&["--grid", "0x2"]).contains("--grid 0x2"));
    assert!(import(&["--grid", "2x2x2"]).contains("2 blocks for 3 levels"));
    assert!(import(&["--context", "17"]).contains("--context 17"));
    assert!(import(&["--context", "9"]).contains("prefix_tokens"));
    assert!(import(&[]).contains("prefix_tokens"), "this model takes 16 tokens, and 32 choose a path");
    assert!(!Path::new(&new).exists());
    std::fs::create_dir(&new).unwrap();
    std::fs::write(Path::new(&new).join("mine"), b"").unwrap();
    assert!(import(&[]).contains("not empty"));
}
