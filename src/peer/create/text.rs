//! The text of a run: documents, divided into training and test text, and their tokens. It is read twice: first to
//! survey it and to sample text for a tokenizer, then to encode it. Only the sample stays in memory in between.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::config::RunConfig;
use crate::names::BlobHash;
use crate::peer::create::dense_trainer::Stopped;
use crate::peer::create::tokenize::{Part, Tokenizing, forget};
use crate::peer::create::{CreateError, Stage};
use crate::store::write_file;
use crate::text::tokenizer::Training;
use crate::text::{
    CorpusError, CorpusSource, Document, Domains, Found, Survey, TokenSet, Tokenizer, is_test, stream_corpus,
};

/// Limit of text for training a tokenizer, evenly sampled.
const SAMPLE_BYTES: usize = 256 << 20;

/// Domains that are told apart. Text may name another one in each document.
const MOST_DOMAINS: usize = 1 << 14;

/// Interval of looking whether the user asks to stop.
const POLL: Duration = Duration::from_millis(50);

/// The text of a run as tokens.
pub struct Text {
    pub tokenizer: Tokenizer,
    pub train: TokenSet,
    pub test: TokenSet,
    /// The domain of each training document, or else its kind; of none where they are not known.
    pub domains: Domains,
    pub corpus: BlobHash,
    /// Hash of the test corpus, or of the corpus if a share of it is the test text.
    pub test_corpus: BlobHash,
}

/// The sources of a run's text, and their survey.
pub struct Documents {
    sources: Vec<(CorpusSource, Survey)>,
    sample: Sample,
    /// Number of training documents.
    pub train: u64,
}

impl Documents {
    /// Surveys a corpus and the test corpus, if there is one; else the corpus is divided. With `learn`, a sample is
    /// kept for training a tokenizer.
    ///
    /// # Errors
    /// If a file cannot be read, no document is left, or the user asks to stop.
    pub fn read(
        corpus: &CorpusSource,
        test_corpus: Option<&CorpusSource>,
        (run, learn): (&RunConfig, bool),
        stop: &AtomicBool,
        told: &mut dyn FnMut(Stage),
    ) -> anyhow::Result<Self> {
        let (mut sample, mut train, mut known) = (Sample::new(SAMPLE_BYTES), 0, BTreeSet::new());
        let (parted, mut steps) = (test_corpus.is_none(), Steps::default());
        let survey = each(corpus, run, stop, &mut |found| {
            if !parted {
                known.insert(short_hash(found.document));
            }
            if !(parted && is_test(found.document.bytes(), run.text.test_share)) {
                match found.document {
                    Document::Text(text) if learn => sample.take(text),
                    Document::Masked(masked) if learn => sample.take(&masked.text),
                    _ => {}
                }
                train += 1;
            }
            let (read, all) = found.progress;
            if steps.passed(read, all) {
                told(Stage::Reading(read, all));
            }
            Ok(())
        })?;
        told(Stage::Reading(1, 1));
        told(Stage::Corpus(Box::new(survey.clone())));
        let mut sources = vec![(corpus.clone(), survey)];
        if let Some(source) = test_corpus {
            let mut trained = 0;
            let tested = each(source, run, stop, &mut |found| {
                trained += u64::from(known.contains(&short_hash(found.document)));
                Ok(())
            })?;
            if tested.classes != sources[0].1.classes {
                return Err(CreateError::Classes(source.to_string()).into());
            }
            told(Stage::TestCorpus(Box::new(tested.clone()), trained));
            sources.push((source.clone(), tested));
        }
        Ok(Self { sources, sample, train })
    }

    /// Hashes of the corpus and of the test corpus, or the corpus twice if a share of it is the test text.
    pub fn hashes(&self) -> [BlobHash; 2] {
        let hash = |(_, survey): &(_, Survey)| survey.hash;
        [self.sources.first(), self.sources.last()].map(|source| source.map_or(BlobHash([0; 32]), hash))
    }
}

impl Text {
    /// Encodes documents with this `tokenizer.json`, or with one that is trained on them, and cuts sequences. With a
    /// folder, tokens stay there, and stopped work is resumed.
    ///
    /// # Errors
    /// If the tokenizer does not fit, the text has changed, the disk fails, or the user asks to stop.
    pub fn of(
        documents: Documents,
        tokenizer: Option<&[u8]>,
        run: &RunConfig,
        (folder, stop): (Option<&Path>, &AtomicBool),
        told: &mut dyn FnMut(Stage),
    ) -> anyhow::Result<Self> {
        let [corpus, test_corpus] = documents.hashes();
        let Documents { sources, sample, .. } = documents;
        let tokenizer = match tokenizer {
            Some(_) if run.model.reads_images() => return Err(CreateError::NoTokenizer.into()),
            Some(json) => tokenizer_of(run, json)?,
            None => learnt(sample.documents, (corpus, sources.len(), run), (folder, stop), told)?,
        };
        let found = tokenizer.vocabulary();
        let parts = (corpus, test_corpus, sources.len(), &run.text, BlobHash::of(tokenizer.json()));
        let of = BlobHash::of(&serde_json::to_vec(&parts)?);
        let mut work = Tokenizing::begin(&tokenizer, folder, of)?;
        let mut domains = Domains::default();
        if let Err(error) = tokenize(&sources, run, (&mut work, &mut domains), stop, told) {
            if matches!(error.downcast_ref(), Some(CreateError::Changed(_))) {
                // A part of the tokens is from each text.
                drop(work);
                folder.map(forget).transpose()?;
            }
            return Err(error);
        }
        let [train, test] = work.finish()?;
        let context = run.model.context;
        let (train, test) = (train.cut_for_training(context), test.cut_for_scoring(context));
        told(Stage::Tokens { vocabulary: found, tokens: train.tokens(), sequences: train.len() });
        Ok(Self { tokenizer, train, test, domains, corpus, test_corpus })
    }
}

/// Encodes all documents of the sources, and notes the domains of those for training; the second source is the test text.
fn tokenize(
    sources: &[(CorpusSource, Survey)],
    run: &RunConfig,
    (work, domains): (&mut Tokenizing<'_>, &mut Domains),
    stop: &AtomicBool,
    told: &mut dyn FnMut(Stage),
) -> anyhow::Result<()> {
    let all: u64 = sources.iter().map(|(_, survey)| survey.bytes).sum();
    let (mut bytes, mut steps) = (0, Steps::default());
    for (number, (source, survey)) in sources.iter().enumerate() {
        let tested = |found: &Found<'_>| {
            number > 0 || (sources.len() == 1 && is_test(found.document.bytes(), run.text.test_share))
        };
        let taken = each(source, run, stop, &mut |found| {
            bytes += found.document.bytes().len() as u64;
            if steps.passed(bytes, all) {
                told(Stage::Tokenizing(bytes, all));
            }
            let part = if tested(&found) { Part::Test } else { Part::Train };
            if part == Part::Train {
                let domain = found.domain.unwrap_or(found.kind);
                domains.push(Some(domain).filter(|name| domains.has_room_for(name, MOST_DOMAINS)));
            }
            work.take(found.document, part)
        });
        match taken {
            Ok(again) if again.hash == survey.hash => {}
            Ok(_) => return Err(CreateError::Changed(source.to_string()).into()),
            Err(error) => {
                work.keep()?;
                return Err(error);
            }
        }
    }
    Ok(())
}

/// A tokenizer that was given for a run.
pub(super) fn tokenizer_of(run: &RunConfig, json: &[u8]) -> anyhow::Result<Tokenizer> {
    let tokenizer = Tokenizer::from_json(json)?;
    let (found, expected) = (tokenizer.vocabulary(), run.model.ids());
    if found > expected {
        return Err(CreateError::Vocabulary { found, expected }.into());
    }
    Ok(tokenizer)
}

/// The tokenizer that was trained on this text before, or a new one.
fn learnt(
    sample: Vec<String>,
    (corpus, sources, run): (BlobHash, usize, &RunConfig),
    (folder, stop): (Option<&Path>, &AtomicBool),
    told: &mut dyn FnMut(Stage),
) -> anyhow::Result<Tokenizer> {
    let of = BlobHash::of(&serde_json::to_vec(&(corpus, sources, &run.text, run.model.vocabulary))?);
    let file = folder.map(|folder| folder.join(format!("tokenizer-{}.json", &of.to_string()[..16])));
    let known = file.as_ref().and_then(|file| Tokenizer::from_json(&std::fs::read(file).ok()?).ok());
    if let Some(tokenizer) = known {
        return Ok(tokenizer);
    }
    // Images are bytes, which an untrained tokenizer knows.
    let vocabulary = if run.model.reads_images() { 257 } else { run.model.vocabulary };
    let tokenizer = learn(sample, vocabulary, stop, told)?;
    if let Some(file) = file {
        write_file(&file, tokenizer.json())?;
    }
    Ok(tokenizer)
}

/// Trains a tokenizer on a thread of its own, which is left behind when the user asks to stop: the library does not
/// hear it.
fn learn(
    sample: Vec<String>,
    vocabulary: usize,
    stop: &AtomicBool,
    told: &mut dyn FnMut(Stage),
) -> anyhow::Result<Tokenizer> {
    let all = sample.iter().map(|text| text.len() as u64).sum();
    let training = Arc::new(Training::default());
    let (sender, made) = sync_channel(1);
    let watched = training.clone();
    let work = move || drop(sender.send(Tokenizer::train_watched(&sample, vocabulary, &watched)));
    std::thread::Builder::new().name("tokenizer".to_owned()).spawn(work)?;
    let mut steps = Steps::default();
    loop {
        match made.recv_timeout(POLL) {
            Ok(tokenizer) => {
                told(Stage::Learning(all, all));
                return Ok(tokenizer?);
            }
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the training of the tokenizer ended in a panic"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.load(Ordering::Relaxed) {
            training.stop.store(true, Ordering::Relaxed);
            return Err(Stopped.into());
        }
        let counted = training.counted_bytes.load(Ordering::Relaxed);
        if steps.passed(counted, all) {
            told(Stage::Learning(counted, all));
        }
    }
}

/// Passes on the documents of a source until one is not taken, or the user asks to stop.
fn each(
    source: &CorpusSource,
    run: &RunConfig,
    stop: &AtomicBool,
    taker: &mut dyn FnMut(Found<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Survey> {
    let mut failed = None;
    let survey = stream_corpus(source, run.reading(), stop, &mut |found| match taker(found) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    });
    match (survey, failed) {
        (Err(CorpusError::Refused), Some(error)) => Err(error),
        (Err(CorpusError::Stopped), _) => Err(Stopped.into()),
        (survey, _) => Ok(survey?),
    }
}

/// Enough of a document's hash to know it again.
fn short_hash(document: Document<'_>) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(document.bytes()).as_bytes()[..16]);
    short
}

/// Throttles progress reports.
#[derive(Default)]
struct Steps {
    next: u64,
}

impl Steps {
    /// Whether another two hundredth is done, or all.
    fn passed(&mut self, done: u64, all: u64) -> bool {
        let passed = done >= self.next || done >= all;
        if passed {
            self.next = done + (all / 200).max(1);
        }
        passed
    }
}

/// A bounded, even sample of documents: every one, then every second one, and so on.
struct Sample {
    documents: Vec<String>,
    bytes: usize,
    most_bytes: usize,
    seen: usize,
    every: usize,
}

impl Sample {
    fn new(most_bytes: usize) -> Self {
        Self { documents: Vec::new(), bytes: 0, most_bytes, seen: 0, every: 1 }
    }

    fn take(&mut self, document: &str) {
        if self.seen.is_multiple_of(self.every) {
            self.bytes += document.len();
            self.documents.push(document.to_owned());
        }
        self.seen += 1;
        while self.bytes > self.most_bytes && self.documents.len() > 1 {
            self.every *= 2;
            let mut number = 0;
            self.documents.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.bytes = self.documents.iter().map(String::len).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::run::tests::SMALL;

    #[test]
    fn a_sample_is_even_and_bounded_however_much_comes() {
        let mut sample = Sample::new(100);
        for i in 0..1_000 {
            sample.take(&format!("{i:05}"));
            assert!(sample.bytes <= 100 && sample.bytes == 5 * sample.documents.len());
        }
        let taken: Vec<usize> = sample.documents.iter().map(|text| text.parse().unwrap()).collect();
        assert!(sample.every == 64 && taken == (0..1_000).step_by(64).collect::<Vec<_>>(), "{taken:?}");
        let mut small = Sample::new(100);
        ["one", "two", "three"].iter().for_each(|text| small.take(text));
        assert_eq!(small.documents, ["one", "two", "three"]);
    }

    #[test]
    fn a_stop_is_heard_while_a_tokenizer_is_learnt() {
        // Distinct words, of which the library would learn for minutes.
        let words: String =
            (0u64..2_000_000).map(|i| format!("{:x} ", i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
        let stop = AtomicBool::new(false);
        let mut told = |stage| {
            assert!(matches!(stage, Stage::Learning(..)));
            stop.store(true, Ordering::Relaxed);
        };
        let found = learn(vec![words], 30_000, &stop, &mut told);
        assert!(found.err().unwrap().is::<Stopped>());
    }

    #[test]
    fn tokens_are_the_same_on_the_disk_after_a_stop_and_a_text_that_changes_in_between_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (file, kept) = (folder.path().join("a.jsonl"), folder.path().join("text"));
        let line = |i: usize| format!("{{\"text\": \"document {i} {}\"}}\n", "of words ".repeat(i % 9));
        std::fs::write(&file, (0..200).map(line).collect::<String>()).unwrap();
        let (source, stop) = (CorpusSource::Paths(vec![file.clone()]), AtomicBool::new(false));
        let mut run = RunConfig::from_toml(SMALL).unwrap();
        run.text.test_share = 0.1;
        let read = || Documents::read(&source, None, (&run, true), &stop, &mut |_| {}).unwrap();
        let text = |documents, folder| Text::of(documents, None, &run, (folder, &stop), &mut |_| {});
        let expected = text(read(), None).unwrap();
        assert!(expected.test.documents().len() > 5);
        assert_eq!(read().train as usize, expected.train.documents().len());

        let documents = read();
        let mut stages = 0;
        let mut stops = |stage: Stage| {
            stages += usize::from(matches!(stage, Stage::Tokenizing(..)));
            stop.store(stages > 40, Ordering::Relaxed);
        };
        let stopped = Text::of(documents, None, &run, (Some(&kept), &stop), &mut stops);
        assert!(stopped.err().unwrap().is::<Stopped>());
        assert!(kept.join("done.json").exists());
        stop.store(false, Ordering::Relaxed);
        let found = text(read(), Some(&kept)).unwrap();
        assert!(found.train == expected.train && found.test == expected.test);
        assert_eq!(found.tokenizer.json(), expected.tokenizer.json());

        let documents = read();
        std::fs::write(&file, (0..201).map(line).collect::<String>()).unwrap();
        let error = text(documents, Some(&kept)).err().unwrap().to_string();
        assert!(!kept.join("done.json").exists(), "nothing is known of what is there");
        assert!(error.contains("a.jsonl") && error.contains("changed while it was read"), "{error}");
    }
}
