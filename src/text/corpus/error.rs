//! Errors of reading a corpus.

use std::io;
use std::path::{Path, PathBuf};

use crate::images::PreparedError;
use crate::text::corpus::Skipped;
use crate::text::document::DocumentError;

/// The longest line that is read. Bounds the memory for a compressed file.
pub(super) const MAX_LINE_BYTES: u64 = 64 << 20;

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
    #[error("{}: line {line} is longer than {} MiB; break it up", path.display(), MAX_LINE_BYTES >> 20)]
    LineTooLong { path: PathBuf, line: u64 },
    #[error(
        "{}: there is no text column \"{column}\", only {}; name one as text.column in the run's file",
        path.display(), if columns.is_empty() { "columns of other kinds".to_owned() } else { columns.join(", ") }
    )]
    NoColumn { path: PathBuf, column: String, columns: Vec<String> },
    #[error(transparent)]
    Images(#[from] PreparedError),
    #[error(
        "{}: its classes differ from those of the files before it; prepare it with --classes-of one of those files",
        path.display()
    )]
    Classes { path: PathBuf },
    #[error("{}: unpack it first; files of images must not be compressed", path.display())]
    Packed { path: PathBuf },
    /// Text for a network that reads images, or the reverse.
    #[error("{corpus}: {source}")]
    Document { corpus: String, source: DocumentError },
    #[error("no more of the corpus is needed")]
    Refused,
    #[error(
        "{corpus}: found no documents ({} not UTF-8, {} empty, {} without a \"{column}\" field left out); \
         give text files, or JSON lines or Parquet with a \"{column}\" field",
        skipped.invalid_utf8, skipped.empty, skipped.unparsable
    )]
    Nothing { corpus: String, column: String, skipped: Skipped },
}

pub(super) fn unreadable(path: &Path, source: io::Error) -> CorpusError {
    CorpusError::Unreadable { path: path.to_owned(), source }
}
