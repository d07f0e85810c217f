//! Byte-level BPE: lossless conversion of text to token ids and back.

mod file;

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rayon::prelude::*;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerBuilder,
};

use crate::config::ModelConfig;
use crate::text::tokenizer::file::{MAX_FILE_BYTES, MAX_VOCABULARY};

/// Possible names of the end-of-document token, in order of preference.
const END_OF_DOCUMENT: [&str; 4] = ["<|end|>", "<|endoftext|>", "</s>", "<eos>"];

/// The 256 bytes and the end-of-document token.
const MIN_VOCABULARY: usize = 257;

/// More text does not improve the vocabulary, and the library counts pairs in 32 bits.
const MAX_TRAINING_BYTES: usize = 256 << 20;

/// Every accepted tokenizer must restore this text.
const PROBE: &str = "It's 12,345 o'clock;\n\n\tif (x != y) { return \"é漢字🦀\"; }\r\n  end. ";

#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// Too small for the 256 bytes, or larger than a model's limit.
    #[error("a vocabulary of {0} entries is not possible: {MIN_VOCABULARY} to {MAX_VOCABULARY}")]
    Vocabulary(usize),
    #[error("a tokenizer of {bytes} bytes is too large: at most {MAX_FILE_BYTES}")]
    TooLarge { bytes: usize },
    #[error("not a tokenizer.json: {0}")]
    Syntax(serde_json::Error),
    #[error(
        "this tokenizer cannot be used: {reason}; use a byte-level BPE tokenizer, such as that of GPT-2, Llama 3 or \
         Qwen"
    )]
    Unsupported { reason: String },
    #[error("this tokenizer has no token for the end of a document: one of {} is needed", END_OF_DOCUMENT.join(", "))]
    NoEndOfDocument,
    #[error("the tokenizer failed: {0}")]
    Library(String),
}

/// A tokenizer and the file that it came from.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    json: Vec<u8>,
    end_of_document: u32,
    pieces: Vec<Vec<u8>>,
    piece_bytes: Vec<u32>,
}

impl Tokenizer {
    /// Trains at most `vocabulary` entries, with the 256 bytes and `<|end|>`; fewer if the text is small.
    pub fn train(documents: &[String], vocabulary: usize) -> Result<Self, TokenizerError> {
        if !(MIN_VOCABULARY..=MAX_VOCABULARY).contains(&vocabulary) {
            return Err(TokenizerError::Vocabulary(vocabulary));
        }
        let byte_level = ByteLevel::new(false, false, true);
        let mut untrained =
            TokenizerBuilder::<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>::new(
            )
            .with_model(BPE::default())
            .with_pre_tokenizer(Some(byte_level.into()))
            .with_decoder(Some(byte_level.into()))
            .build()
            .map_err(library)?;
        let mut trainer = BpeTrainer::builder()
            .vocab_size(vocabulary)
            .show_progress(false)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(vec![AddedToken::from(END_OF_DOCUMENT[0], true)])
            .build();
        let bytes: usize = documents.iter().map(String::len).sum();
        let every = bytes.div_ceil(MAX_TRAINING_BYTES).max(1);
        let trained =
            untrained.train(&mut trainer, documents.iter().step_by(every).map(String::as_str)).map_err(library)?;
        let json = trained.to_string(false).map_err(library)?;
        Self::from_json(json.as_bytes())
    }

    /// Reads a `tokenizer.json` of byte-level BPE from an untrusted source.
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        let pieces = file::check(json)?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(json))?;
        inner.with_truncation(None).map_err(library)?;
        inner.with_padding(None);
        inner.with_post_processor(None::<PostProcessorWrapper>);
        // A quoted "<|end|>" must not end its document.
        inner.set_encode_special_tokens(true);
        let end_of_document = END_OF_DOCUMENT
            .iter()
            .find_map(|name| inner.token_to_id(name))
            .filter(|id| (*id as usize) < pieces.len())
            .ok_or(TokenizerError::NoEndOfDocument)?;
        let mut tokenizer = Self { inner, json: json.to_vec(), end_of_document, pieces, piece_bytes: Vec::new() };
        tokenizer.pieces[end_of_document as usize].clear();
        tokenizer.piece_bytes = tokenizer.pieces.iter().map(|piece| piece.len() as u32).collect();
        let back = tokenizer.decode(&tokenizer.encode(PROBE)?);
        if back != PROBE && back.strip_prefix(' ') != Some(PROBE) {
            let reason = format!(
                "it does not restore {PROBE:?}: it decodes as {:?}",
                back.chars().take(120).collect::<String>()
            );
            return Err(TokenizerError::Unsupported { reason });
        }
        Ok(tokenizer)
    }

    /// The name of the end-of-document token in the file.
    pub fn end_name(&self) -> &'static str {
        let is_end = |name: &&&str| self.inner.token_to_id(name) == Some(self.end_of_document);
        END_OF_DOCUMENT.iter().find(is_end).copied().unwrap_or_default()
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
        let encoding = guarded(|| self.inner.encode_fast(text, false))?;
        let ids = encoding.get_ids();
        match ids.iter().find(|id| **id as usize >= self.pieces.len()) {
            Some(id) => {
                Err(TokenizerError::Library(format!("it returned the id {id}, which is outside its vocabulary")))
            }
            None => Ok(ids.to_vec()),
        }
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
        for text in ["", "path swarm", "never seen: 漢字 🦀\0\u{7f}\r\n", "an <|end|> in the text", PROBE] {
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
    fn a_vocabulary_that_cannot_hold_the_bytes_is_refused() {
        assert!(matches!(Tokenizer::train(&documents(), 256), Err(TokenizerError::Vocabulary(256))));
        assert_eq!(Tokenizer::train(&documents(), 257).unwrap().vocabulary(), 257);
    }
}
