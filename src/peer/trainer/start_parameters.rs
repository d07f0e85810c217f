//! The parameters at the beginning of a phase, or of a part of one.
//!
//! They are the modules' states, without the path's unsent changes, if it keeps them. With streaming, the path
//! continues with its own parameters, and newer updates are mixed in.

use crate::outer::mix;
use crate::peer::trainer::Worker;
use crate::peer::trainer::path_state::{Own, PathState};
use crate::peer::trainer::task::PhaseTask;
use crate::protocol::wire::message::UpdateHash;

impl Worker {
    /// Whether levels are synchronised one after the other.
    pub(super) fn streams(&self) -> bool {
        self.manifest.config.outer.streaming.is_some()
    }

    /// Loads the parameters at the beginning of the phase, or where it resumes. Returns the parameters against which
    /// outer gradients are taken, level by level, empty for levels that are not needed.
    pub(super) fn stand(
        &mut self,
        task: &PhaseTask,
        state: &mut PathState,
        middle: Option<Vec<Vec<f32>>>,
    ) -> anyhow::Result<Vec<Vec<f32>>> {
        let own = state.own.take();
        let base_states: Vec<UpdateHash> = task.start.iter().map(|(from, _)| from.update).collect();
        let is_new = |level: usize| own.as_ref().is_none_or(|own| own.base_states[level] != base_states[level]);
        let mut before = Vec::with_capacity(self.counts.len());
        for (level, (from, blob)) in task.start.iter().enumerate().take(self.counts.len()) {
            let is_read = is_new(level) || task.part.due.contains(&from.module);
            before.push(if is_read { self.parameters_of(from.module, *blob)? } else { Vec::new() });
        }
        let new: Vec<usize> = (0..before.len()).filter(|level| is_new(*level)).collect();
        match (middle, own, self.manifest.config.outer.streaming) {
            (Some(levels), ..) => self.inner.load(&levels)?,
            (None, Some(mut own), Some(streaming)) => {
                new.into_iter().for_each(|level| mix(&mut own.levels[level], &before[level], streaming.mix));
                self.inner.load(&own.levels)?;
            }
            (None, ..) => self.inner.load(&state.own_copy(&self.manifest.config, &before))?,
        }
        state.own = self.streams().then(|| Own { base_states, levels: Vec::new() });
        Ok(before)
    }
}
