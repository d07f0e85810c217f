//! The corpus of a peer in a run that does not send its text: each peer has a copy, which is checked by its hash.

use std::sync::atomic::AtomicBool;

use crate::names::BlobHash;
use crate::peer::create::Documents;
use crate::peer::manifest::Manifest;
use crate::text::CorpusSource;

/// A peer's own copy of the corpus.
#[derive(Clone)]
pub struct OwnText {
    /// For training.
    pub corpus: CorpusSource,
    /// For testing, if the run has a separate test corpus.
    pub test_corpus: Option<CorpusSource>,
    /// Whether the user named it. A default is only tried.
    pub chosen: bool,
}

/// The run does not share its text, and no own copy was given.
#[derive(Debug, thiserror::Error)]
#[error("this run does not send its text to newcomers; a newcomer needs the corpus with hash {corpus}")]
pub struct NeedsText {
    pub corpus: BlobHash,
}

/// The given text is not the run's.
#[derive(Debug, thiserror::Error)]
#[error("{corpus} has hash {found}, but the corpus of the run has hash {expected}")]
pub struct OtherText {
    pub corpus: String,
    pub found: BlobHash,
    pub expected: BlobHash,
}

/// The run's text from this machine's own copy, checked by its hash.
pub(crate) fn own_documents(manifest: &Manifest, own: Option<OwnText>, stop: &AtomicBool) -> anyhow::Result<Documents> {
    let Some(own) = own else { return Err(NeedsText { corpus: manifest.corpus }.into()) };
    let run = (&manifest.config, false);
    let documents = Documents::read(&own.corpus, own.test_corpus.as_ref(), run, stop, &mut |_| {})?;
    let [corpus, test_corpus] = documents.hashes();
    let tested = own.test_corpus.as_ref().unwrap_or(&own.corpus);
    for (source, found, expected) in
        [(&own.corpus, corpus, manifest.corpus), (tested, test_corpus, manifest.test_corpus)]
    {
        if found != expected && !own.chosen {
            return Err(NeedsText { corpus: manifest.corpus }.into());
        }
        if found != expected {
            return Err(OtherText { corpus: source.to_string(), found, expected }.into());
        }
    }
    Ok(documents)
}
