//! Conversations as text of which a part is learnt.
//!
//! [`template`] is a model's chat template. [`masked`] writes a conversation with it and finds what the assistant says;
//! [`record`] reads a conversation, or a prompt and its completion, from an object.

pub mod masked;
pub mod record;
pub mod template;

use std::collections::BTreeMap;

use serde::Serialize;

pub use masked::MaskedText;
pub use template::{ChatTemplate, TemplateError, Value};

/// Whose messages are learnt.
pub const ASSISTANT: &str = "assistant";

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    pub role: String,
    /// `None` where it says nothing and only calls tools.
    pub content: Option<String>,
    /// Its other members, such as `name`, `tool_calls` and `tool_call_id`, which a template may read.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl Message {
    /// A message of which only this is known.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Some(content.into()), more: BTreeMap::new() }
    }
}

/// Messages, and the tools that they may call.
#[derive(Clone, Copy, Debug)]
pub struct Conversation<'a> {
    pub messages: &'a [Message],
    /// A list, as `tools` of `apply_chat_template`.
    pub tools: Option<&'a Value>,
}

impl<'a> Conversation<'a> {
    /// Its first messages.
    pub(super) fn first(self, messages: usize) -> Self {
        Self { messages: &self.messages[..messages], ..self }
    }
}

impl<'a> From<&'a [Message]> for Conversation<'a> {
    fn from(messages: &'a [Message]) -> Self {
        Self { messages, tools: None }
    }
}

impl<'a> From<&'a Vec<Message>> for Conversation<'a> {
    fn from(messages: &'a Vec<Message>) -> Self {
        Self::from(messages.as_slice())
    }
}

impl<'a, const N: usize> From<&'a [Message; N]> for Conversation<'a> {
    fn from(messages: &'a [Message; N]) -> Self {
        Self::from(messages.as_slice())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As SmolLM2 and Qwen write a conversation, without their system message.
    pub(crate) const CHAT_ML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + \
        message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' \
        }}{% endif %}";

    pub(crate) fn message(role: &str, content: &str) -> Message {
        Message::new(role, content)
    }
}
