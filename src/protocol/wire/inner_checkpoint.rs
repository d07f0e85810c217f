//! Where a path's trainer can go on in the middle of a phase.

use serde::{Deserialize, Serialize};

use crate::names::{BlobHash, BlobRef, ModuleId, PathId, Phase, Version};

/// A module as a path took it into a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseVersion {
    /// The module.
    pub module: ModuleId,
    /// Its version.
    pub version: Version,
    /// The hash of the update that made it.
    pub update: BlobHash,
}

/// A phase of a path, left in the middle: from here its trainer can go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerCheckpoint {
    /// The path.
    pub path: PathId,
    /// The phase.
    pub phase: Phase,
    /// What it started from, bottom first.
    pub start: Vec<(BaseVersion, BlobRef)>,
    /// Inner steps made in it.
    pub steps: u64,
    /// The trainer after them: the path's parameters, and what it carries from phase to phase.
    pub blob: BlobRef,
}
