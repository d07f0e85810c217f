//! Memory that runs out in a control group: the kernel would end the process, and the trainer makes smaller steps instead. The
//! program runs in a group of its own; needs root and a tree of control groups that can be written to, and says so and does
//! nothing without.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::run::{RUN, World, program};

/// Most bytes of the group.
const LIMIT: u64 = 640 << 20;

/// Far fewer of the sequences fit at once than are asked for.
fn run() -> String {
    let run = RUN
        .replace("context = 64", "context = 256")
        .replace("width = 32", "width = 128")
        .replace("batch_sequences = 4", "batch_sequences = 128")
        .replace("inner_steps = 400", "inner_steps = 2")
        .replace("phases = 12", "phases = 2")
        .replace("ancestor_steps = 30", "ancestor_steps = 1")
        .replace("warmup_steps = 10", "warmup_steps = 2");
    run.replacen("sharing = { experts = 2 }", "sharing = \"shared\"", 1)
}

/// A control group, removed when this is dropped.
struct Group {
    folder: PathBuf,
    first_version: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Group {
    /// A new one; says why not and returns nothing where there cannot be one.
    fn new(name: &str) -> Option<Self> {
        let first_version = Path::new("/sys/fs/cgroup/memory/memory.usage_in_bytes").exists();
        let top = Path::new(if first_version { "/sys/fs/cgroup/memory" } else { "/sys/fs/cgroup" });
        let group = Self { folder: top.join(format!("pathswarm-test-{name}-{}", std::process::id())), first_version };
        if let Err(error) = fs::create_dir(&group.folder) {
            println!("skipped: no control group {}: {error}", group.folder.display());
            return None;
        }
        if group.number(["memory.usage_in_bytes", "memory.current"]).is_none() {
            println!("skipped: {} does not count memory", group.folder.display());
            return None;
        }
        Some(group)
    }

    fn limit(&self, bytes: u64) {
        let write = |file: &str| fs::write(self.folder.join(file), bytes.to_string());
        write(if self.first_version { "memory.limit_in_bytes" } else { "memory.max" }).unwrap();
        // Without swap there are no such files.
        let _ = if self.first_version { write("memory.memsw.limit_in_bytes") } else { write("memory.swap.max") };
    }

    /// A number by its name in each version.
    fn number(&self, [first, second]: [&str; 2]) -> Option<u64> {
        let file = self.folder.join(if self.first_version { first } else { second });
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// The most that its processes have had, with the cache of files.
    fn most(&self) -> Option<u64> {
        self.number(["memory.max_usage_in_bytes", "memory.peak"])
    }

    /// Processes that the kernel has ended.
    fn ended(&self) -> u64 {
        let file = if self.first_version { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.folder.join(file)).unwrap();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().parse().unwrap()
    }

    /// Runs a command in it.
    fn run(&self, arguments: &[&str]) -> Output {
        let join = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.folder.display());
        let program = program();
        Command::new("sh").args(["-c", &join, "sh"]).arg(program.get_program()).args(arguments).output().unwrap()
    }
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn in_a_control_group_that_is_too_small_micro_batches_are_halved_and_the_run_goes_on_to_its_end() {
    let Some(free) = Group::new("free") else { return };
    let world = World::of(&run(), 2);
    let settings = ["--set", "micro_batch_sequences=128", "--set", "checkpointing=off", "--set", "threads=2"];
    let all = [&settings[..], &["--format", "json", "--set", "device=cpu"]].concat();
    let measured = free.run(&[&["config", "memory", &world.config, "--measure"][..], &all].concat());
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    let step = lines(&measured)[0]["measured_bytes"].as_u64().unwrap();
    assert!(step > LIMIT, "two steps with all sequences at once take {step} bytes: the group would be too large");

    let Some(group) = Group::new("small") else { return };
    group.limit(LIMIT);
    let folder = world.name("run");
    let simulate = ["simulate", &world.config, "--corpus", &world.corpus, "--dir", &folder, "--peers", "2"];
    let output = group.run(&[&simulate[..], &all].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), group.ended()), (Some(0), 0), "{said}");
    let events = lines(&output);
    let notes: Vec<&str> = events.iter().filter_map(|event| event["text"].as_str()).collect();
    let halved = |note: &&str| note.contains("memory ran out: ") && note.contains("computed at once from now on");
    assert!(notes.iter().any(halved), "{notes:?}");
    let told = fs::read_to_string(Path::new(&folder).join("pathswarm.log")).unwrap();
    assert!(told.contains("memory ran out: 64 sequences are computed at once from now on"), "{told}");
    assert!(events.iter().any(|event| event["event"] == "result"), "{events:?}");
    println!("limit {LIMIT}, most {:?}, a step with all sequences at once {step}", group.most());
}
