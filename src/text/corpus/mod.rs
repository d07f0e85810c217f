//! A corpus: documents in a fixed order, without duplicates, and what was left out.
//!
//! [`listing`] finds the files, [`kind`] looks at the first bytes of each, and [`files`] reads them: [`plain_file`],
//! [`json_file`] with [`json_object`], and [`parquet_file`], the first two through [`lines`] and [`unpack`]. Objects that
//! are conversations are read by [`records`].
//! [`dependencies`] reads the sources of the program's own dependencies. All give each document to
//! [`Collector`](collector::Collector), which drops duplicates; [`left_out`] is what is told about the rest.

mod collector;
mod dependencies;
pub mod error;
mod files;
mod json_file;
mod json_object;
mod kind;
pub mod left_out;
mod lines;
mod listing;
mod parquet_file;
mod plain_file;
mod records;
mod unpack;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use crate::config::{Reads, TextConfig};
use crate::names::BlobHash;
use crate::text::chat::MaskedText;
use crate::text::corpus::collector::Collector;
use crate::text::corpus::error::CorpusError;
use crate::text::corpus::left_out::LeftOut;
use crate::text::corpus::records::Records;
use crate::text::document::Document;
use crate::text::tokenized::Tokenized;
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
    /// Files and folders: JSON objects with a `text` field, Parquet with a `text` column, or both with conversations,
    /// prepared images, everything else as plain text. All but Parquet and images may be packed with gzip, Zstandard, bzip2 or xz. Folders are read
    /// completely, in order of name, without hidden files. A file that cannot be read is an error.
    Paths(Vec<PathBuf>),
    /// The same, but files that cannot be read are left out, from where they cannot be read.
    ReadablePaths(Vec<PathBuf>),
}

impl CorpusSource {
    /// Files and folders, where what cannot be read is left out or not.
    pub fn of(paths: Vec<PathBuf>, leave_out_unreadable: bool) -> Self {
        if leave_out_unreadable { Self::ReadablePaths(paths) } else { Self::Paths(paths) }
    }
}

impl fmt::Display for CorpusSource {
    /// The files, for error messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dependencies { manifest } => write!(f, "the dependencies of {}", manifest.display()),
            Self::Paths(paths) | Self::ReadablePaths(paths) => {
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

    /// Whether there are no more than so many names with this one.
    pub fn has_room_for(&self, name: &str, most: usize) -> bool {
        self.names.len() < most || self.names.contains_key(name)
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
    pub left_out: LeftOut,
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
    /// Or texts of which only parts are learnt.
    pub masked: Vec<MaskedText>,
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
    /// Kind of text, as in [`KindCount`].
    pub kind: &'a str,
    /// Bytes read of the source's files on the disk, and their total; 0 if the source is not a file.
    pub progress: (u64, u64),
}

/// Receives documents one after the other, until it breaks.
pub type Taker<'a> = dyn FnMut(Found<'_>) -> ControlFlow<()> + 'a;

/// Reads all documents of a source into memory. `text` has the size of documents and the limit for each kind of the
/// default corpus; `reads` is the input of the network; `stop` is whether the user asks to stop.
pub fn read_corpus(
    source: &CorpusSource,
    (text, reads): (&TextConfig, Reads),
    stop: &AtomicBool,
) -> Result<Corpus, CorpusError> {
    let (mut documents, mut masked, mut images) = (Vec::new(), Vec::new(), Vec::new());
    let mut domains = Domains::default();
    let survey = stream_corpus(source, (text, reads), stop, &mut |found| {
        match found.document {
            Document::Text(text) => documents.push(text.to_owned()),
            Document::Masked(text) => masked.push(text.clone()),
            Document::Image(_) => images.extend(found.document.image_ids()),
        }
        domains.push(found.domain);
        ControlFlow::Continue(())
    })?;
    Ok(Corpus { documents, masked, images, domains, survey })
}

impl Corpus {
    /// All documents as ids, each followed by its end token or its class.
    pub fn tokenized(&self, tokenizer: &Tokenizer) -> Result<Tokenized, TokenizerError> {
        if !self.masked.is_empty() {
            return Ok(Tokenized::from(&tokenizer.encode_all_masked(&self.masked)?[..]));
        }
        let images = !self.images.is_empty();
        Ok(Tokenized::from(&*if images { self.images.clone() } else { tokenizer.encode_all(&self.documents)? }))
    }
}

/// Reads all documents of a source one after the other, and keeps only their hashes in memory. Otherwise as
/// [`read_corpus`].
pub fn stream_corpus(
    source: &CorpusSource,
    (text, reads): (&TextConfig, Reads),
    stop: &AtomicBool,
    taker: &mut Taker<'_>,
) -> Result<Survey, CorpusError> {
    let mut collector = Collector::new(taker, reads, source, stop);
    collector.records = Records::of(text)?.map(Rc::new);
    match source {
        CorpusSource::Dependencies { .. } if collector.records.is_some() => {
            return Err(CorpusError::NoRecords { corpus: source.to_string(), wanted: records::words(text) });
        }
        CorpusSource::Dependencies { manifest } => dependencies::read(manifest, text, &mut collector)?,
        CorpusSource::Paths(paths) => files::read(paths, text, false, &mut collector)?,
        CorpusSource::ReadablePaths(paths) => files::read(paths, text, true, &mut collector)?,
    }
    collector.finish(&records::words(text))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_domains_can_be_bounded() {
        let mut domains = Domains::default();
        for name in ["law", "news", "sums", "law"] {
            domains.push(Some(name).filter(|name| domains.has_room_for(name, 2)));
        }
        assert_eq!([0, 1, 2, 3].map(|document| domains.of(document)), [Some(0), Some(1), None, Some(0)]);
    }

    #[test]
    fn whoever_takes_no_more_is_given_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.jsonl");
        std::fs::write(&file, "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n").unwrap();
        let (mut taken, stop, source) = (0, AtomicBool::new(false), CorpusSource::Paths(vec![file]));
        let found = stream_corpus(&source, (&TextConfig::default(), Reads::Text), &stop, &mut |found| {
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
}
