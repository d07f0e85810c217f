//! The state of a simulated trainer between phases, and within one: bytes on its peer's disk.

use crate::names::{BlobHash, ModuleId, PathId, Phase};
use crate::protocol::wire::message::UpdateHash;
use crate::sampling::WorkerSlots;

/// The steps, the peer and path, and the number of base updates.
const HEADER_BYTES: usize = 5 * 8;

/// In memory.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::simulator) struct CarriedState {
    /// Inner steps made in the phase; 0 between two phases.
    pub(in crate::simulator) steps: u64,
    /// The compression residual of each module.
    pub(in crate::simulator) residuals: Vec<Vec<f32>>,
    /// The parameters of each module after these steps; empty between two phases, except with streaming.
    pub(in crate::simulator) levels: Vec<Vec<f32>>,
    /// The base updates of these parameters.
    pub(in crate::simulator) base_states: Vec<UpdateHash>,
    /// Between two phases: the path, and the last phase.
    pub(in crate::simulator) after: Option<(PathId, Phase)>,
}

impl CarriedState {
    /// For a path that was never trained here.
    pub(in crate::simulator) fn fresh(modules: usize, values: usize) -> Self {
        let residuals = vec![vec![0.0; values]; modules];
        Self { steps: 0, residuals, levels: Vec::new(), base_states: Vec::new(), after: None }
    }

    /// Within a phase.
    pub(in crate::simulator) fn encode(&self) -> Vec<u8> {
        self.written([self.steps, 0, 0, 0])
    }

    /// Between two phases. The peer and the phase distinguish it from all others.
    pub(in crate::simulator) fn after_phase(&self, path: PathId, phase: Phase, peer: usize) -> Vec<u8> {
        let whose = [0, u64::from(path.0), phase.0 + 1, peer as u64];
        if self.base_states.is_empty() {
            return Self { residuals: self.residuals.clone(), ..Self::fresh(0, 0) }.written(whose);
        }
        self.written(whose)
    }

    fn written(&self, header: [u64; 4]) -> Vec<u8> {
        let parts = || self.residuals.iter().chain(&self.levels);
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend((self.base_states.len() as u64).to_le_bytes());
        bytes.extend(self.base_states.iter().flat_map(|update| update.0));
        let before = bytes.len();
        bytes.resize(before + 4 * parts().map(Vec::len).sum::<usize>(), 0);
        let rest = &mut bytes[before..];
        let mut rest = rest.as_chunks_mut().0;
        for part in parts() {
            let (here, after) = rest.split_at_mut(part.len());
            here.iter_mut().zip(part).for_each(|(bytes, value)| *bytes = value.to_le_bytes());
            rest = after;
        }
        bytes
    }

    /// As in a peer, a module's residual is only for that module: another path may be drawn. What another trainer of the
    /// path has not sent is its own to send.
    pub(in crate::simulator) fn keep_to(
        &mut self,
        slots: &WorkerSlots,
        slot: PathId,
        modules: impl Iterator<Item = ModuleId>,
    ) {
        let Some((path, phase)) = self.after else { return };
        if path != slot {
            self.residuals.iter_mut().for_each(|residual| residual.fill(0.0));
            (self.levels, self.base_states) = (Vec::new(), Vec::new());
        }
        let before = slots.modules(path, phase).into_iter();
        for ((before, now), residual) in before.zip(modules).zip(&mut self.residuals) {
            if before != now {
                residual.fill(0.0);
            }
        }
    }

    /// `None` if it is neither.
    pub(in crate::simulator) fn decode(bytes: &[u8], modules: usize, values: usize) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let words: Vec<u64> = header.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let [steps, path, phases, _, base_states] = *words.as_array()?;
        let (base_states, rest) = rest.split_at_checked(32 * base_states as usize)?;
        let base_states = base_states.as_chunks().0.iter().map(|hash| BlobHash(*hash)).collect();
        let after = phases.checked_sub(1).map(|phase| (PathId(path as u32), Phase(phase)));
        let numbers: Vec<f32> = rest.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let mut parts: Vec<Vec<f32>> = numbers.chunks(values).map(<[f32]>::to_vec).collect();
        let whole = rest.len() == 4 * values * parts.len() && [modules, 2 * modules].contains(&parts.len());
        let levels = whole.then(|| parts.split_off(modules))?;
        Some(Self { steps, residuals: parts, levels, base_states, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Grid, Sharing};

    #[test]
    fn both_forms_are_decoded_as_they_were_encoded() {
        let levels = vec![vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]];
        let residuals = vec![vec![0.5; 3], vec![0.25; 3]];
        let middle = CarriedState { steps: 7, residuals, levels, base_states: vec![], after: None };
        assert_eq!(CarriedState::decode(&middle.encode(), 2, 3), Some(middle.clone()));
        let after = middle.after_phase(PathId(1), Phase(2), 3);
        let read = CarriedState::decode(&after, 2, 3);
        let after_phase = Some((PathId(1), Phase(2)));
        let expected = CarriedState { steps: 0, levels: vec![], after: after_phase, ..middle.clone() };
        assert_eq!(read, Some(expected));
        let streams = CarriedState { base_states: vec![BlobHash([1; 32]), BlobHash([2; 32])], ..middle };
        let expected = CarriedState { steps: 0, after: after_phase, ..streams.clone() };
        assert_eq!(CarriedState::decode(&streams.after_phase(PathId(1), Phase(2), 3), 2, 3), Some(expected));
        assert_eq!(CarriedState::decode(&after[1..], 2, 3), None);
        let grid = Grid::new(vec![Sharing::Experts(2), Sharing::Experts(2)]).unwrap();
        let mut kept = CarriedState::decode(&after, 2, 3).unwrap();
        let slots = WorkerSlots::from(grid).with_trainers(2).unwrap();
        let modules = ["0.0", "1.0"].map(|module| module.parse().unwrap());
        kept.keep_to(&slots, PathId(1), modules.into_iter());
        assert_eq!(kept.residuals, [vec![0.5; 3], vec![0.0; 3]], "path 1 went through 0.0 and 1.1");
        kept.keep_to(&slots, PathId(5), slots.modules(PathId(5), Phase(0)).into_iter());
        assert_eq!(kept.residuals, [vec![0.0; 3], vec![0.0; 3]], "of another trainer");
        assert_eq!(CarriedState::decode(b"", 2, 3), None);
    }
}
