//! Everything that happened, for those who look into one seed: printed, or hashed to compare two runs.

use std::fmt::Write as _;
use std::io::Write;

use serde::Serialize;

use crate::names::BlobHash;
use crate::protocol::wire::encoding;
use crate::protocol::{Action, Event};

/// Where events and actions are written to.
#[derive(Default)]
pub enum Trace {
    /// Nowhere: as in most drills, which are thousands.
    #[default]
    Off,
    /// Into a hash: equal for equal seeds. What is hashed are the values of events and actions, not the names of their types
    /// and fields, so that a program in which these are called otherwise comes to the same hash.
    Hashed(Box<blake3::Hasher>),
    /// To whoever reads along.
    Written(Box<dyn Write + Send>),
}

impl Trace {
    pub fn hashed() -> Self {
        Self::Hashed(Box::default())
    }

    /// A node is given an event.
    pub(super) fn event(&mut self, now_ms: u64, peer: usize, event: &Event) {
        match self {
            Self::Off => {}
            Self::Hashed(hasher) => hash_values(hasher, &(now_ms, peer as u64, event)),
            Self::Written(out) => written(out, format_args!("{now_ms} {peer} {event:?}")),
        }
    }

    /// A node's action is carried out.
    pub(super) fn action(&mut self, action: &Action) {
        match self {
            Self::Off => {}
            Self::Hashed(hasher) => hash_values(hasher, action),
            Self::Written(out) => written(out, format_args!("  {action:?}")),
        }
    }

    /// Something goes wrong with a peer; the words are for people.
    pub(super) fn fault(&mut self, now_ms: u64, peer: usize, words: std::fmt::Arguments<'_>) {
        match self {
            Self::Off => {}
            Self::Hashed(hasher) => hash_values(hasher, &(now_ms, peer as u64)),
            Self::Written(out) => written(out, format_args!("{now_ms} {peer} {words}")),
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

fn hash_values(hasher: &mut blake3::Hasher, values: &impl Serialize) {
    hasher.update(&encoding::encode_plain(values));
}

/// Who reads along may stop doing so.
fn written(out: &mut dyn Write, line: std::fmt::Arguments<'_>) {
    drop(writeln!(out, "{line}"));
}

/// The hashes of many seeds as one, in their order.
pub fn hash_of_seeds(hashes: &[BlobHash]) -> BlobHash {
    let mut text = String::new();
    for hash in hashes {
        // A string takes all that is written.
        let _ = writeln!(text, "{hash}");
    }
    BlobHash::of(text.as_bytes())
}
