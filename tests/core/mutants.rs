//! Tests of the drills: each of these bugs, planted in the core, violates an invariant within 200 seeds, or spoils the loss.
//!
//! The sources are copied, and every bug is planted beside the right code. One program is built from the copy, in which
//! an environment variable selects the bug.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A bug: in this file, the expression `right`, which occurs once, is replaced by `wrong`.
struct Bug {
    name: &'static str,
    file: &'static str,
    right: &'static str,
    wrong: &'static str,
    /// The drill that finds the bug, and the invariants that it may violate, or [`LOSS`].
    drill: &'static str,
    breaks: &'static [&'static str],
}

/// What a bug breaks that no invariant shows.
const LOSS: &str = "loss";

const BUGS: [Bug; 19] = [
    Bug {
        name: "an update of an earlier term is accepted",
        file: "protocol/node/module/apply.rs",
        right: "term < state.leadership.term()",
        wrong: "false",
        drill: "split",
        breaks: &["fenced"],
    },
    Bug {
        name: "an update is published before it is synced",
        file: "protocol/node/module/aggregation.rs",
        right: "self.act(Action::Persist(Record::Sealed(signed.clone())))",
        wrong: "()",
        drill: "crashes",
        breaks: &["one writer"],
    },
    Bug {
        name: "a head is acted upon before it is synced",
        file: "protocol/node/module/apply.rs",
        right: "self.act(Action::Persist(Record::Head(signed.clone())))",
        wrong: "()",
        drill: "churn",
        breaks: &["disk", "one writer", "none lost", "progress"],
    },
    Bug {
        name: "a chain taken over is acted upon before it is synced",
        file: "protocol/node/module/catch_up.rs",
        right: "self.act(Action::Persist(chain.record(module)))",
        wrong: "()",
        drill: "everything",
        // The restarted owner has an older chain that its signed update does not fit, and signs another update.
        breaks: &["disk", "progress", "none lost", "one writer"],
    },
    Bug {
        name: "a contribution is counted again",
        file: "protocol/node/module/aggregation.rs",
        right: "chain.has_counted(key) || state.offers.is_counted_from(offer.start())",
        wrong: "false",
        drill: "rough",
        breaks: &["one state", "counted once"],
    },
    Bug {
        name: "a late contribution has its full weight",
        file: "protocol/plan/weights.rs",
        right: "(it.path, it.parent, it.steps)",
        wrong: "(it.path, chain.head().version, it.steps)",
        drill: "rough",
        breaks: &["one state"],
    },
    Bug {
        name: "the losing side of a fork is dropped",
        file: "protocol/node/retention.rs",
        right: "modules.get(&module).and_then(Replica::head).is_some_and(|head| countable(head.version, parent))",
        wrong: "modules.get(&module).and_then(Replica::head).is_some_and(|head| parent >= head.version)",
        drill: "split",
        breaks: &["none lost"],
    },
    Bug {
        name: "what becomes too old is not told of",
        file: "protocol/node/retention.rs",
        right: "self.uncounted().filter_map(of).filter(|(_, parent, _)| lost(*parent)).collect()",
        wrong: "BTreeSet::new()",
        drill: "deep",
        breaks: &["none lost"],
    },
    Bug {
        name: "an average is applied to the state before",
        file: "protocol/node/module/apply.rs",
        right: "Outer::Apply { module, version, from: head.state, average, portion }",
        wrong: "Outer::Apply { module, version, from: self.modules[&module].history.states().next().unwrap_or(head.state), average, portion }",
        drill: "quiet",
        breaks: &["one state"],
    },
    Bug {
        name: "states are kept for ever",
        file: "protocol/module/history.rs",
        right: "self.states.len().saturating_sub(STATES_KEPT)",
        wrong: "0",
        drill: "quiet",
        breaks: &["bounded queues"],
    },
    Bug {
        name: "the higher version wins a fork, not the heavier chain",
        file: "protocol/wire/message.rs",
        right: "self.weight > other.weight || (self.weight == other.weight && self.update < other.update)",
        wrong: "self.version > other.version",
        drill: "split",
        breaks: &["agreement", "progress"],
    },
    Bug {
        name: "a fetch that failed is not tried again",
        file: "protocol/node/mod.rs",
        right: "self.retry_fetches()",
        wrong: "()",
        drill: "rough",
        breaks: &["progress", "agreement"],
    },
    Bug {
        name: "a trainer's state is let go of at a restart",
        file: "protocol/node/retention.rs",
        right: "self.paths.trainers().map(|(_, blob)| blob.hash).for_each(&mut visit)",
        wrong: "()",
        drill: "churn",
        breaks: &["disk"],
    },
    Bug {
        name: "the chain of one member replaces that of the others",
        file: "protocol/node/module/attestation.rs",
        right: "self.attested(module, chain) >= Some(chain.head().version)",
        wrong: "true",
        drill: "false-chains",
        // Such a chain follows all rules. Only what is learnt suffers.
        breaks: &[LOSS],
    },
    Bug {
        name: "a member signs on in the term of a chain that it has given up",
        file: "protocol/node/module/catch_up.rs",
        right: "state.history.chain().and_then(Chain::signer) == Some((term, me))",
        wrong: "false",
        drill: "everything",
        breaks: &["one writer"],
    },
    Bug {
        name: "a state is adopted although it cannot be read",
        file: "protocol/node/module/catch_up.rs",
        right: "!so",
        wrong: "false",
        drill: "pairs",
        breaks: &["disk", "agreement", "progress"],
    },
    Bug {
        name: "a lighter chain that a majority is on is forgotten at a restart",
        file: "protocol/node/restore.rs",
        right: "!state.history.contains(chain.head().update)",
        wrong: "state.history.gives_way_to(&chain.head())",
        drill: "everything",
        breaks: &["disk", "none lost", "one writer", "progress"],
    },
    Bug {
        name: "the residual is forgotten",
        file: "protocol/node/path/phase.rs",
        right: "self.paths.trainer(path)",
        wrong: "None",
        drill: "quiet",
        breaks: &["carried on"],
    },
    Bug {
        name: "contributions are summed in the order in which they come",
        file: "outer/exact_sum.rs",
        right: "sum.wrapping_add(weighted_steps(*value, weight))",
        wrong: "(*sum as f32 + weighted_steps(*value, weight) as f32) as i64",
        drill: "clipping",
        breaks: &["one sum"],
    },
];

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Builds the program with all bugs in it, none of them selected.
fn planted() -> PathBuf {
    let tree = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    for folder in ["src", "benches", "docs/reference"] {
        let _ = std::fs::remove_dir_all(tree.join(folder));
        copy(&project().join(folder), &tree.join(folder));
    }
    for file in ["Cargo.toml", "Cargo.lock", "build.rs"] {
        std::fs::copy(project().join(file), tree.join(file)).unwrap();
    }
    for Bug { name, file, right, wrong, .. } in &BUGS {
        let path = tree.join("src").join(file);
        let source = std::fs::read_to_string(&path).unwrap();
        assert_eq!(source.matches(right).count(), 1, "{name}: {right:?} does not occur once in {file}");
        let both = format!("(if crate::planted({name:?}) {{ {wrong} }} else {{ {right} }})");
        std::fs::write(&path, source.replace(right, &both)).unwrap();
    }
    let library = tree.join("src/lib.rs");
    let chooses = "\n/// Whether this bug is chosen.\npub fn planted(bug: &str) -> bool {\n    \
        static CHOSEN: std::sync::LazyLock<Option<String>> = std::sync::LazyLock::new(|| std::env::var(\"PLANTED\").ok());\n    \
        CHOSEN.as_deref() == Some(bug)\n}\n";
    std::fs::write(&library, std::fs::read_to_string(&library).unwrap() + chooses).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--no-default-features", "--bin", "pathswarm", "--target-dir"])
        .arg(target.join("mutants"))
        .current_dir(&tree)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("mutants/release/pathswarm")
}

/// The loss of a drill with a selected bug.
///
/// # Errors
/// Its first failure.
fn drilled(program: &Path, drill: &str, bug: &str) -> Result<f64, String> {
    let scenario = project().join("configs/drills").join(drill).with_extension("toml");
    let output = Command::new(program)
        .args(["drill", "--seeds", "0..200", "--scenario"])
        .arg(scenario)
        .env("PLANTED", bug)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let failure = said.lines().find(|line| line.starts_with("error: ") || line.contains("panicked"));
    assert_eq!(failure.is_some(), !output.status.success(), "{said}");
    match failure {
        Some(line) => Err(line.to_owned()),
        None => Ok(loss(&String::from_utf8(output.stdout).unwrap())),
    }
}

/// The loss that a drill prints: "… accepted a second, to a loss of 0.123456".
fn loss(printed: &str) -> f64 {
    let (_, after) = printed.split_once("to a loss of ").unwrap_or_else(|| panic!("{printed}"));
    after.split_whitespace().next().unwrap().parse().unwrap()
}

/// The first failure of a drill with a selected bug, or that its loss is many times what it is without; nothing if the
/// bug shows in neither.
fn found(program: &Path, Bug { name, drill, breaks, .. }: &Bug) -> Option<String> {
    let loss = match drilled(program, drill, name) {
        Err(failure) => return Some(failure),
        Ok(loss) => loss,
    };
    let without = if breaks.contains(&LOSS) { drilled(program, drill, "none").unwrap() } else { f64::INFINITY };
    (loss > 5.0 * without).then(|| format!("error: : {LOSS} at the end: {loss}, {without} without the bug"))
}

#[test]
fn every_planted_bug_is_found_and_the_original_code_passes() {
    let program = planted();
    drilled(&program, "quiet", "none").unwrap();
    let mut missed = Vec::new();
    for bug in &BUGS {
        let Bug { name, breaks, .. } = bug;
        let line = found(&program, bug).unwrap_or_else(|| "not found".to_owned());
        println!("{name}: {}", line.chars().take(160).collect::<String>());
        if !breaks.iter().any(|invariant| line.contains(&format!(": {invariant} at "))) {
            missed.push(format!("{name}: {line}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
