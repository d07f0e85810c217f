//! Eight processes under kill -9, freezes, emptied folders and broken indexes, as a seed has it: at the end everybody
//! has the same bytes, no contribution is missing or counted twice, and nothing has panicked.
//!
//! `FAULTS_SEED=7 cargo test --release --test swarm faults` plays another script.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::ledger::{Ledger, counted_in};
use crate::run::complaints;
use crate::swarm::{self, EIGHT, Swarm, modules, newest, run_of_eight};
use pathswarm::seed::Seed;
use rand::RngExt;
use rand::seq::SliceRandom;
use serde_json::Value;

const INNER_STEPS: u64 = 120;

/// Enough that faults end well before the last: what a finished module has not counted, it never will.
const PHASES: u64 = 15;

/// What befalls a peer. Each begins when the run has gone on by a version since the last.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// kill -9, and started again at once.
    Killed,
    /// kill -9, and started again when others have taken over what it owned.
    KilledAndReplaced,
    /// SIGSTOP, until the others have said so many things.
    Frozen(usize),
    /// SIGSTOP, until others have taken over what it owned.
    FrozenAndReplaced,
    /// kill -9, the whole folder deleted: another identity comes.
    Emptied,
    /// kill -9, the store deleted: the same identity comes, and remembers nothing.
    StoreEmptied,
    /// kill -9, sled's folder deleted.
    IndexDeleted,
    /// kill -9, sled's file cut off.
    IndexTruncated,
    /// kill -9, sled's file overwritten with zeros.
    IndexZeroed,
    /// kill -9, sled's files overwritten with garbage.
    IndexGarbage,
}

use Fault::*;

/// All kinds, in an order and with victims that follow from the seed.
fn script(seed: u64) -> Vec<(Fault, usize)> {
    let mut draws = Seed::root(seed).child("faults").generator();
    let frozen = Frozen(draws.random_range(1..40));
    let mut faults = vec![
        Killed,
        KilledAndReplaced,
        frozen,
        FrozenAndReplaced,
        Emptied,
        StoreEmptied,
        IndexDeleted,
        IndexTruncated,
        IndexZeroed,
        IndexGarbage,
    ];
    faults.shuffle(&mut draws);
    // Each path's text is with whoever trains it, and with the creator: two emptied disks may be the last that had it.
    let least = |fault: &Fault| usize::from(matches!(fault, Emptied | StoreEmptied));
    faults.into_iter().map(|fault| (fault, draws.random_range(least(&fault)..EIGHT))).collect()
}

/// The run, and what was seen of those parts of it that are gone.
struct Trial {
    swarm: Swarm,
    ledger: Ledger,
    logs: Vec<String>,
}

impl Trial {
    fn befall(&mut self, fault: Fault, victim: usize) {
        let folder = self.swarm.folder(victim);
        let key = self.swarm.key(victim);
        match fault {
            Frozen(_) | FrozenAndReplaced => self.swarm.freeze(victim),
            _ => self.swarm.kill(victim),
        }
        match fault {
            Killed => {}
            Frozen(words) => (0..words).for_each(|_| self.swarm.listen()),
            KilledAndReplaced | FrozenAndReplaced => {
                let owns = |module: &Value| key.as_deref() == module["owner"].as_str();
                let replaced = |statuses: &[Value]| !statuses.iter().flat_map(modules).any(owns);
                self.swarm.until("others own what was the victim's", replaced);
            }
            Emptied => {
                self.remember(&folder);
                fs::remove_dir_all(&folder).unwrap();
            }
            StoreEmptied => {
                self.remember(&folder);
                fs::remove_dir_all(folder.join("store")).unwrap();
            }
            IndexDeleted => fs::remove_dir_all(folder.join("store/index")).unwrap(),
            IndexTruncated => overwrite(&folder, "db", |bytes| bytes.truncate(bytes.len() / 3)),
            IndexZeroed => overwrite(&folder, "db", |bytes| bytes.fill(0)),
            IndexGarbage => {
                for file in ["db", "conf"] {
                    overwrite(&folder, file, |bytes| {
                        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(7) ^ 0xa5)
                    });
                }
            }
        }
        match fault {
            Frozen(_) | FrozenAndReplaced => self.swarm.thaw(victim),
            _ => self.swarm.restart(victim),
        }
    }

    /// Keeps what a folder says that is about to go.
    fn remember(&mut self, folder: &Path) {
        self.ledger.read(folder, true);
        self.logs.extend(logs(folder));
    }
}

fn overwrite(folder: &Path, file: &str, change: impl Fn(&mut Vec<u8>)) {
    let path = folder.join("store/index").join(file);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
}

/// What a peer has logged.
fn logs(folder: &Path) -> Vec<String> {
    let names = ["pathswarm.log.1", "pathswarm.log"];
    names.iter().filter_map(|name| fs::read_to_string(folder.join(name)).ok()).collect()
}

/// Every module's last state, which all members must agree on, and how much is shown as never counted.
fn settled(statuses: &[Value]) -> (BTreeMap<String, String>, BTreeMap<String, u64>) {
    let (mut states, mut uncounted) = (BTreeMap::<String, String>::new(), BTreeMap::new());
    let mut parameters = BTreeMap::new();
    for status in statuses {
        assert_eq!(status["run"], statuses[0]["run"]);
        for module in modules(status) {
            let name = module["module"].as_str().unwrap().to_owned();
            let state = module["state_hash"].as_str().unwrap().to_owned();
            assert_eq!(*states.entry(name.clone()).or_insert_with(|| state.clone()), state, "module {name}");
            let hash = status["parameter_hashes"][&name].clone();
            assert_eq!(*parameters.entry(name.clone()).or_insert_with(|| hash.clone()), hash, "module {name}");
            *uncounted.entry(name).or_default() += module["uncounted"].as_u64().unwrap();
        }
    }
    (states, uncounted)
}

/// How many peers have a state of this module.
fn holds(statuses: &[Value], name: &str) -> usize {
    let has = |module: &Value| module["module"] == name && module["state_hash"].is_string();
    statuses.iter().filter(|status| modules(status).iter().any(has)).count()
}

#[test]
fn eight_processes_agree_and_lose_nothing_whatever_befalls_them() {
    let seed = std::env::var("FAULTS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut trial = Trial {
        swarm: Swarm::start(&run_of_eight(INNER_STEPS, PHASES), EIGHT),
        ledger: Ledger::default(),
        logs: vec![],
    };
    trial.swarm.until("everybody trains", |statuses| swarm::holders(statuses).len() == EIGHT && newest(statuses) > 0);
    for (fault, victim) in script(seed) {
        let seen = trial.swarm.until("all doors are open", |_| true);
        let before = newest(&seen);
        trial.swarm.until("the run goes on", |statuses| newest(statuses) > before || newest(statuses) == PHASES);
        // The only holder of a module must not fail: a newcomer takes some seconds to believe what it is shown.
        trial.swarm.until("each module has two holders", |statuses| {
            newest(statuses) == PHASES || swarm::module_names(statuses).iter().all(|name| holds(statuses, name) >= 2)
        });
        println!("version {before}: {fault:?} befalls peer {victim}");
        trial.befall(fault, victim);
    }
    let done = |status: &Value| {
        let last = |module: &Value| module["version"] == PHASES;
        status["done"] == true && modules(status).iter().all(last)
    };
    let statuses = trial
        .swarm
        .until("everybody is done", |statuses| statuses.iter().all(done) && swarm::module_names(statuses).len() == 6);
    let (states, uncounted) = settled(&statuses);

    let Trial { swarm, mut ledger, logs: mut said } = trial;
    for folder in swarm.folders() {
        ledger.read(&folder, false);
        said.extend(logs(&folder));
        said.extend(fs::read_to_string(complaints(&folder)).ok());
    }
    for text in &said {
        assert!(!text.contains("panicked"), "{text}");
    }
    let mut surviving = 0;
    for module in ledger.modules() {
        let chain = ledger.chain(module, &states[&module.to_string()]);
        surviving += chain.len();
        let all: Vec<_> = chain.iter().flat_map(|signed| counted_in(signed)).collect();
        let counted: BTreeSet<_> = all.iter().copied().collect();
        assert_eq!(counted.len(), all.len(), "module {module}: a contribution is counted twice");
        // A path goes on while one of its modules is not done; what the others have gained is not for counting. What
        // else a module that is done has not counted is shown, and what became too old is in the log.
        let countable = ledger.contributions(module).into_iter().filter(|(_, _, parent, _)| parent.0 < PHASES);
        let missing: Vec<_> = countable.filter(|contribution| !counted.contains(contribution)).collect();
        let told = |path, parent| {
            let told = format!("became too old to be counted module={module} path={path} parent={parent} ");
            said.iter().any(|text| text.contains(&told))
        };
        let silent: Vec<_> = missing.iter().filter(|(_, path, parent, _)| !told(path, parent)).collect();
        let shown = uncounted[&module.to_string()];
        assert!(silent.len() as u64 <= shown, "module {module}: {silent:?} are lost, {shown} are shown as uncounted");
        println!("module {module}: {} contributions counted, {} never", counted.len(), missing.len());
    }
    println!("{surviving} updates survive, {} were given up for a heavier chain", ledger.given_up(surviving));
}
