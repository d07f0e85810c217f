//! Answers piece by piece, as server-sent events.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::serve::engine::job::{AnsweredToken, Event, Happening};
use crate::serve::request::ApiError;
use crate::serve::request::sampling::Target;
use crate::serve::response::collect::{Choice, extension};
use crate::serve::response::head::{Head, usage};
use crate::serve::response::tokens::{Listed, of_chat};
use crate::serve::served_run::ServedRun;

/// Which API the pieces are for.
#[derive(Clone, Debug)]
pub enum Form {
    Chat,
    /// With the tokens and the text of each prompt where the answer begins with it, and the choices of each.
    Completion {
        echoes: Vec<(Vec<u32>, String)>,
        n: usize,
    },
}

/// A streamed answer.
pub struct Pieces {
    pub run: Arc<ServedRun>,
    pub head: Head,
    pub form: Form,
    pub target: Target,
    pub seed: u64,
    /// The number of likeliest tokens, if there are log-probabilities.
    pub logprobs: Option<usize>,
    /// Whether the number of tokens comes at the end.
    pub usage: bool,
    pub prompt_tokens: usize,
    /// Without their texts.
    pub choices: Vec<Choice>,
    /// Characters so far of each choice.
    pub offsets: Vec<usize>,
}

impl Pieces {
    /// The pieces for an event.
    ///
    /// # Errors
    /// If its choice failed.
    pub fn of(&mut self, event: Event) -> Result<Vec<Value>, ApiError> {
        let Event { choice: index, what } = event;
        let Some(choice) = self.choices.get_mut(index) else { return Ok(Vec::new()) };
        match what {
            Happening::Piece { text, tokens } => Ok(vec![self.piece(index, &text, &tokens)]),
            Happening::Begins { .. } => {
                choice.take(what)?;
                Ok(self.beginning(index).into_iter().collect())
            }
            Happening::Prompt(scores) => {
                choice.prompt = scores;
                Ok(self.echo(index).into_iter().collect())
            }
            Happening::Ends { .. } => {
                choice.take(what)?;
                Ok(vec![self.ending(index)])
            }
            Happening::Fails(error) => Err(error),
        }
    }

    /// The last piece, if it was asked for.
    pub fn last(&self) -> Option<Value> {
        let generated = self.choices.iter().map(|choice| choice.generated).sum();
        self.usage.then(|| self.head.value(self.object(), &[], Some(usage(self.prompt_tokens, generated))))
    }

    /// Whether all choices have ended.
    pub fn is_complete(&self) -> bool {
        self.choices.iter().all(|choice| choice.ending.is_some())
    }

    fn object(&self) -> &'static str {
        if matches!(self.form, Form::Chat) { "chat.completion.chunk" } else { "text_completion" }
    }

    fn value(&self, choice: Value) -> Value {
        self.head.value(self.object(), &[choice], self.usage.then_some(Value::Null))
    }

    fn extension(&self, index: usize) -> Value {
        let prefix = self.run.config.routing.prefix_tokens;
        extension(&self.target, &self.choices[index], self.seed, &self.run.grid, prefix)
    }

    /// A chat's role; a completion's prompt, unless its scores come with it.
    fn beginning(&mut self, index: usize) -> Option<Value> {
        match self.form {
            Form::Chat => Some(self.value(json!({
                "index": index, "delta": { "role": "assistant", "content": "" }, "logprobs": null, "finish_reason": null,
                "x_pathswarm": self.extension(index),
            }))),
            Form::Completion { .. } if self.logprobs.is_none() => self.echo(index),
            Form::Completion { .. } => None,
        }
    }

    fn echo(&mut self, index: usize) -> Option<Value> {
        let Form::Completion { echoes, n } = &self.form else { return None };
        let (prompt, text) = echoes.get(index / n)?;
        let logprobs = self.logprobs.map(|top| {
            let (mut listed, mut at) = (Listed::default(), 0);
            for (token, score) in prompt.iter().zip(self.choices[index].prompt.iter()) {
                at = listed.push(&self.run.tokenizer, (*token, score.as_ref()), top, at);
            }
            self.offsets[index] = at;
            listed.value()
        });
        Some(self.value(json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": null })))
    }

    /// The log-probabilities of a completion's next tokens, if there are any.
    fn listed(&mut self, index: usize, tokens: &[AnsweredToken]) -> Option<Value> {
        let top = self.logprobs?;
        let (mut listed, mut at) = (Listed::default(), self.offsets[index]);
        for token in tokens {
            at = listed.push(&self.run.tokenizer, (token.token, token.score.as_ref()), top, at);
        }
        self.offsets[index] = at;
        Some(listed.value())
    }

    fn piece(&mut self, index: usize, text: &str, tokens: &[AnsweredToken]) -> Value {
        let choice = match self.form {
            Form::Chat => {
                let logprobs = self.logprobs.map(|_| of_chat(&self.run.tokenizer, tokens));
                json!({ "index": index, "delta": { "content": text }, "logprobs": logprobs, "finish_reason": null })
            }
            Form::Completion { .. } => {
                let logprobs = self.listed(index, tokens);
                json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": null })
            }
        };
        self.value(choice)
    }

    fn ending(&mut self, index: usize) -> Value {
        let mut choice = json!({
            "index": index, "logprobs": null, "finish_reason": self.choices[index].finish_reason(),
            "x_pathswarm": self.extension(index),
        });
        match self.form {
            Form::Chat => choice["delta"] = json!({}),
            Form::Completion { .. } => {
                choice["text"] = json!("");
                let end = self.choices[index].end.clone();
                choice["logprobs"] = json!(end.and_then(|end| self.listed(index, &[end])));
            }
        }
        self.value(choice)
    }
}
