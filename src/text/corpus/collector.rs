//! Documents on their way from a source to whoever takes them: duplicates are dropped, and everything is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Reads;
use crate::names::BlobHash;
use crate::text::corpus::error::CorpusError;
use crate::text::corpus::left_out::{At, LeftOut, Place, Reason};
use crate::text::corpus::records::Records;
use crate::text::corpus::{CorpusSource, Found, KindCount, Survey, Taker};
use crate::text::document::Document;

/// Receives documents from a source and drops duplicates by their hash.
pub(super) struct Collector<'a> {
    taker: &'a mut Taker<'a>,
    seen: BTreeSet<[u8; 32]>,
    kinds: BTreeMap<String, (u64, u64)>,
    reads: Reads,
    /// Reads objects where they are conversations or completions.
    pub(super) records: Option<Rc<Records>>,
    source: &'a CorpusSource,
    hasher: blake3::Hasher,
    classes: Option<Vec<String>>,
    left_out: LeftOut,
    /// Where the next document stands.
    here: Place,
    /// Whether the user asked to stop.
    pub(super) stop: &'a AtomicBool,
    /// Bytes read of the source's files on the disk, and their total.
    pub(super) progress: (u64, u64),
}

impl<'a> Collector<'a> {
    pub(super) fn new(taker: &'a mut Taker<'_>, reads: Reads, source: &'a CorpusSource, stop: &'a AtomicBool) -> Self {
        let (seen, kinds, hasher) = (BTreeSet::new(), BTreeMap::new(), blake3::Hasher::new());
        let (left_out, here) = (LeftOut::default(), Place::file(Path::new("")));
        let progress = (0, 0);
        let records = None;
        Self { taker, seen, kinds, reads, records, source, hasher, classes: None, left_out, here, stop, progress }
    }

    /// Lets the user stop.
    pub(super) fn go_on(&self) -> Result<(), CorpusError> {
        if self.stop.load(Ordering::Relaxed) { Err(CorpusError::Stopped) } else { Ok(()) }
    }

    /// What follows is of this file.
    pub(super) fn enter(&mut self, file: &Path) {
        self.here = Place::file(file);
    }

    /// What follows is at this place of the file.
    pub(super) fn at(&mut self, at: At) {
        self.here.at = at;
    }

    /// Counts what stands here as left out or repaired.
    pub(super) fn leave_out(&mut self, reason: Reason) {
        self.left_out.add(reason, &self.here);
    }

    /// The same with more words.
    pub(super) fn leave_out_as(&mut self, reason: Reason, detail: String) {
        self.left_out.add(reason, &Place { detail: Some(detail), ..self.here.clone() });
    }

    /// Sets the classes of a file of images. Their numbers must mean the same in all files.
    pub(super) fn name_classes(&mut self, file: &Path, classes: &[String]) -> Result<(), CorpusError> {
        if self.classes.get_or_insert_with(|| classes.to_vec()) == classes {
            return Ok(());
        }
        Err(CorpusError::Classes { path: file.to_owned() })
    }

    /// Passes a text on, unless it is empty or a duplicate.
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
        self.go_on()?;
        let bytes = document.bytes();
        if document.is_empty() {
            self.leave_out(Reason::Empty);
            return Ok(());
        }
        if !self.seen.insert(*blake3::hash(bytes).as_bytes()) {
            self.leave_out(Reason::Duplicate);
            return Ok(());
        }
        let unsuited = |source| CorpusError::Document { place: self.here.to_string(), source };
        document.suits(self.reads).map_err(unsuited)?;
        let (documents, sum) = self.kinds.entry(kind.to_owned()).or_default();
        *documents += 1;
        *sum += bytes.len() as u64;
        self.hasher.update(&(bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
        for part in document.learnt() {
            self.hasher.update(&(part.start as u64).to_le_bytes()).update(&(part.end as u64).to_le_bytes());
        }
        match (self.taker)(Found { document, domain, kind, progress: self.progress }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CorpusError::Refused),
        }
    }

    /// `wanted` is what is read, in words.
    pub(super) fn finish(self, wanted: &str) -> Result<Survey, CorpusError> {
        let counted = self.kinds.into_iter().map(|(name, (documents, bytes))| KindCount { name, documents, bytes });
        let (kinds, left_out): (Vec<KindCount>, _) = (counted.collect(), self.left_out);
        if kinds.is_empty() {
            let (corpus, wanted) = (self.source.to_string(), wanted.to_owned());
            return Err(CorpusError::Nothing { corpus, wanted, left_out });
        }
        let documents = kinds.iter().map(|kind| kind.documents).sum();
        let bytes = kinds.iter().map(|kind| kind.bytes).sum();
        let classes = self.classes.unwrap_or_default();
        Ok(Survey { documents, bytes, kinds, left_out, classes, hash: BlobHash(*self.hasher.finalize().as_bytes()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documents that are passed on of some kinds.
    fn gather(documents: &[(&str, &str)], before: Option<Reason>) -> (Vec<String>, Result<Survey, CorpusError>) {
        let mut taken = Vec::new();
        let mut taker = |found: Found<'_>| {
            taken.push(String::from_utf8(found.document.bytes().to_vec()).unwrap());
            ControlFlow::Continue(())
        };
        let source = CorpusSource::Paths(vec!["a.txt".into(), "b".into()]);
        let stop = AtomicBool::new(false);
        let mut collector = Collector::new(&mut taker, Reads::Text, &source, &stop);
        before.into_iter().for_each(|reason| collector.leave_out(reason));
        documents.iter().for_each(|(kind, text)| collector.add(kind, text).unwrap());
        let survey = collector.finish("text");
        (taken, survey)
    }

    #[test]
    fn a_document_is_taken_once_and_counted_by_kind() {
        let documents = [("md", "one"), ("txt", "two"), ("txt", "one"), ("txt", " \n"), ("md", "three")];
        let (taken, survey) = gather(&documents, None);
        let survey = survey.unwrap();
        assert_eq!(taken, ["one", "two", "three"]);
        assert_eq!(survey.left_out.counts(), "1 empty or too short, 1 duplicates");
        let kinds: Vec<_> = survey.kinds.iter().map(|kind| (kind.name.as_str(), kind.documents, kind.bytes)).collect();
        assert_eq!(kinds, [("md", 2, 8), ("txt", 1, 3)]);
        assert_eq!((survey.documents, survey.bytes), (3, 11));
    }

    #[test]
    fn the_hash_knows_where_documents_end() {
        let hash = |documents: &[&str]| {
            let of_kind: Vec<_> = documents.iter().map(|text| ("txt", *text)).collect();
            gather(&of_kind, None).1.unwrap().hash
        };
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["a", "b"]), hash(&["b", "a"]));
        assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
        let expected = [&1u64.to_le_bytes()[..], b"a", &2u64.to_le_bytes(), b"bc"].concat();
        assert_eq!(hash(&["a", "bc"]), BlobHash::of(&expected));
    }

    #[test]
    fn a_corpus_of_nothing_is_an_error_that_says_what_was_there() {
        let (_, survey) = gather(&[("txt", "")], Some(Reason::NoField));
        let message = survey.unwrap_err().to_string();
        assert!(
            message.starts_with("a.txt, b: ") && message.contains("1 empty") && message.contains("1 without"),
            "{message}"
        );
    }
}
