//! Errors of reading a corpus.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::images::PreparedError;
use crate::text::chat::TemplateError;
use crate::text::corpus::left_out::{LeftOut, Reason};
use crate::text::document::DocumentError;

/// The largest JSON object that is read. Bounds the memory for a compressed file.
pub(super) const MAX_OBJECT_BYTES: usize = 64 << 20;

/// Files that are named in one error.
const NAMED: usize = 50;

#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    #[error(
        "cargo was not found, so the default corpus (the sources of this program's dependencies) cannot be read; \
         give text of your own with --corpus PATH"
    )]
    CargoMissing,
    #[error(
        "cargo could not list the dependencies of {}: {message}; give text of your own with --corpus PATH",
        manifest.display()
    )]
    CargoFailed { manifest: PathBuf, message: String },
    #[error("{}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// All files that cannot be used.
    #[error("{}", listed(faults, *files))]
    Unfit { faults: Vec<FileFault>, files: usize },
    #[error(transparent)]
    Images(#[from] PreparedError),
    #[error(
        "{}: its classes differ from those of the files before it; prepare it with --classes-of one of those files",
        path.display()
    )]
    Classes { path: PathBuf },
    /// Text for a network that reads images, or the reverse.
    #[error("{place}: {source}")]
    Document { place: String, source: DocumentError },
    #[error("no more of the corpus is needed")]
    Refused,
    #[error("the user asked to stop")]
    Stopped,
    #[error(
        "{corpus}: found no documents ({}); give {wanted}",
        match (left_out.counts(), left_out.count(Reason::BadRecord)) {
            (counts, _) if counts.is_empty() => "nothing left out".to_owned(),
            (counts, 0) => format!("{counts} left out"),
            // Why is told: the format may be another than the file's.
            _ => left_out.lines().join("; "),
        }
    )]
    Nothing { corpus: String, wanted: String, left_out: LeftOut },
    #[error("{corpus}: plain text, but this run reads {wanted}; give them with --corpus, or leave text.format out")]
    NoRecords { corpus: String, wanted: String },
    #[error("text.chat.template: {0}")]
    Template(#[from] TemplateError),
}

impl CorpusError {
    /// What to do, where the message does not say it.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Template(_) => Some("correct it in the run's file, or leave [text.chat] out"),
            Self::Nothing { left_out, .. } if left_out.count(Reason::NoField) > 0 => {
                Some("name the field that has the text, such as --set text.column=content")
            }
            Self::Nothing { left_out, .. } if left_out.count(Reason::NotText) > 0 => {
                Some("convert it to UTF-8, such as with iconv -f ISO-8859-1 -t UTF-8")
            }
            _ => None,
        }
    }
}

/// A file that cannot be used, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    pub path: PathBuf,
    pub reason: String,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

fn listed(faults: &[FileFault], files: usize) -> String {
    let named: Vec<String> = faults.iter().take(NAMED).map(FileFault::to_string).collect();
    match faults.len() {
        1 => named.concat(),
        count if count > NAMED => {
            format!("{count} of {files} files cannot be read: {}; and {} more", named.join("; "), count - NAMED)
        }
        count => format!("{count} of {files} files cannot be read: {}", named.join("; ")),
    }
}

pub(super) fn unreadable(path: &Path, source: io::Error) -> CorpusError {
    CorpusError::Unreadable { path: path.to_owned(), source }
}
