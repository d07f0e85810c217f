//! False contributions of Byzantine peers: their messages are valid, but the named blobs are false.

use crate::config::Codec;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId};
use crate::protocol::Message;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::simulator::scenario::byzantine::Byzantine;
use crate::simulator::world::World;

/// Factor of a negated contribution.
const TIMES: f32 = 10.0;

impl World {
    /// The outer gradient that a Byzantine peer compresses.
    pub(super) fn bent(&self, index: usize, mut gradient: Vec<f32>) -> Vec<f32> {
        if self.behaviour(index) == Some(Byzantine::SignFlipped) {
            gradient.iter_mut().for_each(|value| *value *= -TIMES);
        }
        gradient
    }

    /// The frame that a Byzantine peer stores and offers instead of its own.
    pub(super) fn offered_instead(
        &mut self,
        index: usize,
        path: PathId,
        from: &BaseVersion,
        frame: Vec<u8>,
    ) -> Vec<u8> {
        let module = from.module;
        match self.behaviour(index) {
            Some(Byzantine::NotFinite) => self.not_finite(),
            Some(Byzantine::Stale) => self.first_frames.entry((index, module)).or_insert(frame).clone(),
            Some(Byzantine::Copied) => self.neighbours_frame(path, from).unwrap_or(frame),
            _ => frame,
        }
    }

    /// A copier waits until there is something to copy, in every module.
    pub(super) fn waits_for_a_copy(&self, index: usize, path: PathId, start: &[(BaseVersion, BlobRef)]) -> bool {
        self.behaviour(index) == Some(Byzantine::Copied)
            && start.iter().any(|(from, _)| self.neighbours_frame(path, from).is_none())
    }

    /// The offer of another path for the same version.
    fn neighbours_frame(&self, path: PathId, from: &BaseVersion) -> Option<Vec<u8>> {
        let offers = self.overheard.iter().rev().filter_map(|(module, author, message)| match message {
            Message::Offer(offer) if *module == from.module && offer.parent == from.version && offer.path != path => {
                Some((author, offer))
            }
            _ => None,
        });
        let mut frames = offers.filter_map(|(author, offer)| {
            let author = self.index_of.get(author).filter(|index| !self.byzantine.contains_key(index))?;
            self.peers[*author].disk.get(offer.blob.hash).cloned()
        });
        frames.next()
    }

    /// A valid frame except for one value.
    fn not_finite(&self) -> Vec<u8> {
        let count = self.scenario.swarm.values;
        let (codec, payload) = match self.outer.codec {
            Codec::Fp32 => (0u16, [f32::NAN.to_le_bytes().to_vec(), vec![0; 4 * (count - 1)]].concat()),
            Codec::Int4 => {
                let groups = count.div_ceil(128);
                (2, [vec![0; 66 * groups - 2], 0x7FC0u16.to_le_bytes().to_vec()].concat())
            }
            _ => return b"not a frame at all".to_vec(),
        };
        let chunk = zstd::bulk::compress(&payload, 1).unwrap_or_default();
        let mut header = b"pswf".to_vec();
        header.extend(1u16.to_le_bytes());
        header.extend(codec.to_le_bytes());
        header.extend((count as u64).to_le_bytes());
        header.extend((payload.len() as u64).to_le_bytes());
        let rest = [(chunk.len() as u32).to_le_bytes().to_vec(), chunk].concat();
        let checksum = blake3::hash(&[header.clone(), rest.clone()].concat());
        [header, checksum.as_bytes()[..8].to_vec(), rest].concat()
    }

    /// The average that a Byzantine owner publishes instead of the right one.
    pub(super) fn wrong_average(&mut self, index: usize, average: Vec<u8>) -> Vec<u8> {
        if self.behaviour(index) != Some(Byzantine::WrongAverage) {
            return average;
        }
        let codec = self.outer.average_codec();
        let values = crate::compress::decode_as(codec, &average, self.scenario.swarm.values);
        let reversed = values.ok().map(|values| values.iter().map(|value| -value).collect::<Vec<f32>>());
        let Some(wrong) = reversed.and_then(|values| crate::compress::encode(codec, &values).ok()) else {
            return average;
        };
        self.wrong_averages.insert(BlobHash::of(&wrong));
        wrong
    }

    /// The newest update of a module, which a Byzantine peer accuses.
    pub(super) fn head_update(&self, index: usize, module: ModuleId) -> Option<crate::protocol::SignedUpdate> {
        let chain = self.peers[index].node.chains().find(|(of, _)| *of == module)?.1;
        chain.recent().next_back().cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::compress::{FrameError, decode_as};
    use crate::simulator::Scenario;

    #[test]
    fn a_frame_that_is_not_finite_is_refused_for_that_reason() {
        let text =
            "about = \"-\"\n[swarm]\nlevels = [\"shared\"]\npeers = 1\nphases = 1\nvalues = 200\nphase_ms = [1, 1]\n";
        for codec in [Codec::Fp32, Codec::Int4] {
            let mut scenario = Scenario::from_toml(text).unwrap();
            scenario.swarm.codec = codec;
            let frame = World::new(Arc::new(scenario), 0).not_finite();
            let refused = decode_as(codec, &frame, 200).unwrap_err();
            assert!(!matches!(refused, FrameError::Checksum), "{refused}");
            assert!(refused.to_string().contains("finite"), "{refused}");
        }
    }
}
