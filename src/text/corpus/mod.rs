//! A corpus: documents in a fixed order, without duplicates, and counts of what was left out.
//!
//! [`files`] reads files and folders, [`parquet_file`] Parquet, and [`dependencies`] the sources of the program's own
//! dependencies. All give each document to [`Collector`], which drops duplicates and counts.

mod dependencies;
pub mod error;
mod files;
mod parquet_file;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::config::{Reads, TextConfig};
use crate::names::BlobHash;
use crate::text::corpus::error::CorpusError;
use crate::text::document::Document;
use crate::text::tokenizer::{Tokenizer, TokenizerError};

/// The source of a corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorpusSource {
    /// The sources of the dependencies that this `Cargo.toml` and its `Cargo.lock` pin. Equal for equal locks and
    /// targets.
    Dependencies {
        /// Path of the `Cargo.toml`.
        manifest: PathBuf,
    },
    /// Files and folders: JSON lines with a `text` field (`.jsonl`, `.ndjson`, `.json`), Parquet with a `text` column,
    /// prepared images (`.images`), everything else as plain text. All but Parquet and images may be compressed
    /// (`.zst`, `.gz`). Folders are read completely, in order of name, without hidden files.
    Paths(Vec<PathBuf>),
}

impl fmt::Display for CorpusSource {
    /// The files, for error messages.
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

/// Amount of one kind of text in a corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindCount {
    /// `rust`, `c`, `prose` or `legal` for dependencies, else the extension of the file.
    pub name: String,
    pub documents: u64,
    /// Bytes of UTF-8.
    pub bytes: u64,
}

/// Counts of what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Plain files, JSON lines and rows that are not UTF-8.
    pub invalid_utf8: u64,
    /// Documents of only white space, or too short to learn from.
    pub empty: u64,
    pub duplicate: u64,
    /// Lines that are not a JSON object with such a string, and rows without a value.
    pub unparsable: u64,
}

/// The domain of each document, if its source names one. Routing does not use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    names: BTreeMap<String, u32>,
    of: Vec<Option<u32>>,
}

impl Domains {
    /// Names in order of number.
    pub fn names(&self) -> impl Iterator<Item = (&str, u32)> {
        self.names.iter().map(|(name, number)| (name.as_str(), *number))
    }

    /// The number of a document's domain.
    pub fn of(&self, document: usize) -> Option<u32> {
        self.of.get(document).copied().flatten()
    }

    /// Adds the domain of the next document.
    pub fn push(&mut self, domain: Option<&str>) {
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

/// The contents of a corpus in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Number of distinct documents.
    pub documents: u64,
    /// Bytes of UTF-8.
    pub bytes: u64,
    /// By name.
    pub kinds: Vec<KindCount>,
    pub skipped: Skipped,
    /// Names of classes, for images.
    pub classes: Vec<String>,
    /// BLAKE3 over the length (u64, little endian) and bytes of each document, in order.
    pub hash: BlobHash,
}

/// A corpus in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    /// Distinct texts, in the order of the source.
    pub documents: Vec<String>,
    /// Or images, as ids.
    pub images: Vec<Vec<u32>>,
    /// From the `domain` field of JSON lines, or column of Parquet.
    pub domains: Domains,
    pub survey: Survey,
}

/// A document and its metadata.
pub struct Found<'a> {
    pub document: Document<'a>,
    /// Domain named by the source.
    pub domain: Option<&'a str>,
    /// Bytes read of the source's files on the disk, and their total; 0 if the source is not a file.
    pub progress: (u64, u64),
}

/// Receives documents one after the other, until it breaks.
pub type Taker<'a> = dyn FnMut(Found<'_>) -> ControlFlow<()> + 'a;

/// Reads all documents of a source into memory. `text` has the size of documents and the limit for each kind of the
/// default corpus; `reads` is the input of the network.
pub fn read_corpus(source: &CorpusSource, (text, reads): (&TextConfig, Reads)) -> Result<Corpus, CorpusError> {
    let (mut documents, mut images, mut domains) = (Vec::new(), Vec::new(), Domains::default());
    let survey = stream_corpus(source, (text, reads), &mut |found| {
        match found.document {
            Document::Text(text) => documents.push(text.to_owned()),
            Document::Image(_) => images.extend(found.document.image_ids()),
        }
        domains.push(found.domain);
        ControlFlow::Continue(())
    })?;
    Ok(Corpus { documents, images, domains, survey })
}

impl Corpus {
    /// All documents as ids, each followed by its end token or its class.
    pub fn ids(&self, tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>, TokenizerError> {
        if self.images.is_empty() { tokenizer.encode_all(&self.documents) } else { Ok(self.images.clone()) }
    }
}

/// Reads all documents of a source one after the other, and keeps only their hashes in memory. Otherwise as
/// [`read_corpus`].
pub fn stream_corpus(
    source: &CorpusSource,
    (text, reads): (&TextConfig, Reads),
    taker: &mut Taker<'_>,
) -> Result<Survey, CorpusError> {
    let mut collector = Collector::new(taker, reads, source);
    match source {
        CorpusSource::Dependencies { manifest } => dependencies::read(manifest, text, &mut collector)?,
        CorpusSource::Paths(paths) => files::read(paths, text, &mut collector)?,
    }
    collector.finish(&text.column)
}

/// Whether a document is in the test set, which has this share of all. Only its own BLAKE3 decides, so adding or
/// removing other documents moves none.
pub fn is_test(document: impl AsRef<[u8]>, share: f64) -> bool {
    falls_within(blake3::hash(document.as_ref()).as_bytes(), share)
}

/// Whether a hash, as a number from 0 to 1, is below `share`.
pub(crate) fn falls_within(hash: &[u8], share: f64) -> bool {
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(hash) {
        *to = *from;
    }
    (u64::from_le_bytes(head) as f64) < share * 2f64.powi(64)
}

/// Receives documents from a source and drops duplicates by their hash.
pub(super) struct Collector<'a> {
    taker: &'a mut Taker<'a>,
    seen: BTreeSet<[u8; 32]>,
    kinds: BTreeMap<String, (u64, u64)>,
    reads: Reads,
    source: &'a CorpusSource,
    hasher: blake3::Hasher,
    classes: Option<Vec<String>>,
    pub(super) skipped: Skipped,
    /// Bytes read of the source's files on the disk, and their total.
    pub(super) progress: (u64, u64),
}

impl<'a> Collector<'a> {
    fn new(taker: &'a mut Taker<'_>, reads: Reads, source: &'a CorpusSource) -> Self {
        let (seen, kinds, hasher) = (BTreeSet::new(), BTreeMap::new(), blake3::Hasher::new());
        Self { taker, seen, kinds, reads, source, hasher, classes: None, skipped: Skipped::default(), progress: (0, 0) }
    }

    /// Sets the classes of a file of images. Their numbers must mean the same in all files.
    pub(super) fn name_classes(&mut self, file: &Path, classes: &[String]) -> Result<(), CorpusError> {
        if self.classes.get_or_insert_with(|| classes.to_vec()) == classes {
            return Ok(());
        }
        Err(CorpusError::Classes { path: file.to_owned() })
    }

    /// Passes a document on, unless it is empty or a duplicate.
    pub(super) fn add(&mut self, kind: &str, text: &str) -> Result<(), CorpusError> {
        self.add_of(kind, None, Document::Text(text))
    }

    /// The same with a domain.
    pub(super) fn add_of(
        &mut self,
        kind: &str,
        domain: Option<&str>,
        document: Document<'_>,
    ) -> Result<(), CorpusError> {
        let bytes = document.bytes();
        if document.is_empty() {
            self.skipped.empty += 1;
            return Ok(());
        }
        if !self.seen.insert(*blake3::hash(bytes).as_bytes()) {
            self.skipped.duplicate += 1;
            return Ok(());
        }
        let unsuited = |source| CorpusError::Document { corpus: self.source.to_string(), source };
        document.suits(self.reads).map_err(unsuited)?;
        let (documents, sum) = self.kinds.entry(kind.to_owned()).or_default();
        *documents += 1;
        *sum += bytes.len() as u64;
        self.hasher.update(&(bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
        match (self.taker)(Found { document, domain, progress: self.progress }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CorpusError::Refused),
        }
    }

    fn finish(self, column: &str) -> Result<Survey, CorpusError> {
        let counted = self.kinds.into_iter().map(|(name, (documents, bytes))| KindCount { name, documents, bytes });
        let (kinds, skipped): (Vec<KindCount>, _) = (counted.collect(), self.skipped);
        if kinds.is_empty() {
            return Err(CorpusError::Nothing { corpus: self.source.to_string(), column: column.to_owned(), skipped });
        }
        let documents = kinds.iter().map(|kind| kind.documents).sum();
        let bytes = kinds.iter().map(|kind| kind.bytes).sum();
        let classes = self.classes.unwrap_or_default();
        Ok(Survey { documents, bytes, kinds, skipped, classes, hash: BlobHash(*self.hasher.finalize().as_bytes()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documents that are passed on of some kinds.
    fn gather(documents: &[(&str, &str)], before: Skipped) -> (Vec<String>, Result<Survey, CorpusError>) {
        let mut taken = Vec::new();
        let mut taker = |found: Found<'_>| {
            taken.push(String::from_utf8(found.document.bytes().to_vec()).unwrap());
            ControlFlow::Continue(())
        };
        let source = CorpusSource::Paths(vec!["a.txt".into(), "b".into()]);
        let mut collector = Collector::new(&mut taker, Reads::Text, &source);
        collector.skipped = before;
        documents.iter().for_each(|(kind, text)| collector.add(kind, text).unwrap());
        let survey = collector.finish("text");
        (taken, survey)
    }

    #[test]
    fn a_document_is_taken_once_and_counted_by_kind() {
        let documents = [("md", "one"), ("txt", "two"), ("txt", "one"), ("txt", " \n"), ("md", "three")];
        let (taken, survey) = gather(&documents, Skipped::default());
        let survey = survey.unwrap();
        assert_eq!(taken, ["one", "two", "three"]);
        assert_eq!(survey.skipped, Skipped { empty: 1, duplicate: 1, ..Skipped::default() });
        let kinds: Vec<_> = survey.kinds.iter().map(|kind| (kind.name.as_str(), kind.documents, kind.bytes)).collect();
        assert_eq!(kinds, [("md", 2, 8), ("txt", 1, 3)]);
        assert_eq!((survey.documents, survey.bytes), (3, 11));
    }

    #[test]
    fn the_hash_knows_where_documents_end() {
        let hash = |documents: &[&str]| {
            let of_kind: Vec<_> = documents.iter().map(|text| ("txt", *text)).collect();
            gather(&of_kind, Skipped::default()).1.unwrap().hash
        };
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["a", "b"]), hash(&["b", "a"]));
        assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
        let expected = [&1u64.to_le_bytes()[..], b"a", &2u64.to_le_bytes(), b"bc"].concat();
        assert_eq!(hash(&["a", "bc"]), BlobHash::of(&expected));
    }

    #[test]
    fn whoever_takes_no_more_is_given_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.jsonl");
        std::fs::write(&file, "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n").unwrap();
        let mut taken = 0;
        let found =
            stream_corpus(&CorpusSource::Paths(vec![file]), (&TextConfig::default(), Reads::Text), &mut |found| {
                taken += 1;
                assert_eq!(found.progress, (50, 50), "as much as the file has, since it is read at once");
                if found.document == Document::Text("two") { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        assert!(matches!(found, Err(CorpusError::Refused)) && taken == 2);
    }

    #[test]
    fn the_test_share_depends_on_the_document_alone() {
        let tested = |share| (0..2000).filter(|i| is_test(format!("document {i}"), share)).collect::<Vec<_>>();
        let some = tested(0.1);
        assert!((140..=260).contains(&some.len()), "{}", some.len());
        assert!(tested(0.05).iter().all(|document| some.contains(document)), "a smaller share is a part of it");
        assert!(tested(0.0).is_empty());
    }

    #[test]
    fn a_corpus_of_nothing_is_an_error_that_says_what_was_there() {
        let (_, survey) = gather(&[("txt", "")], Skipped { unparsable: 7, ..Skipped::default() });
        let message = survey.unwrap_err().to_string();
        assert!(
            message.starts_with("a.txt, b: ") && message.contains("1 empty") && message.contains("7 without"),
            "{message}"
        );
    }
}
