//! Writing a collected run in a staging folder, which is then moved to its place.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{AMENDMENT, best_file, hash_of, module_file, read_manifest, seal_of, test_file};
use super::{
    ANCESTOR, BEST, CollectedModule, MANIFEST, MODULES, PRETRAINED, ROUTER, ROUTER_STATE, SHARD_TABLE, SHARDS,
    TOKENIZER,
};
use crate::model::exchange::{self, ExchangeError};
use crate::names::{BlobHash, ModuleId, PathId, RunId};
use crate::outer::ModuleState;
use crate::peer::manifest::{Manifest, ManifestError};
use crate::peer::trainer::path_state::PathState;
use crate::protocol::wire::message::Head;
use crate::store::{DiskError, StagedFolder, StagingError};

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{} is not a collected run ({reason}); name a new or an empty folder", folder.display())]
    InTheWay { folder: PathBuf, reason: String },
    #[error("{} holds the collected run {found}, not run {expected}; name another folder", folder.display())]
    OtherRun { folder: PathBuf, found: RunId, expected: RunId },
    #[error(transparent)]
    Staging(#[from] StagingError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

/// The outcome of collecting.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub folder: PathBuf,
    pub run: RunId,
    pub name: String,
    /// The phase at which a module is done.
    pub phases: u64,
    /// Every module, by name.
    pub modules: BTreeMap<String, ModuleSummary>,
    /// Paths whose test text no peer had, though the run shares its text.
    pub paths_without_text: Vec<PathId>,
    /// Paths without their unsent changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths_behind: Vec<PathId>,
    /// Paths with own parameters, and the phase before which they were best; for unsent changes, the run's number of
    /// phases.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub best_before: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct ModuleSummary {
    /// Number of updates.
    pub version: u64,
    /// Number of rounds in them: the version, unless the run is asynchronous.
    pub phase: u64,
    /// BLAKE3 of its whole state.
    pub state_hash: BlobHash,
    /// BLAKE3 of its parameters.
    pub parameter_hash: BlobHash,
}

impl Summary {
    /// The lowest and the highest version of a module.
    pub fn versions(&self) -> (u64, u64) {
        let versions = || self.modules.values().map(|module| module.version);
        (versions().min().unwrap_or(0), versions().max().unwrap_or(0))
    }

    /// The fewest phases that a module has had.
    pub fn phase(&self) -> u64 {
        self.modules.values().map(|module| module.phase).min().unwrap_or(0)
    }
}

/// A folder of a run that is being written.
pub(in crate::peer) struct Unfinished {
    staged: StagedFolder,
    target: PathBuf,
    /// The run in the folder that is to be replaced.
    found: Option<RunId>,
}

impl Unfinished {
    /// Begins, if the target may be replaced. The run may be unknown yet.
    pub(in crate::peer) fn begin(target: &Path) -> Result<Self, WriteError> {
        let found = run_at(target)?;
        Ok(Self { staged: StagedFolder::begin(target)?, target: target.to_owned(), found })
    }

    /// Stores the manifest, and the run's amendment, byte for byte.
    pub(in crate::peer) fn of_run(self, manifest: &[u8], amendment: Option<&[u8]>) -> Result<Writer, WriteError> {
        let (mut decoded, run) = Manifest::decode(manifest)?;
        if let Some(found) = self.found.filter(|found| *found != run) {
            return Err(WriteError::OtherRun { folder: self.target, found, expected: run });
        }
        self.staged.write(MANIFEST, manifest)?;
        if let Some(bytes) = amendment.filter(|bytes| decoded.amend(run, bytes).is_ok()) {
            self.staged.write(AMENDMENT, bytes)?;
        }
        let summary = Summary {
            folder: self.target,
            run,
            name: decoded.config.name.clone(),
            phases: decoded.config.training.phases,
            modules: BTreeMap::new(),
            paths_without_text: Vec::new(),
            paths_behind: Vec::new(),
            best_before: BTreeMap::new(),
        };
        Ok(Writer { staged: self.staged, manifest: decoded, summary })
    }
}

/// A folder of a known run that is being written.
pub(in crate::peer) struct Writer {
    staged: StagedFolder,
    pub(in crate::peer) manifest: Manifest,
    summary: Summary,
}

impl Writer {
    pub(in crate::peer) fn run(&self) -> RunId {
        self.summary.run
    }

    /// The shards are unknown before.
    pub(in crate::peer) fn put_shard_table(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.manifest.take_table(bytes)?;
        Ok(self.staged.write(SHARD_TABLE, bytes)?)
    }

    /// Tokenizer, router or ancestor.
    pub(in crate::peer) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        Ok(self.staged.write(name, bytes)?)
    }

    /// The test text of a path; `None` if no peer had it.
    pub(in crate::peer) fn put_test(&mut self, path: PathId, bytes: Option<&[u8]>) -> Result<(), WriteError> {
        match bytes {
            Some(bytes) => self.staged.write(&test_file(path), bytes)?,
            None => self.summary.paths_without_text.push(path),
        }
        Ok(())
    }

    /// A module from the bytes of its state, or the reason why they are not its state at this head.
    pub(in crate::peer) fn put_state(
        &mut self,
        module: ModuleId,
        bytes: &[u8],
        head: Head,
    ) -> Result<Result<(), String>, WriteError> {
        let version = match self.manifest.level_counts().get(usize::from(module.level)) {
            Some(count) => match ModuleState::decode(bytes, module, *count) {
                Ok(state) if state.version == head.version => return self.put_module(&state, head).map(Ok),
                Ok(state) => state.version.0,
                Err(error) => return Ok(Err(error.to_string())),
            },
            None => match self.manifest.router_state(bytes) {
                Ok(state) if state.rounds == head.version.0 => {
                    return self.put_router_state(module, bytes, head).map(Ok);
                }
                Ok(state) => state.rounds,
                Err(error) => return Ok(Err(error.to_string())),
            },
        };
        Ok(Err(format!("its state has version {version}, but its owner signed version {}", head.version)))
    }

    /// The present router, followed by its hash with the run's id.
    fn put_router_state(&mut self, module: ModuleId, bytes: &[u8], head: Head) -> Result<(), WriteError> {
        self.staged.write(ROUTER_STATE, &[bytes, &seal_of(self.summary.run, bytes)].concat())?;
        self.sum_up(module, head, head.state.hash)
    }

    fn sum_up(&mut self, module: ModuleId, head: Head, parameter_hash: BlobHash) -> Result<(), WriteError> {
        let phase = self.manifest.plan()?.phase_of(module, head).0;
        let summary = ModuleSummary { version: head.version.0, phase, state_hash: head.state.hash, parameter_hash };
        self.summary.modules.insert(module.to_string(), summary);
        Ok(())
    }

    /// A module's parameters, without its momentum.
    pub(in crate::peer) fn put_module(&mut self, state: &ModuleState, head: Head) -> Result<(), WriteError> {
        let module = state.module;
        let about =
            CollectedModule { version: state.version, state: head.state.hash, parameters: hash_of(&state.parameters) };
        let notes = [
            ("run", self.summary.run.to_string()),
            ("module", module.to_string()),
            ("version", about.version.to_string()),
            ("state", about.state.to_string()),
            ("parameters", about.parameters.to_string()),
        ];
        let config = &self.manifest.config;
        let level = (&config.levels[usize::from(module.level)], state.parameters.as_slice());
        self.staged.write(&module_file(module), &exchange::encode(&config.model, &[level], &notes)?)?;
        self.sum_up(module, head, about.parameters)
    }

    /// Whether the own parameters of a path are here.
    pub(in crate::peer) fn has_own(&self, path: PathId) -> bool {
        self.summary.best_before.contains_key(&path.to_string())
    }

    /// The own parameters of a path from its trainer state. Returns whether no other state is needed.
    pub(in crate::peer) fn put_best(&mut self, path: PathId, trainer: &[u8]) -> Result<bool, WriteError> {
        let state = match PathState::decode(trainer, &self.manifest.level_counts()) {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(%path, %error, "a trainer state is skipped");
                return Ok(false);
            }
        };
        let Some(best) = state.best.filter(|best| best.settled) else {
            // Other peers may have its unsent changes.
            return Ok(!self.manifest.config.outer.keep_unsent);
        };
        let notes = [
            ("run", self.summary.run.to_string()),
            ("path", path.to_string()),
            ("before_phase", best.phase.to_string()),
            ("parameters", hash_of(&best.levels.concat()).to_string()),
        ];
        let config = &self.manifest.config;
        let levels: Vec<_> = config.levels.iter().zip(best.levels.iter().map(Vec::as_slice)).collect();
        self.staged.write(&best_file(path), &exchange::encode(&config.model, &levels, &notes)?)?;
        self.summary.best_before.insert(path.to_string(), best.phase.0);
        Ok(true)
    }

    /// Moves the folder to its place.
    pub(in crate::peer) fn finish(mut self) -> Result<Summary, WriteError> {
        if self.manifest.config.outer.keep_unsent {
            let grid = self.manifest.config.grid().map_err(ManifestError::from)?;
            self.summary.paths_behind = grid.paths().filter(|path| !self.has_own(*path)).collect();
        }
        self.staged.put_in_place()?;
        Ok(self.summary)
    }

    /// Modules that are missing so far.
    pub(in crate::peer) fn missing(&self, modules: &[ModuleId]) -> Vec<ModuleId> {
        modules.iter().filter(|module| !self.summary.modules.contains_key(&module.to_string())).copied().collect()
    }
}

/// The run in a folder; `None` if the folder is empty or does not exist.
fn run_at(folder: &Path) -> Result<Option<RunId>, WriteError> {
    let in_the_way = |reason: String| WriteError::InTheWay { folder: folder.to_owned(), reason };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(in_the_way(error.to_string())),
    };
    let mut empty = true;
    for entry in entries {
        let name = entry.map_err(|error| in_the_way(error.to_string()))?.file_name();
        let ours = [MANIFEST, AMENDMENT, TOKENIZER, ROUTER, ROUTER_STATE, ANCESTOR, PRETRAINED, MODULES, BEST, SHARDS];
        if !ours.iter().any(|known| name == *known) {
            return Err(in_the_way(format!("there is {} in it", name.to_string_lossy())));
        }
        empty = false;
    }
    if empty {
        return Ok(None);
    }
    let (_, run) = read_manifest(folder).map_err(|error| in_the_way(error.to_string()))?;
    Ok(Some(run))
}
