//! What is said of a blob's pieces: what each hashes to, and which are there. Behind it: the blob's name, as it is asked for,
//! 40 bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::names::{BlobHash, BlobRef};
use pathswarm::pieces::{PieceSet, PieceTree, Value, piece_bytes, piece_count};

fuzz_target!(|input: &[u8]| {
    let Some((bytes, named)) = input.split_last_chunk::<40>() else { return };
    let (hash, length) = named.split_at(32);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let blob = BlobRef { hash: BlobHash(hash.try_into().expect("32 bytes of 40")), bytes: number(length) };
    let Some(count) = piece_count(blob.bytes) else { return };
    assert_eq!(piece_bytes(blob.bytes, count), 0);
    let values: &[Value] = bytes.as_chunks().0;
    let trees = [PieceTree::single(blob), PieceTree::of_values(blob, values.to_vec())];
    for tree in trees.into_iter().flatten() {
        let _ = (tree.verifies(0, bytes), tree.verifies(count, bytes), tree.verifies(u32::MAX, bytes));
    }
    if let Some(set) = PieceSet::of_bytes(count, bytes) {
        assert!(set.count() <= count && PieceSet::of_bytes(count, set.as_bytes()) == Some(set));
    }
});
