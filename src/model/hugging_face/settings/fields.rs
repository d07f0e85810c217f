//! Keys of `config.json`, read one by one so that each refusal names the key and what is there.

use serde_json::{Map, Value};

use crate::config::Activation;
use crate::model::hugging_face::HuggingFaceError;

/// A table of `config.json`, and where it is.
pub(super) struct Fields<'a> {
    /// Empty for the file itself.
    inside: &'static str,
    table: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The whole file.
    pub fn of(table: &'a Map<String, Value>) -> Self {
        Self { inside: "", table }
    }

    /// A table under this key.
    pub fn inside(key: &'static str, table: &'a Map<String, Value>) -> Self {
        Self { inside: key, table }
    }

    /// The value of a key; `null` is as none.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.table.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key is there, and `null`.
    pub fn is_null(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(Value::is_null)
    }

    /// The refusal of a value.
    pub fn refuse(&self, key: &str, found: &Value, known: &'static str) -> HuggingFaceError {
        let dot = if self.inside.is_empty() { "" } else { "." };
        let found = if found.is_null() { "missing".to_owned() } else { found.to_string() };
        HuggingFaceError::Setting { key: format!("{}{dot}{key}", self.inside), found, known }
    }

    fn read<T>(
        &self,
        key: &str,
        known: &'static str,
        of: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, HuggingFaceError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        of(value).map(Some).ok_or_else(|| self.refuse(key, value, known))
    }

    pub fn count(&self, key: &str) -> Result<Option<usize>, HuggingFaceError> {
        self.read(key, "a whole number", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// A count that every file must have.
    pub fn needed(&self, key: &str) -> Result<usize, HuggingFaceError> {
        self.count(key)?.ok_or_else(|| self.refuse(key, &Value::Null, "a whole number"))
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>, HuggingFaceError> {
        self.read(key, "a number", Value::as_f64)
    }

    pub fn truth(&self, key: &str) -> Result<Option<bool>, HuggingFaceError> {
        self.read(key, "true or false", Value::as_bool)
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>, HuggingFaceError> {
        self.read(key, "text", Value::as_str)
    }

    pub fn table(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, HuggingFaceError> {
        self.read(key, "a table", Value::as_object)
    }

    pub fn list(&self, key: &str) -> Result<Option<&'a Vec<Value>>, HuggingFaceError> {
        self.read(key, "a list", Value::as_array)
    }

    /// A switch for which only this value, the default, can be computed.
    pub fn must(&self, key: &str, known: bool) -> Result<(), HuggingFaceError> {
        match self.truth(key)? {
            Some(found) if found != known => {
                Err(self.refuse(key, &Value::from(found), if known { "true" } else { "false" }))
            }
            _ => Ok(()),
        }
    }

    pub fn activation(&self, key: &str, default: &str) -> Result<Activation, HuggingFaceError> {
        match self.text(key)?.unwrap_or(default) {
            "gelu" => Ok(Activation::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
            "silu" | "swish" => Ok(Activation::Silu),
            other => Err(self.refuse(key, &Value::from(other), "gelu, gelu_new, gelu_pytorch_tanh and silu")),
        }
    }
}
