//! What of a run's configuration a viewer needs: its grid and its length.

use serde_json::{Value, json};

use crate::config::run::{RunConfig, RunConfigError};
use crate::names::{ModuleId, PathId, Phase};
use crate::sampling::WorkerSlots;

/// Paths whose modules are listed. A larger grid is shown by its modules alone.
const MOST_PATHS: u32 = 4_096;

/// The outline of a run.
#[derive(Clone, Debug)]
pub struct RunOutline {
    pub(super) name: String,
    pub(super) slots: WorkerSlots,
    pub(super) phases: u64,
    pub(super) inner_steps: u64,
    /// What each level consists of.
    pub(super) parts: Vec<String>,
    tokens_per_step: usize,
    reads_images: bool,
}

/// What a viewer who asks about text must know of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFacts {
    pub paths: u32,
    pub reads_images: bool,
}

impl RunOutline {
    /// # Errors
    /// If the run's grid cannot be.
    pub fn new(run: &RunConfig) -> Result<Self, RunConfigError> {
        Ok(Self {
            name: run.name.clone(),
            slots: run.slots()?,
            phases: run.training.phases,
            inner_steps: run.training.inner_steps,
            parts: run.levels.iter().map(|level| level.parts.join(", ")).collect(),
            tokens_per_step: run.training.batch_sequences * run.model.context,
            reads_images: run.model.reads_images(),
        })
    }

    /// Inner steps of a path since its first phase.
    pub(super) fn steps(&self, phase: Phase, step: u64) -> u64 {
        phase.0 * self.inner_steps + step
    }

    pub(super) fn facts(&self) -> RunFacts {
        RunFacts { paths: self.slots.grid().path_count(), reads_images: self.reads_images }
    }

    /// Whether the run has this path.
    pub(super) fn has_path(&self, path: u32) -> bool {
        path < self.slots.count()
    }

    /// Whether the run has a module of this name; the router's level is above the others.
    pub(super) fn has_module(&self, name: &str) -> bool {
        let grid = self.slots.grid();
        name.parse::<ModuleId>().is_ok_and(|module| match usize::from(module.level) {
            level if level < grid.levels() => module.expert < grid.experts(level),
            level => level == grid.levels() && module.expert == 0,
        })
    }

    /// The phase whose last steps end at this inner step.
    pub(super) fn phase_of(&self, step: u64) -> u64 {
        step.saturating_sub(1) / self.inner_steps.max(1)
    }

    pub(super) fn ends_a_phase(&self, step: u64) -> bool {
        step.is_multiple_of(self.inner_steps.max(1))
    }

    /// The modules of each path, by level; empty for a large grid.
    pub(super) fn routes(&self) -> Vec<Vec<u32>> {
        let grid = self.slots.grid();
        let modules = |path: PathId| (0..grid.levels()).map(|level| grid.module_of(path, level).expert).collect();
        match grid.path_count() <= MOST_PATHS {
            true => grid.paths().map(modules).collect(),
            false => Vec::new(),
        }
    }

    /// All modules, level by level.
    pub(super) fn modules(&self) -> impl Iterator<Item = ModuleId> {
        let grid = self.slots.grid();
        (0..grid.levels()).flat_map(move |level| {
            let of_level = u16::try_from(level).unwrap_or(u16::MAX);
            (0..grid.experts(level)).map(move |expert| ModuleId { level: of_level, expert })
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let grid = self.slots.grid();
        let level = |index: usize| {
            let parts = self.parts.get(index).map_or("router", String::as_str);
            json!({ "parts": parts, "experts": grid.experts(index) })
        };
        json!({
            "name": self.name,
            "phases": self.phases,
            "inner_steps": self.inner_steps,
            "tokens_per_step": self.tokens_per_step,
            "levels": (0..grid.levels()).map(level).collect::<Vec<Value>>(),
            "paths": self.routes(),
            "path_count": grid.path_count(),
            "trainers": self.slots.trainers(),
            "drawn_anew": self.slots.are_drawn_anew(),
        })
    }
}
