//! Checks of a `tokenizer.json`.
//!
//! A tokenizer comes with the manifest of a run, so it is untrusted. The `tokenizers` library trusts its input: it can
//! panic on merges, run a pattern forever, or enlarge a document a thousandfold. So only byte-level BPE is accepted,
//! with parts that neither lose nor multiply text. GPT-2, Llama 3, Qwen, Pythia, SmolLM and this program use it, and it
//! is the only kind that can encode any text and count bytes exactly.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::text::tokenizer::TokenizerError;

/// Limit of the file: twice the size for a vocabulary of 150,000.
pub(super) const MAX_FILE_BYTES: usize = 32 << 20;

/// Limit of entries, equal to the limit of embedding rows.
pub(super) const MAX_VOCABULARY: usize = 1 << 20;

/// Limit of the splitting pattern.
const MAX_PATTERN_BYTES: usize = 4096;

/// The checked parts of a file. serde refuses duplicate parts.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    normalizer: Option<Value>,
    #[serde(default)]
    pre_tokenizer: Option<Value>,
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

#[derive(Deserialize)]
struct Model {
    /// Absent in the oldest files, which are BPE if they have a vocabulary and merges.
    #[serde(rename = "type", default)]
    kind: Option<String>,
    vocab: BTreeMap<String, u32>,
    merges: Vec<Merge>,
    #[serde(default)]
    dropout: Option<f32>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Joined(String),
}

/// Reads and checks a file. Returns the bytes of each entry, in order of id; special tokens have none.
pub(super) fn check(json: &[u8]) -> Result<Vec<Vec<u8>>, TokenizerError> {
    if json.len() > MAX_FILE_BYTES {
        return Err(TokenizerError::TooLarge { bytes: json.len() });
    }
    let file: File = serde_json::from_slice(json).map_err(TokenizerError::Syntax)?;
    check_model(&file.model)?;
    check_normalizer(file.normalizer.as_ref())?;
    let byte_levels = file.pre_tokenizer.as_ref().map_or(Ok(0), count_byte_levels)?;
    require(byte_levels == 1, || format!("it splits text with {byte_levels} ByteLevel parts, not one"))?;
    pieces(&file)
}

fn require(holds: bool, reason: impl FnOnce() -> String) -> Result<(), TokenizerError> {
    if holds { Ok(()) } else { Err(TokenizerError::Unsupported { reason: reason() }) }
}

fn check_model(model: &Model) -> Result<(), TokenizerError> {
    let kind = model.kind.as_deref().unwrap_or("BPE");
    require(kind == "BPE", || format!("its model is {kind:.40}, not BPE"))?;
    require(model.dropout.is_none_or(|dropout| dropout == 0.0), || "its dropout makes encoding random".into())?;
    let plain = |part: &Option<String>| part.as_ref().is_none_or(String::is_empty);
    require(plain(&model.continuing_subword_prefix) && plain(&model.end_of_word_suffix), || {
        "it marks the parts of words, which byte-level BPE does not do".into()
    })?;
    for merge in &model.merges {
        let (left, right) = match merge {
            Merge::Pair(left, right) => (left.as_str(), right.as_str()),
            Merge::Joined(both) => both.split_once(' ').unwrap_or((both, "")),
        };
        let joined = format!("{left}{right}");
        let known = [left, right, &joined].iter().all(|part| model.vocab.contains_key(*part));
        require(known, || format!("its merge of {left:.40?} and {right:.40?} is not in the vocabulary"))?;
    }
    let lacking = (0..=255).find(|byte| !model.vocab.contains_key(&byte_character(*byte).to_string()));
    require(lacking.is_none(), || format!("it has no entry for byte {:#04x}", lacking.unwrap_or_default()))
}

fn check_normalizer(normalizer: Option<&Value>) -> Result<(), TokenizerError> {
    let kind = normalizer.map_or("NFC", type_of);
    require(kind == "NFC", || format!("its normalizer {kind:.40} changes the text; none and NFC are known"))
}

/// Every ByteLevel part encodes characters beyond ASCII again, so there must be exactly one.
fn count_byte_levels(pre_tokenizer: &Value) -> Result<usize, TokenizerError> {
    match type_of(pre_tokenizer) {
        "ByteLevel" => Ok(1),
        "Digits" | "Punctuation" => Ok(0),
        "Split" => {
            let pattern = pre_tokenizer["pattern"].to_string();
            require(pattern.len() <= MAX_PATTERN_BYTES, || "its pattern for splitting is too long".into())?;
            Ok(0)
        }
        "Sequence" => {
            let parts = pre_tokenizer["pretokenizers"].as_array().map_or(&[][..], Vec::as_slice);
            require(parts.len() <= 16, || format!("it splits text in {} ways", parts.len()))?;
            parts.iter().map(count_byte_levels).sum()
        }
        other => Err(TokenizerError::Unsupported { reason: format!("its pre-tokenizer {other:.40} is not known") }),
    }
}

fn type_of(part: &Value) -> &str {
    part["type"].as_str().unwrap_or("without a type")
}

fn pieces(file: &File) -> Result<Vec<Vec<u8>>, TokenizerError> {
    let largest = file.model.vocab.values().copied().chain(file.added_tokens.iter().map(|added| added.id)).max();
    let count = largest.map_or(0, |id| id as usize + 1);
    require(count <= MAX_VOCABULARY, || format!("its largest id is {}; {MAX_VOCABULARY} is the most", count - 1))?;
    let mut owner: Vec<Option<&str>> = vec![None; count];
    let mut pieces = vec![Vec::new(); count];
    let added = file.added_tokens.iter().map(|added| (added.content.as_str(), added.id));
    for (text, id) in file.model.vocab.iter().map(|(text, id)| (text.as_str(), *id)).chain(added) {
        let previous = owner[id as usize].replace(text);
        require(previous.is_none_or(|previous| previous == text), || format!("two entries have the id {id}"))?;
        pieces[id as usize] = bytes_of_piece(text);
    }
    for added in &file.added_tokens {
        require(added.special || !(added.lstrip || added.rstrip), || {
            format!("its added token {:.40?} strips white space", added.content)
        })?;
        let bytes = if added.special { Vec::new() } else { added.content.clone().into_bytes() };
        pieces[added.id as usize] = bytes;
    }
    Ok(pieces)
}

/// The bytes of an entry: one for each character, unless a character does not stand for a byte.
fn bytes_of_piece(piece: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = piece.chars().map(character_byte).collect();
    bytes.unwrap_or_else(|| piece.as_bytes().to_vec())
}

/// Bytes that byte-level BPE writes as themselves. The others, in order, become the characters from U+0100 on.
fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

fn byte_character(byte: u8) -> char {
    if is_itself(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|earlier| !is_itself(*earlier)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn character_byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => is_itself(byte).then_some(byte),
        Err(_) => (0..=255u8).filter(|byte| !is_itself(*byte)).nth((code - 0x100) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_character_and_back() {
        for byte in 0..=255 {
            assert_eq!(character_byte(byte_character(byte)), Some(byte));
        }
        assert_eq!(byte_character(b' '), 'Ġ');
        assert_eq!(byte_character(b'\n'), 'Ċ');
        assert_eq!(character_byte('漢'), None);
    }

    /// Applies one change to a file with only the 256 bytes.
    fn refusal(change: impl FnOnce(&mut Value)) -> String {
        let vocab: serde_json::Map<String, Value> =
            (0..=255u8).map(|byte| (byte_character(byte).to_string(), Value::from(byte))).collect();
        let mut file = serde_json::json!({
            "added_tokens": [{ "id": 256, "content": "<|end|>", "special": true }],
            "normalizer": null,
            "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false },
            "model": { "type": "BPE", "vocab": vocab, "merges": [] },
        });
        change(&mut file);
        check(&serde_json::to_vec(&file).unwrap()).map_or_else(|error| error.to_string(), |_| "accepted".into())
    }

    #[test]
    fn bytes_alone_are_enough() {
        assert_eq!(refusal(|_| {}), "accepted");
    }

    #[test]
    fn what_would_lose_text_panic_or_fill_the_memory_is_refused() {
        let byte_level = serde_json::json!({ "type": "ByteLevel" });
        let two = serde_json::json!({ "type": "Sequence", "pretokenizers": [byte_level, byte_level] });
        assert!(refusal(|file| file["pre_tokenizer"] = two).contains("2 ByteLevel"));
        assert!(refusal(|file| file["pre_tokenizer"] = Value::Null).contains("0 ByteLevel"));
        let replace = serde_json::json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
        assert!(refusal(|file| file["normalizer"] = replace).contains("Replace"));
        assert!(refusal(|file| file["model"]["type"] = "Unigram".into()).contains("Unigram"));
        assert!(refusal(|file| file["model"]["dropout"] = 0.1.into()).contains("random"));
        assert!(refusal(|file| file["model"]["merges"] = serde_json::json!([["a", "b"]])).contains("merge"));
        assert!(refusal(|file| file["model"]["merges"] = serde_json::json!(["a"])).contains("merge"));
        assert!(refusal(|file| file["model"]["continuing_subword_prefix"] = "##".into()).contains("marks"));
        assert!(refusal(|file| file["model"]["vocab"]["a"] = u32::MAX.into()).contains("4294967295"));
        assert!(refusal(|file| file["model"]["vocab"]["a"] = 7.into()).contains("two entries"));
        let lacking = refusal(|file| _ = file["model"]["vocab"].as_object_mut().unwrap().remove("Ġ"));
        assert!(lacking.contains("0x20"), "{lacking}");
    }
}
