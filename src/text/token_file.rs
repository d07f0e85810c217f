//! Token files: the encoding of a [`TokenSet`], which a run's manifest names and peers fetch.

use std::io::{self, Read, Write};
use std::iter;
use std::ops::Range;

use super::document::is_image;
use super::ids::IdsWriter;
use super::learnt::LearntBits;
use super::tokens::{Building, TokenSet};
use crate::config::ModelConfig;

const MAGIC: [u8; 4] = *b"PSTK";
/// Everything is learnt.
const VERSION: u16 = 1;
/// A bit for each id says whether it is learnt.
const MASKED_VERSION: u16 = 2;
const HEADER_BYTES: usize = 24;
const DOCUMENT_BYTES: usize = 12;
const LENGTH_BYTES: usize = 4;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TokensError {
    #[error("not a token file of version {VERSION} or {MASKED_VERSION}")]
    Header,
    #[error("a token file of {found} bytes, where its header asks for {expected}")]
    Size { expected: u128, found: u64 },
    #[error("a token file whose table of {0} is invalid")]
    Table(&'static str),
    #[error("sequence {sequence} of a token file has {length} tokens; 2 to {context} are possible")]
    Length { sequence: usize, length: u32, context: usize },
    #[error("a token file has the id {id}, but the vocabulary ends at {vocabulary}")]
    Id { id: u32, vocabulary: usize },
    #[error("sequence {sequence} of a token file is not an image: expected {bytes} bytes and a class below {classes}")]
    Image { sequence: usize, bytes: usize, classes: usize },
    #[error("cannot read or write tokens: {0}")]
    Disk(String),
}

impl From<io::Error> for TokensError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error.to_string())
    }
}

impl TokenSet {
    /// The token file of the set, as [`TokenSet::write_to`] writes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_bytes() as usize);
        // Writing to memory does not fail.
        let _ = self.write_to(&mut bytes);
        bytes
    }

    /// Size of the token file.
    pub fn encoded_bytes(&self) -> u64 {
        let tables = self.documents.len() * DOCUMENT_BYTES + self.sequences.len() * LENGTH_BYTES;
        let bits = if self.is_masked() { LearntBits::bytes_of(self.ids()) } else { 0 };
        HEADER_BYTES as u64 + tables as u64 + bits + self.ids() * u64::from(self.id_bytes())
    }

    /// Writes a token file, little endian: `PSTK`, version u16, bytes of an id (2 or 4) u16, documents u32, sequences
    /// u32, ids u64; for each document its number, the length of its copied head and its number of sequences, u32 each;
    /// the length of each sequence, u32; with a mask, whose version is 2, a bit for each id; the ids. A head is copied if
    /// the document's first sequence is not in the set.
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let width = self.id_bytes();
        out.write_all(&MAGIC)?;
        let version = if self.is_masked() { MASKED_VERSION } else { VERSION };
        out.write_all(&version.to_le_bytes())?;
        out.write_all(&width.to_le_bytes())?;
        out.write_all(&(self.documents.len() as u32).to_le_bytes())?;
        out.write_all(&(self.sequences.len() as u32).to_le_bytes())?;
        out.write_all(&self.ids().to_le_bytes())?;
        for (document, range) in self.documents.iter().zip(self.documents()) {
            for value in [document.number, self.missing_head(range.start).len() as u32, range.len() as u32] {
                out.write_all(&value.to_le_bytes())?;
            }
        }
        for sequence in &self.sequences {
            out.write_all(&sequence.length.to_le_bytes())?;
        }
        if let Some(bits) = Self::bits_in_order(std::slice::from_ref(self)) {
            out.write_all(bits.bytes())?;
        }
        self.pieces().flatten().try_for_each(|id| out.write_all(&id.to_le_bytes()[..usize::from(width)]))
    }

    /// The ids of the file: of each document its head, if copied, and its sequences.
    fn pieces(&self) -> impl Iterator<Item = &[u32]> {
        let of = |range: Range<usize>| {
            iter::once(self.missing_head(range.start)).chain(range.map(|sequence| self.sequence(sequence)))
        };
        self.documents().flat_map(of)
    }

    fn ids(&self) -> u64 {
        self.pieces().map(|piece| piece.len() as u64).sum()
    }

    fn id_bytes(&self) -> u16 {
        if self.pieces().flatten().all(|id| *id <= u32::from(u16::MAX)) { 2 } else { 4 }
    }

    /// Reads a token file. Allocations are bounded by the number of bytes.
    pub fn decode(bytes: &[u8], vocabulary: usize, context: usize) -> Result<Self, TokensError> {
        Self::read(bytes, bytes.len() as u64, (vocabulary, context), IdsWriter::in_memory())
    }

    /// Reads a token file of so many bytes with the limits of a model, and writes its ids to `ids`.
    pub fn read_for(model: &ModelConfig, file: impl Read, bytes: u64, ids: IdsWriter) -> Result<Self, TokensError> {
        let set = Self::read(file, bytes, (model.ids(), model.context + 1), ids)?;
        if model.reads_images() {
            let (bytes, classes) = (model.context, model.vocabulary);
            let wrong = (0..set.len()).find(|sequence| !is_image(set.sequence(*sequence), bytes, classes));
            if let Some(sequence) = wrong {
                return Err(TokensError::Image { sequence, bytes, classes });
            }
        }
        Ok(set)
    }

    /// Reads a token file of so many bytes with a vocabulary and a context, and writes its ids to `ids`.
    pub fn read(
        file: impl Read,
        bytes: u64,
        (vocabulary, context): (usize, usize),
        ids: IdsWriter,
    ) -> Result<Self, TokensError> {
        let mut file = TokenFile::open(file, bytes)?;
        let entries = file.table(file.documents * DOCUMENT_BYTES as u64)?;
        let lengths = file.table(file.sequences * LENGTH_BYTES as u64)?;
        let mut lengths = lengths.as_chunks::<LENGTH_BYTES>().0.iter().map(|length| read_u32(length)).enumerate();
        let mut set = Building::new(ids, file.bits()?);
        for entry in entries.as_chunks::<DOCUMENT_BYTES>().0 {
            let (number, copied, count) = (read_u32(entry), read_u32(&entry[4..]), read_u32(&entry[8..]));
            if copied as usize > context || count == 0 {
                return Err(TokensError::Table("documents"));
            }
            if set.learns_of_next(copied as usize) {
                return Err(TokensError::Table("learnt tokens"));
            }
            set.begin_document(number, &file.take(copied, vocabulary)?)?;
            for _ in 0..count {
                let (sequence, length) = lengths.next().ok_or(TokensError::Table("documents"))?;
                if length < 2 || length as usize > context {
                    return Err(TokensError::Length { sequence, length, context });
                }
                set.push_sequence(&file.take(length, vocabulary)?)?;
            }
        }
        if lengths.next().is_some() || file.ids > 0 {
            return Err(TokensError::Table("lengths"));
        }
        Ok(set.finish()?)
    }
}

/// A token file during reading: first the tables, then the ids.
struct TokenFile<R> {
    file: R,
    /// Bytes of an id.
    width: usize,
    masked: bool,
    documents: u64,
    sequences: u64,
    /// Ids left to read.
    ids: u64,
}

impl<R: Read> TokenFile<R> {
    /// Reads the header, whose sizes must match the number of bytes.
    fn open(mut file: R, bytes: u64) -> Result<Self, TokensError> {
        let mut head = [0; HEADER_BYTES];
        if bytes < HEADER_BYTES as u64 {
            return Err(TokensError::Header);
        }
        file.read_exact(&mut head)?;
        let width = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let masked = head[4..6] == MASKED_VERSION.to_le_bytes();
        if head[..4] != MAGIC || !(masked || head[4..6] == VERSION.to_le_bytes()) || (width != 2 && width != 4) {
            return Err(TokensError::Header);
        }
        let [documents, sequences, low, high] = [8, 12, 16, 20].map(|at| u64::from(read_u32(&head[at..])));
        let ids = low | high << 32;
        let bits = if masked { LearntBits::bytes_of(ids) } else { 0 };
        let sizes =
            [(documents, DOCUMENT_BYTES), (sequences, LENGTH_BYTES), (bits, 1), (ids, width), (1, HEADER_BYTES)];
        let expected: u128 = sizes.iter().map(|(count, bytes)| u128::from(*count) * *bytes as u128).sum();
        if expected != u128::from(bytes) {
            return Err(TokensError::Size { expected, found: bytes });
        }
        Ok(Self { file, width, masked, documents, sequences, ids })
    }

    /// The next bytes. Allocates no more than arrive.
    fn table(&mut self, bytes: u64) -> Result<Vec<u8>, TokensError> {
        let mut table = Vec::new();
        let found = (&mut self.file).take(bytes).read_to_end(&mut table)? as u64;
        if found == bytes { Ok(table) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) }
    }

    /// Which ids are learnt, if not all are.
    fn bits(&mut self) -> Result<Option<LearntBits>, TokensError> {
        if !self.masked {
            return Ok(None);
        }
        let bytes = self.table(LearntBits::bytes_of(self.ids))?;
        let bits = LearntBits::new(bytes, self.ids as usize);
        bits.map(Some).ok_or(TokensError::Table("learnt tokens"))
    }

    fn take(&mut self, count: u32, vocabulary: usize) -> Result<Vec<u32>, TokensError> {
        self.ids = self.ids.checked_sub(count.into()).ok_or(TokensError::Table("lengths"))?;
        let mut bytes = vec![0; count as usize * self.width];
        self.file.read_exact(&mut bytes)?;
        let id = |bytes: &[u8]| {
            let mut all = [0; 4];
            all[..bytes.len()].copy_from_slice(bytes);
            u32::from_le_bytes(all)
        };
        let taken: Vec<u32> = bytes.chunks_exact(self.width).map(id).collect();
        match taken.iter().find(|id| **id as usize >= vocabulary) {
            Some(id) => Err(TokensError::Id { id: *id, vocabulary }),
            None => Ok(taken),
        }
    }
}

/// The first four bytes, which must exist.
fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use crate::config::run::tests::SMALL;
    use crate::config::{ImagesConfig, RunConfig};
    use proptest::prelude::*;

    use super::*;
    use crate::text::Tokenized;
    use crate::text::tokenizer::masked::MaskedIds;

    fn set() -> TokenSet {
        TokenSet::cut_for_scoring(&[vec![1, 2, 3, 4, 5, 6, 7], vec![9], vec![10, 11, 12, 13, 14], vec![15, 16]], 3)
    }

    #[test]
    fn ids_take_two_bytes_where_they_fit() {
        let small = TokenSet::cut_for_scoring(&[vec![1, 65_535]], 7);
        let large = TokenSet::cut_for_scoring(&[vec![1, 65_536]], 7);
        assert_eq!(large.encode().len() - small.encode().len(), 4);
        for set in [small, large, TokenSet::default()] {
            assert_eq!(TokenSet::decode(&set.encode(), 65_537, 8).unwrap(), set);
        }
    }

    #[test]
    fn the_format_does_not_change_unnoticed() {
        let bytes = TokenSet::cut_for_scoring(&[vec![1, 258]], 3).encode();
        let expected = [
            &b"PSTK\x01\0\x02\0"[..],
            &[1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            &[2, 0, 0, 0],
            &[1, 0, 2, 1],
        ];
        assert_eq!(bytes, expected.concat());
    }

    /// A set whose second document's first sequence is missing, with a mask.
    fn masked_set() -> TokenSet {
        let masked = |ids: &[u32], runs: &[u32]| MaskedIds { ids: ids.to_vec(), runs: runs.to_vec() };
        let documents = [masked(&[1, 2, 3], &[1, 2]), masked(&[4, 5, 6, 7, 8, 9, 10], &[5, 2])];
        Tokenized::from(&documents[..]).cut_for_training(3)
    }

    #[test]
    fn a_mask_is_a_version_of_its_own_which_does_not_change_unnoticed() {
        let bytes = masked_set().encode();
        let expected = [
            &b"PSTK\x02\0\x02\0"[..],
            &[2, 0, 0, 0, 2, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            &[1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0],
            &[3, 0, 0, 0, 4, 0, 0, 0],
            &[0b0000_0110, 0b0000_0110],
            &[1, 0, 2, 0, 3, 0],
            &[4, 0, 5, 0, 6, 0, 7, 0],
            &[7, 0, 8, 0, 9, 0, 10, 0],
        ];
        assert_eq!(bytes, expected.concat());
        assert_eq!(TokenSet::decode(&bytes, 20, 4).unwrap(), masked_set());
        let bits = bytes.len() - 2 * 11 - 2;
        for (at, to) in [(bits + 1, 0b0000_1110), (bits, 0b0000_1110)] {
            let mut wrong = bytes.clone();
            wrong[at] = to;
            assert_eq!(TokenSet::decode(&wrong, 20, 4), Err(TokensError::Table("learnt tokens")));
        }
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
        fn changed_bytes_never_panic(
            at in any::<prop::sample::Index>(), to in any::<u8>(), cut in 0usize..4, masked in any::<bool>(),
        ) {
            let mut bytes = if masked { masked_set() } else { set() }.encode();
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(bytes.len() - cut);
            if let Ok(read) = TokenSet::decode(&bytes, 20, 4) {
                prop_assert!((0..read.len()).all(|i| read.sequence(i).len() <= 4 && read.prefix(i, 3).len() <= 3));
            }
        }
    }

    #[test]
    fn a_model_that_reads_images_reads_nothing_else() {
        let mut model = RunConfig::from_toml(SMALL).unwrap().model;
        (model.images, model.context, model.vocabulary) = (Some(ImagesConfig { patch: 2 }), 12, 3);
        let read = |documents: &[Vec<u32>]| {
            let bytes = TokenSet::cut_for_scoring(documents, 12).encode();
            TokenSet::read_for(&model, &bytes[..], bytes.len() as u64, IdsWriter::in_memory())
        };
        let image = |byte: u32, class: u32| [vec![byte; 12], vec![class]].concat();
        assert_eq!(read(&[image(255, 2), image(0, 0)]).unwrap().len(), 2);
        for wrong in [image(256, 0), image(1, 3), vec![1; 12], vec![1; 5]] {
            let found = read(&[image(9, 1), wrong]).unwrap_err();
            assert_eq!(found, TokensError::Image { sequence: 1, bytes: 12, classes: 3 });
        }
    }
}
