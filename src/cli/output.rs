//! Standard output, which only has results.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs: JSON Lines on standard output and nothing else there.
    Json,
}

/// Prints results for people or for programs, and drops output for the other.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    format: Format,
}

impl Output {
    pub fn new(format: Format) -> Self {
        Self { format }
    }

    /// Whether programs read this.
    pub fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// A line for people.
    pub fn text(self, line: &str) -> io::Result<()> {
        if self.is_json() { Ok(()) } else { print(line) }
    }

    /// A line for programs: an object with an `event`.
    pub fn json(self, value: &impl Serialize) -> io::Result<()> {
        if self.is_json() { print(&serde_json::to_string(value)?) } else { Ok(()) }
    }

    /// A line on standard error.
    pub fn complain(self, line: &str) -> io::Result<()> {
        writeln!(io::stderr(), "{line}")
    }
}

/// A full disk behind standard output is not that of a run, so the error says where it was met.
fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}").map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => error,
        _ => io::Error::other(format!("standard output cannot be written: {error}")),
    })
}

/// Whether the error only means that the reader has gone, as in `pathswarm … | head`.
pub(super) fn reader_is_gone(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
