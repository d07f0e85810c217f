//! A whole run in one folder, for evaluation and generation without a swarm.
//!
//! ```text
//! manifest.json                  the manifest's exact bytes: their BLAKE3 is the run's id
//! tokenizer.json                 as the manifest names it
//! router                         as the manifest names it
//! router-state                   the latest router, in a run that reshards
//! ancestor.safetensors           as the manifest names it
//! pretrained.json                as the manifest names it, in a run that came from a pretrained model
//! modules/0.1.safetensors        parameters of module (0, 1); metadata: run, module, version, state, parameters
//! best/3.safetensors             own parameters of path 3, if it was best before the end, or keeps unsent changes;
//!                                metadata: run, path, before_phase, parameters
//! shards/test-3.tokens           test text of path 3, if the run shares its text
//! shards/table                   as the manifest names it
//! ```
//!
//! [`writing`] makes such a folder; [`Local`](crate::peer::inference::client::Local) runs its paths.

#[cfg(test)]
mod tests;
pub mod writing;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::manifest::{Manifest, ManifestError};
use crate::grid::Grid;
use crate::model::exchange::{self, ExchangeError};
use crate::model::hugging_face::pretrained::{PretrainedFiles, PretrainedFilesError};
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, RunId, Version};
use crate::peer::folder::amend_from;
use crate::protocol::limits::MAX_CONTROL_BYTES;
use crate::routing::resharding::RouterState;
use crate::routing::{Router, RouterError};
use crate::text::{IdsWriter, TokenSet, Tokenizer, TokenizerError, TokensError};

pub(super) const MANIFEST: &str = "manifest.json";

/// The run's amendment, if there is one.
pub(super) const AMENDMENT: &str = "amendment";
pub(super) const TOKENIZER: &str = "tokenizer.json";
pub(super) const ROUTER: &str = "router";
/// The state of the router, in a run that reshards.
pub(super) const ROUTER_STATE: &str = "router-state";
pub(super) const ANCESTOR: &str = "ancestor.safetensors";
/// Settings and chat template of the pretrained model, in a run that came from one.
pub const PRETRAINED: &str = "pretrained.json";
pub(super) const MODULES: &str = "modules";
/// Own parameters of paths.
pub(super) const BEST: &str = "best";
pub(super) const SHARDS: &str = "shards";
pub(super) const SHARD_TABLE: &str = "shards/table";

/// Limit of a safetensors header.
const MAX_HEADER_BYTES: u64 = 4 << 20;

pub(super) fn module_file(module: ModuleId) -> String {
    format!("{MODULES}/{module}.safetensors")
}

pub(super) fn best_file(path: PathId) -> String {
    format!("{BEST}/{path}.safetensors")
}

pub(super) fn test_file(path: PathId) -> String {
    format!("{SHARDS}/test-{path}.tokens")
}

#[derive(Debug, thiserror::Error)]
pub enum CollectedError {
    #[error("{} is not a collected run: it has no {MANIFEST}", .0.display())]
    NotCollected(PathBuf),
    #[error("{}: {source}", path.display())]
    Manifest { path: PathBuf, source: ManifestError },
    #[error("{} is missing", .0.display())]
    Missing(PathBuf),
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} does not match the manifest: it has {found}, expected {expected}", path.display())]
    Changed { path: PathBuf, found: String, expected: String },
    #[error("{}: {reason}", path.display())]
    Module { path: PathBuf, reason: String },
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Router(#[from] RouterError),
    #[error(transparent)]
    Pretrained(#[from] PretrainedFilesError),
    #[error("the ancestor: {0}")]
    Ancestor(#[from] ExchangeError),
    #[error("{}: {source}", path.display())]
    Tokens { path: PathBuf, source: TokensError },
}

/// A collected module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectedModule {
    /// Number of updates.
    pub version: Version,
    /// BLAKE3 of its whole state with momentum, as the swarm attests it.
    pub state: BlobHash,
    /// BLAKE3 of its parameters alone, as `pathswarm status` shows it.
    pub parameters: BlobHash,
}

/// An open folder. Everything that the manifest names by hash has been checked. A module's parameters are checked
/// against the hash in their own file when they are read.
pub struct Collected {
    pub folder: PathBuf,
    pub run: RunId,
    pub manifest: Manifest,
    pub grid: Grid,
    pub tokenizer: Tokenizer,
    pub router: Router,
    pub ancestor: Vec<Vec<f32>>,
    /// What no level lists, beside adapters: it is the ancestor's in every path.
    pub frozen: Arc<[f32]>,
    /// Empty if the run did not come from a pretrained model.
    pub pretrained: PretrainedFiles,
    pub modules: BTreeMap<ModuleId, CollectedModule>,
    /// For paths with own parameters, the hash of these.
    best: BTreeMap<PathId, BlobHash>,
}

impl Collected {
    /// Opens a folder and checks it.
    pub fn open(folder: &Path) -> Result<Self, CollectedError> {
        let (mut manifest, run) = read_manifest(folder)?;
        let unfit = |source: ManifestError| CollectedError::Manifest { path: folder.join(MANIFEST), source };
        manifest.take_table(&read_named(folder, SHARD_TABLE, manifest.shards.table)?).map_err(unfit)?;
        let grid = manifest.config.grid().map_err(|error| unfit(error.into()))?;
        let tokenizer = Tokenizer::from_json(&read_named(folder, TOKENIZER, manifest.tokenizer)?)?;
        let created = Router::decode(&read_named(folder, ROUTER, manifest.router)?)?;
        let router = read_router_state(folder, run, &manifest)?.map_or(created, |state| state.router);
        let config = &manifest.config;
        router.check(grid.path_count(), config.model.width, config.routing.prefix_tokens)?;
        if let Some(found) = router.ancestor().filter(|found| *found != manifest.ancestor.hash) {
            let (found, expected) = (format!("ancestor {found}"), format!("ancestor {}", manifest.ancestor.hash));
            return Err(CollectedError::Changed { path: folder.join(ROUTER), found, expected });
        }
        let file = read_named(folder, ANCESTOR, manifest.ancestor)?;
        let ancestor = config.levels.iter().map(|level| exchange::decode_level(&file, &config.model, level));
        let ancestor = ancestor.collect::<Result<_, _>>()?;
        let frozen = exchange::decode_frozen(&file, &config.model, &config.levels)?.into();
        let pretrained = match manifest.pretrained {
            Some(named) => PretrainedFiles::decode(&read_named(folder, PRETRAINED, named)?)?,
            None => PretrainedFiles::default(),
        };
        for path in grid.paths() {
            match read_named(folder, &test_file(path), manifest.shard(path).test) {
                Ok(_) | Err(CollectedError::Missing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let mut modules = BTreeMap::new();
        for module in grid.modules() {
            modules.insert(module, read_about(folder, run, module)?);
        }
        let mut best = BTreeMap::new();
        if config.paths_end_apart() {
            for path in grid.paths() {
                best.extend(read_best(folder, run, path)?.map(|hash| (path, hash)));
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            run,
            manifest,
            grid,
            tokenizer,
            router,
            ancestor,
            frozen,
            pretrained,
            modules,
            best,
        })
    }

    /// The same, in the order of one level with all parameters.
    pub fn whole_ancestor(&self) -> Result<Vec<f32>, CollectedError> {
        let run = self.manifest.config.undivided();
        let file = read_named(&self.folder, ANCESTOR, self.manifest.ancestor)?;
        Ok(exchange::decode_level(&file, &run.model, &run.levels[0])?)
    }

    /// The hash of a path's own parameters, if it has any.
    pub fn best(&self, path: PathId) -> Option<BlobHash> {
        self.best.get(&path).copied()
    }

    /// A path's parameters, level by level: its own, or those of its modules.
    pub fn levels_of(&self, path: PathId) -> Result<Vec<Vec<f32>>, CollectedError> {
        let Some(expected) = self.best(path) else {
            return self.grid.modules_of(path).into_iter().map(|module| self.parameters_of(module)).collect();
        };
        let file = self.folder.join(best_file(path));
        let wrong = |reason: String| CollectedError::Module { path: file.clone(), reason };
        let count: usize = self.manifest.level_counts().iter().sum();
        let bytes = read_file(&file, 4 * count as u64 + MAX_HEADER_BYTES)?;
        let config = &self.manifest.config;
        let level = |level| exchange::decode_level(&bytes, &config.model, level);
        let levels: Vec<Vec<f32>> =
            config.levels.iter().map(level).collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
        match hash_of(&levels.concat()) {
            found if found == expected => Ok(levels),
            found => Err(wrong(format!("its parameters have hash {found}, its metadata says {expected}"))),
        }
    }

    pub fn parameters_of(&self, module: ModuleId) -> Result<Vec<f32>, CollectedError> {
        let path = self.folder.join(module_file(module));
        let wrong = |reason: String| CollectedError::Module { path: path.clone(), reason };
        let level = usize::from(module.level);
        let count = self.manifest.level_counts()[level] as u64;
        let bytes = read_file(&path, 4 * count + MAX_HEADER_BYTES)?;
        let config = &self.manifest.config;
        let parameters = exchange::decode_level(&bytes, &config.model, &config.levels[level])
            .map_err(|error| wrong(error.to_string()))?;
        let (found, expected) = (hash_of(&parameters), self.modules[&module].parameters);
        if found != expected {
            return Err(wrong(format!("its parameters have hash {found}, its metadata says {expected}")));
        }
        Ok(parameters)
    }

    /// The test text that the router sends to a path; `None` if it is not in the folder.
    pub fn test_text(&self, path: PathId) -> Result<Option<TokenSet>, CollectedError> {
        let name = test_file(path);
        let bytes = match read_named(&self.folder, &name, self.manifest.shard(path).test) {
            Ok(bytes) => bytes,
            Err(CollectedError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let model = &self.manifest.config.model;
        let set = TokenSet::read_for(model, &bytes[..], bytes.len() as u64, IdsWriter::in_memory());
        Ok(Some(set.map_err(|source| CollectedError::Tokens { path: self.folder.join(name), source })?))
    }
}

/// BLAKE3 of parameters as 32-bit floats, little endian.
pub(super) fn hash_of(parameters: &[f32]) -> BlobHash {
    let mut hasher = blake3::Hasher::new();
    for value in parameters {
        hasher.update(&value.to_le_bytes());
    }
    BlobHash(*hasher.finalize().as_bytes())
}

/// The checksum after a state of a run's router.
pub(super) fn seal_of(run: RunId, state: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(&run.0).update(state).finalize().as_bytes()
}

/// The router when the run was collected; `None` in a run without resharding.
fn read_router_state(folder: &Path, run: RunId, manifest: &Manifest) -> Result<Option<RouterState>, CollectedError> {
    let Some(module) = manifest.config.router_module() else { return Ok(None) };
    let path = folder.join(ROUTER_STATE);
    let wrong = |reason: String| CollectedError::Module { path: path.clone(), reason };
    let most = RouterState::size_bytes(manifest.shards.listed().len() as u32, manifest.config.model.width) + 32;
    let bytes = read_file(&path, most)?;
    match bytes.split_last_chunk() {
        Some((state, seal)) if *seal == seal_of(run, state) => {
            Ok(Some(manifest.router_state(state).map_err(|error| wrong(error.to_string()))?))
        }
        _ => Err(wrong(format!("it is not module {module} of run {run}"))),
    }
}

/// The manifest in a folder, as its amendment has it, and the run's id.
pub(super) fn read_manifest(folder: &Path) -> Result<(Manifest, RunId), CollectedError> {
    let path = folder.join(MANIFEST);
    let bytes = match read_file(&path, MAX_CONTROL_BYTES as u64) {
        Err(CollectedError::Missing(_)) => return Err(CollectedError::NotCollected(folder.to_owned())),
        other => other?,
    };
    let (mut manifest, run) = Manifest::decode(&bytes).map_err(|source| CollectedError::Manifest { path, source })?;
    amend_from(folder, &mut manifest, run);
    Ok((manifest, run))
}

/// A file that the manifest names.
fn read_named(folder: &Path, name: &str, blob: BlobRef) -> Result<Vec<u8>, CollectedError> {
    let path = folder.join(name);
    let bytes = read_file(&path, blob.bytes)?;
    let found = BlobRef::of(&bytes);
    if found != blob {
        let (found, expected) = (format!("hash {}", found.hash), format!("hash {}", blob.hash));
        return Err(CollectedError::Changed { path, found, expected });
    }
    Ok(bytes)
}

/// The size is checked before anything is read.
fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, CollectedError> {
    let (mut file, bytes) = open_file(path)?;
    if bytes > most {
        let (found, expected) = (format!("{bytes} bytes"), format!("at most {most}"));
        return Err(CollectedError::Changed { path: path.to_owned(), found, expected });
    }
    let mut contents = Vec::new();
    let read = file.by_ref().take(most).read_to_end(&mut contents);
    read.map_err(|source| CollectedError::Unreadable { path: path.to_owned(), source })?;
    Ok(contents)
}

fn open_file(path: &Path) -> Result<(File, u64), CollectedError> {
    let opened = File::open(path).and_then(|file| {
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    });
    opened.map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => CollectedError::Missing(path.to_owned()),
        _ => CollectedError::Unreadable { path: path.to_owned(), source },
    })
}

/// The metadata of a module's file. Reads only the header.
fn read_about(folder: &Path, run: RunId, module: ModuleId) -> Result<CollectedModule, CollectedError> {
    let path = folder.join(module_file(module));
    let wrong = |reason: &str| CollectedError::Module { path: path.clone(), reason: reason.to_owned() };
    let notes = read_notes(&path)?;
    let note = |key: &str| notes.get(key).map(String::as_str).unwrap_or_default();
    if note("run") != run.to_string() || note("module") != module.to_string() {
        return Err(wrong(&format!("it is not module {module} of run {run}")));
    }
    let version = note("version").parse().map_err(|_| wrong("its metadata has no version"))?;
    let hash = |key: &str| note(key).parse().map_err(|_| wrong(&format!("its metadata has no hash of its {key}")));
    Ok(CollectedModule { version: Version(version), state: hash("state")?, parameters: hash("parameters")? })
}

/// The hash of a path's own parameters; `None` without a file.
fn read_best(folder: &Path, run: RunId, path: PathId) -> Result<Option<BlobHash>, CollectedError> {
    let file = folder.join(best_file(path));
    let notes = match read_notes(&file) {
        Err(CollectedError::Missing(_)) => return Ok(None),
        notes => notes?,
    };
    let note = |key: &str| notes.get(key).map(String::as_str).unwrap_or_default();
    let wrong = |reason: String| CollectedError::Module { path: file.clone(), reason };
    if note("run") != run.to_string() || note("path") != path.to_string() {
        return Err(wrong(format!("it is not path {path} of run {run}")));
    }
    let hash = note("parameters").parse();
    Ok(Some(hash.map_err(|_| wrong("its metadata has no hash of its parameters".to_owned()))?))
}

/// The metadata of a safetensors file.
fn read_notes(path: &Path) -> Result<HashMap<String, String>, CollectedError> {
    let (mut file, _) = open_file(path)?;
    let wrong = |reason: &str| CollectedError::Module { path: path.to_owned(), reason: reason.to_owned() };
    let read = |from: &mut dyn Read, most: u64| {
        let mut bytes = Vec::new();
        let read = from.take(most).read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|source| CollectedError::Unreadable { path: path.to_owned(), source })
    };
    let mut header = read(&mut file, 8)?;
    let length = header.first_chunk().map(|length| u64::from_le_bytes(*length));
    let length = length.filter(|length| *length <= MAX_HEADER_BYTES).ok_or_else(|| wrong("no safetensors file"))?;
    header.extend(read(&mut file, length)?);
    exchange::notes(&header).map_err(|error| wrong(&error.to_string()))
}
