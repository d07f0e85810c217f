//! Where a path stands: its phase, and the blobs that hold its modules and its trainer.

use crate::names::{BlobHash, BlobRef, ModuleId, Phase, Version};

/// Where a path stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The phase that it has finished.
    pub phase: Phase,
    /// What its trainer needs to go on: optimiser and data cursor. None before the first phase.
    pub trainer: Option<BlobRef>,
    /// Its modules, bottom first.
    pub modules: Vec<ModuleCheckpoint>,
}

/// The state of a module that a path starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleCheckpoint {
    /// Which.
    pub module: ModuleId,
    /// At which version.
    pub version: Version,
    /// Its encoded state.
    pub state: BlobRef,
}

impl Checkpoint {
    /// Little endian: phase, one byte for a trainer or none, the trainer's blob, and then each module.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.phase.0.to_le_bytes().to_vec();
        bytes.push(u8::from(self.trainer.is_some()));
        if let Some(trainer) = self.trainer {
            push_blob(&mut bytes, trainer);
        }
        for held in &self.modules {
            bytes.extend(held.module.level.to_le_bytes());
            bytes.extend(held.module.expert.to_le_bytes());
            bytes.extend(held.version.0.to_le_bytes());
            push_blob(&mut bytes, held.state);
        }
        bytes
    }

    /// `None` if that is not what [`Checkpoint::encode`] makes.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let rest = &mut bytes;
        let phase = Phase(u64::from_le_bytes(take(rest)?));
        let trainer = match take::<1>(rest)? {
            [0] => None,
            [1] => Some(take_blob(rest)?),
            _ => return None,
        };
        let mut modules = Vec::new();
        while !rest.is_empty() {
            let (level, expert) = (u16::from_le_bytes(take(rest)?), u32::from_le_bytes(take(rest)?));
            let version = Version(u64::from_le_bytes(take(rest)?));
            modules.push(ModuleCheckpoint { module: ModuleId { level, expert }, version, state: take_blob(rest)? });
        }
        Some(Self { phase, trainer, modules })
    }
}

fn push_blob(bytes: &mut Vec<u8>, blob: BlobRef) {
    bytes.extend(blob.hash.0);
    bytes.extend(blob.bytes.to_le_bytes());
}

fn take_blob(rest: &mut &[u8]) -> Option<BlobRef> {
    Some(BlobRef { hash: BlobHash(take(rest)?), bytes: u64::from_le_bytes(take(rest)?) })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub fn sample(modules: usize) -> Checkpoint {
        let held = |level: usize| ModuleCheckpoint {
            module: ModuleId { level: level as u16, expert: 7 },
            version: Version(40 + level as u64),
            state: BlobRef::of(&[level as u8]),
        };
        let modules = (0..modules).map(held).collect();
        Checkpoint { phase: Phase(12), trainer: Some(BlobRef::of(b"cursor")), modules }
    }

    #[test]
    fn a_checkpoint_comes_back_and_no_part_of_it_passes_for_one() {
        for checkpoint in [sample(3), Checkpoint { trainer: None, ..sample(0) }] {
            assert_eq!(Checkpoint::decode(&checkpoint.encode()), Some(checkpoint));
        }
        let bytes = sample(1).encode();
        assert_eq!(bytes.len(), 8 + 1 + 40 + 54);
        let whole = [49, bytes.len()];
        assert!((0..=bytes.len()).all(|end| Checkpoint::decode(&bytes[..end]).is_some() == whole.contains(&end)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(checkpoint) = Checkpoint::decode(&bytes) {
                prop_assert_eq!(checkpoint.encode(), bytes);
            }
        }
    }
}
