//! The checkpoint of an arm: after an interrupt or a crash, training resumes from it.
//!
//! The bytes: `PSEX`, version u16, 0 u16, hash of the training (32), number of parts, each part as its length u64 and
//! its bytes, and BLAKE3 of all before it. Little endian. The first part is JSON, the second the router, then the
//! modules, the trainer states and each path's best parameters.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::experiment::results::outcome::Point;
use crate::experiment::results::traffic::Exchanged;
use crate::names::BlobHash;
use crate::store::{DiskError, write_file};

const HEAD: [u8; 8] = *b"PSEX\x01\0\0\0";
const HASH_BYTES: usize = 32;

/// The checkpoint file of an arm.
#[derive(Clone, Debug)]
pub struct ArmCheckpoint {
    pub file: PathBuf,
    /// Hash of the training. The file of another one is ignored.
    pub of: BlobHash,
}

/// The state to resume from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingState {
    /// Tokens trained on, by all paths together.
    pub tokens: u64,
    /// Bytes and errors of outer steps.
    pub exchanged: Exchanged,
    /// The state of each module, encoded, in order.
    pub modules: Vec<Vec<u8>>,
    /// The trainer state of each path, encoded, in order; empty if there is nothing left to train.
    pub paths: Vec<Vec<u8>>,
}

/// The best parameters of a path on its held-out documents.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// After this number of phases.
    pub phases: u64,
    /// Nats a token.
    pub loss: f64,
    /// The parameters, level by level.
    pub levels: Vec<Vec<f32>>,
}

/// An arm between two phases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmState {
    /// Phases done.
    pub phases: u64,
    /// Seconds spent on them.
    pub seconds: f64,
    /// The losses so far.
    pub curve: Vec<Point>,
    /// The encoded router; empty without one.
    pub router: Vec<u8>,
    /// Modules and trainer states.
    pub trained_arm: TrainingState,
    /// By path.
    pub best: Vec<Best>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    phases: u64,
    seconds: f64,
    tokens: u64,
    #[serde(default)]
    exchanged: Exchanged,
    curve: Vec<Point>,
    modules: usize,
    paths: usize,
    best: Vec<(u64, f64, Vec<usize>)>,
}

impl ArmCheckpoint {
    /// Replaces the checkpoint.
    ///
    /// # Errors
    /// If the disk fails. The old checkpoint is then still there.
    pub fn write(&self, arm: &ArmState) -> Result<(), DiskError> {
        let sizes = |best: &Best| best.levels.iter().map(Vec::len).collect();
        let head = Head {
            phases: arm.phases,
            seconds: arm.seconds,
            tokens: arm.trained_arm.tokens,
            exchanged: arm.trained_arm.exchanged,
            curve: arm.curve.clone(),
            modules: arm.trained_arm.modules.len(),
            paths: arm.trained_arm.paths.len(),
            best: arm.best.iter().map(|best| (best.phases, best.loss, sizes(best))).collect(),
        };
        let mut bytes = [&HEAD[..], &self.of.0].concat();
        let mut part = |content: &[u8]| {
            bytes.extend((content.len() as u64).to_le_bytes());
            bytes.extend(content);
        };
        part(&serde_json::to_vec(&head).unwrap_or_default());
        part(&arm.router);
        arm.trained_arm.modules.iter().chain(&arm.trained_arm.paths).for_each(|content| part(content));
        for best in &arm.best {
            let values = best.levels.iter().flatten().flat_map(|value| value.to_le_bytes());
            part(&values.collect::<Vec<u8>>());
        }
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        write_file(&self.file, &bytes)
    }

    /// The checkpoint; `None` if the file is damaged or belongs to another training.
    pub fn read(&self) -> Option<ArmState> {
        let bytes = std::fs::read(&self.file).ok()?;
        let checkpoint = self.decode(&bytes);
        if checkpoint.is_none() {
            tracing::warn!(file = %self.file.display(), "the checkpoint is damaged or belongs to another training: \
                training starts again");
        }
        checkpoint
    }

    /// Decodes the bytes of a checkpoint file.
    pub fn decode(&self, bytes: &[u8]) -> Option<ArmState> {
        let (body, hash) = bytes.split_last_chunk::<HASH_BYTES>()?;
        let mut rest = body.strip_prefix(&HEAD)?.strip_prefix(&self.of.0)?;
        if blake3::hash(body) != *hash {
            return None;
        }
        let mut part = || -> Option<Vec<u8>> {
            let (length, after) = rest.split_first_chunk::<8>()?;
            let (own, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
            rest = after;
            Some(own.to_vec())
        };
        let head: Head = serde_json::from_slice(&part()?).ok()?;
        let router = part()?;
        let modules = (0..head.modules).map(|_| part()).collect::<Option<Vec<_>>>()?;
        let paths = (0..head.paths).map(|_| part()).collect::<Option<Vec<_>>>()?;
        let mut best = Vec::with_capacity(head.best.len());
        for (phases, loss, sizes) in head.best {
            let bytes = part()?;
            let mut values = bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value));
            let levels = sizes.iter().map(|size| values.by_ref().take(*size).collect()).collect();
            best.push(Best { phases, loss, levels });
        }
        let trained_arm = TrainingState { tokens: head.tokens, exchanged: head.exchanged, modules, paths };
        let Head { phases, seconds, curve, .. } = head;
        rest.is_empty().then_some(ArmState { phases, seconds, curve, router, trained_arm, best })
    }

    /// Removes the file. If that fails, the next training ignores it.
    pub fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %self.file.display(), %error, "not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::results::traffic::Frames;

    #[test]
    fn a_checkpoint_is_read_as_it_was_written_and_a_damaged_or_foreign_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = ArmCheckpoint { file: folder.path().join("arm"), of: BlobHash::of(b"an arm and its text") };
        assert_eq!(checkpoint.read(), None);
        let up = Frames { values: 9, bytes: 5, squares: 2.0, lost: 0.1 };
        let exchanged = Exchanged { up, ..Exchanged::default() };
        let arm = ArmState {
            phases: 3,
            seconds: 1.5,
            curve: vec![Point { phases: 3, steps: 12, tokens: 99, loss: 2.25 }],
            router: b"a router".to_vec(),
            trained_arm: TrainingState {
                tokens: 99,
                exchanged,
                modules: vec![b"m".to_vec(), vec![]],
                paths: vec![b"state".to_vec()],
            },
            best: vec![Best { phases: 2, loss: 2.0, levels: vec![vec![1.5, -2.0], vec![3.0]] }],
        };
        checkpoint.write(&arm).unwrap();
        assert_eq!(checkpoint.read(), Some(arm));
        assert_eq!(ArmCheckpoint { of: BlobHash::of(b"another"), ..checkpoint.clone() }.read(), None);
        let mut bytes = std::fs::read(&checkpoint.file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&checkpoint.file, &bytes).unwrap();
        assert_eq!(checkpoint.read(), None, "damaged");
        checkpoint.remove();
        assert!(!checkpoint.file.exists());
    }
}
