//! What stops a command, and what does not: signals, and output that nobody reads.
#![cfg(all(feature = "learning", feature = "network"))]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Peer, RUN, TIMEOUT, World, mistake, program, unhurried};

/// What stopping in order may take by default.
const GRACE: Duration = Duration::from_secs(10);

fn create(world: &World) -> [&str; 5] {
    ["create", &world.config, "--share-text", "--corpus", &world.corpus]
}

/// Waits until a condition holds.
#[expect(clippy::disallowed_methods, reason = "patience has an end")]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// The exit status, and how long the process took to end.
#[expect(clippy::disallowed_methods, reason = "it is measured")]
fn ends(child: &mut Child) -> (Option<i32>, Duration) {
    let began = Instant::now();
    until("the process ends", || child.try_wait().unwrap().is_some());
    (child.wait().unwrap().code(), began.elapsed())
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status().unwrap();
    assert!(sent.success(), "{name} to {process}");
}

#[test]
fn each_signal_leaves_in_order_and_is_no_error() {
    let world = World::new();
    for name in ["HUP", "TERM", "INT"] {
        let mut peer = Peer::start(&world.path("peer"), &unhurried(&create(&world)));
        peer.wait_for("join");
        peer.wait_for("peer");
        peer.signal(name);
        let said = peer.wait_for("interrupted");
        assert!(said["message"].as_str().unwrap().contains("run the same command again"), "{name}: {said}");
        assert_eq!(peer.ended(), Some(130), "{name}");
    }
    let complaints = std::fs::read_to_string(world.path("peer.stderr")).unwrap();
    assert!(!complaints.contains("error:"), "{complaints}");
}

#[test]
fn a_second_signal_ends_a_peer_at_once_and_it_comes_back() {
    let world = World::new();
    for _ in 0..2 {
        let mut peer = Peer::start(&world.path("peer"), &unhurried(&create(&world)));
        peer.wait_for("join");
        peer.wait_for("peer");
        peer.signal("TERM");
        peer.signal("TERM");
        assert_eq!(peer.ended(), Some(130), "not by a signal of its own");
    }
}

#[test]
fn peers_that_leave_at_once_do_not_wait_for_each_other() {
    let world = World::of(&RUN.replace("inner_steps = 400", "inner_steps = 4").replace("phases = 12", "phases = 1"), 4);
    let log = std::fs::read_to_string(format!("{}/pathswarm.log", world.simulated())).unwrap();
    let took = log.lines().filter_map(|line| line.split_once("left the swarm took_ms=")?.1.parse::<u64>().ok());
    let took: Vec<u64> = took.collect();
    // The time that leaving may take at most is 120 s.
    assert!(took.len() == 2 && took.iter().all(|took_ms| *took_ms < 60_000), "{took:?}: {log}");
}

#[test]
fn a_run_is_its_users_alone_and_no_other_command_takes_a_peers_folder() {
    let world = World::of(&RUN.replace("inner_steps = 400", "inner_steps = 4").replace("phases = 12", "phases = 1"), 4);
    let folder = world.simulated();
    let mode = |name: &str| std::fs::metadata(format!("{folder}/{name}")).unwrap().permissions().mode() & 0o777;
    let modes = ["", "peer-0", "peer-0/key", "peer-0/store", "pathswarm.log", "model/manifest.json"].map(mode);
    assert!(modes.iter().all(|mode| mode & 0o077 == 0), "{modes:?}");
    let peer = format!("{folder}/peer-0");
    assert!(mistake(&["relay", "--dir", &peer]).contains("whose key a relay must not use"));
    let simulate = ["simulate", &world.config, "--corpus", &world.corpus, "--dir", &peer];
    assert!(mistake(&simulate).contains("is the folder of one peer"));
}

#[test]
fn a_machine_without_dns_servers_starts() {
    let world = World::new();
    let program = env!("CARGO_BIN_EXE_pathswarm");
    let listen = "--listen /ip4/127.0.0.1/udp/0/quic-v1 --format json";
    for without in ["mount --bind /dev/null /etc/resolv.conf", "mount -t tmpfs none /etc"] {
        let script = format!("{without} && exec {program} relay --dir \"$0\" {listen}");
        let mut relay = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, &world.name("relay")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(relay.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.contains("\"event\":\"relay\""), "{without}: {line}");
        signal("TERM", relay.id());
        assert_eq!(ends(&mut relay).0, Some(0), "{without}");
    }
}

/// Bytes in a pipe.
fn unread(pipe: &impl AsRawFd) -> i32 {
    let mut bytes = 0;
    // SAFETY: FIONREAD writes one number there.
    assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }, 0);
    bytes
}

#[test]
fn a_peer_whose_output_nobody_reads_answers_and_leaves_in_time() {
    let world = World::new();
    let folder = world.path("peer");
    let mut child = program()
        .args(unhurried(&create(&world)))
        .args(["--format", "json", "--listen", "/ip4/127.0.0.1/udp/0/quic-v1", "--set", "threads=1", "--dir"])
        .arg(&folder)
        .stdout(Stdio::piped())
        .stderr(File::create(world.path("stderr")).unwrap())
        .spawn()
        .unwrap();
    let pipe = child.stdout.take().unwrap();
    // SAFETY: the pipe is open; its size is all that changes.
    let bytes = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    until("the pipe is full", || unread(&pipe) > bytes - 512);
    let answers = |folder: &Path| {
        let output = program().args(["status", "--format", "json"]).arg(folder).output().unwrap();
        output.status.success()
    };
    until("the peer answers", || answers(&folder));
    signal("TERM", child.id());
    let (status, took) = ends(&mut child);
    assert_eq!(status, Some(130));
    assert!(took < GRACE + Duration::from_secs(2), "{took:?}");
    drop(pipe);
}

#[test]
fn the_first_process_of_a_container_ends_with_any_signal() {
    let all = u64::MAX.to_string();
    for (name, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let mut container = Command::new("unshare")
            .args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"])
            .arg(env!("CARGO_BIN_EXE_pathswarm"))
            .args(["drill", "--scenario", "configs/drills/ordinary.toml", "--seeds", &format!("0..{all}")])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", container.id());
        let mut first = 0;
        until("it handles signals", || {
            let inner = std::fs::read_to_string(&children).unwrap_or_default();
            first = inner.split_whitespace().next().and_then(|id| id.parse().ok()).unwrap_or(0);
            let about = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap_or_default();
            let caught = about.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
            u64::from_str_radix(caught, 16).unwrap_or(0) & (1 << (libc::SIGTERM - 1)) != 0
        });
        signal(name, first);
        assert_eq!(ends(&mut container).0, Some(status), "{name}");
    }
}

#[test]
fn output_that_cannot_be_written_is_named() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = program().args(["config", "show"]).stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output cannot be written"), "{said}");
}
