//! Every peer, whether it is asked or only heard of.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::ModuleId;
use crate::peer::status::Traffic;
use crate::telemetry::overview::MOST_ROWS;
use crate::telemetry::overview::labels::natural;
use crate::telemetry::overview::paths::STANDBY;
use crate::telemetry::overview::time::{TimeShares, shares};
use crate::telemetry::overview::told::{Answered, Told};

/// Modules of a peer that are listed.
const MOST_MODULES: usize = 32;

/// One peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerRow {
    pub key: String,
    /// Its name here, if it is asked.
    pub label: Option<String>,
    pub health: Health,
    /// The paths that it trains.
    pub paths: Vec<u32>,
    /// The paths that it stands by.
    pub stands_by: Vec<u32>,
    /// Its modules with the versions that it has; the first of many.
    pub modules: Vec<(String, Option<u64>)>,
    /// How many modules it has.
    pub module_count: usize,
    /// Inner steps a second of each path, as the peer announces.
    pub steps_per_s: Option<f64>,
    /// Contributions that updates have counted.
    pub counted: u64,
    pub faults: u64,
    /// Why it is banned or quarantined.
    pub why: Option<String>,
    /// What is known only of a peer that is asked.
    pub work: Option<Work>,
}

/// How a peer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    #[default]
    Lives,
    /// For longer than usual, nobody has heard it.
    Silent {
        for_s: u64,
    },
    /// It is asked, and does not answer.
    Unanswered,
    /// Its state of a module is another one of the same version.
    Differs,
    Quarantined,
    Banned,
}

/// What a peer has done since it started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    pub tokens: u64,
    pub phases_trained: u64,
    /// Updates of others that it has computed again.
    pub audited: u64,
    pub uptime_s: u64,
    pub connections: usize,
    pub disk_bytes: u64,
    pub traffic: Traffic,
    /// Compressed outer gradients fetched as owner.
    pub contribution_bytes: u64,
    /// Compressed averages fetched as member.
    pub average_bytes: u64,
    /// Seconds that a fetch took on average.
    pub fetch_s: Option<f64>,
    pub time: TimeShares,
}

/// What is said of a peer.
#[derive(Default)]
struct Said {
    label: Option<String>,
    paths: BTreeSet<u32>,
    stands_by: BTreeSet<u32>,
    modules: BTreeMap<ModuleId, Option<u64>>,
    is_heard_of: bool,
    silent_s: Option<u64>,
    is_unanswered: bool,
    differs: bool,
    steps_per_1000_s: u32,
    counted: u64,
    faults: u64,
    quarantined: Option<String>,
    banned: Option<String>,
    work: Option<Work>,
}

impl Said {
    fn holds(&mut self, path: u32, stage: &str) {
        let of = if stage == STANDBY { &mut self.stands_by } else { &mut self.paths };
        of.insert(path);
    }

    fn row(self, key: String) -> PeerRow {
        let health = match (&self.banned, &self.quarantined, self.silent_s) {
            (Some(_), ..) => Health::Banned,
            (_, Some(_), _) => Health::Quarantined,
            _ if self.is_unanswered => Health::Unanswered,
            (.., Some(for_s)) if self.label.is_none() => Health::Silent { for_s },
            _ if self.differs => Health::Differs,
            _ => Health::Lives,
        };
        PeerRow {
            key,
            label: self.label,
            health,
            paths: self.paths.into_iter().collect(),
            stands_by: self.stands_by.into_iter().collect(),
            module_count: self.modules.len(),
            modules: self.modules.into_iter().take(MOST_MODULES).map(|(name, it)| (name.to_string(), it)).collect(),
            steps_per_s: (self.steps_per_1000_s > 0).then(|| f64::from(self.steps_per_1000_s) / 1e3),
            counted: self.counted,
            faults: self.faults,
            why: self.banned.or(self.quarantined),
            work: self.work,
        }
    }
}

pub(super) fn peers(told: &Told<'_>) -> Vec<PeerRow> {
    let mut found: BTreeMap<String, Said> = BTreeMap::new();
    for it in &told.answered {
        let said = found.entry(it.status.node.peer.clone()).or_default();
        hear_itself(said, it);
    }
    for it in &told.answered {
        hear_of_others(&mut found, it);
    }
    let mut rows: Vec<PeerRow> = found.into_iter().map(|(key, said)| said.row(key)).collect();
    rows.sort_by(|a, b| {
        let place = |row: &PeerRow| row.label.is_none();
        let label = |row: &'_ PeerRow| row.label.clone().unwrap_or_default();
        let (first, second) = (label(a), label(b));
        (place(a), natural(&first), &a.key).cmp(&(place(b), natural(&second), &b.key))
    });
    rows.truncate(MOST_ROWS);
    rows
}

/// What a peer says of itself.
fn hear_itself(said: &mut Said, it: &Answered<'_>) {
    said.label = Some(it.label.to_owned());
    said.is_unanswered = it.silent_since_ms.is_some();
    said.work = Some(work(it));
    for path in &it.status.node.paths {
        said.holds(path.path, &path.stage);
    }
    let modules = it.status.node.modules.iter();
    said.modules = modules.filter_map(|module| Some((module.module.parse().ok()?, module.version))).collect();
}

/// What a peer has heard of others.
fn hear_of_others(found: &mut BTreeMap<String, Said>, it: &Answered<'_>) {
    let node = &it.status.node;
    for (key, member) in &node.members {
        let said = found.entry(key.to_string()).or_default();
        said.steps_per_1000_s = said.steps_per_1000_s.max(member.steps_per_1000_s);
        said.differs |= !member.differs.is_empty();
        if said.label.is_some() {
            continue;
        }
        // Whoever hears it knows better.
        said.silent_s = if said.is_heard_of { said.silent_s.min(member.silent_s) } else { member.silent_s };
        said.is_heard_of = true;
        member.paths.iter().for_each(|path| said.holds(path.path, &path.stage));
        let versions = member.modules.iter().filter_map(|(name, version)| Some((name.parse().ok()?, *version)));
        said.modules.extend(versions);
    }
    for score in &node.peer_scores {
        let said = found.entry(score.peer.to_string()).or_default();
        said.counted = said.counted.max(score.counted);
        said.faults = said.faults.max(score.faults.values().sum());
        if score.quarantined {
            said.quarantined = Some(score.reason.clone().unwrap_or_else(|| "faulty contributions".to_owned()));
        }
    }
    for ban in &it.status.bans {
        found.entry(ban.peer.to_string()).or_default().banned = Some(ban.reason.clone());
    }
}

fn work(it: &Answered<'_>) -> Work {
    let (status, activity) = (it.status, &it.status.activity);
    let (blobs, _, seconds) = it.seen.fetched;
    Work {
        tokens: activity.tokens,
        phases_trained: status.phases_trained,
        audited: status.node.audited,
        uptime_s: activity.uptime_s,
        connections: activity.connections,
        disk_bytes: activity.disk_bytes,
        traffic: status.traffic,
        contribution_bytes: status.synced.contribution_bytes,
        average_bytes: status.synced.average_bytes,
        fetch_s: (blobs > 0).then(|| seconds / blobs as f64),
        time: shares(it),
    }
}
