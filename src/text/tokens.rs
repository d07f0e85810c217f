//! Sequences of token ids, none spanning two documents, with the first tokens of each one's document beside it.

use std::ops::Range;

const MAGIC: [u8; 4] = *b"PSTK";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 24;
const DOCUMENT_BYTES: usize = 12;

/// Sequences of at most `context` tokens. A document is cut into as many as it needs, neither joined with others nor
/// overlapping; a last piece of one token is dropped, since there is nothing to predict in it.
///
/// The router sees the first tokens of a *document*, whichever of its sequences is asked about. They are the
/// beginning of the document's first sequence; a [`TokenSet::subset`] without that sequence carries a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSet {
    /// Of every document in turn: the copy of its head, if any, then its sequences.
    tokens: Vec<u32>,
    sequences: Vec<Sequence>,
    documents: Vec<Document>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sequence {
    start: usize,
    length: u32,
    /// Position in `documents`.
    document: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Document {
    number: u32,
    /// How many tokens of a copied head lie before the first sequence.
    copied: u32,
    head_start: usize,
    head_length: u32,
    first_sequence: usize,
}

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
    /// Cuts documents, which already have their end, into sequences of at most `context` tokens (2 or more).
    /// Documents are numbered by their position.
    pub fn cut(documents: &[Vec<u32>], context: usize) -> Self {
        let mut set = Self::default();
        for (number, tokens) in documents.iter().enumerate() {
            let mut pieces = tokens.chunks(context.max(2)).filter(|piece| piece.len() > 1).peekable();
            if pieces.peek().is_some() {
                set.begin_document(number as u32, &[]);
            }
            pieces.for_each(|piece| set.push_sequence(piece));
        }
        set
    }

    /// How many sequences.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Whether there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// How many tokens all sequences have together.
    pub fn tokens(&self) -> u64 {
        self.sequences.iter().map(|sequence| u64::from(sequence.length)).sum()
    }

    /// The tokens of sequence `i`.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn sequence(&self, i: usize) -> &[u32] {
        let sequence = self.sequences[i];
        &self.tokens[sequence.start..sequence.start + sequence.length as usize]
    }

    /// The number of the document that sequence `i` is from.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn document(&self, i: usize) -> u32 {
        self.documents[self.sequences[i].document as usize].number
    }

    /// The first `count` tokens of the document that sequence `i` is from; fewer if the document, or `context`, is
    /// shorter.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn prefix(&self, i: usize, count: usize) -> &[u32] {
        let document = self.documents[self.sequences[i].document as usize];
        &self.tokens[document.head_start..][..count.min(document.head_length as usize)]
    }

    /// For each document in turn, the range of its sequences.
    pub fn documents(&self) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        let ends = self.documents.iter().skip(1).map(|document| document.first_sequence).chain([self.len()]);
        let starts = self.documents.iter().map(|document| document.first_sequence);
        let ranges: Vec<Range<usize>> = starts.zip(ends).map(|(start, end)| start..end).collect();
        ranges.into_iter()
    }

    /// The tokens of neighbouring sequences of one document, one after the other.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn span(&self, sequences: Range<usize>) -> &[u32] {
        if sequences.is_empty() {
            return &[];
        }
        let last = self.sequences[sequences.end - 1];
        &self.tokens[self.sequences[sequences.start].start..last.start + last.length as usize]
    }

    /// These sequences, in this order. Documents keep their numbers and their first tokens.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn subset(&self, sequences: &[usize]) -> Self {
        let mut set = Self::default();
        let mut previous = None;
        for i in sequences {
            let position = self.sequences[*i].document;
            if previous != Some(position) {
                let document = self.documents[position as usize];
                let begins = self.sequences[*i].start == document.head_start;
                let head = if begins { &[] } else { self.prefix(*i, usize::MAX) };
                set.begin_document(document.number, head);
            }
            previous = Some(position);
            set.push_sequence(self.sequence(*i));
        }
        set
    }

    fn begin_document(&mut self, number: u32, head: &[u32]) {
        let length = head.len() as u32;
        let (head_start, first_sequence) = (self.tokens.len(), self.sequences.len());
        self.tokens.extend_from_slice(head);
        self.documents.push(Document { number, copied: length, head_start, head_length: length, first_sequence });
    }

    fn push_sequence(&mut self, tokens: &[u32]) {
        let (position, length) = (self.documents.len() - 1, tokens.len() as u32);
        let document = &mut self.documents[position];
        if document.head_length == 0 {
            document.head_length = length;
        }
        self.sequences.push(Sequence { start: self.tokens.len(), length, document: position as u32 });
        self.tokens.extend_from_slice(tokens);
    }

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
        let (width, tables, lengths, ids) = sections(bytes)?;
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
        for entry in tables.chunks_exact(DOCUMENT_BYTES) {
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

/// The bytes of an id, then the tables of documents, of lengths, and of ids.
fn sections(bytes: &[u8]) -> Result<(usize, &[u8], &[u8], &[u8]), TokensError> {
    let head = bytes.get(..HEADER_BYTES).ok_or(TokensError::Header)?;
    let width = usize::from(u16::from_le_bytes([head[6], head[7]]));
    if head[..4] != MAGIC || head[4..6] != VERSION.to_le_bytes() || (width != 2 && width != 4) {
        return Err(TokensError::Header);
    }
    let (documents, sequences) = (u128::from(read_u32(&head[8..])), u128::from(read_u32(&head[12..])));
    let ids = u128::from(read_u32(&head[16..])) | u128::from(read_u32(&head[20..])) << 32;
    let sizes = [documents * DOCUMENT_BYTES as u128, sequences * 4, ids * width as u128];
    let expected = HEADER_BYTES as u128 + sizes.iter().sum::<u128>();
    if expected != bytes.len() as u128 {
        return Err(TokensError::Size { expected, found: bytes.len() });
    }
    let (tables, rest) = bytes[HEADER_BYTES..].split_at(sizes[0] as usize);
    let (lengths, ids) = rest.split_at(sizes[1] as usize);
    Ok((width, tables, lengths, ids))
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
    fn no_sequence_spans_two_documents_and_a_lone_last_token_is_dropped() {
        let set = set();
        let sequences: Vec<&[u32]> = (0..set.len()).map(|i| set.sequence(i)).collect();
        assert_eq!(sequences, [&[1, 2, 3, 4][..], &[5, 6, 7], &[10, 11, 12, 13], &[15, 16]]);
        assert_eq!((0..4).map(|i| set.document(i)).collect::<Vec<_>>(), [0, 0, 2, 3]);
        assert_eq!(set.tokens(), 13);
        assert_eq!(set.documents().collect::<Vec<_>>(), [0..2, 2..3, 3..4]);
        assert_eq!(set.span(0..2), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn the_prefix_is_the_documents_even_where_its_first_sequence_is_missing() {
        let set = set();
        assert_eq!(set.prefix(1, 3), [1, 2, 3]);
        assert_eq!(set.prefix(3, 3), [15, 16]);
        let later = set.subset(&[3, 1]);
        assert_eq!(later.len(), 2);
        assert_eq!((later.sequence(1), later.document(1)), (&[5, 6, 7][..], 0));
        assert_eq!(later.prefix(1, 3), [1, 2, 3]);
        assert_eq!(later.tokens(), 5);
        let again = TokenSet::decode(&later.encode(), 20, 4).unwrap();
        assert_eq!(again, later);
        assert_eq!(again.subset(&[1]).prefix(0, 9), [1, 2, 3, 4]);
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
        fn what_was_cut_comes_back(
            documents in prop::collection::vec(prop::collection::vec(0u32..300, 0..40), 0..12),
            context in 2usize..12,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let set = TokenSet::cut(&documents, context);
            prop_assert_eq!(&TokenSet::decode(&set.encode(), 300, context).unwrap(), &set);
            if !set.is_empty() {
                let picks: Vec<usize> = picks.iter().map(|pick| pick.index(set.len())).collect();
                let subset = set.subset(&picks);
                for (position, pick) in picks.iter().enumerate() {
                    prop_assert_eq!(subset.sequence(position), set.sequence(*pick));
                    prop_assert_eq!(subset.prefix(position, 5), set.prefix(*pick, 5));
                    prop_assert_eq!(subset.document(position), set.document(*pick));
                }
                prop_assert_eq!(&TokenSet::decode(&subset.encode(), 300, context).unwrap(), &subset);
            }
        }

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
