//! Conversations as text of which a part is learnt.
//!
//! [`template`] is a model's chat template. [`masked`] writes a conversation with it and finds what the assistant says;
//! [`record`] reads a conversation, or a prompt and its completion, from a JSON object.

pub mod masked;
pub mod record;
pub mod template;

use serde::Serialize;

pub use masked::MaskedText;
pub use template::{ChatTemplate, TemplateError};

/// Whose messages are learnt.
pub const ASSISTANT: &str = "assistant";

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    pub role: String,
    pub content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As SmolLM2 and Qwen write a conversation, without their system message.
    pub(crate) const CHAT_ML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + \
        message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' \
        }}{% endif %}";

    pub(crate) fn message(role: &str, content: &str) -> Message {
        Message { role: role.to_owned(), content: content.to_owned(), name: None }
    }
}
