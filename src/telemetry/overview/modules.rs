//! Every module with what is known of it: who owns it, who holds it, and whether all hold the same.

use std::collections::BTreeMap;

use crate::names::ModuleId;
use crate::protocol::status::ModuleStatus;
use crate::telemetry::overview::MOST_ROWS;
use crate::telemetry::overview::told::Told;

/// One module.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleRow {
    /// As `level.expert`.
    pub name: String,
    pub level: usize,
    /// The owner of the highest known term, as a name for people.
    pub owner: Option<String>,
    /// The highest known version.
    pub version: Option<u64>,
    /// Completed rounds.
    pub phase: Option<u64>,
    /// Living members.
    pub members: usize,
    pub agreement: Agreement,
    /// How many versions late contributions are on average.
    pub late: f64,
    /// BLAKE3 of its state at the highest version.
    pub hash: Option<String>,
}

/// Whether all that hold a module hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// All that are known have the same state of the same version.
    Agrees,
    /// Two have different states of one version.
    Differs,
    /// It has no owner.
    NoOwner,
    /// No other living peer has it.
    NoReplica,
    /// Its first state is being fetched.
    Arriving,
    /// None of the peers that are asked has it.
    Elsewhere,
}

/// What is said of a module.
#[derive(Default)]
struct Said {
    owner: Option<String>,
    term: Option<u64>,
    version: Option<u64>,
    phase: Option<u64>,
    members: usize,
    late: f64,
    differs: bool,
    /// How many of the asked peers have it, and to how many of them no other peer is known that has it.
    here: usize,
    alone: usize,
    /// The state's hash, by version.
    hashes: BTreeMap<u64, String>,
}

impl Said {
    fn hear(&mut self, status: &ModuleStatus) {
        self.here += 1;
        self.alone += usize::from(status.no_replica);
        self.version = self.version.max(status.version);
        self.phase = self.phase.max(status.phase);
        self.members = self.members.max(status.members);
        self.late = self.late.max(status.staleness_mean);
        let term = Some(status.term);
        if (term, status.owner.is_some()) > (self.term, self.owner.is_some()) {
            (self.term, self.owner) = (term, status.owner.clone());
        }
        if let (Some(version), Some(hash)) = (status.version, &status.state_hash) {
            let known = self.hashes.entry(version).or_insert_with(|| hash.clone());
            self.differs |= known != hash;
        }
    }

    fn agreement(&self) -> Agreement {
        match self {
            _ if self.differs => Agreement::Differs,
            _ if self.here == 0 => Agreement::Elsewhere,
            _ if self.owner.is_none() => Agreement::NoOwner,
            _ if self.version.is_none() => Agreement::Arriving,
            _ if self.alone == self.here => Agreement::NoReplica,
            _ => Agreement::Agrees,
        }
    }
}

pub(super) fn modules(told: &Told<'_>) -> Vec<ModuleRow> {
    let mut said: BTreeMap<ModuleId, Said> = BTreeMap::new();
    if let Some(run) = &told.state.run {
        said.extend(run.modules().take(MOST_ROWS).map(|module| (module, Said::default())));
    }
    let mut hear = |name: &str, take: &mut dyn FnMut(&mut Said)| {
        let Ok(module) = name.parse::<ModuleId>() else { return };
        if said.len() < MOST_ROWS || said.contains_key(&module) {
            take(said.entry(module).or_default());
        }
    };
    for it in &told.answered {
        for status in &it.status.node.modules {
            hear(&status.module, &mut |said| said.hear(status));
        }
        for member in it.status.node.members.values() {
            member.differs.iter().for_each(|name| hear(name, &mut |said| said.differs = true));
        }
    }
    let row = |(module, said): (ModuleId, Said)| ModuleRow {
        name: module.to_string(),
        level: module.level.into(),
        agreement: said.agreement(),
        owner: said.owner.map(|key| told.labels.name(&key)),
        version: said.version,
        phase: said.phase,
        members: said.members,
        late: said.late,
        hash: said.hashes.into_values().next_back(),
    };
    said.into_iter().map(row).collect()
}
