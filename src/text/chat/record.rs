//! A record of a corpus of conversations: a JSON object with messages, or with a prompt and a completion.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::config::TextFormat;
use crate::text::chat::masked::MaskedText;
use crate::text::chat::template::{ChatTemplate, TemplateError};
use crate::text::chat::{ASSISTANT, Message};

/// The names of roles, also those of ShareGPT, and what a template calls them.
const ROLES: [(&str, &str); 6] = [
    ("system", "system"),
    ("user", "user"),
    (ASSISTANT, ASSISTANT),
    ("tool", "tool"),
    ("human", "user"),
    ("gpt", ASSISTANT),
];

/// Characters of a value that are told.
const TOLD: usize = 40;

/// Why a record is no document.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A key that is not there, or has a value that it cannot have.
    #[error("{key} = {found}: {expected}")]
    Key { key: String, found: String, expected: &'static str },
    #[error("no message of the assistant: nothing of it would be learnt")]
    NoAssistant,
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// The members of an object in which a document of this format stands.
pub fn keys(format: TextFormat) -> &'static [&'static str] {
    match format {
        TextFormat::Text => &[],
        TextFormat::Chat => &["messages", "conversations"],
        TextFormat::PromptCompletion => &["prompt", "completion"],
    }
}

/// The text of a record.
///
/// # Errors
/// If a key is missing or wrong, or the template refuses it.
pub fn read(
    record: &Map<String, Value>,
    format: TextFormat,
    template: &ChatTemplate,
) -> Result<MaskedText, RecordError> {
    refuse_tools("tools", record.get("tools"))?;
    match format {
        TextFormat::PromptCompletion => completed(record, template),
        _ => conversation(record, template),
    }
}

fn conversation(record: &Map<String, Value>, template: &ChatTemplate) -> Result<MaskedText, RecordError> {
    let key = if record.contains_key("messages") { "messages" } else { "conversations" };
    let Some(Value::Array(list)) = record.get(key) else {
        let key = if record.contains_key(key) { key } else { "messages" };
        return Err(wrong(key, record.get(key), "must be a list of messages, each with role and content"));
    };
    let messages = messages(key, list)?;
    if messages.iter().any(|message| message.role == ASSISTANT) {
        Ok(template.conversation(&messages)?)
    } else {
        Err(RecordError::NoAssistant)
    }
}

fn completed(record: &Map<String, Value>, template: &ChatTemplate) -> Result<MaskedText, RecordError> {
    let expected = "must be a string, or a list of messages as the other one is";
    match (record.get("prompt"), record.get("completion")) {
        (Some(Value::String(_)), Some(Value::String(completion))) if completion.trim().is_empty() => {
            Err(wrong("completion", record.get("completion"), "must not be empty: it is what is learnt"))
        }
        (Some(Value::String(prompt)), Some(Value::String(completion))) => Ok(MaskedText::completed(prompt, completion)),
        (Some(Value::Array(prompt)), Some(Value::Array(completion))) => {
            let completion = messages("completion", completion)?;
            Ok(template.completion(&messages("prompt", prompt)?, &completion)?)
        }
        (prompt @ (None | Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_))), _) => {
            Err(wrong("prompt", prompt, expected))
        }
        (_, completion) => Err(wrong("completion", completion, expected)),
    }
}

fn messages(key: &str, list: &[Value]) -> Result<Vec<Message>, RecordError> {
    if list.is_empty() {
        return Err(wrong(key, Some(&Value::Array(Vec::new())), "must have at least one message"));
    }
    list.iter().enumerate().map(|(number, message)| read_message(&format!("{key}[{number}]"), message)).collect()
}

fn read_message(key: &str, message: &Value) -> Result<Message, RecordError> {
    let Value::Object(fields) = message else {
        return Err(wrong(key, Some(message), "must be an object with role and content"));
    };
    let sharegpt = fields.contains_key("from") && !fields.contains_key("role");
    let (role_key, content_key) = if sharegpt { ("from", "value") } else { ("role", "content") };
    let role = fields.get(role_key);
    let named = |(name, _): &&(&str, &str)| role.and_then(Value::as_str) == Some(*name);
    let Some((_, role)) = ROLES.iter().find(named) else {
        let expected = "must be system, user, assistant or tool, or ShareGPT's human or gpt";
        return Err(wrong(&format!("{key}.{role_key}"), role, expected));
    };
    refuse_tools(&format!("{key}.tool_calls"), fields.get("tool_calls"))?;
    let (given, content_key) = (fields.get(content_key), format!("{key}.{content_key}"));
    let content = content(&content_key, given)?;
    if *role == ASSISTANT && content.trim().is_empty() {
        return Err(wrong(&content_key, given, "must not be empty: it is what is learnt"));
    }
    let name = fields.get("name").and_then(Value::as_str).map(str::to_owned);
    Ok(Message { role: (*role).to_owned(), content, name })
}

/// A string, or the texts of parts.
fn content(key: &str, content: Option<&Value>) -> Result<String, RecordError> {
    match content {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let mut texts = Vec::with_capacity(parts.len());
            for (number, part) in parts.iter().enumerate() {
                let key = format!("{key}[{number}]");
                if part["type"] != "text" {
                    let expected =
                        "only parts of type \"text\" are read; leave this record out, or describe what it shows";
                    return Err(wrong(&format!("{key}.type"), part.get("type"), expected));
                }
                let text = part["text"].as_str();
                texts.push(text.ok_or_else(|| wrong(&format!("{key}.text"), part.get("text"), "must be a string"))?);
            }
            Ok(texts.join("\n"))
        }
        other => Err(wrong(key, other, "must be a string, or a list of parts of text")),
    }
}

fn refuse_tools(key: &str, value: Option<&Value>) -> Result<(), RecordError> {
    match value {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(tools)) if tools.is_empty() => Ok(()),
        tools => Err(wrong(key, tools, "tools are not read; leave this record out, or write the calls as content")),
    }
}

fn wrong(key: &str, found: Option<&Value>, expected: &'static str) -> RecordError {
    let mut told = found.map_or_else(|| "nothing".to_owned(), Value::to_string);
    if let Some((end, _)) = told.char_indices().nth(TOLD) {
        told.truncate(end);
        // Writing to a string does not fail.
        let _ = write!(told, "…");
    }
    RecordError::Key { key: key.to_owned(), found: told, expected }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::ChatConfig;
    use crate::text::chat::tests::CHAT_ML;

    fn read_as(format: TextFormat, record: Value) -> Result<MaskedText, String> {
        let chat = ChatConfig { template: CHAT_ML.to_owned(), ..ChatConfig::default() };
        let template = ChatTemplate::of(Some(&chat)).unwrap();
        read(record.as_object().unwrap(), format, &template).map_err(|error| error.to_string())
    }

    fn chat(record: Value) -> Result<MaskedText, String> {
        read_as(TextFormat::Chat, record)
    }

    #[test]
    fn conversations_are_read_by_the_names_of_openai_and_of_sharegpt() {
        let openai = chat(json!({ "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            { "role": "assistant", "content": "c" },
        ], "id": 7 }))
        .unwrap();
        assert_eq!(openai.text, "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n");
        let sharegpt = json!([{ "from": "human", "value": "a\nb" }, { "from": "gpt", "value": "c" }]);
        assert_eq!(chat(json!({ "conversations": sharegpt })).unwrap(), openai);
    }

    #[test]
    fn a_prompt_and_its_completion_are_both_text_or_both_messages() {
        let of = |prompt, completion| {
            read_as(TextFormat::PromptCompletion, json!({ "prompt": prompt, "completion": completion }))
        };
        assert_eq!(of(json!("a"), json!(" b")).unwrap(), MaskedText::completed("a", " b"));
        let user = json!([{ "role": "user", "content": "a" }]);
        let answer = json!([{ "role": "assistant", "content": "b" }]);
        let masked = of(user.clone(), answer).unwrap();
        assert_eq!(&masked.text[masked.learnt[0].clone()], "b<|im_end|>\n");
        let error = of(user, json!("b")).unwrap_err();
        assert_eq!(error, "completion = \"b\": must be a string, or a list of messages as the other one is");
        assert!(of(json!("a"), json!(" ")).unwrap_err().starts_with("completion = \" \": must not be empty"));
        assert!(of(Value::Null, json!("b")).unwrap_err().starts_with("prompt = null: must be a string"));
    }

    #[test]
    fn a_record_that_cannot_be_learnt_says_its_key_what_is_there_and_what_would_do() {
        let one = |message: Value| json!({ "messages": [message] });
        for (record, expected) in [
            (json!({ "text": "a" }), "messages = nothing: must be a list of messages"),
            (json!({ "messages": "a" }), "messages = \"a\": must be a list of messages"),
            (json!({ "messages": [] }), "messages = []: must have at least one message"),
            (one(json!("a")), "messages[0] = \"a\": must be an object"),
            (one(json!({ "role": "robot", "content": "a" })), "messages[0].role = \"robot\": must be system, user"),
            (one(json!({ "content": "a" })), "messages[0].role = nothing: must be system, user"),
            (one(json!({ "role": "user", "content": null })), "messages[0].content = null: must be a string"),
            (
                one(json!({ "role": "user", "content": [{ "type": "image" }] })),
                "messages[0].content[0].type = \"image\": ",
            ),
            (one(json!({ "role": "assistant", "content": " " })), "messages[0].content = \" \": must not be empty"),
            (one(json!({ "role": "user", "content": "a" })), "no message of the assistant"),
            (
                one(json!({ "role": "assistant", "content": "a", "tool_calls": [{ "id": 1 }] })),
                "messages[0].tool_calls = [{\"id\":1}]: tools are not read",
            ),
            (json!({ "tools": [{}], "messages": [] }), "tools = [{}]: tools are not read"),
        ] {
            let error = chat(record.clone()).unwrap_err();
            assert!(error.starts_with(expected), "{record}: {error}");
        }
        let long = chat(one(json!({ "role": "x".repeat(500), "content": "a" }))).unwrap_err();
        assert!(long.len() < 160, "{long}");
    }
}
