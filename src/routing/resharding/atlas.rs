//! The atlas: features of all documents of a run and their place in the first shards. Resharding needs nothing else.

use crate::names::{BlobHash, PathId};
use crate::routing::router::MAX_WIDTH;

const MAGIC: [u8; 4] = *b"PSAT";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 60;
const PLACE_BYTES: usize = 12;

/// The place of a document in the creating text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of the creating shard.
    pub shard: PathId,
    /// Index of the document in it.
    pub document: u32,
    /// Number of sequences.
    pub sequences: u32,
}

/// Documents of one purpose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    /// In order.
    pub places: Vec<Place>,
    /// Row-major `[documents, width]`.
    pub features: Vec<f32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Atlas {
    /// Features per document.
    pub width: usize,
    /// BLAKE3 of the parameters that computed the features.
    pub ancestor: BlobHash,
    pub train: Catalogue,
    pub held_out: Catalogue,
    pub test: Catalogue,
    /// Features of the slice that paths score, row-major `[documents, width]`.
    pub slice: Vec<f32>,
    /// Routes of the slice's documents by the creating router.
    pub slice_routes: Vec<PathId>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AtlasError {
    #[error("not an atlas of version {VERSION}: {0}")]
    Format(&'static str),
}

impl Atlas {
    /// Number of documents of the slice.
    pub fn slice_documents(&self) -> usize {
        self.slice.len() / self.width.max(1)
    }

    /// Little endian: `PSAT`, version u16, 0 u16, width u32; the numbers of documents for training, held out, for
    /// testing, and in the slice, u32 each; the ancestor's hash. Then for each of the first three: the places in order
    /// (path, document, sequences, u32 each) and all features, f32. Then the features of the slice and its creating
    /// routes, u32.
    pub fn encode(&self) -> Vec<u8> {
        let parts = [&self.train, &self.held_out, &self.test];
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0, 0]);
        let counts = parts.map(|part| part.places.len());
        for number in [self.width].into_iter().chain(counts).chain([self.slice_documents()]) {
            bytes.extend((number as u32).to_le_bytes());
        }
        bytes.extend(self.ancestor.0);
        let features = |bytes: &mut Vec<u8>, values: &[f32]| {
            values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        };
        for part in parts {
            for place in &part.places {
                for number in [place.shard.0, place.document, place.sequences] {
                    bytes.extend(number.to_le_bytes());
                }
            }
            features(&mut bytes, &part.features);
        }
        features(&mut bytes, &self.slice);
        self.slice_routes.iter().for_each(|path| bytes.extend(path.0.to_le_bytes()));
        bytes
    }

    /// Reads an encoded atlas of a run with so many paths.
    pub fn decode(bytes: &[u8], paths: u32) -> Result<Self, AtlasError> {
        let wrong = AtlasError::Format;
        let (head, mut rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(wrong("too short"))?;
        if head[..4] != MAGIC || head[4..6] != VERSION.to_le_bytes() || head[6..8] != [0, 0] {
            return Err(wrong("another kind of file"));
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (width, slice) = (number(8), number(24));
        let ancestor = BlobHash(*head.last_chunk().ok_or(wrong("too short"))?);
        if width == 0 || width > MAX_WIDTH {
            return Err(wrong("a width that cannot be"));
        }
        let row_bytes = 4 * width as u64;
        let documents = [number(12), number(16), number(20)];
        let needed: u64 = documents.iter().map(|count| *count as u64 * (PLACE_BYTES as u64 + row_bytes)).sum();
        if rest.len() as u64 != needed + slice as u64 * (row_bytes + 4) {
            return Err(wrong("a size that does not fit its counts"));
        }
        let mut take = |bytes: usize| {
            let (own, after) = rest.split_at(bytes);
            rest = after;
            own
        };
        let values = |bytes: &[u8]| -> Result<Vec<f32>, AtlasError> {
            let values: Vec<f32> = bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
            if values.iter().all(|value| value.is_finite()) {
                Ok(values)
            } else {
                Err(wrong("a feature is not finite"))
            }
        };
        let mut part = |count: usize| -> Result<Catalogue, AtlasError> {
            let places: Vec<Place> = take(PLACE_BYTES * count).as_chunks().0.iter().map(place).collect();
            let ascend = places.is_sorted_by(|a, b| (a.shard, a.document) < (b.shard, b.document));
            if !ascend || places.iter().any(|place| place.shard.0 >= paths || place.sequences == 0) {
                return Err(wrong("invalid positions"));
            }
            Ok(Catalogue { places, features: values(take(4 * width * count))? })
        };
        let (train, held_out, test) = (part(documents[0])?, part(documents[1])?, part(documents[2])?);
        let features = values(take(4 * width * slice))?;
        let routes = take(4 * slice).as_chunks().0.iter().map(|path| PathId(u32::from_le_bytes(*path)));
        let slice_routes: Vec<PathId> = routes.collect();
        if slice_routes.iter().any(|path| path.0 >= paths) {
            return Err(wrong("a route to no path"));
        }
        Ok(Self { width, ancestor, train, held_out, test, slice: features, slice_routes })
    }
}

fn place(bytes: &[u8; PLACE_BYTES]) -> Place {
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Place { shard: PathId(number(0)), document: number(4), sequences: number(8) }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// For two paths: documents with a negative first feature are in the shard of path 0, the others in that of path 1.
    /// The second feature alternates.
    pub fn two_by_two() -> Atlas {
        let of = |count: u32| {
            let places = (0..2 * count).map(|i| Place { shard: PathId(i / count), document: i % count, sequences: 2 });
            let row = |i: u32| [if i < count { -1.0 } else { 1.0 }, if i.is_multiple_of(2) { -1.0 } else { 1.0 }];
            let near = |i: u32, values: [f32; 2]| values.map(|value| value + (i % 7) as f32 * 0.01);
            Catalogue { places: places.collect(), features: (0..2 * count).flat_map(|i| near(i, row(i))).collect() }
        };
        Atlas {
            width: 2,
            ancestor: BlobHash([7; 32]),
            train: of(20),
            held_out: of(4),
            test: of(3),
            slice: of(10).features,
            slice_routes: (0..20).map(|i| PathId(i / 10)).collect(),
        }
    }

    #[test]
    fn an_atlas_comes_back_and_nothing_else_is_one() {
        let atlas = two_by_two();
        let bytes = atlas.encode();
        assert_eq!(Atlas::decode(&bytes, 2).unwrap(), atlas);
        assert_eq!((atlas.slice_documents(), atlas.train.places.len()), (20, 40));
        assert_eq!(Atlas::decode(&bytes, 1).unwrap_err().to_string(), "not an atlas of version 1: invalid positions");
        for end in [0, 5, HEADER_BYTES, bytes.len() - 1] {
            assert!(Atlas::decode(&bytes[..end], 2).is_err(), "{end}");
        }
        let mut other = bytes.clone();
        let last = other.len() - 4 - 4 * 20;
        other[last..last + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert_eq!(
            Atlas::decode(&other, 2).unwrap_err().to_string(),
            "not an atlas of version 1: a feature is not finite"
        );
    }
}
