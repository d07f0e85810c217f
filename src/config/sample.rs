//! `[sample]`: which paths of a grid are trained, if it has more than the swarm has peers.

use serde::{Deserialize, Serialize};

use crate::grid::Grid;
use crate::sampling::{Sample, SampleError, WorkerSlots};

/// `[sample]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleConfig {
    /// Number of paths that are trained at a time.
    pub paths: u32,
    /// Phases until other paths are drawn; 0 for never.
    #[serde(default)]
    pub hold_phases: u64,
}

impl SampleConfig {
    /// The draw for a grid and a seed.
    pub fn of(self, grid: Grid, seed: u64) -> Result<WorkerSlots, SampleError> {
        WorkerSlots::sampled(grid, Sample { slots: self.paths, hold_phases: self.hold_phases, seed })
    }
}
