//! Tokens as text, and their log-probabilities.

use serde_json::{Map, Value, json};

use crate::serve::engine::job::AnsweredToken;
use crate::text::Tokenizer;
use crate::training::TokenScore;

/// A token by its text: a special one by its name, and one that is a part of a character by its bytes, as OpenAI writes
/// it.
pub fn name(tokenizer: &Tokenizer, token: u32) -> String {
    let piece = tokenizer.piece(token);
    match std::str::from_utf8(piece) {
        Ok("") => tokenizer.special_name(token).unwrap_or_default().to_owned(),
        Ok(text) => text.to_owned(),
        Err(_) => piece.iter().fold("bytes:".to_owned(), |name, byte| format!("{name}\\x{byte:02x}")),
    }
}

/// Log-probabilities of a completion's tokens: four lists of one length.
#[derive(Default)]
pub struct Listed {
    tokens: Vec<String>,
    logprobs: Vec<Option<f64>>,
    tops: Vec<Option<Map<String, Value>>>,
    offsets: Vec<usize>,
}

impl Listed {
    /// Appends a token that begins at a place in the text, counted in characters. Returns where the next one begins.
    pub fn push(
        &mut self,
        tokenizer: &Tokenizer,
        (token, score): (u32, Option<&TokenScore>),
        top: usize,
        at: usize,
    ) -> usize {
        self.tokens.push(name(tokenizer, token));
        self.logprobs.push(score.map(|score| score.logprob));
        self.tops.push(score.filter(|_| top > 0).map(|score| {
            let mut map = Map::new();
            let own = (score.token, score.logprob);
            for (token, logprob) in score.top.iter().copied().chain([own]) {
                // Of two tokens with one name, the likelier one counts.
                map.entry(name(tokenizer, token)).or_insert_with(|| json!(logprob));
            }
            map
        }));
        self.offsets.push(at);
        // A character of several tokens begins with its first.
        let begins = tokenizer.piece(token).iter().filter(|byte| !(0x80..0xc0).contains(*byte));
        at + begins.count()
    }

    /// As a completion has them.
    pub fn value(&self) -> Value {
        json!({
            "tokens": self.tokens, "token_logprobs": self.logprobs, "top_logprobs": self.tops,
            "text_offset": self.offsets,
        })
    }
}

/// Log-probabilities of tokens as a chat has them.
pub fn of_chat(tokenizer: &Tokenizer, tokens: &[AnsweredToken]) -> Value {
    let entry = |token: u32, logprob: f64| json!({ "token": name(tokenizer, token), "logprob": logprob, "bytes": tokenizer.piece(token) });
    let content: Vec<Value> = tokens
        .iter()
        .filter_map(|token| token.score.as_ref())
        .map(|score| {
            let mut value = entry(score.token, score.logprob);
            value["top_logprobs"] = score.top.iter().map(|(token, logprob)| entry(*token, *logprob)).collect();
            value
        })
        .collect();
    json!({ "content": content, "refusal": null })
}
