//! Traces of one seed: printed, or hashed to compare two runs.

use std::fmt::Write as _;
use std::io::Write;

use serde::Serialize;

use crate::names::BlobHash;
use crate::protocol::wire::encoding;
use crate::protocol::{Action, Event};

/// Destination of events and actions.
#[derive(Default)]
pub enum Trace {
    /// None, as in most drills.
    #[default]
    Off,
    /// A hash: equal for equal seeds. It covers the values of events and actions but not the names of types and fields,
    /// so that renaming does not change it.
    Hashed(Box<blake3::Hasher>),
    /// A writer.
    Written(Box<dyn Write + Send>),
}

impl Trace {
    pub fn hashed() -> Self {
        Self::Hashed(Box::default())
    }

    /// An event for a node.
    pub(super) fn event(&mut self, now_ms: u64, peer: usize, event: &Event) {
        match self {
            Self::Off => {}
            Self::Hashed(hasher) => hash_values(hasher, &(now_ms, peer as u64, event)),
            Self::Written(out) => written(out, format_args!("{now_ms} {peer} {event:?}")),
        }
    }

    /// An action of a node.
    pub(super) fn action(&mut self, action: &Action) {
        match self {
            Self::Off => {}
            Self::Hashed(hasher) => hash_values(hasher, action),
            Self::Written(out) => written(out, format_args!("  {action:?}")),
        }
    }

    /// A fault at a peer; the words are for people.
    pub(super) fn fault(&mut self, now_ms: u64, peer: usize, words: std::fmt::Arguments<'_>) {
        match self {
            Self::Off => {}
            Self::Hashed(hasher) => hash_values(hasher, &(now_ms, peer as u64)),
            Self::Written(out) => written(out, format_args!("{now_ms} {peer} {words}")),
        }
    }

    /// The hash, if requested.
    pub fn hash(&self) -> Option<BlobHash> {
        match self {
            Self::Hashed(hasher) => Some(BlobHash(*hasher.finalize().as_bytes())),
            Self::Off | Self::Written(_) => None,
        }
    }
}

fn hash_values(hasher: &mut blake3::Hasher, values: &impl Serialize) {
    hasher.update(&encoding::encode_plain(values));
}

/// The reader may have gone.
fn written(out: &mut dyn Write, line: std::fmt::Arguments<'_>) {
    drop(writeln!(out, "{line}"));
}

/// The hashes of many seeds as one, in their order.
pub fn hash_of_seeds(hashes: &[BlobHash]) -> BlobHash {
    let mut text = String::new();
    for hash in hashes {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{hash}");
    }
    BlobHash::of(text.as_bytes())
}
