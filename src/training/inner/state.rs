//! The state of the inner optimiser, from which it resumes exactly.
//!
//! The bytes: magic `PSINNER1`, steps and cursor (u64), number of levels (u32), the size of each (u64), then for each
//! level the first and the second moments (f32), then BLAKE3 of all before it. Little endian.

use crate::names::BlobHash;
use crate::training::level_bytes::{LevelReader, put_levels};

/// Steps, data cursor and AdamW's moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InnerState {
    /// Steps taken, for the bias correction of the moments.
    pub steps: u64,
    /// Sequences taken from the shard.
    pub cursor: u64,
    /// For each level: averages of the gradient and of its square.
    pub moments: Vec<[Vec<f32>; 2]>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InnerStateError {
    #[error("an inner state of this model has {expected} bytes, found {found}")]
    Length { expected: usize, found: usize },
    #[error("not an inner state of format 1")]
    Magic,
    #[error("the inner state's checksum does not match; the file is damaged")]
    Checksum,
    #[error("the inner state has levels of other sizes than this model")]
    Sizes,
    /// A moment that is not finite, or a square that is negative.
    #[error("the inner state's moments of level {0} are not finite")]
    NotFinite(usize),
}

const MAGIC: &[u8; 8] = b"PSINNER1";
const CHECKSUM: usize = 32;

impl InnerState {
    /// The state before the first step.
    pub fn fresh(sizes: &[usize]) -> Self {
        let moments = sizes.iter().map(|size| [vec![0.0; *size], vec![0.0; *size]]).collect();
        Self { steps: 0, cursor: 0, moments }
    }

    /// Size of the encoded state.
    pub fn encoded_len(sizes: &[usize]) -> usize {
        MAGIC.len() + 8 + 8 + 4 + 8 * sizes.len() + 8 * sizes.iter().sum::<usize>() + CHECKSUM
    }

    pub fn encode(&self) -> Vec<u8> {
        let sizes: Vec<usize> = self.moments.iter().map(|[first, _]| first.len()).collect();
        let mut bytes = Vec::with_capacity(Self::encoded_len(&sizes));
        self.put(&mut bytes);
        bytes
    }

    /// Appends the encoded state. Its checksum does not cover the bytes before.
    pub fn put(&self, bytes: &mut Vec<u8>) {
        let before = bytes.len();
        bytes.extend(MAGIC);
        bytes.extend(self.steps.to_le_bytes());
        bytes.extend(self.cursor.to_le_bytes());
        bytes.extend((self.moments.len() as u32).to_le_bytes());
        self.moments.iter().for_each(|[first, _]| bytes.extend((first.len() as u64).to_le_bytes()));
        put_levels(bytes, self.moments.iter().flatten());
        let checksum = BlobHash::of(&bytes[before..]);
        bytes.extend(checksum.0);
    }

    /// Decodes the state of levels of these sizes.
    pub fn decode(bytes: &[u8], sizes: &[usize]) -> Result<Self, InnerStateError> {
        let expected = Self::encoded_len(sizes);
        if bytes.get(..MAGIC.len()) != Some(MAGIC) {
            return Err(InnerStateError::Magic);
        }
        if bytes.len() != expected {
            return Err(InnerStateError::Length { expected, found: bytes.len() });
        }
        let (body, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
        if BlobHash::of(body).0 != checksum {
            return Err(InnerStateError::Checksum);
        }
        let mut rest = LevelReader(&body[MAGIC.len()..]);
        let (steps, cursor, levels) = (rest.u64(), rest.u64(), rest.u32());
        if levels as usize != sizes.len() || sizes.iter().any(|size| rest.u64() != *size as u64) {
            return Err(InnerStateError::Sizes);
        }
        let mut moments = Vec::with_capacity(sizes.len());
        for (level, size) in sizes.iter().enumerate() {
            let (first, second) = (rest.values(*size), rest.values(*size));
            if !first.iter().all(|x| x.is_finite()) || !second.iter().all(|x| x.is_finite() && *x >= 0.0) {
                return Err(InnerStateError::NotFinite(level));
            }
            moments.push([first, second]);
        }
        Ok(Self { steps, cursor, moments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> InnerState {
        InnerState { steps: 5, cursor: 40, moments: vec![[vec![1.0, -2.0], vec![0.5, 0.25]], [vec![3.0], vec![9.0]]] }
    }

    #[test]
    fn it_comes_back_the_same() {
        assert_eq!(InnerState::decode(&state().encode(), &[2, 1]).unwrap(), state());
        let fresh = InnerState::fresh(&[3, 0]);
        assert_eq!(InnerState::decode(&fresh.encode(), &[3, 0]).unwrap(), fresh);
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let bytes = state().encode();
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert!(InnerState::decode(&damaged, &[2, 1]).is_err(), "byte {index}");
            assert!(InnerState::decode(&bytes[..index], &[2, 1]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn another_models_state_is_refused() {
        let bytes = state().encode();
        assert_eq!(InnerState::decode(&bytes, &[1, 2]), Err(InnerStateError::Sizes));
        assert!(matches!(InnerState::decode(&bytes, &[2, 2]), Err(InnerStateError::Length { .. })));
        assert_eq!(InnerState::decode(b"", &[2, 2]), Err(InnerStateError::Magic));
    }

    #[test]
    fn moments_that_are_not_finite_are_refused() {
        let mut broken = state();
        broken.moments[1][1][0] = f32::INFINITY;
        assert_eq!(InnerState::decode(&broken.encode(), &[2, 1]), Err(InnerStateError::NotFinite(1)));
    }
}
