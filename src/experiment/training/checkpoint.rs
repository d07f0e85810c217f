//! An arm in the middle of its training, on disk: whoever stops it, or crashes, loses minutes.
//!
//! The bytes: `PSEX`, version u16, 0 u16, what it is the training of (32), then as many parts as there are, each its length
//! u64 and its bytes, and BLAKE3 of all before it. Little endian. The first part is JSON, the second the router, then the
//! modules, the trainers' states and each path's best parameters.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::experiment::results::communication::Exchanged;
use crate::experiment::results::outcome::Point;
use crate::experiment::training::lockstep::Kept;
use crate::names::BlobHash;
use crate::store::{DiskError, write_file};

const HEAD: [u8; 8] = *b"PSEX\x01\0\0\0";
const HASH_BYTES: usize = 32;

/// Where an arm in training is kept.
#[derive(Clone, Debug)]
pub struct KeptArm {
    /// The file.
    pub file: PathBuf,
    /// Tells trainings apart: the file of another one is passed over.
    pub of: BlobHash,
}

/// A path when it predicted its held out documents best.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// After so many phases.
    pub phases: u64,
    /// Nats a token there.
    pub loss: f64,
    /// Its parameters, level by level.
    pub levels: Vec<Vec<f32>>,
}

/// An arm between two phases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unfinished {
    /// Phases done.
    pub phases: u64,
    /// Seconds spent on them.
    pub seconds: f64,
    /// How it went so far.
    pub curve: Vec<Point>,
    /// The encoded router; nothing where there is none.
    pub router: Vec<u8>,
    /// Modules and trainers.
    pub trainee: Kept,
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

impl KeptArm {
    /// Keeps the arm as it is, in place of what was kept before.
    ///
    /// # Errors
    /// If the disk fails; what was kept before is still there then.
    pub fn write(&self, arm: &Unfinished) -> Result<(), DiskError> {
        let sizes = |best: &Best| best.levels.iter().map(Vec::len).collect();
        let head = Head {
            phases: arm.phases,
            seconds: arm.seconds,
            tokens: arm.trainee.tokens,
            exchanged: arm.trainee.exchanged,
            curve: arm.curve.clone(),
            modules: arm.trainee.modules.len(),
            paths: arm.trainee.paths.len(),
            best: arm.best.iter().map(|best| (best.phases, best.loss, sizes(best))).collect(),
        };
        let mut bytes = [&HEAD[..], &self.of.0].concat();
        let mut part = |content: &[u8]| {
            bytes.extend((content.len() as u64).to_le_bytes());
            bytes.extend(content);
        };
        part(&serde_json::to_vec(&head).unwrap_or_default());
        part(&arm.router);
        arm.trainee.modules.iter().chain(&arm.trainee.paths).for_each(|content| part(content));
        for best in &arm.best {
            let values = best.levels.iter().flatten().flat_map(|value| value.to_le_bytes());
            part(&values.collect::<Vec<u8>>());
        }
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        write_file(&self.file, &bytes)
    }

    /// What was kept. A file that is not whole, or another training's, is nothing: that training begins anew.
    pub fn read(&self) -> Option<Unfinished> {
        let bytes = std::fs::read(&self.file).ok()?;
        let kept = self.decode(&bytes);
        if kept.is_none() {
            tracing::warn!(file = %self.file.display(), "what was kept is of another training, or damaged: begins anew");
        }
        kept
    }

    /// The same of what is in the file.
    pub fn decode(&self, bytes: &[u8]) -> Option<Unfinished> {
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
        let trainee = Kept { tokens: head.tokens, exchanged: head.exchanged, modules, paths };
        let Head { phases, seconds, curve, .. } = head;
        rest.is_empty().then_some(Unfinished { phases, seconds, curve, router, trainee, best })
    }

    /// Nobody needs it any more. One that cannot be removed is passed over by the next training.
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
    use crate::experiment::results::communication::Frames;

    #[test]
    fn what_was_kept_comes_back_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptArm { file: folder.path().join("arm"), of: BlobHash::of(b"an arm and its text") };
        assert_eq!(kept.read(), None);
        let up = Frames { values: 9, bytes: 5, squares: 2.0, lost: 0.1 };
        let exchanged = Exchanged { up, ..Exchanged::default() };
        let arm = Unfinished {
            phases: 3,
            seconds: 1.5,
            curve: vec![Point { phases: 3, steps: 12, tokens: 99, loss: 2.25 }],
            router: b"a router".to_vec(),
            trainee: Kept {
                tokens: 99,
                exchanged,
                modules: vec![b"m".to_vec(), vec![]],
                paths: vec![b"state".to_vec()],
            },
            best: vec![Best { phases: 2, loss: 2.0, levels: vec![vec![1.5, -2.0], vec![3.0]] }],
        };
        kept.write(&arm).unwrap();
        assert_eq!(kept.read(), Some(arm));
        assert_eq!(KeptArm { of: BlobHash::of(b"another"), ..kept.clone() }.read(), None);
        let mut bytes = std::fs::read(&kept.file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&kept.file, &bytes).unwrap();
        assert_eq!(kept.read(), None, "damaged");
        kept.remove();
        assert!(!kept.file.exists());
    }
}
