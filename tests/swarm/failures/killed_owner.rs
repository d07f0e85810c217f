//! A swarm of separate processes: everybody has the same bytes, an owner that is killed is replaced, and it comes back
//! from its own disk.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::run::{Peer, RUN, TIMEOUT};
use crate::text;
use serde_json::Value;

/// Every hash of every module version, on whichever member it was seen first.
#[derive(Default)]
struct Hashes(BTreeMap<(String, u64), (String, String)>);

impl Hashes {
    fn look(&mut self, status: &Value) {
        for module in status["modules"].as_array().unwrap() {
            let (Some(version), Some(state)) = (module["version"].as_u64(), module["state_hash"].as_str()) else {
                continue;
            };
            let name = module["module"].as_str().unwrap();
            // A state that was replaced while it was asked for has none.
            let Some(parameters) = status["parameter_hashes"][name].as_str() else { continue };
            let seen = (state.to_owned(), parameters.to_owned());
            let first = self.0.entry((name.to_owned(), version)).or_insert_with(|| seen.clone());
            assert_eq!(*first, seen, "module {name} version {version} differs between members");
        }
    }
}

fn versions(status: &Value) -> Vec<u64> {
    let modules = status["modules"].as_array().unwrap();
    modules.iter().map(|module| module["version"].as_u64().unwrap_or(0)).collect()
}

fn paths(status: &Value) -> Vec<u64> {
    status["paths"].as_array().unwrap().iter().map(|path| path["path"].as_u64().unwrap()).collect()
}

/// Listens to the peers in turn until all their statuses satisfy the condition; every status is checked.
#[expect(clippy::disallowed_methods, reason = "patience has an end")]
fn until(peers: &mut [Peer], hashes: &mut Hashes, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let began = Instant::now();
    loop {
        for peer in &mut *peers {
            peer.event();
        }
        let statuses: Vec<Value> = peers.iter().filter_map(Peer::status).collect();
        statuses.iter().for_each(|status| hashes.look(status));
        if statuses.len() == peers.len() && holds(&statuses) {
            return statuses;
        }
        assert!(began.elapsed() < TIMEOUT, "never: {what}; the last seen: {statuses:#?}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it is measured how long it takes")]
fn an_owner_that_is_killed_is_replaced_and_comes_back_byte_identical() {
    let world = tempfile::tempdir().unwrap();
    let (config, corpus) = (world.path().join("run.toml"), world.path().join("corpus"));
    std::fs::write(&config, RUN).unwrap();
    text::write_domains(&corpus, 4, 120);
    let found = ["found", config.to_str().unwrap(), "--share-text", "--corpus", corpus.to_str().unwrap()];
    let mut creator = Peer::start(&world.path().join("a"), &found);
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let join = ["join", address.as_str()];
    let mut peers = vec![creator];
    for name in ["b", "c", "d"] {
        peers.push(Peer::start(&world.path().join(name), &join));
    }
    let mut hashes = Hashes::default();

    let one_each = |statuses: &[Value]| {
        let mut held: Vec<u64> = statuses.iter().flat_map(paths).collect();
        held.sort_unstable();
        held == [0, 1, 2, 3] && statuses.iter().all(|status| versions(status).iter().all(|version| *version >= 1))
    };
    let statuses = until(&mut peers, &mut hashes, "a path each, and every module updated", one_each);

    // The owner of a module that another peer shares is killed while it trains.
    let owns = |module: &Value| module["owned_here"] == true && module["members"].as_u64() >= Some(2);
    let victim = statuses.iter().position(|status| status["modules"].as_array().unwrap().iter().any(owns)).unwrap();
    let status = &statuses[victim];
    let module = status["modules"].as_array().unwrap().iter().find(|module| owns(module)).unwrap()["module"].clone();
    let victims_key = status["peer"].clone();
    let mut dead = peers.remove(victim);
    let trains = |status: Value| status["paths"].as_array().is_some_and(|paths| paths[0]["stage"] == "training");
    while !dead.status().is_some_and(trains) {
        dead.event();
    }
    dead.kill();
    let killed = Instant::now();

    let replaced = |statuses: &[Value]| {
        statuses
            .iter()
            .flat_map(|status| status["modules"].as_array().unwrap())
            .any(|other| other["module"] == module && other["owner"].is_string() && other["owner"] != victims_key)
    };
    let statuses = until(&mut peers, &mut hashes, "another owner", replaced);
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(10), "it took {took:?} until another peer owned module {module}");
    let before: u64 = statuses.iter().flat_map(versions).max().unwrap();
    until(&mut peers, &mut hashes, "the run goes on", |statuses| {
        statuses.iter().flat_map(versions).max().unwrap() > before
    });

    let folder = dead.folder.clone();
    drop(dead);
    let again = if victim == 0 { &found[..] } else { &join[..] };
    peers.push(Peer::start(&folder, again));
    let done = |statuses: &[Value]| {
        statuses.iter().all(|status| !paths(status).is_empty() && versions(status).iter().all(|version| *version == 12))
    };
    let statuses = until(&mut peers, &mut hashes, "all modules at their last version everywhere", done);
    assert_eq!(statuses.last().unwrap()["peer"], victims_key, "it came back as another peer");
    let last: Vec<&String> = hashes.0.keys().filter(|(_, version)| *version == 12).map(|(name, _)| name).collect();
    assert_eq!(last, ["0.0", "0.1", "1.0", "1.1"]);
}
