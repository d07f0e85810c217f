//! What a report is about, read from its folder.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::experiment::results::outcome::Outcome;
use crate::names::RunId;
use crate::peer::create::domains::DomainsByPath;
use crate::peer::folder::{RESULT, manifest_file, read_manifest};
use crate::peer::{Collected, Manifest};
use crate::report::faults::Faults;
use crate::report::html::clipped;
use crate::report::reads::{self, Reads};
use crate::report::recorded::Recorded;

/// Larger files of results are not read.
const MOST_RESULT_BYTES: u64 = 64 << 20;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("{} is no folder of a run, of a simulation or of an experiment: it has no manifest.json, peer-0/manifest.json or \
             results.json", .0.display())]
    Nothing(PathBuf),
    #[error("{}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
}

/// What kind of folder a run was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Peer,
    Simulated,
    Collected,
}

/// A module at its newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModuleVersion {
    pub(super) name: String,
    pub(super) version: Option<u64>,
    /// Hash of its parameters.
    pub(super) parameters: Option<String>,
}

/// A run.
pub(super) struct Run {
    pub(super) folder: PathBuf,
    pub(super) kind: Kind,
    pub(super) id: RunId,
    pub(super) manifest: Manifest,
    pub(super) recorded: Recorded,
    pub(super) faults: Faults,
    /// The `result` line of the peer or of the simulation.
    pub(super) result: Option<Value>,
    /// What its paths read; `None` without a collected run.
    pub(super) reads: Option<Reads>,
    /// The domains of what they read; `None` except where the run was created.
    pub(super) domains: Option<DomainsByPath>,
    pub(super) modules: Vec<ModuleVersion>,
}

/// An experiment.
pub(super) struct Tried {
    /// As its page of tables has it, or else the folder's name.
    pub(super) title: String,
    pub(super) outcomes: Vec<Outcome>,
}

/// Everything that a report is about.
#[derive(Default)]
pub struct Subjects {
    pub(super) runs: Vec<Run>,
    pub(super) experiments: Vec<Tried>,
}

impl Subjects {
    /// Reads folders of peers, of simulations, of collected runs and of experiments' results.
    ///
    /// # Errors
    /// If a folder has nothing to report, or something in it is damaged.
    pub fn read(folders: &[PathBuf]) -> Result<Self, ReportError> {
        let mut subjects = Self::default();
        for folder in folders {
            match kind_of(folder) {
                Some(kind) => subjects.runs.push(run(folder, kind)?),
                None => subjects.experiments.push(experiment(folder)?),
            }
        }
        Ok(subjects)
    }
}

impl Subjects {
    /// Leaves out what shows some of the text: words, examples and samples.
    pub fn leave_out_text(&mut self) {
        for run in &mut self.runs {
            for reads in run.reads.iter_mut().flat_map(|reads| &mut reads.paths) {
                reads.words.clear();
                reads.examples.clear();
            }
            if let Some(reads) = &mut run.reads {
                reads.has_text = false;
            }
            if let Some(Value::Object(result)) = &mut run.result {
                result.remove("sample");
            }
        }
    }
}

fn unreadable(path: &Path) -> impl Fn(String) -> ReportError {
    let path = path.to_owned();
    move |reason| ReportError::Unreadable { path: path.clone(), reason }
}

fn kind_of(folder: &Path) -> Option<Kind> {
    if manifest_file(folder).is_file() {
        let is_collected = folder.join("modules").is_dir();
        return Some(if is_collected { Kind::Collected } else { Kind::Peer });
    }
    manifest_file(&folder.join("peer-0")).is_file().then_some(Kind::Simulated)
}

fn run(folder: &Path, kind: Kind) -> Result<Run, ReportError> {
    let unreadable = unreadable(folder);
    let about = match kind {
        Kind::Simulated => folder.join("peer-0"),
        Kind::Peer => crate::peer::folder::present_folder(folder),
        Kind::Collected => folder.to_owned(),
    };
    let read = read_manifest(&about).map_err(|error| unreadable(format!("{error:#}")))?;
    let (_, manifest, id) = read.ok_or_else(|| ReportError::Nothing(folder.to_owned()))?;
    let collected = match kind {
        Kind::Collected => Some(folder.to_owned()),
        Kind::Simulated => Some(folder.join("model")).filter(|model| manifest_file(model).is_file()),
        Kind::Peer => None,
    };
    let collected = collected.map(|collected| Collected::open(&collected)).transpose();
    let collected = collected.map_err(|error| unreadable(error.to_string()))?;
    let reads = collected.as_ref().map(reads::read).transpose().map_err(|error| unreadable(error.to_string()))?;
    let domains = DomainsByPath::read(&about, id).map_err(|error| unreadable(format!("domains.json: {error}")))?;
    let domains = domains.filter(DomainsByPath::differ);
    let inner_steps = manifest.config.training.inner_steps;
    let recorded = Recorded::read(folder, &id.to_string(), inner_steps);
    let recorded = recorded.map_err(|error| unreadable(format!("metrics.jsonl: {error}")))?;
    let faults = Faults::read(folder).map_err(|error| unreadable(format!("pathswarm.log: {error}")))?;
    let result = json(&folder.join(RESULT))?;
    let modules = modules(collected.as_ref(), &recorded, result.as_ref());
    Ok(Run { folder: folder.to_owned(), kind, id, manifest, recorded, faults, result, reads, domains, modules })
}

/// From the collected run if there is one, else from what was recorded.
fn modules(collected: Option<&Collected>, recorded: &Recorded, result: Option<&Value>) -> Vec<ModuleVersion> {
    if let Some(collected) = collected {
        let module =
            |(module, found): (&crate::names::ModuleId, &crate::peer::collected::CollectedModule)| ModuleVersion {
                name: module.to_string(),
                version: Some(found.version.0),
                parameters: Some(found.parameters.to_string()),
            };
        return collected.modules.iter().map(module).collect();
    }
    let hashes = result.and_then(|result| result["modules"].as_object());
    let hash = |name: &str| hashes.and_then(|hashes| hashes.get(name)?.as_str().map(str::to_owned));
    let module = |(name, version): (&String, &u64)| ModuleVersion {
        name: name.clone(),
        version: Some(*version),
        parameters: hash(name),
    };
    recorded.versions.iter().map(module).collect()
}

fn experiment(folder: &Path) -> Result<Tried, ReportError> {
    let path = folder.join("results.json");
    let found = json(&path)?.ok_or_else(|| ReportError::Nothing(folder.to_owned()))?;
    let outcomes = serde_json::from_value(found).map_err(|error| unreadable(&path)(error.to_string()))?;
    let tables = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    let title = tables.lines().next().and_then(|line| line.strip_prefix("# ")).map(|title| clipped(title, 200));
    Ok(Tried { title: title.unwrap_or_else(|| name_of(folder)), outcomes })
}

/// The name of a folder, also of one such as `.`.
pub(super) fn name_of(folder: &Path) -> String {
    let whole = folder.canonicalize();
    let name = whole.as_deref().unwrap_or(folder).file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| folder.display().to_string())
}

/// A JSON file; `None` if there is none.
fn json(path: &Path) -> Result<Option<Value>, ReportError> {
    let wrong = unreadable(path);
    let bytes = match std::fs::metadata(path) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(wrong(error.to_string())),
        Ok(about) if about.len() > MOST_RESULT_BYTES => return Err(wrong("it is too large".to_owned())),
        Ok(_) => std::fs::read(path).map_err(|error| wrong(error.to_string()))?,
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_nothing_to_report_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Subjects::read(&[folder.path().to_owned()]).err().unwrap();
        assert!(matches!(&error, ReportError::Nothing(found) if found == folder.path()), "{error}");
        let error = Subjects::read(&[folder.path().join("nowhere")]).err().unwrap();
        assert!(error.to_string().contains("nowhere is no folder of a run"), "{error}");
    }

    #[test]
    fn what_is_damaged_is_named_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("results.json"), "[{\"arm\":").unwrap();
        let error = Subjects::read(&[folder.path().to_owned()]).err().unwrap();
        assert!(matches!(&error, ReportError::Unreadable { path, .. } if path.ends_with("results.json")), "{error}");
        std::fs::write(folder.path().join("manifest.json"), "{}").unwrap();
        let error = Subjects::read(&[folder.path().to_owned()]).err().unwrap();
        assert!(error.to_string().contains("manifest.json"), "{error}");
    }
}
