//! The point in the middle of a phase from which a path's trainer can resume.

use serde::{Deserialize, Serialize};

use crate::names::{BlobHash, BlobRef, ModuleId, PathId, Phase, Version};

/// The version of a module from which a path trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseVersion {
    /// The module.
    pub module: ModuleId,
    /// Its version.
    pub version: Version,
    /// The hash of the update that made this version.
    pub update: BlobHash,
}

/// A phase of a path, interrupted in the middle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerCheckpoint {
    /// The path.
    pub path: PathId,
    /// The phase.
    pub phase: Phase,
    /// Its base states, bottom first.
    pub start: Vec<(BaseVersion, BlobRef)>,
    /// Inner steps made in it.
    pub steps: u64,
    /// The state of the trainer after them: the path's parameters, and what it carries from phase to phase.
    pub blob: BlobRef,
}
