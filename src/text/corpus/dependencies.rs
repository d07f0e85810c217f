//! The default corpus: the sources of the program's own dependencies.
//!
//! Cargo has unpacked them to build the program, and `Cargo.lock` pins them. So every builder has the same text, of
//! several kinds, without a download. Documents are chosen in rounds: in each round, every package gives one document
//! of a kind, in the order of the documents' hashes, until the kind is full. So no large package and no generated file
//! fills a kind.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rayon::prelude::*;
use serde::Deserialize;

use crate::config::TextConfig;
use crate::text::corpus::collector::Collector;
use crate::text::corpus::error::{CorpusError, unreadable};
use crate::text::corpus::left_out::Reason;
use crate::text::corpus::listing::list;
use crate::text::documents::cut;

/// Larger files are mostly generated: tables, bindings and test vectors.
const MAX_FILE_BYTES: u64 = 256 << 10;

/// A package gives at most one part in so many of a kind.
const PACKAGE_SHARE: u64 = 4;

/// The target of the build. Dependencies differ between targets.
const TARGET: &str = env!("BUILT_FOR_TARGET");

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    C,
    Legal,
    Prose,
    Rust,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Legal => "legal",
            Self::Prose => "prose",
            Self::Rust => "rust",
        }
    }

    /// The kind of a file, by its name. TOML, JSON and the like are left out, since they are manifests with equal
    /// beginnings, or tables.
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
        let legal = ["license", "licence", "copying", "copyright", "notice", "unlicense"];
        match ending.as_str() {
            "rs" => Some(Self::Rust),
            "c" | "h" | "cc" | "cpp" | "cxx" | "hh" | "hpp" => Some(Self::C),
            _ if legal.iter().any(|start| name.starts_with(start)) => Some(Self::Legal),
            "md" => Some(Self::Prose),
            _ => None,
        }
    }
}

/// A document that may be chosen.
struct Candidate {
    hash: [u8; 32],
    kind: Kind,
    path: PathBuf,
    text: String,
}

/// Reads the packages of `manifest` and its lock file.
pub(super) fn read(manifest: &Path, text: &TextConfig, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    let folders = package_folders(manifest)?;
    let packages: Result<Vec<_>, CorpusError> = folders.par_iter().map(|folder| read_package(folder, text)).collect();
    let mut known = BTreeSet::new();
    let mut packages_of: BTreeMap<Kind, Vec<Vec<Candidate>>> = BTreeMap::new();
    for (candidates, left) in packages? {
        into.go_on()?;
        for (path, reason) in left {
            into.enter(&path);
            into.leave_out(reason);
        }
        let mut by_kind: BTreeMap<Kind, Vec<Candidate>> = BTreeMap::new();
        for candidate in candidates {
            if known.insert(candidate.hash) {
                by_kind.entry(candidate.kind).or_default().push(candidate);
            } else {
                into.enter(&candidate.path);
                into.leave_out(Reason::Duplicate);
            }
        }
        for (kind, candidates) in by_kind {
            packages_of.entry(kind).or_default().push(candidates);
        }
    }
    for (kind, packages) in packages_of {
        for document in choose(packages, text.kind_cap_bytes) {
            into.add(kind.name(), &document)?;
        }
    }
    Ok(())
}

/// The folders of all packages from a registry, one version of each, in order of name.
fn package_folders(manifest: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    let failed = |message: String| CorpusError::CargoFailed { manifest: manifest.to_owned(), message };
    let manifest = manifest.canonicalize().map_err(|error| unreadable(manifest, error))?;
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET, "--manifest-path"])
        .arg(&manifest)
        // So that the toolchain and cargo settings of the project apply.
        .current_dir(manifest.parent().unwrap_or(Path::new("/")))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => CorpusError::CargoMissing,
            _ => failed(error.to_string()),
        })?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let from_registry = |package: &Package| package.source.as_ref().is_some_and(|from| from.starts_with("registry+"));
    let mut packages: Vec<Package> = metadata.packages.into_iter().filter(from_registry).collect();
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    // Versions of one package are almost the same text.
    packages.dedup_by(|later, first| later.name == first.name);
    Ok(packages.into_iter().filter_map(|package| package.manifest_path.parent().map(Path::to_owned)).collect())
}

/// A file of a package, and why it or a part of it was left out.
type LeftFile = (PathBuf, Reason);

/// The documents of a package, by hash, up to the package's share of each kind.
fn read_package(folder: &Path, text: &TextConfig) -> Result<(Vec<Candidate>, Vec<LeftFile>), CorpusError> {
    let (mut left, mut candidates) = (Vec::new(), Vec::new());
    let listing = list(&[folder.to_owned()]);
    if !listing.faults.is_empty() {
        return Err(CorpusError::Unfit { files: listing.files.len() + listing.faults.len(), faults: listing.faults });
    }
    for (path, bytes) in listing.files {
        let Some(kind) = Kind::of(&path) else { continue };
        if bytes > MAX_FILE_BYTES {
            continue;
        }
        let Ok(content) = String::from_utf8(std::fs::read(&path).map_err(|error| unreadable(&path, error))?) else {
            left.push((path, Reason::NotText));
            continue;
        };
        for document in cut(&content, text.document_bytes) {
            if document.trim().len() < text.document_bytes / 8 {
                left.push((path.clone(), Reason::Empty));
            } else {
                let hash = hash_of_substance(&document);
                candidates.push(Candidate { hash, kind, path: path.clone(), text: document });
            }
        }
    }
    candidates.sort_by_key(|candidate| candidate.hash);
    let mut taken: BTreeMap<Kind, u64> = BTreeMap::new();
    candidates.retain(|candidate| {
        let bytes = taken.entry(candidate.kind).or_default();
        *bytes += candidate.text.len() as u64;
        *bytes <= text.kind_cap_bytes / PACKAGE_SHARE
    });
    Ok((candidates, left))
}

/// A hash that ignores white space and copyright lines, which are the main differences between copies of a licence.
fn hash_of_substance(document: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for line in document.lines().filter(|line| !line.to_lowercase().contains("copyright")) {
        for word in line.split_whitespace() {
            hasher.update(word.as_bytes());
            hasher.update(b" ");
        }
    }
    *hasher.finalize().as_bytes()
}

/// Takes documents in rounds, one from each package, until `cap` bytes are full. The result is in order of package and
/// hash.
fn choose(packages: Vec<Vec<Candidate>>, cap: u64) -> Vec<String> {
    let mut order: Vec<(usize, [u8; 32], usize, u64)> = Vec::new();
    for (package, candidates) in packages.iter().enumerate() {
        for (round, candidate) in candidates.iter().enumerate() {
            order.push((round, candidate.hash, package, candidate.text.len() as u64));
        }
    }
    order.sort_unstable();
    let mut total = 0;
    let mut chosen = BTreeSet::new();
    for (round, _, package, bytes) in order {
        if total + bytes > cap {
            break;
        }
        total += bytes;
        chosen.insert((package, round));
    }
    let numbered = packages.into_iter().enumerate().flat_map(|(package, candidates)| {
        candidates.into_iter().enumerate().map(move |(round, candidate)| ((package, round), candidate.text))
    });
    numbered.filter(|(place, _)| chosen.contains(place)).map(|(_, text)| text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Reads;
    use crate::text::{CorpusSource, read_corpus};

    fn candidate(text: String) -> Candidate {
        Candidate { hash: hash_of_substance(&text), kind: Kind::Rust, path: PathBuf::new(), text }
    }

    #[test]
    fn every_package_gives_one_document_before_any_gives_two() {
        let package = |name: &str, count: usize| -> Vec<Candidate> {
            (0..count).map(|i| candidate(format!("{name} number {i:04}"))).collect()
        };
        let size = "giant number 0000".len() as u64;
        let chosen = choose(vec![package("giant", 1000), package("small", 2), package("third", 3)], 6 * size);
        let of = |name: &str| chosen.iter().filter(|text| text.starts_with(name)).count();
        assert_eq!((of("giant"), of("small"), of("third")), (2, 2, 2));
        assert_eq!(choose(vec![package("giant", 1000)], 6 * size).len(), 6);
    }

    #[test]
    fn licences_that_differ_in_holder_and_wrapping_are_the_same() {
        let one = "MIT License\n\nCopyright (c) 2020 A\n\nPermission is hereby\ngranted";
        let other = "MIT License\n\nCopyright (c) 2021 B\n\nPermission is\nhereby granted\n";
        assert_eq!(hash_of_substance(one), hash_of_substance(other));
        assert_ne!(hash_of_substance(one), hash_of_substance("MIT License"));
    }

    #[test]
    fn kinds_go_by_the_name_of_the_file() {
        let of = |name: &str| Kind::of(Path::new(name)).map(Kind::name);
        assert_eq!(of("src/lib.rs"), Some("rust"));
        assert_eq!(of("a.H"), Some("c"));
        assert_eq!(of("LICENSE-MIT.md"), Some("legal"));
        assert_eq!(of("COPYING"), Some("legal"));
        assert_eq!(of("src/license.rs"), Some("rust"));
        assert_eq!(of("README.md"), Some("prose"));
        assert_eq!(of("Cargo.toml"), None);
    }

    #[test]
    fn a_missing_manifest_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("Cargo.toml");
        let stop = std::sync::atomic::AtomicBool::new(false);
        let source = CorpusSource::Dependencies { manifest };
        let error = read_corpus(&source, (&TextConfig::default(), Reads::Text), &stop).unwrap_err();
        assert!(error.to_string().contains("Cargo.toml"), "{error}");
    }

    #[test]
    fn a_package_is_cut_and_its_generated_and_tiny_files_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("lib.rs", &(0..100).map(|i| format!("fn number_{i}() -> u32 {{ {i} }}\n")).collect::<String>());
        write("tiny.rs", "// tiny\n");
        write("bindings.rs", &"pub const A: u32 = 1;\n".repeat(20_000));
        std::fs::write(folder.path().join("latin.md"), b"\xe9t\xe9").unwrap();
        let text = TextConfig { document_bytes: 500, ..TextConfig::default() };
        let (candidates, left) = read_package(folder.path(), &text).unwrap();
        assert!(candidates.len() >= 4);
        assert!(candidates.iter().all(|candidate| candidate.text.contains("number_")));
        assert!(candidates.is_sorted_by_key(|candidate| candidate.hash));
        let reasons: Vec<Reason> = left.iter().map(|(_, reason)| *reason).collect();
        assert_eq!(reasons, [Reason::NotText, Reason::Empty]);
        let little = TextConfig { kind_cap_bytes: 4 * 1200, ..text };
        assert_eq!(read_package(folder.path(), &little).unwrap().0.len(), 2);
    }
}
