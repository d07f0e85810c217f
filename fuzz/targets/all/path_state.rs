//! What a path's trainer carries, between phases and in the middle of one, and the dense path's. Behind it: how many values
//! its two levels have, a byte each.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use pathswarm::names::BlobHash;
use pathswarm::peer::create::dense::DenseCheckpoint;
use pathswarm::peer::trainer::path_state::{PathState, PhaseState};
use pathswarm::training::InnerState;

/// Puts in the checksum of the inner state, which lies last: whoever sends one can make it.
fn sealed(bytes: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    if let Some(before) = bytes.len().checked_sub(InnerState::encoded_len(sizes)) {
        let end = bytes.len() - 32;
        let checksum = blake3::hash(&bytes[before..end]);
        sealed[end..].copy_from_slice(checksum.as_bytes());
    }
    sealed
}

fuzz_target!(|input: &[u8]| {
    let Some((bytes, sizes)) = input.split_last_chunk::<2>() else { return };
    let sizes = sizes.map(usize::from);
    let mut bytes = sealed(bytes, &sizes);
    if let Ok(state) = PathState::decode(&bytes, &sizes) {
        assert_eq!(state.encode(), bytes);
    }
    if let Ok(state) = PhaseState::decode(&bytes, &sizes) {
        assert_eq!(state.encode(), bytes);
    }
    let hash = blake3::hash(&bytes);
    bytes.extend(hash.as_bytes());
    let _ = DenseCheckpoint { file: PathBuf::new(), of: BlobHash([0; 32]) }.decode(&bytes, &sizes);
});
