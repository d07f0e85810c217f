//! Why there is no corpus.

use std::io;
use std::path::{Path, PathBuf};

use crate::images::PreparedError;
use crate::text::corpus::Skipped;
use crate::text::document::DocumentError;

/// The longest line that is read; bounds what a packed file can make of the memory.
pub(super) const MAX_LINE_BYTES: u64 = 64 << 20;

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
    #[error("{}: line {line} is longer than {} MiB; break it up", path.display(), MAX_LINE_BYTES >> 20)]
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
    /// Prepared images.
    #[error(transparent)]
    Images(#[from] PreparedError),
    /// Files that number their classes differently.
    #[error(
        "{}: its classes differ from those of the files before it; prepare it with --classes-of one of those files",
        path.display()
    )]
    Classes {
        /// Which file.
        path: PathBuf,
    },
    /// Packed images.
    #[error("{}: unpack it first; files of images must not be compressed", path.display())]
    Packed {
        /// Which file.
        path: PathBuf,
    },
    /// Text for a network that reads images, or the other way round.
    #[error("{corpus}: {source}")]
    Document {
        /// Where.
        corpus: String,
        /// What is the matter.
        source: DocumentError,
    },
    /// Whoever takes the documents takes no more.
    #[error("no more of the corpus is needed")]
    Refused,
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

pub(super) fn unreadable(path: &Path, source: io::Error) -> CorpusError {
    CorpusError::Unreadable { path: path.to_owned(), source }
}
