//! What a `tokenizer.json` holds: its entries and their ids, and bounds for the parts that the library trusts.
//!
//! A tokenizer comes with the manifest of a run, so it is untrusted. The `tokenizers` library trusts its input: it can
//! panic on merges, or enlarge a document a thousandfold. Whether a tokenizer gives a text back is tried
//! ([`round_trip`](super::round_trip)); here are only the bounds that make it safe to try.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::text::tokenizer::TokenizerError;

/// Limit of the file: twice the size for a vocabulary of 256,000.
pub(super) const MAX_FILE_BYTES: usize = 64 << 20;

/// Limit of entries, equal to the limit of embedding rows.
pub(super) const MAX_VOCABULARY: usize = 1 << 20;

/// Limit of a splitting pattern.
const MAX_PATTERN_BYTES: usize = 4096;

/// Limit of parts that change a text, and of parts that split it.
const MAX_PARTS: [(&str, usize); 2] = [("normalizer", 4), ("pre_tokenizer", 16)];

/// Limit of what a normalizer puts in the place of a pattern.
const MAX_CONTENT_BYTES: usize = 4;

/// The parts of a file that are looked at. serde refuses repeated parts.
#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    pub(super) normalizer: Option<Value>,
    #[serde(default)]
    pre_tokenizer: Option<Value>,
    #[serde(default)]
    pub(super) post_processor: Option<Value>,
    #[serde(default)]
    pub(super) added_tokens: Vec<Added>,
    model: Model,
}

/// A token that was added to the model's.
#[derive(Clone, Deserialize)]
pub(super) struct Added {
    pub(super) id: u32,
    pub(super) content: String,
    #[serde(default)]
    pub(super) special: bool,
}

#[derive(Deserialize)]
struct Model {
    vocab: Entries,
    #[serde(default)]
    dropout: Option<f32>,
}

/// Entries with their ids, or in order of id with their scores.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entries {
    Ids(BTreeMap<String, u32>),
    Scores(Vec<(String, f64)>),
}

fn require(holds: bool, reason: impl FnOnce() -> String) -> Result<(), TokenizerError> {
    if holds { Ok(()) } else { Err(TokenizerError::Unsupported { reason: reason() }) }
}

impl File {
    /// Reads a file and checks its bounds.
    pub(super) fn read(json: &[u8]) -> Result<Self, TokenizerError> {
        if json.len() > MAX_FILE_BYTES {
            return Err(TokenizerError::TooLarge { bytes: json.len() });
        }
        let file: Self = serde_json::from_slice(json).map_err(TokenizerError::Syntax)?;
        let random = file.model.dropout.is_some_and(|dropout| dropout != 0.0);
        require(!random, || "its dropout makes encoding random".into())?;
        for (name, most) in MAX_PARTS {
            let part = if name == "normalizer" { &file.normalizer } else { &file.pre_tokenizer };
            let parts = part.as_ref().map_or(0, count_parts);
            require(parts <= most, || format!("its {name} has {parts} parts; {most} are the most"))?;
        }
        for part in file.normalizer.iter().chain(&file.pre_tokenizer) {
            check_bounds(part)?;
        }
        Ok(file)
    }

    /// The model's entries with their ids.
    pub(super) fn entries(&self) -> Vec<(&str, u32)> {
        match &self.model.vocab {
            Entries::Ids(ids) => ids.iter().map(|(text, id)| (text.as_str(), *id)).collect(),
            Entries::Scores(scores) => {
                scores.iter().enumerate().map(|(id, (text, _))| (text.as_str(), id as u32)).collect()
            }
        }
    }

    /// The id of a token.
    pub(super) fn id_of(&self, token: &str) -> Option<u32> {
        let added = self.added_tokens.iter().find(|added| added.content == token).map(|added| added.id);
        added.or_else(|| self.entries().into_iter().find(|(text, _)| *text == token).map(|(_, id)| id))
    }

    /// The bytes of each id by one reading of the entries: none for special tokens and for ids without an entry.
    pub(super) fn pieces(&self, bytes_of: impl Fn(&str) -> Vec<u8>) -> Result<Vec<Vec<u8>>, TokenizerError> {
        let entries = self.entries();
        let added = self.added_tokens.iter().map(|added| (added.content.as_str(), added.id));
        let largest = entries.iter().copied().chain(added.clone()).map(|(_, id)| id).max();
        let count = largest.map_or(0, |id| id as usize + 1);
        require(count <= MAX_VOCABULARY, || format!("its largest id is {}; {MAX_VOCABULARY} is the most", count - 1))?;
        let mut owner: Vec<Option<&str>> = vec![None; count];
        let mut pieces = vec![Vec::new(); count];
        for (text, id) in entries.into_iter().chain(added) {
            let previous = owner[id as usize].replace(text);
            require(previous.is_none_or(|previous| previous == text), || format!("two entries have the id {id}"))?;
            pieces[id as usize] = bytes_of(text);
        }
        for added in &self.added_tokens {
            let bytes = if added.special { Vec::new() } else { added.content.clone().into_bytes() };
            pieces[added.id as usize] = bytes;
        }
        Ok(pieces)
    }
}

/// The number of parts that are no sequence of others.
fn count_parts(part: &Value) -> usize {
    let inner = ["normalizers", "pretokenizers"].iter().find_map(|name| part[*name].as_array());
    match inner {
        Some(parts) => parts.iter().map(count_parts).sum(),
        None => usize::from(!part.is_null()),
    }
}

/// No text grows without bound, and no pattern is endless.
fn check_bounds(part: &Value) -> Result<(), TokenizerError> {
    let pattern = part["pattern"].to_string().len();
    require(pattern <= MAX_PATTERN_BYTES, || format!("a pattern of {pattern} bytes is too long"))?;
    for name in ["content", "prepend"] {
        let bytes = part[name].as_str().map_or(0, str::len);
        require(bytes <= MAX_CONTENT_BYTES, || format!("it replaces text by {bytes} bytes, which is too long"))?;
    }
    let inner = ["normalizers", "pretokenizers"].iter().find_map(|name| part[*name].as_array());
    inner.into_iter().flatten().try_for_each(check_bounds)
}

/// The bytes of an entry of byte-level BPE: one for each character, unless a character does not stand for a byte.
pub(super) fn byte_level(entry: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = entry.chars().map(character_byte).collect();
    bytes.unwrap_or_else(|| entry.as_bytes().to_vec())
}

/// The bytes of an entry of SentencePiece: `▁` is a space, and `<0x0A>` is a byte.
pub(super) fn sentence_piece(entry: &str) -> Vec<u8> {
    let byte = entry.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match byte.filter(|digits| digits.len() == 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => entry.replace('▁', " ").into_bytes(),
    }
}

/// Bytes that byte-level BPE writes as themselves. The others, in order, become the characters from U+0100 on.
fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

fn character_byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => is_itself(byte).then_some(byte),
        Err(_) => (0..=255u8).filter(|byte| !is_itself(*byte)).nth((code - 0x100) as usize),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::text::Tokenizer;

    fn byte_character(byte: u8) -> char {
        if is_itself(byte) {
            return char::from(byte);
        }
        let before = (0..byte).filter(|earlier| !is_itself(*earlier)).count() as u32;
        char::from_u32(0x100 + before).unwrap()
    }

    #[test]
    fn every_byte_has_its_character_and_back() {
        for byte in 0..=255 {
            assert_eq!(character_byte(byte_character(byte)), Some(byte));
        }
        assert_eq!(byte_level("ĠaĊ"), b" a\n");
        assert_eq!(byte_level("漢"), "漢".as_bytes());
        assert_eq!((sentence_piece("▁a"), sentence_piece("<0x0A>")), (b" a".to_vec(), b"\n".to_vec()));
    }

    /// A file with only the 256 bytes.
    pub(in crate::text::tokenizer) fn bytes_alone() -> Value {
        let vocab: serde_json::Map<String, Value> =
            (0..=255u8).map(|byte| (byte_character(byte).to_string(), Value::from(byte))).collect();
        serde_json::json!({
            "added_tokens": [{
                "id": 256, "content": "<|end|>", "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            }],
            "normalizer": null,
            "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false },
            "model": { "type": "BPE", "vocab": vocab, "merges": [] },
        })
    }

    /// Applies one change to such a file.
    fn refusal(change: impl FnOnce(&mut Value)) -> String {
        let mut file = bytes_alone();
        change(&mut file);
        let read = Tokenizer::from_json(&serde_json::to_vec(&file).unwrap());
        read.map_or_else(|error| error.to_string(), |_| "accepted".into())
    }

    #[test]
    fn bytes_alone_are_enough() {
        assert_eq!(refusal(|_| {}), "accepted");
    }

    #[test]
    fn what_would_lose_text_panic_or_fill_the_memory_is_refused() {
        let byte_level = serde_json::json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false });
        let two = serde_json::json!({ "type": "Sequence", "pretokenizers": [byte_level, byte_level] });
        assert!(refusal(|file| file["pre_tokenizer"] = two).contains("does not restore"));
        assert!(refusal(|file| file["pre_tokenizer"] = Value::Null).contains("does not restore"));
        let many = serde_json::json!({ "type": "Sequence", "pretokenizers": vec![byte_level; 17] });
        assert!(refusal(|file| file["pre_tokenizer"] = many).contains("17 parts"));
        let replace = |content: &str| serde_json::json!({ "type": "Replace", "pattern": { "String": "\u{7}" }, "content": content });
        assert!(refusal(|file| file["normalizer"] = replace("aaaaa")).contains("too long"));
        let pattern = serde_json::json!({ "type": "Split", "pattern": { "Regex": "a".repeat(5_000) } });
        assert!(refusal(|file| file["pre_tokenizer"] = pattern).contains("too long"));
        assert!(refusal(|file| file["model"]["dropout"] = 0.1.into()).contains("random"));
        assert_ne!(refusal(|file| file["model"]["type"] = "Unigram".into()), "accepted");
        assert_ne!(refusal(|file| file["model"]["merges"] = serde_json::json!([["a", "b"]])), "accepted");
        assert_ne!(refusal(|file| file["model"]["merges"] = serde_json::json!(["a"])), "accepted");
        assert!(refusal(|file| file["model"]["vocab"]["a"] = u32::MAX.into()).contains("4294967295"));
        assert!(refusal(|file| file["model"]["vocab"]["a"] = 7.into()).contains("two entries"));
        let lacking = refusal(|file| _ = file["model"]["vocab"].as_object_mut().unwrap().remove("Ġ"));
        assert!(lacking.contains("does not restore"), "{lacking}");
    }
}
