//! Token files: the bytes of a [`TokenSet`], as a run's manifest names them and peers fetch them.

use super::tokens::TokenSet;

const MAGIC: [u8; 4] = *b"PSTK";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 24;
const DOCUMENT_BYTES: usize = 12;

/// Why bytes are not an encoded [`TokenSet`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TokensError {
    /// Another kind of file, or one from another version.
    #[error("not a token file of version {VERSION}")]
    Header,
    /// Cut short, or counts that do not fit the size.
    #[error("a token file of {found} bytes, where its header asks for {expected}")]
    Size {
        /// By the header.
        expected: u128,
        /// In fact.
        found: usize,
    },
    /// Tables that contradict each other.
    #[error("a token file whose table of {0} makes no sense")]
    Table(&'static str),
    /// A sequence that the model cannot take.
    #[error("sequence {sequence} of a token file has {length} tokens; 2 to {context} are possible")]
    Length {
        /// Position of the sequence.
        sequence: usize,
        /// Its length.
        length: u32,
        /// The model's context.
        context: usize,
    },
    /// An id that the tokenizer does not have.
    #[error("a token file has the id {id}, but the vocabulary ends at {vocabulary}")]
    Id {
        /// The id.
        id: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
}

impl TokenSet {
    /// The bytes of a token file, little endian: `PSTK`, version u16, bytes an id (2 or 4) u16, documents u32,
    /// sequences u32, ids u64; for each document its number, the length of its copied head and how many sequences it
    /// has, u32 each; the length of each sequence, u32; the ids.
    pub fn encode(&self) -> Vec<u8> {
        let width: u16 = if self.tokens.iter().all(|id| *id <= u32::from(u16::MAX)) { 2 } else { 4 };
        let mut bytes = Vec::new();
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(width.to_le_bytes());
        bytes.extend((self.documents.len() as u32).to_le_bytes());
        bytes.extend((self.sequences.len() as u32).to_le_bytes());
        bytes.extend((self.tokens.len() as u64).to_le_bytes());
        for (document, range) in self.documents.iter().zip(self.documents()) {
            for value in [document.number, document.copied, range.len() as u32] {
                bytes.extend(value.to_le_bytes());
            }
        }
        for sequence in &self.sequences {
            bytes.extend(sequence.length.to_le_bytes());
        }
        for id in &self.tokens {
            bytes.extend_from_slice(&id.to_le_bytes()[..usize::from(width)]);
        }
        bytes
    }

    /// Reads a token file. Nothing is allocated that the bytes do not pay for.
    ///
    /// # Errors
    /// If it is not one, or does not fit the vocabulary or the context.
    pub fn decode(bytes: &[u8], vocabulary: usize, context: usize) -> Result<Self, TokensError> {
        let Sections { width, documents, lengths, ids } = sections(bytes)?;
        let mut ids = ids.chunks_exact(width).map(|id| {
            let mut all = [0; 4];
            all[..width].copy_from_slice(id);
            u32::from_le_bytes(all)
        });
        let mut take = |length: u32| -> Result<Vec<u32>, TokensError> {
            let taken: Vec<u32> = ids.by_ref().take(length as usize).collect();
            match taken.iter().find(|id| **id as usize >= vocabulary) {
                Some(id) => Err(TokensError::Id { id: *id, vocabulary }),
                None if taken.len() < length as usize => Err(TokensError::Table("lengths")),
                None => Ok(taken),
            }
        };
        let mut lengths = lengths.chunks_exact(4).map(read_u32).enumerate();
        let mut set = Self::default();
        for entry in documents.chunks_exact(DOCUMENT_BYTES) {
            let (number, copied, count) = (read_u32(entry), read_u32(&entry[4..]), read_u32(&entry[8..]));
            if copied as usize > context || count == 0 {
                return Err(TokensError::Table("documents"));
            }
            set.begin_document(number, &take(copied)?);
            for _ in 0..count {
                let (sequence, length) = lengths.next().ok_or(TokensError::Table("documents"))?;
                if length < 2 || length as usize > context {
                    return Err(TokensError::Length { sequence, length, context });
                }
                set.push_sequence(&take(length)?);
            }
        }
        if lengths.next().is_some() || ids.next().is_some() {
            return Err(TokensError::Table("lengths"));
        }
        Ok(set)
    }
}

/// The parts of a token file, each of the size that the header says.
struct Sections<'a> {
    /// Bytes of an id.
    width: usize,
    documents: &'a [u8],
    lengths: &'a [u8],
    ids: &'a [u8],
}

fn sections(bytes: &[u8]) -> Result<Sections<'_>, TokensError> {
    let head = bytes.get(..HEADER_BYTES).ok_or(TokensError::Header)?;
    let width = usize::from(u16::from_le_bytes([head[6], head[7]]));
    if head[..4] != MAGIC || head[4..6] != VERSION.to_le_bytes() || (width != 2 && width != 4) {
        return Err(TokensError::Header);
    }
    let (document_count, sequence_count) = (u128::from(read_u32(&head[8..])), u128::from(read_u32(&head[12..])));
    let id_count = u128::from(read_u32(&head[16..])) | u128::from(read_u32(&head[20..])) << 32;
    let sizes = [document_count * DOCUMENT_BYTES as u128, sequence_count * 4, id_count * width as u128];
    let expected = HEADER_BYTES as u128 + sizes.iter().sum::<u128>();
    if expected != bytes.len() as u128 {
        return Err(TokensError::Size { expected, found: bytes.len() });
    }
    let (documents, rest) = bytes[HEADER_BYTES..].split_at(sizes[0] as usize);
    let (lengths, ids) = rest.split_at(sizes[1] as usize);
    Ok(Sections { width, documents, lengths, ids })
}

/// The first four bytes, of which there must be as many.
fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set() -> TokenSet {
        TokenSet::cut(&[vec![1, 2, 3, 4, 5, 6, 7], vec![9], vec![10, 11, 12, 13, 14], vec![15, 16]], 4)
    }

    #[test]
    fn ids_take_two_bytes_where_they_fit() {
        let small = TokenSet::cut(&[vec![1, 65_535]], 8);
        let large = TokenSet::cut(&[vec![1, 65_536]], 8);
        assert_eq!(large.encode().len() - small.encode().len(), 4);
        for set in [small, large, TokenSet::default()] {
            assert_eq!(TokenSet::decode(&set.encode(), 65_537, 8).unwrap(), set);
        }
    }

    #[test]
    fn the_format_does_not_change_unnoticed() {
        let bytes = TokenSet::cut(&[vec![1, 258]], 4).encode();
        let expected = [
            &b"PSTK\x01\0\x02\0"[..],
            &[1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            &[2, 0, 0, 0],
            &[1, 0, 2, 1],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn what_does_not_fit_is_refused_in_words() {
        let bytes = set().encode();
        assert_eq!(TokenSet::decode(&bytes, 16, 4), Err(TokensError::Id { id: 16, vocabulary: 16 }));
        let error = TokensError::Length { sequence: 0, length: 4, context: 3 };
        assert_eq!(TokenSet::decode(&bytes, 20, 3), Err(error));
        assert_eq!(TokenSet::decode(b"", 20, 4), Err(TokensError::Header));
        let mut huge = bytes.clone();
        huge[16..24].fill(0xff);
        assert!(matches!(TokenSet::decode(&huge, 20, 4), Err(TokensError::Size { .. })));
        assert!(matches!(TokenSet::decode(&bytes[..bytes.len() - 1], 20, 4), Err(TokensError::Size { .. })));
    }

    proptest! {
        #[test]
        fn changed_bytes_never_panic(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in 0usize..4) {
            let mut bytes = set().encode();
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(bytes.len() - cut);
            if let Ok(read) = TokenSet::decode(&bytes, 20, 4) {
                prop_assert!((0..read.len()).all(|i| read.sequence(i).len() <= 4 && read.prefix(i, 3).len() <= 3));
            }
        }
    }
}
