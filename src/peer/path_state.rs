//! What a path's trainer carries from phase to phase: AdamW's moments, the data cursor, and for each level what
//! compression has left behind. In the middle of a phase, the path's parameters as well.

use crate::training::{InnerState, InnerStateError, LevelReader, put_levels};

const MAGIC: [u8; 4] = *b"PSTR";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 8;
const MIDDLE: [u8; 8] = *b"PSCK\x01\0\0\0";

/// A trainer between two phases of one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathState {
    /// AdamW and the cursor.
    pub inner: InnerState,
    /// For each level, what the last compression lost.
    pub residuals: Vec<Vec<f32>>,
}

/// Why bytes are no trainer's state of this run.
#[derive(Debug, thiserror::Error)]
pub enum PathStateError {
    /// Not one of ours.
    #[error("not a trainer's state of version {VERSION}")]
    Header,
    /// Not of this model.
    #[error("a trainer's state of {found} bytes, this model's has {expected}")]
    Size {
        /// Bytes given.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// The part that AdamW needs.
    #[error(transparent)]
    Inner(#[from] InnerStateError),
}

impl PathState {
    /// Before the first phase of a path: the data cursor starts where those before have been.
    pub fn fresh(sizes: &[usize], cursor: u64) -> Self {
        let inner = InnerState { cursor, ..InnerState::fresh(sizes) };
        Self { inner, residuals: sizes.iter().map(|size| vec![0.0; *size]).collect() }
    }

    /// `PSTR`, version u16, 0 u16; the residuals, little endian f32, level by level; the inner state.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 2]);
        put_levels(&mut bytes, &self.residuals);
        bytes.extend(self.inner.encode());
        bytes
    }

    /// How long the encoding for a model is.
    pub fn encoded_len(sizes: &[usize]) -> usize {
        HEADER_BYTES + 4 * sizes.iter().sum::<usize>() + InnerState::encoded_len(sizes)
    }

    /// # Errors
    /// If the bytes are not exactly a state of a model with these level sizes.
    pub fn decode(bytes: &[u8], sizes: &[usize]) -> Result<Self, PathStateError> {
        let expected = Self::encoded_len(sizes);
        if bytes.len() != expected {
            return Err(PathStateError::Size { found: bytes.len(), expected });
        }
        let (header, rest) = bytes.split_at(HEADER_BYTES);
        if header[..4] != MAGIC || header[4..6] != VERSION.to_le_bytes() || header[6..].iter().any(|byte| *byte != 0) {
            return Err(PathStateError::Header);
        }
        let mut rest = LevelReader(rest);
        let residuals = rest.levels(sizes);
        Ok(Self { inner: InnerState::decode(rest.0, sizes)?, residuals })
    }
}

/// A trainer in the middle of a phase: an inner checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseState {
    /// Inner steps made in the phase.
    pub steps: u64,
    /// The path's parameters after them, level by level.
    pub levels: Vec<Vec<f32>>,
    /// AdamW and the cursor after them; the residuals from before the phase.
    pub state: PathState,
}

impl PhaseState {
    /// `PSCK`, version u16, 0 u16, the steps u64; the parameters, little endian f32, level by level; the trainer's state.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [&MIDDLE[..], &self.steps.to_le_bytes()].concat();
        put_levels(&mut bytes, &self.levels);
        bytes.extend(self.state.encode());
        bytes
    }

    /// How long the encoding for a model is.
    pub fn encoded_len(sizes: &[usize]) -> usize {
        MIDDLE.len() + 8 + 4 * sizes.iter().sum::<usize>() + PathState::encoded_len(sizes)
    }

    /// # Errors
    /// If the bytes are not exactly a state of a model with these level sizes.
    pub fn decode(bytes: &[u8], sizes: &[usize]) -> Result<Self, PathStateError> {
        let expected = Self::encoded_len(sizes);
        if bytes.len() != expected {
            return Err(PathStateError::Size { found: bytes.len(), expected });
        }
        let mut rest = LevelReader(bytes.strip_prefix(&MIDDLE).ok_or(PathStateError::Header)?);
        let (steps, levels) = (rest.u64(), rest.levels(sizes));
        Ok(Self { steps, levels, state: PathState::decode(rest.0, sizes)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_and_nothing_else_does() {
        let sizes = [3, 5];
        let mut state = PathState::fresh(&sizes, 70);
        state.residuals[1][2] = 0.5;
        state.inner.moments[0][1][0] = 2.0;
        let bytes = state.encode();
        assert_eq!(PathState::decode(&bytes, &sizes).unwrap(), state);
        assert!(PathState::decode(&bytes, &[3, 6]).is_err());
        assert!(PathState::decode(&bytes[1..], &sizes).is_err());
        let mut broken = bytes.clone();
        broken[0] = 0;
        assert!(matches!(PathState::decode(&broken, &sizes), Err(PathStateError::Header)));
    }
    #[test]
    fn the_middle_of_a_phase_comes_back_as_it_was_and_nothing_else_does() {
        let sizes = [3, 5];
        let levels = vec![vec![1.0, -2.0, 0.5], vec![0.25; 5]];
        let middle = PhaseState { steps: 258, levels, state: PathState::fresh(&sizes, 70) };
        let bytes = middle.encode();
        assert_eq!(bytes[..16], *b"PSCK\x01\0\0\0\x02\x01\0\0\0\0\0\0");
        assert_eq!(PhaseState::decode(&bytes, &sizes).unwrap(), middle);
        assert!(PhaseState::decode(&bytes, &[3, 6]).is_err());
        assert!(PhaseState::decode(&middle.state.encode(), &sizes).is_err());
        for damaged in [0, 4, 7, 48] {
            let mut broken = bytes.clone();
            broken[damaged] ^= 1;
            assert!(matches!(PhaseState::decode(&broken, &sizes), Err(PathStateError::Header)), "byte {damaged}");
        }
    }
}
