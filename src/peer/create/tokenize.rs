//! Encodes documents in batches of some megabytes, with tokens in a folder if there is one, so that stopped work is
//! resumed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use anyhow::Context;

use crate::names::BlobHash;
use crate::store::write_file;
use crate::text::chat::MaskedText;
use crate::text::tokenizer::masked::MaskedIds;
use crate::text::{Document, IdsWriter, Tokenized, Tokenizer};

/// Text encoded at once, on all cores.
const BATCH_BYTES: usize = 8 << 20;

/// Text after which progress is stored.
const KEEP_EVERY_BYTES: usize = 64 << 20;

/// The file with the progress.
const DONE: &str = "done.json";

/// Purpose of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Train,
    Test,
}

const PARTS: [(Part, &str); 2] = [(Part::Train, "train"), (Part::Test, "test")];

/// The stored progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    /// Hash of text and tokenizer.
    of: String,
    /// Number of encoded documents.
    documents: u64,
    /// For each part, numbers of ids and of documents.
    parts: [(usize, usize); 2],
    /// For each part, the number of runs of learnt and other tokens; none where everything is learnt.
    #[serde(default)]
    runs: [usize; 2],
}

/// The ids of a part, the lengths of its documents, and the runs of learnt and other tokens.
struct Writers {
    ids: IdsWriter,
    lengths: IdsWriter,
    runs: IdsWriter,
}

impl Writers {
    fn in_memory() -> Self {
        let [ids, lengths, runs] = [(); 3].map(|()| IdsWriter::in_memory());
        Self { ids, lengths, runs }
    }

    fn push(&mut self, document: &MaskedIds) -> std::io::Result<()> {
        self.ids.push(&document.ids)?;
        self.lengths.push(&[document.ids.len() as u32])?;
        self.runs.push(&document.runs)
    }
}

/// Documents that are being encoded.
pub struct Tokenizing<'a> {
    tokenizer: &'a Tokenizer,
    folder: Option<PathBuf>,
    done: Done,
    /// Number of documents taken, with those of earlier runs.
    taken: u64,
    parts: [Writers; 2],
    /// Texts that wait; a corpus has either texts, masked ones, or images.
    batch: Vec<String>,
    masked: Vec<MaskedText>,
    /// Images that wait, as ids.
    images: Vec<Vec<u32>>,
    of_batch: Vec<Part>,
    batch_bytes: usize,
    /// Bytes of text encoded since progress was stored.
    unkept_bytes: usize,
}

impl<'a> Tokenizing<'a> {
    /// Begins in memory or in a folder, or resumes there if `of` names the same text and tokenizer.
    pub fn begin(tokenizer: &'a Tokenizer, folder: Option<&Path>, of: BlobHash) -> anyhow::Result<Self> {
        let fresh = Done { of: of.to_string(), ..Done::default() };
        let known = folder.and_then(|folder| std::fs::read(folder.join(DONE)).ok());
        let known = known.and_then(|bytes| serde_json::from_slice::<Done>(&bytes).ok());
        let mut done = known.filter(|done| done.of == fresh.of).unwrap_or_else(|| fresh.clone());
        let writers = match folder {
            None => PARTS.map(|_| Ok(Writers::in_memory())),
            Some(folder) => {
                std::fs::create_dir_all(folder)?;
                // If the files do not match the progress, the work starts again.
                if done.documents > 0 && open(folder, &done).iter().any(Result::is_err) {
                    done = fresh;
                }
                if done.documents == 0 {
                    // The progress of another text must not stay next to these files.
                    forget(folder)?;
                }
                open(folder, &done)
            }
        };
        let [train, test] = writers;
        let place = || cannot_write(folder);
        let parts = [train.with_context(place)?, test.with_context(place)?];
        let folder = folder.map(Path::to_owned);
        let (batch, masked, images, of_batch) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (taken, batch_bytes, unkept_bytes) = (0, 0, 0);
        Ok(Self { tokenizer, folder, done, taken, parts, batch, masked, images, of_batch, batch_bytes, unkept_bytes })
    }

    /// Takes the next document.
    pub fn take(&mut self, document: Document<'_>, part: Part) -> anyhow::Result<()> {
        self.taken += 1;
        if self.taken <= self.done.documents {
            return Ok(());
        }
        match document {
            Document::Text(text) => self.batch.push(text.to_owned()),
            Document::Masked(text) => self.masked.push(text.clone()),
            Document::Image(_) => self.images.extend(document.image_ids()),
        }
        self.of_batch.push(part);
        self.batch_bytes += document.bytes().len();
        if self.batch_bytes >= BATCH_BYTES {
            self.work_off()?;
        }
        if self.unkept_bytes >= KEEP_EVERY_BYTES {
            self.keep()?;
        }
        Ok(())
    }

    fn work_off(&mut self) -> anyhow::Result<()> {
        let whole = self.tokenizer.encode_all(&self.batch)?.into_iter().chain(self.images.drain(..));
        let mut documents: Vec<MaskedIds> = whole.map(|ids| MaskedIds { ids, runs: Vec::new() }).collect();
        documents.append(&mut self.tokenizer.encode_all_masked(&self.masked)?);
        for (document, part) in documents.iter().zip(&self.of_batch) {
            let pushed = self.parts[usize::from(*part == Part::Test)].push(document);
            pushed.with_context(|| cannot_write(self.folder.as_deref()))?;
        }
        self.done.documents += documents.len() as u64;
        self.done.parts = self.parts.each_ref().map(|part| (part.ids.count(), part.lengths.count()));
        self.done.runs = self.parts.each_ref().map(|part| part.runs.count());
        self.unkept_bytes += self.batch_bytes;
        self.batch.clear();
        self.masked.clear();
        self.of_batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// Stores the progress up to the last complete batch.
    pub fn keep(&mut self) -> anyhow::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        for part in &mut self.parts {
            let synced = part.ids.sync().and_then(|()| part.lengths.sync()).and_then(|()| part.runs.sync());
            synced.with_context(|| cannot_write(Some(folder)))?;
        }
        write_file(&folder.join(DONE), &serde_json::to_vec(&self.done)?)?;
        self.unkept_bytes = 0;
        Ok(())
    }

    /// All training documents, and all test documents.
    pub fn finish(mut self) -> anyhow::Result<[Tokenized; 2]> {
        self.work_off()?;
        self.keep()?;
        let [train, test] = self.parts.map(|part| Tokenized::written(part.ids, part.lengths, part.runs));
        Ok([train?, test?])
    }
}

/// Removes the stored progress.
pub fn forget(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(folder.join(DONE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::File::open(folder)?.sync_all()
}

/// What failed, of the files in a folder.
fn cannot_write(folder: Option<&Path>) -> String {
    folder.map_or_else(
        || "cannot keep the tokens".to_owned(),
        |folder| format!("cannot write the tokens in {}", folder.display()),
    )
}

fn open(folder: &Path, done: &Done) -> [std::io::Result<Writers>; 2] {
    let open = |((_, name), (ids, lengths), runs): (&(Part, &str), (usize, usize), usize)| {
        let file = |ending: &str, count| IdsWriter::behind(&folder.join(format!("{name}.{ending}")), count);
        Ok(Writers { ids: file("ids", ids)?, lengths: file("lengths", lengths)?, runs: file("runs", runs)? })
    };
    [0, 1].map(|part| open((&PARTS[part], done.parts[part], done.runs[part])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        Tokenizer::train(&["some words to learn from, and some more".to_owned()], 300).unwrap()
    }

    fn documents() -> Vec<(String, Part)> {
        let part = |i: usize| if i.is_multiple_of(5) { Part::Test } else { Part::Train };
        (0..40).map(|i| (format!("document {i} of {}", "words ".repeat(i)), part(i))).collect()
    }

    fn sets(done: [Tokenized; 2]) -> [crate::text::TokenSet; 2] {
        done.map(|part| part.cut_for_training(16))
    }

    #[test]
    fn what_was_done_before_a_stop_is_not_done_again_and_the_ids_are_the_same() {
        let (tokenizer, folder, of) = (tokenizer(), tempfile::tempdir().unwrap(), BlobHash([1; 32]));
        let mut whole = Tokenizing::begin(&tokenizer, None, of).unwrap();
        documents().iter().for_each(|(text, part)| whole.take(Document::Text(text), *part).unwrap());
        let expected = sets(whole.finish().unwrap());

        let mut first = Tokenizing::begin(&tokenizer, Some(folder.path()), of).unwrap();
        documents()[..25].iter().for_each(|(text, part)| first.take(Document::Text(text), *part).unwrap());
        first.work_off().unwrap();
        first.keep().unwrap();
        // Later documents are lost.
        first.take(Document::Text("and one more"), Part::Train).unwrap();
        first.work_off().unwrap();
        drop(first);
        let mut second = Tokenizing::begin(&tokenizer, Some(folder.path()), of).unwrap();
        assert_eq!(second.done.documents, 25);
        // If these documents were encoded again, the result would differ.
        (0..25).for_each(|_| second.take(Document::Text("another text"), Part::Train).unwrap());
        documents()[25..].iter().for_each(|(text, part)| second.take(Document::Text(text), *part).unwrap());
        assert_eq!(sets(second.finish().unwrap()), expected);
    }

    #[test]
    fn what_is_learnt_is_the_same_after_a_stop() {
        let (tokenizer, folder, of) = (tokenizer(), tempfile::tempdir().unwrap(), BlobHash([1; 32]));
        let take = |work: &mut Tokenizing<'_>, numbers: std::ops::Range<usize>| {
            for number in numbers {
                let masked = MaskedText::completed(&"why ".repeat(number % 5 + 1), &"so ".repeat(number % 7 + 1));
                let part = if number.is_multiple_of(5) { Part::Test } else { Part::Train };
                work.take(Document::Masked(&masked), part).unwrap();
            }
        };
        let mut whole = Tokenizing::begin(&tokenizer, None, of).unwrap();
        take(&mut whole, 0..40);
        let expected = sets(whole.finish().unwrap());
        assert!(expected.iter().all(crate::text::TokenSet::is_masked));

        let mut first = Tokenizing::begin(&tokenizer, Some(folder.path()), of).unwrap();
        take(&mut first, 0..25);
        first.work_off().unwrap();
        first.keep().unwrap();
        // Later documents are lost.
        take(&mut first, 25..30);
        first.work_off().unwrap();
        drop(first);
        let mut second = Tokenizing::begin(&tokenizer, Some(folder.path()), of).unwrap();
        take(&mut second, 0..40);
        assert_eq!(sets(second.finish().unwrap()), expected);
    }

    #[test]
    fn other_text_another_tokenizer_or_files_that_are_gone_begin_anew() {
        let (tokenizer, folder, of) = (tokenizer(), tempfile::tempdir().unwrap(), BlobHash([1; 32]));
        let mut first = Tokenizing::begin(&tokenizer, Some(folder.path()), of).unwrap();
        first.take(Document::Text("a document"), Part::Train).unwrap();
        first.finish().unwrap();
        let begun = |of| Tokenizing::begin(&tokenizer, Some(folder.path()), of).unwrap().done.documents;
        assert_eq!((begun(of), begun(BlobHash([2; 32]))), (1, 0));
        assert_eq!(begun(of), 0, "the other text has taken its place");
        assert!(!folder.path().join(DONE).exists(), "before any of the other text is there");
        let mut again = Tokenizing::begin(&tokenizer, Some(folder.path()), of).unwrap();
        again.take(Document::Text("a document"), Part::Train).unwrap();
        again.finish().unwrap();
        std::fs::remove_file(folder.path().join("train.ids")).unwrap();
        assert_eq!(begun(of), 0);
    }
}
