//! A disk that is full or read-only: said in words at the start; while a peer runs, no reason to die. It serves on what
//! it has, the others take over, and it goes on when there is room again.
//!
//! A limit on the size of files stands for a full disk (`prlimit` sets it from outside): every write fails, and reading
//! and removing do not.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::run::{Peer, RUN, TIMEOUT, World, complaints, program, unhurried};
use crate::swarm::{modules, newest, summary};
use serde_json::Value;

/// The program, begun by a shell after this.
fn after(shell: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{shell}; exec \"$@\""), "sh"]).arg(program().get_program());
    command
}

/// What may be written to a file of the peer's.
fn limit(peer: &Peer, bytes: &str) {
    let (process, limit) = (format!("--pid={}", peer.id()), format!("--fsize={bytes}:unlimited"));
    assert!(Command::new("prlimit").args([process, limit]).status().unwrap().success());
}

/// Listens to all, until what they say satisfies the condition.
#[expect(clippy::disallowed_methods, reason = "patience has an end")]
fn until(peers: &mut [Peer], what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let began = std::time::Instant::now();
    loop {
        let statuses: Vec<Value> = peers.iter().filter_map(Peer::status).collect();
        if statuses.len() == peers.len() && holds(&statuses) {
            return statuses;
        }
        assert!(began.elapsed() < TIMEOUT, "never: {what}; the last seen: {}", summary(&statuses));
        peers.iter_mut().for_each(Peer::catch_up);
    }
}

fn address(status: &Value) -> String {
    status["addresses"][0].as_str().unwrap().to_owned()
}

#[test]
fn a_peer_whose_disk_is_full_serves_on_and_goes_on_when_there_is_room() {
    let world =
        World::of(&RUN.replace("phases = 12", "phases = 16").replace("inner_steps = 400", "inner_steps = 100"), 4);
    let creator = unhurried(&["found", &world.config, "--share-text", "--corpus", &world.corpus]);
    let mut peers = vec![Peer::start(&world.path("creator"), &creator)];
    let join = peers[0].wait_for("join")["address"].as_str().unwrap().to_owned();
    let filled = world.path("filled");
    peers.push(Peer::start_as(after("trap '' XFSZ"), &filled, &unhurried(&["join", &join])));
    until(&mut peers, "both train", |statuses| {
        statuses.iter().all(|status| status["phases_trained"].as_u64() > Some(0)) && newest(statuses) > 0
    });

    limit(&peers[1], "0");
    let short =
        until(&mut peers, "it says that its disk is full", |statuses| statuses[1]["waits_for"]["kind"] == "disk");
    let reason = short[1]["waits_for"]["reason"].as_str().unwrap();
    assert!(reason.contains("allow larger files (ulimit -f), or use another disk"), "{reason}");
    let key = short[1]["peer"].clone();
    let before = newest(&short);
    let gone_on = until(&mut peers, "the creator goes on alone", |statuses| {
        let owned = modules(&statuses[0]).iter().all(|module| module["owned_here"] == true);
        owned && statuses[0]["paths"].as_array().unwrap().len() == 4 && newest(statuses) > before + 1
    });
    assert!(!gone_on[0]["peers"].as_array().unwrap().contains(&key), "it is still taken for alive");
    assert_eq!(gone_on[1]["waits_for"]["kind"], "disk");

    // Whoever knows nobody else gets the run's manifest, its blobs and its directory from the one with the full disk.
    peers.push(Peer::start(&world.path("newcomer"), &unhurried(&["join", &address(&gone_on[1])])));
    until(&mut peers, "the newcomer trains", |statuses| statuses[2]["phases_trained"].as_u64() > Some(0));

    limit(&peers[1], "unlimited");
    let done = |status: &Value| status["done"] == true && modules(status).iter().all(|module| module["version"] == 16);
    let statuses = until(&mut peers, "all are done", |statuses| statuses.iter().all(done));
    for module in statuses.iter().flat_map(modules) {
        let same = |other: &&Value| other["module"] == module["module"];
        let mut others = statuses.iter().flat_map(modules).filter(same);
        assert!(others.all(|other| other["state_hash"] == module["state_hash"]), "{module}");
    }
    drop(peers);
    for name in ["creator", "filled", "newcomer"] {
        let log = fs::read_to_string(world.path(name).join("pathswarm.log")).unwrap();
        let said = fs::read_to_string(complaints(&world.path(name))).unwrap();
        assert!(!log.contains("panicked") && !said.contains("panicked"), "{log}{said}");
    }
}

/// Its exit status and what it says on standard error, in lines.
fn failure(mut command: Command, arguments: &[&str], folder: &Path) -> (Option<i32>, Vec<String>) {
    let listen = ["--listen", "/ip4/127.0.0.1/udp/0/quic-v1", "--dir"];
    let output = command.args(arguments).args(listen).arg(folder).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said.lines().map(str::to_owned).collect())
}

#[test]
fn a_disk_that_takes_nothing_is_named_at_the_start() {
    let world = World::new();
    let hasty = ["--set", "training.ancestor_steps=1", "--set", "training.phases=1"];
    let found = [&["found", &world.config, "--share-text", "--corpus", &world.corpus][..], &hasty].concat();
    let mut creator = Peer::start(&world.path("creator"), &found);
    let join = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let join = ["join", &join];

    let folder = world.path("refused");
    let name = folder.to_str().unwrap();
    let refused = |command: Command, arguments: &[&str], hinted: &str| {
        let (status, said) = failure(command, arguments, &folder);
        let [.., error, hint] = &said[..] else { panic!("{said:?}") };
        assert!(status == Some(2) && error.starts_with("error: ") && error.contains(name), "{status:?} {said:?}");
        assert!(hint.starts_with("hint: ") && hint.contains(hinted), "{said:?}");
    };
    for arguments in [&found[..], &join] {
        refused(after("trap '' XFSZ; ulimit -f 0"), arguments, "allow larger files (ulimit -f)");
    }
    // Whoever may write everywhere is stopped by nothing but the mount.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let locked = match Command::new("id").arg("-u").output().unwrap().stdout == b"0\n" {
        true => format!("mount --bind {name} {name} && mount -o remount,ro,bind {name}"),
        false => format!("chmod 0555 {name}"),
    };
    let mut alone = Command::new("unshare");
    alone.arg("-m").args(["sh", "-c", &format!("{locked}; exec \"$@\""), "sh"]).arg(program().get_program());
    let read_only = || if locked.starts_with("mount") { rebuilt(&alone) } else { after(&locked) };
    for arguments in [&found[..], &join] {
        refused(read_only(), arguments, "make it readable and writable");
    }

    let small = [&join[..], &["--set", "disk_bytes=1000"]].concat();
    let (status, said) = failure(program(), &small, &folder);
    assert_eq!(status, Some(2), "{said:?}");
    assert!(said.iter().any(|line| line.contains("this machine gives 1.0 kB (disk_bytes = 1000)")), "{said:?}");
}

/// A command can be run but once.
fn rebuilt(command: &Command) -> Command {
    let mut again = Command::new(command.get_program());
    again.args(command.get_args());
    again
}
