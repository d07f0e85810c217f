//! A conversation as text: the model's own chat template, in Jinja as `transformers` reads it, or a plain one.

use std::io::{self, Write};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use serde_json::Value as Json;

use crate::model::hugging_face::pretrained::PretrainedFiles;

/// For a run without a template: each message behind the name of its role.
pub const DEFAULT: &str = "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content | trim }}\n\n\
                           {% endfor %}Assistant:";

/// What ends an answer where [`DEFAULT`] is used: the next message of a person.
pub const DEFAULT_STOP: &str = "\nUser:";

/// Steps that a template may take: it comes with the run, from a stranger.
const FUEL: u64 = 1_000_000;

/// The longest text of a conversation, in bytes.
const MOST_BYTES: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("the run's chat template is not one: {0}")]
    Syntax(String),
    #[error("the run's chat template refuses this conversation: {0}")]
    Refused(String),
    #[error("the conversation is longer than {MOST_BYTES} bytes")]
    TooLong,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    pub role: String,
    pub content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A template, ready to be used.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    is_default: bool,
}

impl ChatTemplate {
    /// The template of a pretrained model, or [`DEFAULT`] if it has none.
    ///
    /// # Errors
    /// If its template cannot be read.
    pub fn of(pretrained: &PretrainedFiles) -> Result<Self, TemplateError> {
        let file = |wanted: &str| pretrained.exported().find(|(name, _)| *name == wanted).map(|(_, text)| text);
        let json = |name| file(name).and_then(|text| serde_json::from_str::<Json>(text).ok()).unwrap_or_default();
        let settings = json("tokenizer_config.json");
        let own = file("chat_template.jinja").map(str::to_owned);
        let own = own.or_else(|| named(&settings["chat_template"]));
        let own = own.or_else(|| named(&json("chat_template.json")["chat_template"]));
        let token = |key: &str| {
            let token = &settings[key];
            token.as_str().or_else(|| token["content"].as_str()).unwrap_or_default().to_owned()
        };
        Self::new(own, token("bos_token"), token("eos_token"))
    }

    fn new(own: Option<String>, bos: String, eos: String) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| TemplateError::Syntax(error.to_string()))?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        let is_default = own.is_none();
        let template = own.unwrap_or_else(|| DEFAULT.to_owned());
        environment
            .add_template_owned("chat", template)
            .map_err(|error| TemplateError::Syntax(format!("{error:#}")))?;
        Ok(Self { environment, bos, eos, is_default })
    }

    /// Whether the run has no template of its own.
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    /// The text of a conversation, to be continued by the assistant.
    ///
    /// # Errors
    /// If the template refuses it, as many refuse two messages of one role in a row.
    pub fn render(&self, messages: &[Message]) -> Result<String, TemplateError> {
        let template =
            self.environment.get_template("chat").map_err(|error| TemplateError::Syntax(error.to_string()))?;
        let mut text = Bounded(Vec::new());
        let values = context! {
            messages => Value::from(Serde(messages)), add_generation_prompt => true,
            bos_token => self.bos.as_str(), eos_token => self.eos.as_str(),
        };
        match template.render_captured_to(values, &mut text).map(drop) {
            Ok(()) => Ok(String::from_utf8_lossy(&text.0).into_owned()),
            Err(error) if error.kind() == ErrorKind::WriteFailure => Err(TemplateError::TooLong),
            Err(error) => Err(TemplateError::Refused(said(&error))),
        }
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

    fn message(role: &str, content: &str) -> Message {
        Message { role: role.to_owned(), content: content.to_owned(), name: None }
    }

    fn own(template: &str) -> ChatTemplate {
        ChatTemplate::new(Some(template.to_owned()), "<s>".to_owned(), "</s>".to_owned()).unwrap()
    }

    #[test]
    fn without_a_template_each_message_stands_behind_its_role() {
        let template = ChatTemplate::of(&PretrainedFiles::default()).unwrap();
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
        let refused = own("{{ raise_exception('Conversation roles must alternate') }}").render(&[]).unwrap_err();
        assert!(refused.to_string().ends_with("conversation: Conversation roles must alternate"), "{refused}");
        assert!(ChatTemplate::new(Some("{% for %}".to_owned()), String::new(), String::new()).is_err());
    }

    #[test]
    fn a_hostile_template_ends() {
        for template in [
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}",
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "{% for a in range(9999) %}{{ '%9999s' | format('x') }}{% endfor %}",
        ] {
            assert!(own(template).render(&[message("user", "Hi")]).is_err(), "{template}");
        }
    }
}
