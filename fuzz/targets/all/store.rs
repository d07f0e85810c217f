//! What a peer, or an experiment, finds on its disk when it starts: the journal, where a path stands, an arm in training.
#![no_main]

use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use pathswarm::experiment::checkpoint::ArmCheckpoint;
use pathswarm::names::BlobHash;
use pathswarm::store::{Checkpoint, Journal};

const HEADER_BYTES: usize = 32;

/// Puts the checksums in, of the header and of frames, as far as their lengths lead from one to the next.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    if bytes.len() < HEADER_BYTES {
        return sealed;
    }
    sealed[16..32].copy_from_slice(&blake3::hash(&bytes[..16]).as_bytes()[..16]);
    let mut place = HEADER_BYTES;
    while let Some(length) = bytes.get(place..).and_then(|rest| rest.first_chunk()) {
        let length = u32::from_le_bytes(*length);
        let padded = (length as usize).next_multiple_of(16);
        let Some(body) = bytes.get(place + 16..).and_then(|rest| rest.get(..padded)) else { break };
        let mut hasher = blake3::Hasher::new();
        hasher.update(&bytes[8..16]).update(&(place as u64).to_le_bytes()).update(&length.to_le_bytes()).update(body);
        hasher.finalize_xof().fill(&mut sealed[place + 4..place + 16]);
        place += 16 + padded;
    }
    sealed
}

fuzz_target!(|bytes: &[u8]| {
    let whole = sealed(bytes);
    for journal in [bytes, &whole] {
        if let Ok(records) = Journal::decode(Path::new("journal"), journal) {
            assert!(records.iter().map(Vec::len).sum::<usize>() <= journal.len());
        }
    }
    if let Some(checkpoint) = Checkpoint::decode(bytes) {
        assert_eq!(Checkpoint::decode(&checkpoint.encode()), Some(checkpoint));
    }
    let kept = [bytes, blake3::hash(bytes).as_bytes()].concat();
    let _ = ArmCheckpoint { file: PathBuf::new(), of: BlobHash([0; 32]) }.decode(&kept);
});
