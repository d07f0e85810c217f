//! Tokenizers: lossless conversion of text to token ids and back.
//!
//! A tokenizer is taken by what it does: it must give samples of text back, and count their bytes. [`file`] reads it,
//! [`round_trip`] tries it, [`end_of_document`] finds the token that ends a document, and [`training`] trains one.
//! [`masked`] encodes texts of which only parts are learnt.

pub mod end_of_document;
mod file;
pub mod masked;
mod round_trip;
mod specials;
mod training;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rayon::prelude::*;
use tokenizers::{NormalizerWrapper, PostProcessorWrapper};

use crate::config::ModelConfig;
use crate::text::tokenizer::file::{File, MAX_FILE_BYTES, MAX_VOCABULARY, byte_level, sentence_piece};
use crate::text::tokenizer::specials::{Specials, TextPart};

pub use crate::text::tokenizer::training::Training;

/// The 256 bytes and the end-of-document token.
const MIN_VOCABULARY: usize = 257;

/// Text that the library encodes at once: it needs a hundred times as much memory.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// Too small for the 256 bytes, or larger than a model's limit.
    #[error("a vocabulary of {0} entries is not possible: {MIN_VOCABULARY} to {MAX_VOCABULARY}")]
    Vocabulary(usize),
    #[error("a tokenizer of {bytes} bytes is too large: at most {MAX_FILE_BYTES}")]
    TooLarge { bytes: usize },
    #[error("not a tokenizer.json: {0}")]
    Syntax(serde_json::Error),
    #[error("this tokenizer cannot be used: {reason}; use one that gives every text back, such as byte-level BPE")]
    Unsupported { reason: String },
    #[error(
        "this tokenizer has no token for the end of a document, such as {}; name it as eos_token in a \
         tokenizer_config.json beside it", end_of_document::NAMES.join(", ")
    )]
    NoEndOfDocument,
    /// A file names a token that is not there.
    #[error("{field} = {named}, which is not a token of the tokenizer; correct it, or remove it")]
    UnknownEnd { field: &'static str, named: String },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: Box<TokenizerError> },
    #[error("{0}")]
    Disk(std::io::Error),
    #[error("the user asked to stop")]
    Stopped,
    #[error("the tokenizer failed: {0}")]
    Library(String),
}

/// A tokenizer and the file that it came from.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    json: Vec<u8>,
    end_of_document: u32,
    end_name: String,
    /// The bytes of each id.
    pieces: Vec<Vec<u8>>,
    piece_bytes: Vec<u32>,
    /// The file's ids of added tokens to which the library gives others.
    renumbered: BTreeMap<u32, u32>,
    specials: Specials,
    /// Whether it puts a space before a text.
    adds_space: bool,
    /// Whether texts come back with the file's own normalizer; it is not used otherwise.
    keeps_normalizer: bool,
}

impl Tokenizer {
    /// Reads a `tokenizer.json` from an untrusted source. Its normalizer is used only if texts come back with it, and
    /// its post-processor never.
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        let file = File::read(json)?;
        let (end_name, end_of_document) = end_of_document::of_file(&file).ok_or(TokenizerError::NoEndOfDocument)?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(json))?;
        inner.with_truncation(None).map_err(library)?;
        inner.with_padding(None);
        inner.with_post_processor(None::<PostProcessorWrapper>);
        // A quoted "<|end|>" must not end its document.
        inner.set_encode_special_tokens(true);
        let renumbered = renumbered(&inner, &file)?;
        let mut tokenizer = Self {
            inner,
            json: json.to_vec(),
            end_of_document,
            end_name,
            pieces: Vec::new(),
            piece_bytes: Vec::new(),
            renumbered,
            specials: Specials::of(&file)?,
            adds_space: false,
            keeps_normalizer: true,
        };
        tokenizer.find_what_restores(&file)?;
        tokenizer.piece_bytes = tokenizer.pieces.iter().map(|piece| piece.len() as u32).collect();
        Ok(tokenizer)
    }

    /// Tries the ways in which entries can stand for bytes, with and without the file's normalizer.
    fn find_what_restores(&mut self, file: &File) -> Result<(), TokenizerError> {
        let readings: [fn(&str) -> Vec<u8>; 2] = [byte_level, sentence_piece];
        let ways = readings.into_iter().flat_map(|bytes_of| [(bytes_of, false), (bytes_of, true)]);
        let added: Vec<String> = file.added_tokens.iter().map(|added| added.content.clone()).collect();
        let normalizes = file.normalizer.as_ref().is_some_and(|normalizer| !normalizer.is_null());
        let mut furthest: Option<(usize, TokenizerError)> = None;
        for with_normalizer in if normalizes { &[true, false][..] } else { &[true] } {
            if !with_normalizer {
                self.inner.with_normalizer(None::<NormalizerWrapper>).map_err(library)?;
            }
            self.keeps_normalizer = *with_normalizer;
            for (bytes_of, adds_space) in ways.clone() {
                self.pieces = file.pieces(bytes_of)?;
                self.pieces[self.end_of_document as usize].clear();
                self.adds_space = adds_space;
                match self.check_round_trip(&added) {
                    Ok(()) => return Ok(()),
                    Err((samples, _)) if furthest.as_ref().is_some_and(|(most, _)| *most >= samples) => {}
                    Err(failed) => furthest = Some(failed),
                }
            }
        }
        Err(furthest.map_or(TokenizerError::NoEndOfDocument, |(_, error)| error))
    }

    /// The name of the end-of-document token in the file.
    pub fn end_name(&self) -> &str {
        &self.end_name
    }

    /// The file, for a run's manifest.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The ids of a text, without an end token.
    ///
    /// # Errors
    /// If the library fails, as it can on a malicious pattern.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        // A space before the text would stand before every piece.
        let whole = if self.adds_space { vec![text] } else { pieces_of(text).collect() };
        for piece in whole {
            let encoding = guarded(|| self.inner.encode_fast(piece, false))?;
            let own = |id: &u32| self.renumbered.get(id).copied().unwrap_or(*id);
            ids.extend(encoding.get_ids().iter().map(own));
        }
        match ids.iter().find(|id| **id as usize >= self.pieces.len()) {
            Some(id) => {
                Err(TokenizerError::Library(format!("it returned the id {id}, which is outside its vocabulary")))
            }
            None => Ok(ids),
        }
    }

    /// The ids of a text in which special tokens may stand by their names, as in a chat template's.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_with_specials(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        for part in self.specials.parts(text) {
            match part {
                TextPart::Text(text) => ids.extend(self.encode(text)?),
                TextPart::Special(id) => ids.push(id),
            }
        }
        Ok(ids)
    }

    /// The name of a special token.
    pub fn special_name(&self, id: u32) -> Option<&str> {
        self.specials.name(id)
    }

    /// The bytes of text of an id: none for the end of a document, and for an id that is not known.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// The ids of documents, each with an end token; on all cores, in order.
    pub fn encode_all(&self, documents: &[String]) -> Result<Vec<Vec<u32>>, TokenizerError> {
        let ended = |document: &String| {
            let mut ids = self.encode(document)?;
            ids.push(self.end_of_document);
            Ok(ids)
        };
        documents.par_iter().map(ended).collect()
    }

    /// The text of ids. End tokens and unknown ids are dropped; invalid UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let pieces = ids.iter().filter_map(|id| self.pieces.get(*id as usize));
        String::from_utf8_lossy(&pieces.flatten().copied().collect::<Vec<u8>>()).into_owned()
    }

    pub fn end_of_document(&self) -> u32 {
        self.end_of_document
    }

    /// One more than the largest id.
    pub fn vocabulary(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of text of each id of a model, which may have more entries than the tokenizer. These, special tokens, and
    /// classes of images have 0 bytes.
    pub fn token_bytes_for(&self, model: &ModelConfig) -> Vec<u32> {
        if model.reads_images() {
            return vec![0; model.ids()];
        }
        let mut bytes = self.piece_bytes.clone();
        bytes.resize(model.vocabulary, 0);
        bytes
    }
}

/// Added tokens to which the library gives other ids than the file, because ids are missing before them.
fn renumbered(inner: &tokenizers::Tokenizer, file: &File) -> Result<BTreeMap<u32, u32>, TokenizerError> {
    let mut own = BTreeMap::new();
    // Special tokens do not come from texts.
    for added in file.added_tokens.iter().filter(|added| !added.special) {
        if let Some(id) = inner.token_to_id(&added.content).filter(|id| *id != added.id) {
            own.insert(id, added.id);
        }
    }
    if own.is_empty() {
        return Ok(own);
    }
    match file.entries().into_iter().find(|(_, id)| own.contains_key(id)) {
        Some((entry, id)) => Err(TokenizerError::Unsupported {
            reason: format!("its ids have holes, so that {entry:.40?} and an added token would both get the id {id}"),
        }),
        None => Ok(own),
    }
}

/// A text in pieces of bounded length, each but the first beginning with a space behind a word, where a tokenizer splits
/// a text anyway, if there is one.
fn pieces_of(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let most = (0..=PIECE_BYTES.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let inside = &rest.as_bytes()[..most];
        let word_ends = |pair: &[u8]| pair[1] == b' ' && !pair[0].is_ascii_whitespace();
        let at = match inside.windows(2).rposition(word_ends) {
            _ if most == rest.len() => most,
            Some(before) => before + 1,
            None => most,
        };
        let (piece, after) = rest.split_at(at);
        rest = after;
        Some(piece)
    })
}

/// Runs the library and turns its panics into errors.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, TokenizerError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(library),
        Err(_) => Err(TokenizerError::Library("it panicked".into())),
    }
}

fn library(error: impl Display) -> TokenizerError {
    TokenizerError::Library(error.to_string().chars().take(400).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents() -> Vec<String> {
        let words = ["path", "swarm", "module", "owner", "level", "expert", "shard", "beat"];
        (0..200).map(|i| (0..60).map(|j| words[(i * 7 + j * j + i * j) % 8]).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn any_text_comes_back_and_its_bytes_are_counted() {
        let tokenizer = Tokenizer::train(&documents(), 300).unwrap();
        for text in ["", "path swarm", "never seen: 漢字 🦀\0\u{7f}\r\n", "an <|end|> in the text", "it's \t 12"] {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids), text);
            let bytes: u32 = ids.iter().map(|id| tokenizer.piece_bytes[*id as usize]).sum();
            assert_eq!(bytes as usize, text.len());
            assert!(!ids.contains(&tokenizer.end_of_document()));
        }
        assert_eq!(tokenizer.piece_bytes[tokenizer.end_of_document() as usize], 0);
        assert_eq!(tokenizer.piece_bytes.len(), tokenizer.vocabulary());
        assert!(tokenizer.vocabulary() <= 300);
    }

    #[test]
    fn special_tokens_are_read_by_name_only_where_that_is_asked_for() {
        let tokenizer = Tokenizer::train(&documents(), 300).unwrap();
        let end = tokenizer.end_of_document();
        let text = format!("path{0}swarm{0}", tokenizer.end_name());
        let ids = tokenizer.encode_with_specials(&text).unwrap();
        let parts: Vec<&[u32]> = ids.split(|id| *id == end).collect();
        let encoded = |text| tokenizer.encode(text).unwrap();
        assert_eq!(parts, [&encoded("path")[..], &encoded("swarm"), &[]]);
        assert!(!encoded(&text).contains(&end));
        assert_eq!(ids.iter().flat_map(|id| tokenizer.piece(*id)).copied().collect::<Vec<u8>>(), b"pathswarm");
    }

    #[test]
    fn training_twice_gives_the_same_file() {
        let documents = documents();
        let first = Tokenizer::train(&documents, 400).unwrap();
        assert_eq!(first.json(), Tokenizer::train(&documents, 400).unwrap().json());
        let read = Tokenizer::from_json(first.json()).unwrap();
        assert_eq!(read.encode_all(&documents).unwrap(), first.encode_all(&documents).unwrap());
    }

    #[test]
    fn all_documents_are_encoded_in_order_and_ended() {
        let documents = documents();
        let tokenizer = Tokenizer::train(&documents, 300).unwrap();
        let all = tokenizer.encode_all(&documents).unwrap();
        for (document, ids) in documents.iter().zip(&all) {
            assert_eq!(ids.last(), Some(&tokenizer.end_of_document()));
            assert_eq!(&tokenizer.decode(ids), document);
        }
    }

    fn changed(from: &str, to: &str) -> Result<Tokenizer, TokenizerError> {
        let json = String::from_utf8(Tokenizer::train(&documents(), 300).unwrap().json().to_vec()).unwrap();
        assert!(json.contains(from));
        Tokenizer::from_json(json.replace(from, to).as_bytes())
    }

    #[test]
    fn other_names_for_the_end_of_a_document_are_known() {
        let other = changed("<|end|>", "<|endoftext|>").unwrap();
        assert_eq!(other.decode(&[other.end_of_document()]), "");
        assert!(matches!(changed("<|end|>", "<|fin|>"), Err(TokenizerError::NoEndOfDocument)));
    }

    #[test]
    fn an_old_file_that_does_not_name_its_model_is_read_as_bpe() {
        let old = changed("\"type\":\"BPE\",", "").unwrap();
        assert_eq!(old.decode(&old.encode("path swarm").unwrap()), "path swarm");
    }

    #[test]
    fn hostile_files_are_errors() {
        assert!(matches!(Tokenizer::from_json(b""), Err(TokenizerError::Syntax(_))));
        assert!(matches!(Tokenizer::from_json(&vec![b' '; MAX_FILE_BYTES + 1]), Err(TokenizerError::TooLarge { .. })));
        assert!(matches!(Tokenizer::from_json(&[b'['; 100_000]), Err(TokenizerError::Syntax(_))));
        let split = |pattern: &str, behavior: &str| {
            format!(
                "\"pre_tokenizer\":{{\"type\":\"Sequence\",\"pretokenizers\":[{{\"type\":\"Split\",\"invert\":false,\
                 \"pattern\":{{\"Regex\":\"{pattern}\"}},\"behavior\":\"{behavior}\"}},{{\"type\":\"ByteLevel\","
            )
        };
        let replaced = |start: &str| {
            let json = String::from_utf8(Tokenizer::train(&documents(), 300).unwrap().json().to_vec()).unwrap();
            let begin = json.find("\"pre_tokenizer\":{\"type\":\"ByteLevel\",").unwrap();
            let end = begin + json[begin..].find('}').unwrap();
            let old = "\"pre_tokenizer\":{\"type\":\"ByteLevel\",";
            let new = format!("{}{start}{}}}]{}", &json[..begin], &json[begin + old.len()..end], &json[end..]);
            Tokenizer::from_json(new.as_bytes()).map(|_| ())
        };
        assert!(replaced(&split("\\\\d", "Isolated")).is_ok());
        let lossy = replaced(&split("\\\\d", "Removed")).unwrap_err();
        assert!(lossy.to_string().contains("does not restore"), "{lossy}");
        assert!(matches!(replaced(&split("(", "Isolated")), Err(TokenizerError::Library(_))));
    }

    #[test]
    fn a_word_of_a_million_characters_is_learnt_and_encoded_in_linear_time() {
        // Took minutes when the time grew with the square of the length.
        let documents = ["x".repeat(1 << 20), "some other words".to_owned()];
        let tokenizer = Tokenizer::train(&documents, 300).unwrap();
        let ids = tokenizer.encode(&documents[0]).unwrap();
        assert!(ids.len() < documents[0].len() / 4, "{} tokens", ids.len());
        assert!(tokenizer.decode(&ids) == documents[0]);
    }

    #[test]
    fn a_long_text_is_encoded_in_pieces_to_the_same_ids() {
        let tokenizer = Tokenizer::train(&documents(), 300).unwrap();
        let text = documents().join(" ").repeat(30);
        assert!(text.len() > 2 * PIECE_BYTES);
        assert!(tokenizer.encode(&text).unwrap() == tokenizer.inner.encode_fast(&*text, false).unwrap().get_ids());
    }

    #[test]
    fn training_stops_when_it_is_told_to() {
        let training = Training::default();
        training.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let stopped = Tokenizer::train_watched(&documents(), 300, &training);
        assert!(matches!(stopped, Err(TokenizerError::Stopped)));
    }

    #[test]
    fn a_vocabulary_that_cannot_hold_the_bytes_is_refused() {
        assert!(matches!(Tokenizer::train(&documents(), 256), Err(TokenizerError::Vocabulary(256))));
        assert_eq!(Tokenizer::train(&documents(), 257).unwrap().vocabulary(), 257);
    }
}
