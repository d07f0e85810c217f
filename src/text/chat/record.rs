//! A record of a corpus of conversations: an object with messages and tools, or with a prompt and a completion.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::config::TextFormat;
use crate::text::chat::masked::MaskedText;
use crate::text::chat::template::{ChatTemplate, TemplateError, ValueKind};
use crate::text::chat::{ASSISTANT, Conversation, Message, Value};

/// The members of an object that a record may need, by name.
pub type Record = BTreeMap<String, Value>;

/// The member that lists the tools which messages may call.
pub const TOOLS: &str = "tools";

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
pub fn read(record: &Record, format: TextFormat, template: &ChatTemplate) -> Result<MaskedText, RecordError> {
    let tools = tools(record.get(TOOLS))?;
    match format {
        TextFormat::PromptCompletion => completed(record, tools.as_ref(), template),
        _ => conversation(record, tools.as_ref(), template),
    }
}

fn conversation(record: &Record, tools: Option<&Value>, template: &ChatTemplate) -> Result<MaskedText, RecordError> {
    // A table may have both columns.
    let given = |key: &&&str| record.get(**key).is_some_and(|value| !value.is_none());
    let key = keys(TextFormat::Chat).iter().find(given).unwrap_or(&"messages");
    let found = record.get(*key);
    let Some(list) = found.and_then(list) else {
        return Err(wrong(key, found, "must be a list of messages, each with role and content"));
    };
    let messages = messages(key, &list)?;
    if messages.iter().any(|message| message.role == ASSISTANT) {
        Ok(template.conversation(Conversation { messages: &messages, tools })?)
    } else {
        Err(RecordError::NoAssistant)
    }
}

fn completed(record: &Record, tools: Option<&Value>, template: &ChatTemplate) -> Result<MaskedText, RecordError> {
    let expected = "must be a string, or a list of messages as the other one is";
    let [prompt, completion] = [record.get("prompt"), record.get("completion")];
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    match (text(prompt), text(completion)) {
        (Some(_), Some(said)) if said.trim().is_empty() => {
            return Err(wrong("completion", completion, "must not be empty: it is what is learnt"));
        }
        (Some(asked), Some(said)) => return Ok(MaskedText::completed(&asked, &said)),
        (Some(_), None) => return Err(wrong("completion", completion, expected)),
        _ => {}
    }
    match (prompt.and_then(list), completion.and_then(list)) {
        (Some(asked), Some(said)) => {
            let completion = messages("completion", &said)?;
            Ok(template.completion(&messages("prompt", &asked)?, &completion, tools)?)
        }
        (None, _) => Err(wrong("prompt", prompt, expected)),
        (_, None) => Err(wrong("completion", completion, expected)),
    }
}

fn messages(key: &str, list: &[Value]) -> Result<Vec<Message>, RecordError> {
    if list.is_empty() {
        return Err(wrong(key, Some(&Value::from(Vec::<Value>::new())), "must have at least one message"));
    }
    list.iter().enumerate().map(|(number, message)| read_message(&format!("{key}[{number}]"), message)).collect()
}

fn read_message(key: &str, message: &Value) -> Result<Message, RecordError> {
    let Some(mut fields) = members(message) else {
        return Err(wrong(key, Some(message), "must be an object with role and content"));
    };
    let sharegpt = fields.contains_key("from") && !fields.contains_key("role");
    let (role_key, content_key) = if sharegpt { ("from", "value") } else { ("role", "content") };
    let role = fields.remove(role_key);
    let named = |(name, _): &&(&str, &str)| role.as_ref().and_then(Value::as_str) == Some(*name);
    let Some((_, role)) = ROLES.iter().find(named) else {
        let expected = "must be system, user, assistant or tool, or ShareGPT's human or gpt";
        return Err(wrong(&format!("{key}.{role_key}"), role.as_ref(), expected));
    };
    let calls = calls(&format!("{key}.tool_calls"), fields.remove("tool_calls"))?;
    let (given, content_key) = (fields.remove(content_key), format!("{key}.{content_key}"));
    let nothing = given.as_ref().is_none_or(Value::is_none);
    let content = match &given {
        _ if nothing && calls.is_some() => None,
        given => Some(content(&content_key, given.as_ref())?),
    };
    let is_empty = content.as_ref().is_none_or(|content| content.trim().is_empty());
    if *role == ASSISTANT && is_empty && calls.is_none() {
        return Err(wrong(&content_key, given.as_ref(), "must not be empty: it is what is learnt"));
    }
    fields.retain(|_, value| !value.is_none());
    fields.extend(calls.map(|calls| ("tool_calls".to_owned(), calls)));
    Ok(Message { role: (*role).to_owned(), content, more: fields })
}

/// A string, or the texts of parts.
fn content(key: &str, content: Option<&Value>) -> Result<String, RecordError> {
    if let Some(text) = content.and_then(Value::as_str) {
        return Ok(text.to_owned());
    }
    let Some(parts) = content.and_then(list) else {
        return Err(wrong(key, content, "must be a string, or a list of parts of text"));
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (number, part) in parts.iter().enumerate() {
        let (key, part) = (format!("{key}[{number}]"), members(part).unwrap_or_default());
        let kind = part.get("type");
        if kind.and_then(Value::as_str) != Some("text") {
            let expected = "only parts of type \"text\" are read; leave this record out, or describe what it shows";
            return Err(wrong(&format!("{key}.type"), kind, expected));
        }
        let text = part.get("text").and_then(Value::as_str).map(str::to_owned);
        texts.push(text.ok_or_else(|| wrong(&format!("{key}.text"), part.get("text"), "must be a string"))?);
    }
    Ok(texts.join("\n"))
}

/// The calls of a message, if it has some.
fn calls(key: &str, value: Option<Value>) -> Result<Option<Value>, RecordError> {
    let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(None) };
    match list(&value) {
        Some(calls) if calls.is_empty() => Ok(None),
        Some(calls) if calls.iter().all(|call| call.kind() == ValueKind::Map) => Ok(Some(value)),
        _ => Err(wrong(key, Some(&value), "must be a list of calls, each an object")),
    }
}

/// The tools of a record, if it has some. Columns of tables hold them as text, since no two have the same fields.
fn tools(value: Option<&Value>) -> Result<Option<Value>, RecordError> {
    let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(None) };
    let parsed = value.as_str().map(|text| if text.trim().is_empty() { "[]" } else { text });
    let parsed = parsed.map_or_else(|| Some(value.clone()), |text| serde_json::from_str(text).ok());
    match parsed.as_ref().and_then(list) {
        Some(tools) if tools.is_empty() => Ok(None),
        Some(tools) if tools.iter().all(|tool| tool.kind() == ValueKind::Map) => Ok(parsed),
        _ => Err(wrong(TOOLS, Some(value), "must be a list of tools, each an object, or such a list as a string")),
    }
}

fn list(value: &Value) -> Option<Vec<Value>> {
    let items = (value.kind() == ValueKind::Seq).then(|| value.try_iter().ok()).flatten()?;
    Some(items.collect())
}

/// The members of an object.
fn members(value: &Value) -> Option<Record> {
    let keys = (value.kind() == ValueKind::Map).then(|| value.try_iter().ok()).flatten()?;
    keys.map(|key| Some((key.as_str()?.to_owned(), value.get_item(&key).ok()?))).collect()
}

fn wrong(key: &str, found: Option<&Value>, expected: &'static str) -> RecordError {
    let json = |value: &Value| serde_json::to_string(value).unwrap_or_else(|error| error.to_string());
    let mut told = found.map_or_else(|| "nothing".to_owned(), json);
    if let Some((end, _)) = told.char_indices().nth(TOLD) {
        told.truncate(end);
        // Writing to a string does not fail.
        let _ = write!(told, "…");
    }
    RecordError::Key { key: key.to_owned(), found: told, expected }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::ChatConfig;
    use crate::text::chat::template::Serde;
    use crate::text::chat::tests::CHAT_ML;

    fn read_as(format: TextFormat, record: Value) -> Result<MaskedText, String> {
        let chat = ChatConfig { template: CHAT_ML.to_owned(), ..ChatConfig::default() };
        let template = ChatTemplate::of(Some(&chat)).unwrap();
        let record = members(&super::Value::from(Serde(record))).unwrap();
        read(&record, format, &template).map_err(|error| error.to_string())
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
                one(json!({ "role": "assistant", "content": "a", "tool_calls": [1] })),
                "messages[0].tool_calls = [1]: must be a list of calls",
            ),
            (one(json!({ "role": "tool", "content": null })), "messages[0].content = null: must be a string"),
            (one(json!({ "role": "assistant", "tool_calls": [] })), "messages[0].content = nothing: must be a string"),
            (json!({ "tools": "a", "messages": [] }), "tools = \"a\": must be a list of tools"),
            (json!({ "tools": [1], "messages": [] }), "tools = [1]: must be a list of tools"),
        ] {
            let error = chat(record.clone()).unwrap_err();
            assert!(error.starts_with(expected), "{record}: {error}");
        }
        let long = chat(one(json!({ "role": "x".repeat(500), "content": "a" }))).unwrap_err();
        assert!(long.len() < 160, "{long}");
    }
}
