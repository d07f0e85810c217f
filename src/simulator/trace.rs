//! Everything that happened, for those who look into one seed: printed, or hashed to compare two runs.

use std::fmt;
use std::io::Write;

use crate::names::BlobHash;

/// Where events and actions are written to.
#[derive(Default)]
pub enum Trace {
    /// Nowhere: as in most drills, which are thousands.
    #[default]
    Off,
    /// Into a hash: equal for equal seeds.
    Hashed(Box<blake3::Hasher>),
    /// To whoever reads along.
    Written(Box<dyn Write + Send>),
}

impl Trace {
    /// Hashes all.
    pub fn hashed() -> Self {
        Self::Hashed(Box::default())
    }

    /// Takes in a line.
    pub fn line(&mut self, line: fmt::Arguments<'_>) {
        match self {
            Self::Off => {}
            Self::Hashed(hasher) => {
                // A hasher takes all bytes.
                let _ = writeln!(hasher, "{line}");
            }
            // Who reads along may stop doing so.
            Self::Written(out) => drop(writeln!(out, "{line}")),
        }
    }

    /// The hash, if there is one.
    pub fn hash(&self) -> Option<BlobHash> {
        match self {
            Self::Hashed(hasher) => Some(BlobHash(*hasher.finalize().as_bytes())),
            Self::Off | Self::Written(_) => None,
        }
    }
}
