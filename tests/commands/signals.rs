//! What stops a command, and what does not: signals, and output that nobody reads.
#![cfg(all(feature = "learning", feature = "network"))]

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
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
fn a_service_manager_is_told_that_a_peer_has_begun_and_that_it_answers() {
    let world = World::new();
    let manager = UnixDatagram::bind(world.path("notify")).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let told = || {
        let mut bytes = [0; 100];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut peer = program();
    peer.env("NOTIFY_SOCKET", world.path("notify"));
    let mut peer = Peer::start_as(peer, &world.path("peer"), &unhurried(&create(&world)));
    assert_eq!(told(), "READY=1\n");
    peer.wait_for("peer");
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 100]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    assert_eq!([told(), told()], ["WATCHDOG=1\n", "WATCHDOG=1\n"]);
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

/// A terminal, as whoever sits before it has it.
struct Terminal {
    outer: File,
    written: String,
}

impl Terminal {
    /// A terminal of this size, and the program's end of it.
    fn open(columns: u16, rows: u16) -> (Self, File) {
        let end = |path: &Path| OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path);
        // Not with openpty, whose ends every program that is started meanwhile would inherit.
        let outer = end(Path::new("/dev/ptmx")).unwrap();
        let descriptor = outer.as_raw_fd();
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        static NAMES: Mutex<()> = Mutex::new(());
        let one_at_a_time = NAMES.lock();
        // SAFETY: the descriptor is open, and the name is copied before anybody else asks for one.
        let name = unsafe {
            assert_eq!((libc::grantpt(descriptor), libc::unlockpt(descriptor)), (0, 0));
            CStr::from_ptr(libc::ptsname(descriptor)).to_str().unwrap().to_owned()
        };
        drop(one_at_a_time);
        let inner = end(Path::new(&name)).unwrap();
        // SAFETY: the descriptors are open, and the size is a local.
        unsafe {
            assert_eq!(libc::ioctl(inner.as_raw_fd(), libc::TIOCSWINSZ, &raw const size), 0);
            assert_eq!(libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK), 0);
        }
        (Self { outer, written: String::new() }, inner)
    }

    /// All that has been written on it.
    fn written(&mut self) -> &str {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = self.outer.read(&mut bytes) {
            self.written.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
        &self.written
    }
}

/// Whether what is typed goes to the program at once.
fn is_raw(terminal: &File) -> bool {
    // SAFETY: zeroed modes are valid to be written to.
    unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut modes), 0);
        modes.c_lflag & libc::ICANON == 0
    }
}

/// `pathswarm watch` on a terminal that is its own.
fn watch(folder: &Path, inner: &File) -> Child {
    let end = || Stdio::from(inner.try_clone().unwrap());
    let mut program = program();
    program.args(["watch", folder.to_str().unwrap()]).env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
    // SAFETY: both functions may be called between fork and exec.
    unsafe {
        program.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY as _, 0);
            Ok(())
        });
    }
    program.spawn().unwrap()
}

#[test]
fn a_screen_gives_its_terminal_back_however_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    // A terminal without columns is drawn on as one of eighty.
    for (leave, columns, rows) in [("q", 80, 24), ("\u{3}", 200, 60), ("TERM", 0, 0), ("INT", 10, 3), ("HUP", 80, 24)] {
        let (mut terminal, inner) = Terminal::open(columns, rows);
        let mut child = watch(folder.path(), &inner);
        let words = if columns == 10 { "10x3" } else { "answered" };
        until("the screen is drawn", || terminal.written().contains(words));
        assert!(is_raw(&inner), "{leave:?}");
        match leave.chars().all(|name| name.is_ascii_uppercase()) {
            true => signal(leave, child.id()),
            false => terminal.outer.write_all(leave.as_bytes()).unwrap(),
        }
        until("the alternate screen is left", || terminal.written().contains("\u{1b}[?1049l"));
        let (status, took) = ends(&mut child);
        assert_eq!(status, Some(0), "{leave:?}: {}", terminal.written());
        assert!(took < GRACE && !is_raw(&inner), "{leave:?}");
        let (_, after) = terminal.written().rsplit_once("\u{1b}[?1049l").unwrap();
        assert!(!after.contains("Swarm"), "{leave:?}: {after:?}");
    }
}

#[test]
fn a_screen_ends_when_its_terminal_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut terminal, inner) = Terminal::open(80, 24);
    let mut child = watch(folder.path(), &inner);
    until("the screen is drawn", || terminal.written().contains("answered"));
    drop((terminal, inner));
    let (status, took) = ends(&mut child);
    assert!(status == Some(0) && took < GRACE, "{status:?} after {took:?}");
}
