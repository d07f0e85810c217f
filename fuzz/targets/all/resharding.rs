//! What it takes to share the text out anew: the atlas of all documents, and what paths score. Behind it: how many paths
//! and documents there are, a byte each.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::routing::resharding::{Atlas, PathScores};

fuzz_target!(|input: &[u8]| {
    let Some((bytes, [paths, documents])) = input.split_last_chunk() else { return };
    let (paths, documents) = (u32::from(*paths), usize::from(*documents));
    if let Ok(atlas) = Atlas::decode(bytes, paths) {
        assert_eq!(atlas.encode(), bytes);
    }
    if let Ok(scores) = PathScores::decode(bytes, paths, documents) {
        assert_eq!(PathScores::encode(&scores), bytes);
        assert!(bytes.len() as u64 <= PathScores::max_bytes(paths, documents));
    }
});
