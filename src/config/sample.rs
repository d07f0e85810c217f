//! `[sample]`: which of a grid's paths are trained, where it has more than a swarm has peers.

use serde::{Deserialize, Serialize};

use crate::grid::Grid;
use crate::sampling::{Sample, SampleError, WorkerSlots};

/// `[sample]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleConfig {
    /// So many of the grid's paths are trained at a time.
    pub paths: u32,
    /// Each for so many phases; then others are drawn. For good, if nothing is said.
    #[serde(default)]
    pub hold_phases: u64,
}

impl SampleConfig {
    /// What is drawn of a grid with this seed.
    pub fn of(self, grid: Grid, seed: u64) -> Result<WorkerSlots, SampleError> {
        WorkerSlots::sampled(grid, Sample { slots: self.paths, hold_phases: self.hold_phases, seed })
    }
}
