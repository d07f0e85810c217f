//! The program as its users run it: a small run, a folder for it, and peers as processes.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::text;

/// A run of a 2×2 grid with phases of a second or two: long enough to be killed in.
pub const RUN: &str = r#"
name = "processes"
[text]
held_out_share = 0.05
test_share = 0.05
[model]
blocks = 2
width = 32
heads = 2
vocabulary = 320
context = 64
tied_head = true
[[levels]]
parts = ["embedding", "block.0"]
sharing = { experts = 2 }
[[levels]]
parts = ["block.1", "final-norm"]
sharing = { experts = 2 }
[routing]
prefix_tokens = 8
[training]
batch_sequences = 4
inner_steps = 400
phases = 12
ancestor_steps = 30
learning_rate = 2e-3
warmup_steps = 10
"#;

/// [`RUN`], but that after one block tokens choose their way, in two steps through a pool of which each level has a part.
pub fn dna_run() -> String {
    let run = RUN
        .replace("[model]\n", "[model]\narchitecture = \"dna\"\n")
        .replace("blocks = 2", "blocks = 1")
        .replace("\"block.0\"", "\"block.0\", \"router.0\", \"modules.0-1\"")
        .replace("\"block.1\"", "\"router.1\", \"modules.2-3\"");
    let pool =
        "modules = { transformer = 3, mlp = 1, identity = 2 }\nsteps = 2\ntop_k = 2\nskips = 0.25\nbias_rate = 0.01";
    format!("{run}\n[model.dna]\n{pool}\n\n[[levels]]\nparts = [\"balance\"]\nsharing = \"shared\"\n")
}

/// A peer trains no faster than this on any machine: a run is not over before what a test waits for in it, however late
/// that comes. 100 steps of [`RUN`] take 1.3 s.
pub fn unhurried<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &["--set", "train_tokens_per_s=20000"]].concat()
}

/// No single wait of this test takes longer on a machine that works.
pub const TIMEOUT: Duration = Duration::from_secs(240);

/// Lines of a peer that nobody has asked for yet; one that says more waits.
const LINES: usize = 4_096;

/// One running peer, and what it says.
pub struct Peer {
    pub folder: PathBuf,
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let status = std::thread::panicking().then(|| self.status()).flatten();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let said = std::fs::read_to_string(complaints(&self.folder)).unwrap_or_default();
            let status = status.map_or_else(|| "nothing".to_owned(), |status| status.to_string());
            eprintln!("{} said:\n{said}\nand its status: {status}", self.folder.display());
        }
    }
}

/// Where the standard error of a folder's peers goes, one after the other.
pub fn complaints(folder: &Path) -> PathBuf {
    folder.with_extension("stderr")
}

impl Peer {
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_as(program(), folder, arguments)
    }

    /// The same, where the program is begun in a special way.
    pub fn start_as(program: Command, folder: &Path, arguments: &[&str]) -> Self {
        Self::start_at("/ip4/127.0.0.1/udp/0/quic-v1", program, folder, arguments)
    }

    /// The same, where it listens elsewhere.
    pub fn start_at(listen: &str, mut program: Command, folder: &Path, arguments: &[&str]) -> Self {
        let mut child = program
            .args(arguments)
            .args(["--format", "json", "--listen", listen, "--set", "threads=1", "--dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Not by the peer itself, whose disk may be full.
        folder.parent().map(fs::create_dir_all).transpose().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let mut kept = OpenOptions::new().append(true).create(true).open(complaints(folder)).unwrap();
        std::thread::spawn(move || std::io::copy(&mut errors, &mut kept));
        let said = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = sync_channel(LINES);
        // Ends with the peer, or when nobody listens any more.
        std::thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { folder: folder.to_owned(), child, lines }
    }

    /// Its number among the processes.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next thing it says. Every peer says something at least every few seconds.
    pub fn event(&mut self) -> Value {
        let line = self.lines.recv_timeout(TIMEOUT).unwrap_or_else(|error| {
            let what = match error {
                RecvTimeoutError::Timeout => format!("has said nothing for {} s", TIMEOUT.as_secs()),
                RecvTimeoutError::Disconnected => "has ended".to_owned(),
            };
            panic!("{} {what}", self.folder.display())
        });
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?} is not JSON: {error}"))
    }

    /// Waits until it says something, and passes over that and whatever else it has said.
    pub fn catch_up(&mut self) {
        self.event();
        self.pass_over();
    }

    /// Passes over what it has said.
    pub fn pass_over(&mut self) {
        while self.lines.try_recv().is_ok() {}
    }

    /// The next of its events with this name.
    #[expect(clippy::disallowed_methods, reason = "patience has an end")]
    pub fn wait_for(&mut self, event: &str) -> Value {
        let began = Instant::now();
        loop {
            let said = self.event();
            if said["event"] == event {
                return said;
            }
            assert!(began.elapsed() < TIMEOUT, "{} never says {event}", self.folder.display());
        }
    }

    /// As the system does when it is out of memory: without a word.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A signal by its name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.id())]).status().unwrap();
        assert!(sent.success(), "{name} to {}", self.folder.display());
    }

    /// The exit status, once it ends by itself; what it says meanwhile is passed over.
    pub fn ended(&mut self) -> Option<i32> {
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().unwrap().code(),
                Err(RecvTimeoutError::Timeout) => panic!("{} does not end", self.folder.display()),
            }
        }
    }

    /// What `status` would show; nothing before the peer has opened its control socket.
    pub fn status(&self) -> Option<Value> {
        let mut answer = String::new();
        let mut socket = UnixStream::connect(self.folder.join("control.sock")).ok()?;
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.write_all(b"\"status\"\n").ok()?;
        socket.read_to_string(&mut answer).ok()?;
        serde_json::from_str(&answer).ok()
    }
}

/// The program, with nothing of ours in the environment.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pathswarm"));
    command.env_remove("RUST_LOG");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PATHSWARM_")) {
        command.env_remove(name);
    }
    // What a command keeps where nobody named a folder is out of the way of whoever runs the tests.
    command.env("PATHSWARM_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("home"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Runs a command to its end.
pub fn pathswarm(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

/// A configuration and a corpus, and room for peers' folders.
pub struct World {
    home: TempDir,
    /// The file of [`RUN`].
    pub config: String,
    /// A folder of four domains.
    pub corpus: String,
}

/// What a test that failed leaves behind is for whoever looks into it.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.home.disable_cleanup(true);
            eprintln!("see {}", self.home.path().display());
        }
    }
}

impl World {
    pub fn new() -> Self {
        Self::of(RUN, 4)
    }

    /// Another run, of a corpus of so many domains.
    pub fn of(run: &str, domains: u64) -> Self {
        let home = tempfile::tempdir().unwrap();
        let inside = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        let (config, corpus) = (inside("run.toml"), inside("corpus"));
        std::fs::write(&config, run).unwrap();
        text::write_domains(Path::new(&corpus), domains, 120);
        Self { home, config, corpus }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The same, for a command line.
    pub fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The run, trained by two peers of this machine for as short a time as it says; its folder.
    pub fn simulated(&self) -> String {
        let folder = self.name("run");
        let run = ["simulate", &self.config, "--corpus", &self.corpus, "--dir", &folder];
        let output = pathswarm(&[&run[..], &["--peers", "2", "--set", "threads=1"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, contents).unwrap();
        self.name(name)
    }
}

/// The line and the hint of a command that the user got wrong.
#[track_caller]
pub fn mistake(arguments: &[&str]) -> String {
    let output = pathswarm(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.lines().count() == 2 && said.contains("\nhint: "), "{arguments:?}: {said}");
    said
}
