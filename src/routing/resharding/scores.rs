//! Scores of paths on the slice: for each document the summed loss of its tokens.

use crate::names::PathId;

const MAGIC: [u8; 4] = *b"PSSC";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;

/// The scores of one path, or a note that it has none.
#[derive(Clone, Debug, PartialEq)]
pub struct PathScores {
    /// Which path.
    pub path: PathId,
    /// Nats for each document of the slice; empty if no resharding is due.
    pub nats: Vec<f32>,
}

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ScoresError {
    #[error("not a table of scores of version {VERSION}: {0}")]
    Format(&'static str),
    #[error("scores of path {0}, which are out of order or of no path of this run")]
    Path(PathId),
    #[error("{found} scores of path {path}, the slice has {expected} documents")]
    Count { path: PathId, found: u32, expected: usize },
    #[error("a score of path {path} is {value}")]
    Value { path: PathId, value: f32 },
}

impl PathScores {
    /// Encodes several paths' scores, little endian: `PSSC`, version u16, 0 u16, count u32; then for each, in order of
    /// paths, the path u32, number of scores u32, the scores f32.
    pub fn encode(all: &[Self]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend((all.len() as u32).to_le_bytes());
        for Self { path, nats } in all {
            bytes.extend(path.0.to_le_bytes());
            bytes.extend((nats.len() as u32).to_le_bytes());
            nats.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        }
        bytes
    }

    /// The largest encoding in a run.
    pub fn max_bytes(paths: u32, documents: usize) -> u64 {
        HEADER_BYTES as u64 + u64::from(paths) * (ENTRY_BYTES as u64 + 4 * documents as u64)
    }

    /// Reads and checks them.
    pub fn decode(bytes: &[u8], paths: u32, documents: usize) -> Result<Vec<Self>, ScoresError> {
        let wrong = ScoresError::Format;
        let (head, mut rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(wrong("too short"))?;
        if head[..4] != MAGIC || head[4..6] != VERSION.to_le_bytes() || head[6..8] != [0, 0] {
            return Err(wrong("another kind of file"));
        }
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let mut all: Vec<Self> = Vec::new();
        for _ in 0..number(&head[8..]) {
            let (entry, after) = rest.split_at_checked(ENTRY_BYTES).ok_or(wrong("cut short"))?;
            let (path, found) = (PathId(number(entry)), number(&entry[4..]));
            if path.0 >= paths || all.last().is_some_and(|last| last.path >= path) {
                return Err(ScoresError::Path(path));
            }
            if found != 0 && found as usize != documents {
                return Err(ScoresError::Count { path, found, expected: documents });
            }
            let (values, after) = after.split_at_checked(4 * found as usize).ok_or(wrong("cut short"))?;
            let nats: Vec<f32> = values.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
            if let Some(value) = nats.iter().find(|value| !value.is_finite() || **value < 0.0) {
                return Err(ScoresError::Value { path, value: *value });
            }
            all.push(Self { path, nats });
            rest = after;
        }
        if rest.is_empty() { Ok(all) } else { Err(wrong("something follows")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_come_back_and_others_are_refused() {
        let of = |path, nats: &[f32]| PathScores { path: PathId(path), nats: nats.to_vec() };
        let all = [of(0, &[1.5, 0.0]), of(2, &[])];
        let bytes = PathScores::encode(&all);
        assert_eq!(PathScores::decode(&bytes, 3, 2).unwrap(), all);
        assert!(bytes.len() as u64 <= PathScores::max_bytes(3, 2));
        let refused = |all: &[PathScores], paths, documents| {
            PathScores::decode(&PathScores::encode(all), paths, documents).unwrap_err().to_string()
        };
        assert!(refused(&all, 2, 2).contains("scores of path 2"));
        assert!(refused(&[all[1].clone(), all[0].clone()], 3, 2).contains("scores of path 0"));
        assert_eq!(refused(&all, 3, 5), "2 scores of path 0, the slice has 5 documents");
        assert_eq!(refused(&[of(1, &[f32::NAN])], 3, 1), "a score of path 1 is NaN");
        assert_eq!(refused(&[of(1, &[-1.0])], 3, 1), "a score of path 1 is -1");
        for end in 0..bytes.len() {
            assert!(matches!(PathScores::decode(&bytes[..end], 3, 2), Err(ScoresError::Format(_))), "{end}");
        }
        assert!(PathScores::decode(&[&bytes[..], &[0]].concat(), 3, 2).is_err());
    }
}
