//! The token that ends a document, as a tokenizer and the files beside it name it.
//!
//! Models end documents with tokens of many names. `config.json`, `tokenizer_config.json` and `generation_config.json`
//! say which is meant. In a run, the file itself says it: its post-processor adds the token behind a text.

use std::io::{Error, ErrorKind, Read};
use std::path::Path;

use serde_json::{Value, json};

use crate::text::tokenizer::file::{File, MAX_FILE_BYTES};
use crate::text::tokenizer::{Tokenizer, TokenizerError};

/// Names of the token in files that do not tell, in order of preference.
pub(super) const NAMES: [&str; 7] =
    ["<|end|>", "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>", "<|bos|>"];

/// Files beside a tokenizer, and the field of each that names its end token or its id.
const BESIDE: [(&str, &str); 3] = [
    ("config.json", "eos_token_id"),
    ("tokenizer_config.json", "eos_token"),
    ("generation_config.json", "eos_token_id"),
];

/// Limit of a file beside it.
const MAX_BESIDE_BYTES: usize = 16 << 20;

/// A token's name and id.
type Token = (String, u32);

/// The end token that a file itself names.
pub(super) fn of_file(file: &File) -> Option<Token> {
    let own = file.post_processor.as_ref().and_then(ending);
    let names = own.iter().map(String::as_str).chain(NAMES);
    names.into_iter().find_map(|name| Some((name.to_owned(), file.id_of(name)?)))
}

/// The special token that a post-processor puts behind a text.
fn ending(processor: &Value) -> Option<String> {
    if let Some(parts) = processor["processors"].as_array() {
        return parts.iter().find_map(ending);
    }
    let last = processor["single"].as_array()?.last()?;
    last["SpecialToken"]["id"].as_str().map(str::to_owned)
}

impl Tokenizer {
    /// Reads a `tokenizer.json` that a person gave, with what the files beside it say about the end of a document. The
    /// result encodes as it is trained: without a normalizer that loses text, and without added tokens but the end.
    ///
    /// # Errors
    /// With the path, if a file cannot be read, or the tokenizer cannot be used.
    pub fn adopt(path: &Path) -> Result<Self, TokenizerError> {
        let of = |source: TokenizerError| TokenizerError::File { path: path.to_owned(), source: Box::new(source) };
        let bytes =
            read(path, MAX_FILE_BYTES).and_then(|bytes| bytes.ok_or_else(|| Error::other("this file does not exist")));
        let bytes = bytes.map_err(|error| of(TokenizerError::Disk(error)))?;
        let file = File::read(&bytes).map_err(of)?;
        let (named, unknown) = path.parent().map_or(Ok((None, None)), |folder| named_beside(folder, &file))?;
        let nothing = || unknown.unwrap_or_else(|| of(TokenizerError::NoEndOfDocument));
        let (name, id) = named.or_else(|| of_file(&file)).ok_or_else(nothing)?;
        Self::as_trained(&bytes, &file, (&name, id)).map_err(of)
    }

    fn as_trained(json: &[u8], file: &File, (name, id): (&str, u32)) -> Result<Self, TokenizerError> {
        let mut value: Value = serde_json::from_slice(json).map_err(TokenizerError::Syntax)?;
        let adds = file.post_processor.as_ref().is_some_and(|processor| processor["type"] != "ByteLevel");
        let special = |added: &Value| added["content"] == name && added["special"] == true;
        let is_special = value["added_tokens"].as_array().is_some_and(|added| added.iter().any(special));
        if !adds && is_special && of_file(file).is_some_and(|(own, _)| own == name) {
            let own = Self::from_json(json)?;
            if own.keeps_normalizer {
                return Ok(own);
            }
        }
        value["post_processor"] = ends_with(name, id);
        for part in ["truncation", "padding"] {
            value[part] = Value::Null;
        }
        mark_special(&mut value, (name, id));
        let made = |value: &Value| Self::from_json(&serde_json::to_vec(value).map_err(TokenizerError::Syntax)?);
        let made_first = made(&value)?;
        if made_first.keeps_normalizer {
            return Ok(made_first);
        }
        value["normalizer"] = Value::Null;
        made(&value)
    }

    /// The file for other programs: a prompt is not ended.
    pub fn exported_json(&self) -> Result<Vec<u8>, TokenizerError> {
        let mut value: Value = serde_json::from_slice(self.json()).map_err(TokenizerError::Syntax)?;
        if value["post_processor"].is_null() {
            return Ok(self.json().to_vec());
        }
        value["post_processor"] = Value::Null;
        serde_json::to_vec(&value).map_err(TokenizerError::Syntax)
    }
}

/// A post-processor that adds the end token.
fn ends_with(name: &str, id: u32) -> Value {
    let text = |id: &str| json!({ "Sequence": { "id": id, "type_id": 0 } });
    let end = json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    json!({
        "type": "TemplateProcessing", "single": [text("A"), end], "pair": [text("A"), end, text("B"), end],
        "special_tokens": { name: { "id": name, "ids": [id], "tokens": [name] } },
    })
}

/// A quoted end token must not end its document.
fn mark_special(file: &mut Value, (name, id): (&str, u32)) {
    if !file["added_tokens"].is_array() {
        file["added_tokens"] = json!([]);
    }
    let Some(added) = file["added_tokens"].as_array_mut() else { return };
    match added.iter_mut().find(|added| added["content"] == name) {
        Some(added) => added["special"] = true.into(),
        None => added.push(json!({
            "id": id, "content": name, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false,
        })),
    }
}

/// The end token that a file in the tokenizer's folder names, else what was wrong with an id.
///
/// An id that is no added token's is a default that nobody has set, as 50256 in a `config.json` of GPT-2's kind.
fn named_beside(folder: &Path, file: &File) -> Result<(Option<Token>, Option<TokenizerError>), TokenizerError> {
    let mut unset = None;
    for (name, field) in BESIDE {
        let path = folder.join(name);
        let of = |source: TokenizerError| TokenizerError::File { path: path.clone(), source: Box::new(source) };
        let bytes = read(&path, MAX_BESIDE_BYTES).map_err(|error| of(TokenizerError::Disk(error)))?;
        // A damaged file is noticed by whoever needs the rest of it.
        let Some(Ok(value)) = bytes.map(|bytes| serde_json::from_slice::<Value>(&bytes)) else { continue };
        let named = if value[field].is_null() { &value["text_config"][field] } else { &value[field] };
        let first = named.as_array().map_or(named, |all| all.first().unwrap_or(&Value::Null));
        let text = first.as_str().or_else(|| first["content"].as_str());
        let found = match (text, first.as_u64()) {
            (Some(text), _) => file.id_of(text).map(|id| (text.to_owned(), id)),
            (None, Some(id)) => file.added_tokens.iter().find(|added| u64::from(added.id) == id).map(|added| {
                let name = added.content.clone();
                (name, added.id)
            }),
            (None, None) => continue,
        };
        let unknown = of(TokenizerError::UnknownEnd { field, named: first.to_string() });
        match (found, text) {
            (Some(found), _) => return Ok((Some(found), None)),
            (None, Some(_)) => return Err(unknown),
            (None, None) => unset = unset.or(Some(unknown)),
        }
    }
    Ok((None, unset))
}

/// A file of at most so many bytes; `None` if there is none.
fn read(path: &Path, most_bytes: usize) -> std::io::Result<Option<Vec<u8>>> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(most_bytes as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;
    use crate::text::tokenizer::file::tests::bytes_alone;

    /// A file of the 256 bytes and these special tokens, with the pre-tokenizer of Llama 3.
    fn file(special: &[(&str, u32)]) -> Value {
        let mut file = bytes_alone();
        let added = |(name, id): &(&str, u32)| {
            json!({
                "id": id, "content": name, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false,
            })
        };
        file["added_tokens"] = special.iter().map(added).collect();
        let regex = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
        file["pre_tokenizer"] = json!({ "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
        ] });
        file
    }

    /// Adds the first token before a text, as Llama 3 does.
    fn begins_with(name: &str, id: u32) -> Value {
        let begin = json!({ "SpecialToken": { "id": name, "type_id": 0 } });
        let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
        json!({ "type": "TemplateProcessing", "single": [begin, text], "pair": [begin, text],
            "special_tokens": { name: { "id": name, "ids": [id], "tokens": [name] } } })
    }

    fn write(files: &[(&str, &Value)]) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in files {
            std::fs::write(folder.path().join(name), serde_json::to_vec(value).unwrap()).unwrap();
        }
        let path = folder.path().join("tokenizer.json");
        (folder, path)
    }

    /// What comes out of other programs' hands: the ids of a text, with what the file adds by itself.
    fn encoded(json: &[u8], text: &str) -> Vec<u32> {
        tokenizers::Tokenizer::from_bytes(json).unwrap().encode(text, true).unwrap().get_ids().to_vec()
    }

    #[test]
    fn the_end_that_is_named_beside_a_file_is_used_and_exported() {
        let mut llama = file(&[("<|begin_of_text|>", 256), ("<|end_of_text|>", 257), ("<|eot_id|>", 258)]);
        llama["post_processor"] = begins_with("<|begin_of_text|>", 256);
        llama["model"]["ignore_merges"] = true.into();
        for (beside, expected) in [
            (("config.json", json!({ "eos_token_id": [258, 257] })), (258, "<|eot_id|>")),
            (("tokenizer_config.json", json!({ "eos_token": { "content": "<|eot_id|>" } })), (258, "<|eot_id|>")),
            (("generation_config.json", json!({ "eos_token_id": 256 })), (256, "<|begin_of_text|>")),
            (("other.json", json!({})), (257, "<|end_of_text|>")),
        ] {
            let (_folder, path) = write(&[("tokenizer.json", &llama), (beside.0, &beside.1)]);
            let tokenizer = Tokenizer::adopt(&path).unwrap();
            assert_eq!((tokenizer.end_of_document(), tokenizer.end_name()), expected, "{}", beside.0);
            // It is the same for whoever gets the file without its folder.
            let again = Tokenizer::from_json(tokenizer.json()).unwrap();
            assert_eq!((again.end_of_document(), again.json()), (expected.0, tokenizer.json()));
            assert_eq!(encoded(&tokenizer.exported_json().unwrap(), "ab"), tokenizer.encode("ab").unwrap());
        }
    }

    #[test]
    fn files_of_nanochat_and_deepseek_are_taken() {
        let nanochat = file(&[("<|bos|>", 256), ("<|user_start|>", 257)]);
        let mut deepseek = file(&[("<｜begin▁of▁sentence｜>", 256), ("<｜end▁of▁sentence｜>", 257)]);
        deepseek["normalizer"] = json!({ "type": "Sequence", "normalizers": [] });
        deepseek["post_processor"] = begins_with("<｜begin▁of▁sentence｜>", 256);
        for (file, end) in [(nanochat, "<|bos|>"), (deepseek, "<｜end▁of▁sentence｜>")] {
            let (_folder, path) = write(&[("tokenizer.json", &file)]);
            let tokenizer = Tokenizer::adopt(&path).unwrap();
            assert_eq!(tokenizer.end_name(), end);
            let text = format!("a {end} b");
            assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), text);
        }
    }

    #[test]
    fn ids_with_holes_are_those_of_the_file() {
        let mut holes = file(&[("<|end|>", 300)]);
        holes["added_tokens"].as_array_mut().unwrap().push(json!({
            "id": 310, "content": "<tool>", "special": false, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false,
        }));
        let (_folder, path) = write(&[("tokenizer.json", &holes)]);
        let tokenizer = Tokenizer::adopt(&path).unwrap();
        assert_eq!(tokenizer.end_of_document(), 300);
        assert_eq!(tokenizer.encode("a<tool>").unwrap(), [97, 310]);
        assert_eq!((tokenizer.decode(&[97, 310, 300]), tokenizer.vocabulary()), ("a<tool>".to_owned(), 311));
        holes["model"]["vocab"]["ab"] = 258.into();
        let (_folder, path) = write(&[("tokenizer.json", &holes)]);
        let error = Tokenizer::adopt(&path).err().unwrap().to_string();
        assert!(error.contains("tokenizer.json: ") && error.contains("would both get the id"), "{error}");
    }

    #[test]
    fn a_normalizer_that_changes_texts_is_left_out_and_a_file_that_loses_them_is_refused() {
        for normalizer in [json!({ "type": "NFC" }), json!({ "type": "Lowercase" }), json!({ "type": "NFKC" })] {
            let mut normalizing = file(&[("<|end|>", 256)]);
            normalizing["normalizer"] = normalizer;
            let (_folder, path) = write(&[("tokenizer.json", &normalizing)]);
            let tokenizer = Tokenizer::adopt(&path).unwrap();
            let text = "e\u{301} Ａ ﬁ";
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
            let exported: Value = serde_json::from_slice(&tokenizer.exported_json().unwrap()).unwrap();
            assert!(exported["normalizer"].is_null(), "what is exported encodes as it was trained");
        }
        let mut lossy = file(&[("<|end|>", 256)]);
        lossy["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed".into();
        let (_folder, path) = write(&[("tokenizer.json", &lossy)]);
        let error = Tokenizer::adopt(&path).err().unwrap().to_string();
        assert!(error.contains("tokenizer.json: ") && error.contains("does not restore"), "{error}");
    }

    #[test]
    fn a_name_that_is_no_token_and_a_file_that_is_not_there_are_said_with_their_path() {
        let (end, other) = (file(&[("<|end|>", 256)]), file(&[("<fin>", 256)]));
        for unset in [2560, 2] {
            let config = json!({ "eos_token_id": unset });
            let (_folder, path) = write(&[("tokenizer.json", &end), ("config.json", &config)]);
            assert_eq!(Tokenizer::adopt(&path).unwrap().end_of_document(), 256, "nobody has set {unset}");
            let (_folder, path) = write(&[("tokenizer.json", &other), ("config.json", &config)]);
            let error = Tokenizer::adopt(&path).err().unwrap().to_string();
            assert!(error.contains(&format!("config.json: eos_token_id = {unset}")), "{error}");
        }
        let (_folder, path) =
            write(&[("tokenizer.json", &end), ("tokenizer_config.json", &json!({ "eos_token": "<eot>" }))]);
        let error = Tokenizer::adopt(&path).err().unwrap().to_string();
        assert!(error.contains("tokenizer_config.json: eos_token = \"<eot>\""), "{error}");
        let (folder, path) = write(&[]);
        let error = Tokenizer::adopt(&path).err().unwrap().to_string();
        assert!(error.contains(folder.path().to_str().unwrap()) && error.contains("does not exist"), "{error}");
        let (_folder, path) = write(&[("tokenizer.json", &file(&[("<fin>", 256)]))]);
        let error = Tokenizer::adopt(&path).err().unwrap().to_string();
        assert!(error.contains("tokenizer_config.json beside it"), "{error}");
    }

    /// A file as SentencePiece's are converted: bytes, then these entries, then `</s>` with the id 300.
    pub(in crate::text::tokenizer) fn sentence_piece(entries: [&str; 5], merges: [&str; 2]) -> Value {
        let mut vocab: serde_json::Map<String, Value> =
            (0..=255u32).map(|byte| (format!("<0x{byte:02X}>"), Value::from(byte))).collect();
        for (number, entry) in entries.iter().enumerate() {
            vocab.insert((*entry).to_owned(), (256 + number).into());
        }
        json!({
            "added_tokens": [{ "id": 300, "content": "</s>", "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false }],
            "normalizer": { "type": "Sequence", "normalizers": [
                { "type": "Prepend", "prepend": "▁" },
                { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
            ] },
            "pre_tokenizer": null,
            "model": { "type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": null, "vocab": vocab,
                "merges": merges },
        })
    }

    #[test]
    fn a_file_of_sentence_piece_is_taken_if_it_gives_texts_back() {
        let piece = sentence_piece(["▁", "a", "b", "▁a", "ab"], ["▁ a", "a b"]);
        let (_folder, path) = write(&[("tokenizer.json", &piece)]);
        let tokenizer = Tokenizer::adopt(&path).unwrap();
        let text = "a ab\n漢 a";
        let ids = tokenizer.encode(text).unwrap();
        assert!(ids.contains(&259), "merges are used: {ids:?}");
        assert_eq!(tokenizer.decode(&ids), format!(" {text}"));
    }
}
