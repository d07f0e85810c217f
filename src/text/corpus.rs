//! A corpus: documents in a fixed order, without duplicates, and what was left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use super::{dependencies, files};
use crate::config::TextConfig;
use crate::names::BlobHash;

/// Where text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorpusSource {
    /// The sources of the dependencies that this `Cargo.toml` and the `Cargo.lock` beside it pin: text that whoever
    /// built the program already has. The same wherever the lock and the platform are the same.
    Dependencies {
        /// The `Cargo.toml`.
        manifest: PathBuf,
    },
    /// Files and folders: JSON lines with a `text` field (`.jsonl`, `.ndjson`, `.json`), Parquet with a `text` column,
    /// anything else as plain text; each but Parquet also packed as `.zst` or `.gz`. Folders are read whole, in order of
    /// name, without hidden files.
    Paths(Vec<PathBuf>),
}

impl fmt::Display for CorpusSource {
    /// Its files, as an error names them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dependencies { manifest } => write!(f, "the dependencies of {}", manifest.display()),
            Self::Paths(paths) => {
                let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
                f.write_str(&paths.join(", "))
            }
        }
    }
}

/// How much of one kind of text a corpus holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindCount {
    /// `rust`, `c`, `prose` or `legal` of dependencies; the ending of a file otherwise.
    pub name: String,
    /// Documents.
    pub documents: u64,
    /// Bytes of UTF-8.
    pub bytes: u64,
}

/// What was left out, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Plain files, lines of JSON and rows that are not UTF-8.
    pub invalid_utf8: u64,
    /// Documents of nothing but white space, or too short to learn from.
    pub empty: u64,
    /// Documents that were there already.
    pub duplicate: u64,
    /// Lines that are no JSON object with such a string, and rows without one.
    pub unparsable: u64,
}

/// Which domain each document is of, where its source says so. Nothing is routed by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    names: BTreeMap<String, u32>,
    of: Vec<Option<u32>>,
}

impl Domains {
    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = (&str, u32)> {
        self.names.iter().map(|(name, number)| (name.as_str(), *number))
    }

    /// The number of a document's domain.
    pub fn of(&self, document: usize) -> Option<u32> {
        self.of.get(document).copied().flatten()
    }

    fn push(&mut self, domain: Option<&str>) {
        let number = domain.map(|name| match self.names.get(name) {
            Some(number) => *number,
            None => {
                let next = self.names.len() as u32;
                self.names.insert(name.to_owned(), next);
                next
            }
        });
        self.of.push(number);
    }
}

/// Documents and where they came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    /// In the order in which they were found; no two are the same.
    pub documents: Vec<String>,
    /// Of JSON lines with a `domain` field, and Parquet with such a column.
    pub domains: Domains,
    /// By name.
    pub kinds: Vec<KindCount>,
    /// What was left out.
    pub skipped: Skipped,
    /// BLAKE3 over the length (u64, little endian) and bytes of each document, in order.
    pub hash: BlobHash,
}

/// Why there is no corpus.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// The default corpus needs cargo.
    #[error(
        "cargo was not found, so the default corpus (the sources of this program's dependencies) cannot be read; \
         give text of your own with --corpus PATH"
    )]
    CargoMissing,
    /// Cargo could not list the packages.
    #[error(
        "cargo could not list the dependencies of {}: {message}; give text of your own with --corpus PATH",
        manifest.display()
    )]
    CargoFailed {
        /// The `Cargo.toml`.
        manifest: PathBuf,
        /// What cargo or the system said.
        message: String,
    },
    /// A file or folder that cannot be read or unpacked.
    #[error("{}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line that would fill the memory.
    #[error("{}: line {line} is longer than {} MiB; break it up", path.display(), files::MAX_LINE_BYTES >> 20)]
    LineTooLong {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
    },
    /// Parquet without that column.
    #[error(
        "{}: there is no text column \"{column}\", only {}; name one as text.column in the run's file",
        path.display(), if columns.is_empty() { "columns of other kinds".to_owned() } else { columns.join(", ") }
    )]
    NoColumn {
        /// Which file.
        path: PathBuf,
        /// The column that was asked for.
        column: String,
        /// Those that hold text, or may.
        columns: Vec<String>,
    },
    /// Nothing is left.
    #[error(
        "{corpus}: found no documents ({} not UTF-8, {} empty, {} without a \"{column}\" field left out); \
         give text files, or JSON lines or Parquet with a \"{column}\" field",
        skipped.invalid_utf8, skipped.empty, skipped.unparsable
    )]
    Nothing {
        /// Where.
        corpus: String,
        /// The field that holds the text.
        column: String,
        /// What was left out.
        skipped: Skipped,
    },
}

/// Reads all documents of a source. `text` says how large documents are and how much of a kind the default corpus
/// takes.
///
/// # Errors
/// If something named cannot be read, or nothing is left.
pub fn read_corpus(source: &CorpusSource, text: &TextConfig) -> Result<Corpus, CorpusError> {
    let mut gathering = Gathering::default();
    match source {
        CorpusSource::Dependencies { manifest } => dependencies::read(manifest, text, &mut gathering)?,
        CorpusSource::Paths(paths) => files::read(paths, text, &mut gathering)?,
    }
    gathering.finish(source, &text.column)
}

/// Parts the documents into train and test. A document's own BLAKE3 decides, so that adding or removing others moves
/// none; both parts keep the order.
pub fn split_test(documents: Vec<String>, share: f64) -> (Vec<String>, Vec<String>) {
    documents.into_iter().partition(|document| !falls_within(blake3::hash(document.as_bytes()).as_bytes(), share))
}

/// Whether a hash, read as a number from 0 to 1, lies below `share`.
pub(crate) fn falls_within(hash: &[u8], share: f64) -> bool {
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(hash) {
        *to = *from;
    }
    (u64::from_le_bytes(head) as f64) < share * 2f64.powi(64)
}

/// Documents as they come in, without duplicates.
#[derive(Default)]
pub(super) struct Gathering {
    documents: Vec<String>,
    domains: Domains,
    seen: BTreeSet<[u8; 32]>,
    kinds: BTreeMap<String, (u64, u64)>,
    pub(super) skipped: Skipped,
}

impl Gathering {
    /// Takes a document, unless it is empty or known.
    pub(super) fn add(&mut self, kind: &str, document: String) {
        self.add_of(kind, None, document);
    }

    /// One whose domain the source may name.
    pub(super) fn add_of(&mut self, kind: &str, domain: Option<&str>, document: String) {
        if document.trim().is_empty() {
            self.skipped.empty += 1;
            return;
        }
        if !self.seen.insert(*blake3::hash(document.as_bytes()).as_bytes()) {
            self.skipped.duplicate += 1;
            return;
        }
        let count = self.kinds.entry(kind.to_owned()).or_default();
        count.0 += 1;
        count.1 += document.len() as u64;
        self.documents.push(document);
        self.domains.push(domain);
    }

    fn finish(self, source: &CorpusSource, column: &str) -> Result<Corpus, CorpusError> {
        if self.documents.is_empty() {
            let (corpus, column) = (source.to_string(), column.to_owned());
            return Err(CorpusError::Nothing { corpus, column, skipped: self.skipped });
        }
        let kinds = self.kinds.into_iter().map(|(name, (documents, bytes))| KindCount { name, documents, bytes });
        let hash = hash_of(&self.documents);
        let Self { documents, domains, skipped, .. } = self;
        Ok(Corpus { documents, domains, kinds: kinds.collect(), skipped, hash })
    }
}

fn hash_of(documents: &[String]) -> BlobHash {
    let mut hasher = blake3::Hasher::new();
    for document in documents {
        hasher.update(&(document.len() as u64).to_le_bytes());
        hasher.update(document.as_bytes());
    }
    BlobHash(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_taken_once_and_counted_by_kind() {
        let mut gathering = Gathering::default();
        for (kind, text) in [("md", "one"), ("txt", "two"), ("txt", "one"), ("txt", " \n"), ("md", "three")] {
            gathering.add(kind, text.into());
        }
        let corpus = gathering.finish(&CorpusSource::Paths(Vec::new()), "text").unwrap();
        assert_eq!(corpus.documents, ["one", "two", "three"]);
        assert_eq!(corpus.skipped, Skipped { empty: 1, duplicate: 1, ..Skipped::default() });
        let kinds: Vec<_> = corpus.kinds.iter().map(|kind| (kind.name.as_str(), kind.documents, kind.bytes)).collect();
        assert_eq!(kinds, [("md", 2, 8), ("txt", 1, 3)]);
    }

    #[test]
    fn the_hash_knows_where_documents_end() {
        let hash = |documents: &[&str]| hash_of(&documents.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["a", "b"]), hash(&["b", "a"]));
        assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
    }

    #[test]
    fn the_test_share_depends_on_the_document_alone() {
        let documents: Vec<String> = (0..2000).map(|i| format!("document {i}")).collect();
        let (train, test) = split_test(documents.clone(), 0.1);
        assert_eq!(train.len() + test.len(), 2000);
        assert!((140..=260).contains(&test.len()), "{}", test.len());
        let (_, fewer) = split_test(documents[..1000].to_vec(), 0.1);
        assert_eq!(fewer, test[..fewer.len()]);
        assert!(split_test(documents, 0.0).1.is_empty());
    }

    #[test]
    fn a_corpus_of_nothing_is_an_error_that_says_what_was_there() {
        let mut gathering = Gathering::default();
        gathering.add("txt", String::new());
        gathering.skipped.unparsable = 7;
        let source = CorpusSource::Paths(vec!["a.txt".into(), "b".into()]);
        let message = gathering.finish(&source, "text").unwrap_err().to_string();
        assert!(
            message.starts_with("a.txt, b: ") && message.contains("1 empty") && message.contains("7 without"),
            "{message}"
        );
    }
}
