//! Files of a pretrained model that are neither weights nor the tokenizer, but belong to it: how it generates, the names
//! of its special tokens, and its chat template. A run keeps them for its exports.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::files::{FilesError, read_optional};

/// The name of the model's own `config.json`.
pub const CONFIG: &str = "config.json";

/// The files that are kept. Others are not taken over from a run's creator.
pub const NAMES: [&str; 7] = [
    CONFIG,
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Limit of all of them together, in bytes.
pub const MAX_BYTES: usize = 4 << 20;

/// The same, of [`PretrainedFiles::encode`].
pub const MAX_ENCODED_BYTES: usize = 2 * MAX_BYTES;

#[derive(Debug, thiserror::Error)]
pub enum PretrainedFilesError {
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error("{0} is not UTF-8 text")]
    Text(String),
    #[error("{bytes} bytes of settings and chat templates are too many: at most {MAX_BYTES}")]
    Large { bytes: usize },
    #[error("not a list of a model's files: {0}")]
    Format(String),
}

/// The files, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PretrainedFiles(BTreeMap<String, String>);

impl PretrainedFiles {
    /// Reads them from the folder of a model.
    pub fn in_folder(folder: &Path) -> Result<Self, PretrainedFilesError> {
        let mut files = BTreeMap::new();
        for name in NAMES {
            let Some(bytes) = read_optional(folder, name)? else { continue };
            let text = String::from_utf8(bytes).map_err(|_| PretrainedFilesError::Text(name.to_owned()))?;
            files.insert(name.to_owned(), text);
        }
        Self(files).bounded()
    }

    /// From an untrusted source.
    pub fn decode(bytes: &[u8]) -> Result<Self, PretrainedFilesError> {
        if bytes.len() > MAX_ENCODED_BYTES {
            return Err(PretrainedFilesError::Large { bytes: bytes.len() });
        }
        let files: BTreeMap<String, String> =
            serde_json::from_slice(bytes).map_err(|error| PretrainedFilesError::Format(error.to_string()))?;
        match files.keys().find(|name| !NAMES.contains(&name.as_str())) {
            Some(name) => Err(PretrainedFilesError::Format(format!("{name:?} is none of {}", NAMES.join(", ")))),
            None => Self(files).bounded(),
        }
    }

    fn bounded(self) -> Result<Self, PretrainedFilesError> {
        let bytes = self.0.values().map(String::len).sum();
        if bytes > MAX_BYTES { Err(PretrainedFilesError::Large { bytes }) } else { Ok(self) }
    }

    /// As one file: a JSON table of names and texts.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The model's own `config.json`, if it can be read.
    pub fn config(&self) -> Option<Map<String, Value>> {
        serde_json::from_str(self.0.get(CONFIG)?).ok()
    }

    /// The files that an export takes over: all but `config.json`, which it writes anew.
    pub fn exported(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter(|(name, _)| *name != CONFIG).map(|(name, text)| (name.as_str(), text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("config.json", "{\"eos_token_id\": 2}"), ("chat_template.jinja", "{{ messages }}")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        std::fs::write(folder.path().join("README.md"), "a model").unwrap();
        let found = PretrainedFiles::in_folder(folder.path()).unwrap();
        assert_eq!(PretrainedFiles::decode(&found.encode().unwrap()).unwrap(), found);
        assert_eq!(found.exported().collect::<Vec<_>>(), [("chat_template.jinja", "{{ messages }}")]);
        assert_eq!(found.config().unwrap()["eos_token_id"], 2);
        let outside = PretrainedFiles::decode(b"{\"../../.profile\": \"x\"}").unwrap_err().to_string();
        assert!(outside.contains("../../.profile"), "{outside}");
        let large = format!("{{\"added_tokens.json\": \"{}\"}}", "x".repeat(MAX_BYTES + 1));
        assert!(matches!(PretrainedFiles::decode(large.as_bytes()), Err(PretrainedFilesError::Large { .. })));
        std::fs::write(folder.path().join("added_tokens.json"), [0xff]).unwrap();
        assert!(PretrainedFiles::in_folder(folder.path()).unwrap_err().to_string().contains("added_tokens.json"));
    }
}
