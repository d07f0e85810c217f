//! A blob's pieces, and how each is verified by itself.
//!
//! BLAKE3 is the root of a tree over chunks of 1 KiB. A piece is a whole subtree of it, [`PIECE_BYTES`] long, save the
//! last one. So the values of all pieces' subtrees, 32 bytes each, can be checked against the blob's own hash; and once
//! they are, each piece can be checked against its value. Nobody needs to be trusted for a list: it is the blob's hash, or
//! it is not. What verifies piece by piece verifies as a whole, and the length is a part of it, since a chunk never has
//! the value of an inner node.

use blake3::hazmat::{HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};

use crate::names::BlobRef;

/// Bytes of a piece: a power of two of chunks. At 4 MB, what an update of 10 million parameters may take, a dozen peers
/// can still serve each other; at 1 GB, the values of all subtrees are 122 KiB.
pub const PIECE_BYTES: u64 = 256 * 1024;

/// A blob of more pieces is refused: 2^18 x 256 KiB = 64 GiB, whose values take 2^18 x 32 bytes = 8 MiB.
pub const MOST_PIECES: u64 = 1 << 18;

/// How many pieces so many bytes have; nothing if they are too many. An empty blob has one, which is empty.
pub fn piece_count(bytes: u64) -> Option<u32> {
    let count = bytes.div_ceil(PIECE_BYTES).max(1);
    u32::try_from(count).ok().filter(|_| count <= MOST_PIECES)
}

/// How long a piece of a blob is; 0 beyond its end.
pub fn piece_bytes(bytes: u64, piece: u32) -> usize {
    bytes.saturating_sub(u64::from(piece) * PIECE_BYTES).min(PIECE_BYTES) as usize
}

/// The value of a piece's subtree.
pub type Value = [u8; 32];

/// What each piece of a blob must hash to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceTree {
    blob: BlobRef,
    /// Nothing for a blob of one piece: its hash says it all.
    values: Vec<Value>,
}

impl PieceTree {
    /// That of a blob of a single piece.
    pub fn single(blob: BlobRef) -> Option<Self> {
        (piece_count(blob.bytes)? == 1).then(|| Self { blob, values: Vec::new() })
    }

    /// Takes the values of all pieces, if they make the blob's hash.
    pub fn of_values(blob: BlobRef, values: Vec<Value>) -> Option<Self> {
        let count = piece_count(blob.bytes)?;
        if count == 1 || values.len() != count as usize {
            return None;
        }
        let (left, right) = halves(&values, blob.bytes);
        let root = merge_subtrees_root(&left, &right, Mode::Hash);
        (*root.as_bytes() == blob.hash.0).then_some(Self { blob, values })
    }

    /// The blob.
    pub fn blob(&self) -> BlobRef {
        self.blob
    }

    /// The values of all pieces, in their order; none for a blob of one piece.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Whether these are the bytes of a piece.
    pub fn verifies(&self, piece: u32, bytes: &[u8]) -> bool {
        if bytes.len() != piece_bytes(self.blob.bytes, piece) {
            return false;
        }
        match self.values.get(piece as usize) {
            Some(value) => *value == value_of(piece, bytes),
            None => self.values.is_empty() && piece == 0 && *blake3::hash(bytes).as_bytes() == self.blob.hash.0,
        }
    }
}

/// The value of a piece of a blob that has more than one. The piece must not be empty.
pub fn value_of(piece: u32, bytes: &[u8]) -> Value {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(u64::from(piece) * PIECE_BYTES).update(bytes);
    hasher.finalize_non_root()
}

fn halves(values: &[Value], bytes: u64) -> (Value, Value) {
    // A multiple of a piece, since there is more than one.
    let left = left_subtree_len(bytes);
    let (first, second) = values.split_at((left / PIECE_BYTES) as usize);
    (subtree(first, left), subtree(second, bytes - left))
}

/// As deep as the logarithm of [`MOST_PIECES`].
fn subtree(values: &[Value], bytes: u64) -> Value {
    match values {
        [value] => *value,
        _ => {
            let (left, right) = halves(values, bytes);
            merge_subtrees_non_root(&left, &right, Mode::Hash)
        }
    }
}

/// Which pieces of a blob there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceSet {
    bits: Vec<u8>,
    pieces: u32,
    here: u32,
}

impl PieceSet {
    /// None of so many.
    pub fn none(pieces: u32) -> Self {
        Self { bits: vec![0; pieces.div_ceil(8) as usize], pieces, here: 0 }
    }

    /// All of so many.
    pub fn all(pieces: u32) -> Self {
        let mut all = Self::none(pieces);
        for piece in 0..pieces {
            all.insert(piece);
        }
        all
    }

    /// Of the bytes of [`PieceSet::as_bytes`]. Nothing if they are too few or many; what lies beyond the last piece does
    /// not count.
    pub fn of_bytes(pieces: u32, bytes: &[u8]) -> Option<Self> {
        let mut set = Self::none(pieces);
        if bytes.len() != set.bits.len() {
            return None;
        }
        for piece in (0..pieces).filter(|piece| bytes[*piece as usize / 8] >> (piece % 8) & 1 == 1) {
            set.insert(piece);
        }
        Some(set)
    }

    /// Eight pieces a byte, the first in the lowest bit.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bits
    }

    /// Whether a piece is there.
    pub fn has(&self, piece: u32) -> bool {
        piece < self.pieces && self.bits[piece as usize / 8] >> (piece % 8) & 1 == 1
    }

    /// Adds a piece; whether that is news. One beyond the end is none.
    pub fn insert(&mut self, piece: u32) -> bool {
        let new = piece < self.pieces && !self.has(piece);
        if new {
            self.bits[piece as usize / 8] |= 1 << (piece % 8);
            self.here += 1;
        }
        new
    }

    /// Takes a piece out.
    pub fn remove(&mut self, piece: u32) {
        if self.has(piece) {
            self.bits[piece as usize / 8] &= !(1 << (piece % 8));
            self.here -= 1;
        }
    }

    /// How many are there.
    pub fn count(&self) -> u32 {
        self.here
    }

    /// Whether all are.
    pub fn is_whole(&self) -> bool {
        self.here == self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobHash;

    fn noise(bytes: u64) -> Vec<u8> {
        let mut noise = vec![0; bytes as usize];
        blake3::Hasher::new().update(b"pieces").finalize_xof().fill(&mut noise);
        noise
    }

    fn values(contents: &[u8]) -> Vec<Value> {
        contents.chunks(PIECE_BYTES as usize).zip(0..).map(|(piece, index)| value_of(index, piece)).collect()
    }

    #[test]
    fn the_values_of_all_pieces_make_the_blobs_own_hash_whatever_its_size() {
        for bytes in [PIECE_BYTES + 1, 2 * PIECE_BYTES, 3 * PIECE_BYTES, 5 * PIECE_BYTES + 1_023, 8 * PIECE_BYTES - 1] {
            let contents = noise(bytes);
            let blob = BlobRef::of(&contents);
            let tree = PieceTree::of_values(blob, values(&contents)).expect("the hash is that of the whole");
            for (piece, index) in contents.chunks(PIECE_BYTES as usize).zip(0..) {
                assert!(tree.verifies(index, piece));
                assert!(!tree.verifies(index + 1, piece), "elsewhere it is another piece");
                let mut wrong = piece.to_vec();
                wrong[piece.len() / 2] ^= 1;
                assert!(!tree.verifies(index, &wrong) && !tree.verifies(index, &piece[1..]));
            }
        }
    }

    #[test]
    fn values_that_somebody_made_up_are_not_believed() {
        let contents = noise(4 * PIECE_BYTES);
        let blob = BlobRef::of(&contents);
        let good = values(&contents);
        let mut bad = good.clone();
        bad[3][0] ^= 1;
        assert_eq!(PieceTree::of_values(blob, bad), None);
        let swapped = vec![good[1], good[0], good[2], good[3]];
        assert_eq!(PieceTree::of_values(blob, swapped), None);
        assert_eq!(PieceTree::of_values(blob, good[..3].to_vec()), None);
        // Inner nodes of the true tree make the same root for a shorter blob; but no bytes have their values.
        let shorter = BlobRef { bytes: 2 * PIECE_BYTES, ..blob };
        let inner = vec![subtree(&good[..2], 2 * PIECE_BYTES), subtree(&good[2..], 2 * PIECE_BYTES)];
        let tree = PieceTree::of_values(shorter, inner).expect("the same root");
        assert!(!tree.verifies(0, &contents[..PIECE_BYTES as usize]));
    }

    #[test]
    fn a_small_blob_is_verified_by_its_hash() {
        for contents in [&b""[..], b"gradient"] {
            let tree = PieceTree::single(BlobRef::of(contents)).unwrap();
            assert!(tree.verifies(0, contents) && tree.values().is_empty());
            assert!(!tree.verifies(1, contents) && !tree.verifies(0, b"Gradient"));
        }
        assert_eq!(PieceTree::single(BlobRef { hash: BlobHash([0; 32]), bytes: PIECE_BYTES + 1 }), None);
    }

    #[test]
    fn a_blob_of_a_billion_pieces_is_refused_by_arithmetic() {
        assert_eq!(piece_count(MOST_PIECES * PIECE_BYTES), Some(1 << 18));
        for bytes in [MOST_PIECES * PIECE_BYTES + 1, 1_000_000_000 * PIECE_BYTES, u64::MAX] {
            assert_eq!(piece_count(bytes), None);
            assert_eq!(PieceTree::of_values(BlobRef { hash: BlobHash([0; 32]), bytes }, Vec::new()), None);
        }
        assert_eq!((piece_count(0), piece_bytes(0, 0), piece_bytes(5, 1)), (Some(1), 0, 0));
    }

    #[test]
    fn a_set_survives_its_bytes_and_what_is_beyond_the_end_does_not_count() {
        let mut set = PieceSet::none(11);
        assert!(set.insert(0) && set.insert(10) && !set.insert(10) && !set.insert(11));
        assert_eq!((set.as_bytes(), set.count(), set.is_whole()), (&[1, 4][..], 2, false));
        assert_eq!(PieceSet::of_bytes(11, set.as_bytes()).as_ref(), Some(&set));
        set.remove(10);
        set.remove(9);
        assert_eq!((set.as_bytes(), set.count()), (&[1, 0][..], 1));
        assert_eq!(PieceSet::of_bytes(11, &[255, 255]), Some(PieceSet::all(11)));
        assert_eq!(PieceSet::of_bytes(11, &[255]), None);
    }
}
