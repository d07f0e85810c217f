//! Training byte-level BPE, in a time that grows with the text, however long its words are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, OffsetReferential, OffsetType, PostProcessorWrapper,
    PreTokenizedString, PreTokenizer, PreTokenizerWrapper, TokenizerBuilder, Trainer,
};

use crate::text::tokenizer::file::MAX_VOCABULARY;
use crate::text::tokenizer::{MIN_VOCABULARY, Tokenizer, TokenizerError, end_of_document, library, pieces_of};

/// More text does not improve the vocabulary, and the library counts pairs in 32 bits.
const MAX_TRAINING_BYTES: usize = 256 << 20;

/// A word is learnt in parts of so many characters. The library's time for a word grows with the square of its length.
const MAX_WORD_CHARACTERS: usize = 256;

/// What a training is told and tells while it runs.
#[derive(Debug, Default)]
pub struct Training {
    /// Whether to stop.
    pub stop: AtomicBool,
    /// Bytes of text that were counted.
    pub counted_bytes: AtomicU64,
}

impl Tokenizer {
    /// Trains at most `vocabulary` entries, with the 256 bytes and `<|end|>`; fewer if the text is small.
    pub fn train(documents: &[String], vocabulary: usize) -> Result<Self, TokenizerError> {
        Self::train_watched(documents, vocabulary, &Training::default())
    }

    /// The same, until it is told to stop. That is heard while the text is counted.
    pub fn train_watched(documents: &[String], vocabulary: usize, training: &Training) -> Result<Self, TokenizerError> {
        if !(MIN_VOCABULARY..=MAX_VOCABULARY).contains(&vocabulary) {
            return Err(TokenizerError::Vocabulary(vocabulary));
        }
        let byte_level = ByteLevel::new(false, false, true);
        let mut trainer = BpeTrainer::builder()
            .vocab_size(vocabulary)
            .show_progress(false)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(vec![AddedToken::from(end_of_document::NAMES[0], true)])
            .build();
        let bytes: usize = documents.iter().map(String::len).sum();
        let every = bytes.div_ceil(MAX_TRAINING_BYTES).max(1);
        let texts = documents.iter().step_by(every).flat_map(|document| pieces_of(document));
        let texts = texts.take_while(|_| !training.stop.load(Ordering::Relaxed)).inspect(|text| {
            training.counted_bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        });
        trainer.feed(texts, |text| words(&byte_level, text)).map_err(library)?;
        if training.stop.load(Ordering::Relaxed) {
            return Err(TokenizerError::Stopped);
        }
        let mut model = BPE::default();
        let special = trainer.train(&mut model).map_err(library)?;
        let mut trained =
            TokenizerBuilder::<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>::new(
            )
            .with_model(model)
            .with_pre_tokenizer(Some(byte_level.into()))
            .with_decoder(Some(byte_level.into()))
            .build()
            .map_err(library)?;
        trained.add_special_tokens(special).map_err(library)?;
        let json = trained.to_string(false).map_err(library)?;
        Self::from_json(json.as_bytes())
    }
}

/// The words of a text, as byte-level BPE writes them, in parts.
fn words(byte_level: &ByteLevel, text: &str) -> tokenizers::Result<Vec<String>> {
    let mut split = PreTokenizedString::from(text);
    byte_level.pre_tokenize(&mut split)?;
    let mut words = Vec::new();
    for (word, _, _) in split.get_splits(OffsetReferential::Original, OffsetType::Byte) {
        let mut rest = word;
        while let Some((end, _)) = rest.char_indices().nth(MAX_WORD_CHARACTERS) {
            words.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
        words.push(rest.to_owned());
    }
    Ok(words)
}
