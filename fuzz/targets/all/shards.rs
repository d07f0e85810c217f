//! What each path trains on: the table of shards, and the index from documents to shards. Behind it: how many paths there
//! are, two bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::peer::manifest::shard_table::{decode_table, encode_table, weights};
use pathswarm::routing::ShardIndex;

fuzz_target!(|input: &[u8]| {
    let Some((bytes, paths)) = input.split_last_chunk() else { return };
    if let Some(shards) = decode_table(bytes, u16::from_le_bytes(*paths).into()) {
        assert_eq!(encode_table(&shards), bytes);
        let _ = weights(shards.iter().map(|shard| shard.sequences));
    }
    if let Ok(index) = ShardIndex::decode(bytes) {
        assert_eq!(index.encode(), bytes);
        let _ = index.sizes();
    }
});
