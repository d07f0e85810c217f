//! A dense path, trained on all the text: the ancestor from which every path starts, and the control for paths.
//! Checkpoints during its training bound what a stop or a crash costs.
//!
//! The file's bytes: `PSDN`, version u16, 0 u16, hash of the training (32), step u64, the parameters (f32, level by
//! level), AdamW's state, and BLAKE3 of all before it. Little endian.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::RunConfig;
use crate::model::exchange::{self, ExchangeError};
use crate::model::initial_levels;
use crate::names::BlobHash;
use crate::peer::trainer::path_state::PathState;
use crate::seed::Seed;
use crate::store::{DiskError, write_file};
use crate::training::{InnerState, LevelReader, put_levels};

const HEAD: [u8; 8] = *b"PSDN\x01\0\0\0";
const HASH_BYTES: usize = 32;
const FIXED_BYTES: usize = HEAD.len() + HASH_BYTES + 8;

/// A dense path: its parameters, level by level, and AdamW's state.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// A flat buffer for each level.
    pub levels: Vec<Vec<f32>>,
    /// What no level lists, beside adapters.
    pub frozen: Arc<[f32]>,
    /// AdamW and the data cursor.
    pub inner: InnerState,
}

impl Dense {
    /// The path before the first step, drawn from the run's seed.
    pub fn initial(run: &RunConfig) -> Self {
        let levels = initial_levels(&run.model, &run.levels, Seed::root(run.seed).child("initial parameters"));
        let sizes: Vec<usize> = levels.iter().map(Vec::len).collect();
        Self { inner: InnerState::fresh(&sizes), levels, frozen: Arc::default() }
    }

    /// Its parameters as a file, with what is frozen.
    pub fn to_safetensors(&self, run: &RunConfig) -> Result<Vec<u8>, ExchangeError> {
        let frozen = run.frozen();
        let levels = run.levels.iter().zip(self.levels.iter().map(Vec::as_slice));
        let all: Vec<_> = levels.chain(frozen.iter().map(|level| (level, &*self.frozen))).collect();
        exchange::encode(&run.model, &all, &[])
    }

    /// AdamW's state as a blob. A dense path has no residuals.
    pub fn state(&self) -> PathState {
        let residuals = self.levels.iter().map(|level| vec![0.0; level.len()]).collect();
        PathState { drawn: None, trainer_number: 0, inner: self.inner.clone(), residuals, best: None, own: None }
    }
}

/// The checkpoint file of a dense path.
#[derive(Clone, Debug)]
pub struct DenseCheckpoint {
    pub file: PathBuf,
    /// Hash of the training. A file of another training is ignored.
    pub of: BlobHash,
}

impl DenseCheckpoint {
    /// Replaces the checkpoint by the path after this step of the schedule.
    ///
    /// # Errors
    /// If the disk fails. The old checkpoint is then still there.
    pub fn write(&self, step: u64, dense: &Dense) -> Result<(), DiskError> {
        let mut bytes = [&HEAD[..], &self.of.0, &step.to_le_bytes()].concat();
        put_levels(&mut bytes, &dense.levels);
        dense.inner.put(&mut bytes);
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        write_file(&self.file, &bytes)
    }

    /// The checkpoint for levels of these sizes, and its step, without what is frozen. `None` if the file is damaged or of
    /// another training, which then starts again.
    pub fn read(&self, sizes: &[usize]) -> Option<(u64, Dense)> {
        let bytes = std::fs::read(&self.file).ok()?;
        let kept = self.decode(&bytes, sizes);
        if kept.is_none() {
            tracing::warn!(file = %self.file.display(), "the checkpoint is damaged or belongs to another training: \
                training starts again");
        }
        kept
    }

    /// Removes the checkpoint when it is no longer needed. If that fails, the next training ignores the file.
    pub fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %self.file.display(), %error, "not removed");
        }
    }

    /// The same, from bytes.
    pub fn decode(&self, bytes: &[u8], sizes: &[usize]) -> Option<(u64, Dense)> {
        let (body, hash) = bytes.split_last_chunk::<HASH_BYTES>()?;
        let parameters: usize = sizes.iter().sum();
        let length = FIXED_BYTES + 4 * parameters + InnerState::encoded_len(sizes);
        let (head, rest) = body.split_at_checked(FIXED_BYTES)?;
        let known = head.starts_with(&HEAD) && head[HEAD.len()..].starts_with(&self.of.0);
        if !known || body.len() != length || blake3::hash(body) != *hash {
            return None;
        }
        let step = u64::from_le_bytes(*head.last_chunk()?);
        let mut rest = LevelReader(rest);
        let levels = rest.levels(sizes);
        Some((step, Dense { levels, frozen: Arc::default(), inner: InnerState::decode(rest.0, sizes).ok()? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense() -> Dense {
        let mut inner = InnerState { steps: 7, cursor: 56, ..InnerState::fresh(&[2, 1]) };
        inner.moments[0][1][1] = 0.5;
        Dense { levels: vec![vec![1.5, -2.0], vec![3.0]], frozen: Arc::default(), inner }
    }

    #[test]
    fn what_was_kept_comes_back_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let kept = DenseCheckpoint { file: folder.path().join("dense"), of: BlobHash::of(b"a run and its text") };
        assert_eq!(kept.read(&[2, 1]), None);
        kept.write(9, &dense()).unwrap();
        assert_eq!(kept.read(&[2, 1]), Some((9, dense())));
        assert_eq!(kept.read(&[1, 2]), None, "another model's");
        let other = DenseCheckpoint { of: BlobHash::of(b"other text"), ..kept.clone() };
        assert_eq!(other.read(&[2, 1]), None);
        let mut bytes = std::fs::read(&kept.file).unwrap();
        bytes[FIXED_BYTES] ^= 1;
        std::fs::write(&kept.file, &bytes).unwrap();
        assert_eq!(kept.read(&[2, 1]), None, "damaged");
        kept.remove();
        kept.remove();
        assert!(!kept.file.exists());
    }
}
