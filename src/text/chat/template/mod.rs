//! A conversation as text: the model's own chat template, in Jinja as `transformers` reads it, or a plain one.

mod json;

use std::io::{self, Write};
use std::ops::Range;

use minijinja::syntax::SyntaxConfig;
/// A JSON value as a template sees it. Objects keep the order of their members.
pub use minijinja::value::Value;
pub use minijinja::value::{Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde_json::Value as Json;

use crate::config::ChatConfig;
use crate::text::chat::template::json::to_json;
use crate::text::chat::{Conversation, Message};

/// For a run without a template: each message behind the name of its role.
pub const DEFAULT: &str = "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content | trim }}\n\n\
                           {% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}";

/// What ends an answer where [`DEFAULT`] is used: the next message of a person.
pub const DEFAULT_STOP: &str = "\nUser:";

/// Steps that a template may take: it comes with the run, from a stranger.
const FUEL: u64 = 1_000_000;

/// Bytes of a string that count as a step.
const BYTES_PER_STEP: u64 = 64;

/// The longest text of a conversation, in bytes.
const MOST_BYTES: usize = 32 << 20;

/// Characters that are none, around what stands in `{% generation %}`.
const MARKS: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("the run's chat template is not one: {0}")]
    Syntax(String),
    #[error("the run's chat template refuses this conversation: {0}")]
    Refused(String),
    #[error("the conversation is longer than {MOST_BYTES} bytes")]
    TooLong,
    #[error("the conversation has the character U+FDD0 or U+FDD1, which is none; remove it")]
    Marks,
    #[error(
        "the run's chat template writes what stands around messages[{message}] otherwise when other messages follow, so \
         that what the assistant says cannot be found; mark it with {{% generation %}} and {{% endgeneration %}} in \
         text.chat.template"
    )]
    Changes {
        /// Counted from 0.
        message: usize,
    },
    #[error("nothing stands in {{% generation %}} of the run's chat template for this conversation")]
    NoGeneration,
}

/// A template, ready to be used.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    is_default: bool,
    marks_generation: bool,
}

/// A text, and what of it stood in `{% generation %}`.
pub(super) type Written = (String, Vec<Range<usize>>);

impl ChatTemplate {
    /// The template of a run, or [`DEFAULT`] if it has none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(chat: Option<&ChatConfig>) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| TemplateError::Syntax(error.to_string()))?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(python_method);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_filter("tojson", to_json);
        environment.add_filter("generation", |text: String| format!("{}{text}{}", MARKS[0], MARKS[1]));
        let (template, marks_generation) = with_filters(chat.map_or(DEFAULT, |chat| &chat.template));
        environment
            .add_template_owned("chat", template)
            .map_err(|error| TemplateError::Syntax(format!("{error:#}")))?;
        let token = |of: fn(&ChatConfig) -> &String| chat.map(|chat| of(chat).clone()).unwrap_or_default();
        let (bos, eos) = (token(|chat| &chat.bos_token), token(|chat| &chat.eos_token));
        Ok(Self { environment, bos, eos, is_default: chat.is_none(), marks_generation })
    }

    /// Whether the run has no template of its own.
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    /// Whether the template itself says what the assistant says.
    pub(super) fn marks_generation(&self) -> bool {
        self.marks_generation
    }

    /// The text of a conversation, to be continued by the assistant.
    ///
    /// # Errors
    /// If the template refuses it, as many refuse two messages of one role in a row.
    pub fn render<'a>(&self, conversation: impl Into<Conversation<'a>>) -> Result<String, TemplateError> {
        Ok(self.write(conversation.into(), true)?.0)
    }

    /// The text of a conversation, to be continued by the assistant or not.
    pub(super) fn write(&self, of: Conversation<'_>, add_generation_prompt: bool) -> Result<Written, TemplateError> {
        let is_marked = |message: &Message| {
            message.content.as_ref().is_some_and(|content| content.contains(MARKS))
                || message.more.iter().any(|(key, value)| key.contains(MARKS) || has_marks(value))
        };
        if self.marks_generation && (of.messages.iter().any(is_marked) || of.tools.is_some_and(has_marks)) {
            return Err(TemplateError::Marks);
        }
        let template =
            self.environment.get_template("chat").map_err(|error| TemplateError::Syntax(error.to_string()))?;
        let mut text = Bounded(Vec::new());
        // As transformers does, what is not there is None, not undefined.
        let values = context! {
            messages => Value::from(Serde(of.messages)), tools => of.tools.cloned().unwrap_or(Value::from(())),
            documents => Value::from(()), add_generation_prompt,
            bos_token => self.bos.as_str(), eos_token => self.eos.as_str(),
        };
        match template.render_captured_to(values, &mut text).map(drop) {
            Ok(()) => {
                let text = String::from_utf8_lossy(&text.0).into_owned();
                Ok(if self.marks_generation { without_marks(&text) } else { (text, Vec::new()) })
            }
            Err(error) if error.kind() == ErrorKind::WriteFailure => Err(TemplateError::TooLong),
            Err(error) => Err(TemplateError::Refused(said(&error))),
        }
    }
}

/// A method of Python's types. `join` is charged for the strings that it puts together, which the library does not do: a
/// list of a hundred thousand times the same long string costs nothing.
fn python_method(state: &mut State<'_, '_>, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    if let ("join", Some(_), [items]) = (method, value.as_str(), arguments) {
        for item in items.try_iter()? {
            let text = item.as_str().ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "join takes strings"))?;
            state.consume_fuel(1 + text.len() as u64 / BYTES_PER_STEP)?;
        }
    }
    unknown_method_callback(state, value, method, arguments)
}

/// The chat template of a pretrained model among its files, if it has one.
pub fn chat_of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<ChatConfig> {
    let files: Vec<(&str, &str)> = files.into_iter().collect();
    let file = |wanted: &str| files.iter().find(|(name, _)| *name == wanted).map(|(_, text)| *text);
    let json = |name| file(name).and_then(|text| serde_json::from_str::<Json>(text).ok()).unwrap_or_default();
    let settings = json("tokenizer_config.json");
    let own = file("chat_template.jinja").map(str::to_owned);
    let own = own.or_else(|| named(&settings["chat_template"]));
    let template = own.or_else(|| named(&json("chat_template.json")["chat_template"]))?;
    let token = |key: &str| {
        let token = &settings[key];
        token.as_str().or_else(|| token["content"].as_str()).unwrap_or_default().to_owned()
    };
    Some(ChatConfig { template, bos_token: token("bos_token"), eos_token: token("eos_token") })
}

/// A template whose blocks of `transformers`' own tag are filters, and whether there are any.
fn with_filters(template: &str) -> (String, bool) {
    let (mut written, mut rest, mut found) = (String::with_capacity(template.len()), template, false);
    while let Some((before, (inside, after))) =
        rest.split_once("{%").and_then(|(before, tag)| Some((before, tag.split_once("%}")?)))
    {
        let word = inside.trim_matches(['-', '+']).trim();
        let tag = match word {
            "generation" => inside.replace("generation", "filter generation"),
            "endgeneration" => inside.replace("endgeneration", "endfilter"),
            _ => inside.to_owned(),
        };
        found |= word == "generation";
        written += &format!("{before}{{%{tag}%}}");
        rest = after;
    }
    (written + rest, found)
}

/// A text without marks, and the parts between them.
fn without_marks(marked: &str) -> Written {
    let (mut text, mut parts, mut begin) = (String::with_capacity(marked.len()), Vec::new(), None);
    for part in marked.split_inclusive(MARKS) {
        let Some(plain) = part.strip_suffix(MARKS) else {
            text.push_str(part);
            break;
        };
        text.push_str(plain);
        if part.ends_with(MARKS[0]) {
            begin = Some(text.len());
        } else if let Some(begin) = begin.take().filter(|begin| *begin < text.len()) {
            parts.push(begin..text.len());
        }
    }
    (text, parts)
}

/// Whether a string somewhere in a value has a mark.
fn has_marks(value: &Value) -> bool {
    match value.kind() {
        ValueKind::String => value.as_str().is_some_and(|text| text.contains(MARKS)),
        ValueKind::Seq => value.try_iter().is_ok_and(|mut items| items.any(|item| has_marks(&item))),
        ValueKind::Map => value.try_iter().is_ok_and(|mut keys| {
            keys.any(|key| has_marks(&key) || value.get_item(&key).is_ok_and(|member| has_marks(&member)))
        }),
        _ => false,
    }
}

/// What a template says itself when it refuses, or else what is wrong.
fn said(error: &Error) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

/// A template, or the one of several that is for chats.
fn named(field: &Json) -> Option<String> {
    match field {
        Json::Array(several) => {
            let default = several.iter().find(|one| one["name"] == "default");
            default.and_then(|one| one["template"].as_str()).map(str::to_owned)
        }
        one => one.as_str().map(str::to_owned),
    }
}

/// Text of bounded length.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::chat::tests::message;

    fn of(template: &str) -> Result<ChatTemplate, TemplateError> {
        let (bos_token, eos_token) = ("<s>".to_owned(), "</s>".to_owned());
        ChatTemplate::of(Some(&ChatConfig { template: template.to_owned(), bos_token, eos_token }))
    }

    fn own(template: &str) -> ChatTemplate {
        of(template).unwrap()
    }

    #[test]
    fn without_a_template_each_message_stands_behind_its_role() {
        let template = ChatTemplate::of(None).unwrap();
        assert!(template.is_default());
        let text = template.render(&[message("system", "Be kind."), message("user", " Who? ")]).unwrap();
        assert_eq!(text, "System: Be kind.\n\nUser: Who?\n\nAssistant:");
    }

    #[test]
    fn templates_of_known_models_are_read_as_transformers_does() {
        let chat_ml = own(
            "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n\
             You are a helpful AI assistant named SmolLM<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + \
             '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}\
             {{ '<|im_start|>assistant\n' }}{% endif %}",
        );
        assert_eq!(
            chat_ml.render(&[message("user", "Hi")]).unwrap(),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
             <|im_start|>assistant\n"
        );
        let llama = own(
            "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + \
             message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 \
             %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{{ \
             '<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
        );
        assert_eq!(
            llama.render(&[message("user", " Hi ")]).unwrap(),
            "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        );
        let python = own("{% set ns = namespace(found=false) %}{% for m in messages[::-1] %}{% if not ns.found and \
             m.content.strip().startswith('a') %}{% set ns.found = true %}{{ m.content.split('b')[-1].rstrip('\n') }}\
             {% endif %}{% endfor %}");
        assert_eq!(python.render(&[message("user", " abc\n"), message("user", "x")]).unwrap(), "c");
    }

    #[test]
    fn a_template_says_itself_why_it_refuses() {
        let refused = own("{{ raise_exception('Conversation roles must alternate') }}").render(&[][..]).unwrap_err();
        assert!(refused.to_string().ends_with("conversation: Conversation roles must alternate"), "{refused}");
        assert!(of("{% for %}").is_err());
    }

    #[test]
    fn a_hostile_template_ends() {
        for template in [
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}",
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "{% for a in range(9999) %}{{ '%9999s' | format('x') }}{% endfor %}",
            "{{ ''.join(['a' * 1000000] * 100000) }}",
            "{{ ''.join([['a' * 1000000] * 100000]) }}",
            "{{ ['a' * 1000000] * 100000 | join }}",
            "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
        ] {
            assert!(own(template).render(&[message("user", "Hi")]).is_err(), "{template}");
        }
    }

    #[test]
    fn a_template_may_mark_what_the_assistant_says_as_for_transformers() {
        let marked =
            own("{% for m in messages %}{{ m.role }}: {%- generation %}\n {{ m.content }}{{ eos_token }}\n    \
                          {%- endgeneration -%}\n|{% endfor %}");
        let (text, parts) = marked.write((&[message("user", "Hi"), message("assistant", "Ho")]).into(), false).unwrap();
        assert_eq!(text, "user: Hi</s>|assistant: Ho</s>|");
        let parts: Vec<&str> = parts.into_iter().map(|part| &text[part]).collect();
        assert_eq!(parts, [" Hi</s>", " Ho</s>"]);
        assert_eq!(marked.render(&[message("user", "Hi")]).unwrap(), "user: Hi</s>|");
        let mut calls = message("user", "Hi");
        calls.more.insert("tool_calls".to_owned(), Value::from(vec![Value::from_pairs([("id", "\u{fdd1}")])]));
        for hostile in [message("user", "\u{fdd0}"), calls] {
            let error = marked.render(&[hostile]).unwrap_err().to_string();
            assert!(error.contains("U+FDD0"), "{error}");
        }
    }

    #[test]
    fn the_template_of_a_pretrained_model_is_found_with_its_tokens() {
        let settings = r#"{"chat_template": [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}],
            "bos_token": {"content": "<s>"}, "eos_token": "</s>"}"#;
        let chat = chat_of([("tokenizer_config.json", settings)]).unwrap();
        assert_eq!((&*chat.template, &*chat.bos_token, &*chat.eos_token), ("yes", "<s>", "</s>"));
        let own = chat_of([("chat_template.jinja", "own"), ("tokenizer_config.json", settings)]).unwrap();
        assert_eq!((&*own.template, &*own.eos_token), ("own", "</s>"));
        assert_eq!(chat_of([("tokenizer_config.json", "{}")]), None);
    }
}
