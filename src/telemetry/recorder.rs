//! `metrics.jsonl` in a run's folder: a line for each peer every ten seconds and at its end, in at most two files.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use crate::observe::logging::BoundedFile;

/// A file of this size is renamed to `metrics.jsonl.1`: about 20,000 lines.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Least time between two lines of a peer.
const INTERVAL_MS: u64 = 10_000;

/// The open file.
pub(super) struct Recorder {
    file: BoundedFile,
    next_ms: u64,
}

impl Recorder {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: BoundedFile::open(folder.join("metrics.jsonl"), MAX_FILE_BYTES)?, next_ms: 0 })
    }

    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.next_ms <= now_ms
    }

    /// Writes lines, and is due again after a while.
    pub(super) fn write(&mut self, now_ms: u64, mut lines: impl Iterator<Item = Value>) -> io::Result<()> {
        self.next_ms = now_ms + INTERVAL_MS;
        lines.try_for_each(|line| self.append(&line))
    }

    /// Writes a line between those that are due.
    pub(super) fn append(&mut self, line: &Value) -> io::Result<()> {
        writeln!(self.file, "{line}")
    }
}
