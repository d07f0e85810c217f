//! Objects that are conversations, or prompts with their completions.

use crate::config::{TextConfig, TextFormat};
use crate::text::chat::record::{Record, TOOLS, keys, read};
use crate::text::chat::{ChatTemplate, MaskedText, TemplateError};
use crate::text::corpus::json_object::{Member, Members, is_key, unescaped};
use crate::text::corpus::left_out::Reason;

/// Reads objects of one format, with the run's chat template.
pub(super) struct Records {
    format: TextFormat,
    template: ChatTemplate,
}

/// A record that was read.
pub(super) struct Read {
    pub(super) masked: MaskedText,
    pub(super) domain: Option<String>,
}

/// Why a record is left out, and more words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) reason: Reason,
    pub(super) detail: Option<String>,
}

/// The members of an object in which a document stands.
pub(super) fn members(text: &TextConfig) -> Vec<&str> {
    match text.format {
        TextFormat::Text => vec![&text.column],
        format => keys(format).to_vec(),
    }
}

/// What is read, in words.
pub(super) fn words(text: &TextConfig) -> String {
    match text.format {
        TextFormat::Text => format!("text files, or JSON lines or Parquet with a \"{}\" field", text.column),
        TextFormat::Chat => {
            "JSON lines or Parquet with \"messages\", a list of objects with \"role\" and \"content\"".to_owned()
        }
        TextFormat::PromptCompletion => "JSON lines or Parquet with \"prompt\" and \"completion\"".to_owned(),
    }
}

impl Records {
    /// `None` where objects have texts.
    pub(super) fn of(text: &TextConfig) -> Result<Option<Self>, TemplateError> {
        if text.format == TextFormat::Text {
            return Ok(None);
        }
        Ok(Some(Self { format: text.format, template: ChatTemplate::of(text.chat.as_ref())? }))
    }

    /// Reads a JSON object. Members that nobody asks for never matter.
    pub(super) fn read(&self, object: &[u8]) -> Result<Read, Refused> {
        let not_an_object = |_| Refused { reason: Reason::NotAnObject, detail: None };
        let (mut record, mut domain) = (Record::new(), None);
        let mut found = Members::new(object);
        while let Some(Member { key, value }) = found.next().map_err(not_an_object)? {
            let (key, value) = (&object[key], &object[value]);
            if is_key(key, "domain") {
                domain = value.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\""));
            }
            let wanted = self.members().find(|name| is_key(key, name));
            if let Some(name) = wanted {
                let value = serde_json::from_slice(value).map_err(|error| bad_record(format!("{name}: {error}")))?;
                record.insert(name.to_owned(), value);
            }
        }
        if !found.rest().iter().all(u8::is_ascii_whitespace) {
            return Err(Refused { reason: Reason::NotAnObject, detail: None });
        }
        Ok(Read { masked: self.text_of(&record)?, domain: domain.map(|domain| unescaped(domain).text) })
    }

    /// The members that a record may have.
    pub(super) fn members(&self) -> impl Iterator<Item = &'static str> {
        keys(self.format).iter().copied().chain([TOOLS])
    }

    /// The text of a record.
    pub(super) fn text_of(&self, record: &Record) -> Result<MaskedText, Refused> {
        read(record, self.format, &self.template).map_err(|error| bad_record(error.to_string()))
    }
}

fn bad_record(detail: String) -> Refused {
    Refused { reason: Reason::BadRecord, detail: Some(detail) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::config::{ChatConfig, Reads};
    use crate::text::chat::tests::CHAT_ML;
    use crate::text::{Corpus, CorpusError, CorpusSource, read_corpus};

    fn chat(template: &str) -> TextConfig {
        let chat = ChatConfig { template: template.to_owned(), ..ChatConfig::default() };
        TextConfig { format: TextFormat::Chat, chat: Some(chat), ..TextConfig::default() }
    }

    /// Reads a file of this name and content; what is said of it without the folder.
    fn read_as(text: &TextConfig, name: &str, content: &str) -> (Result<Corpus, CorpusError>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let source = CorpusSource::Paths(vec![path]);
        let corpus = read_corpus(&source, (text, Reads::Text), &AtomicBool::new(false));
        let left = corpus.as_ref().map(|corpus| corpus.survey.left_out.lines()).unwrap_or_default();
        (corpus, left.iter().map(|line| line.replace(&format!("{}/", folder.path().display()), "")).collect())
    }

    fn record(question: &str, answer: &str) -> String {
        format!(
            "{{\"id\": NaN, \"messages\": [{{\"role\": \"user\", \"content\": \"{question}\"}}, {{\"role\": \
             \"assistant\", \"content\": \"{answer}\"}}], \"domain\": \"sums\"}}"
        )
    }

    #[test]
    fn conversations_stand_in_lines_in_an_array_or_in_a_member() {
        let lines = format!("{}\n{}\n", record("1+1?", "2"), record("1+2?", "3"));
        let array = format!("[\n{},\n{}\n]", record("1+1?", "2"), record("1+2?", "3"));
        let member = format!("{{\"version\": 1, \"data\": {array}}}");
        let (expected, _) = read_as(&chat(CHAT_ML), "a.jsonl", &lines);
        let expected = expected.unwrap();
        assert_eq!(expected.masked.len(), 2);
        assert_eq!(expected.domains.names().collect::<Vec<_>>(), [("sums", 0)]);
        for (name, content) in [("a.json", array), ("a.json", member), ("a", lines.clone())] {
            let (corpus, _) = read_as(&chat(CHAT_ML), name, &content);
            let corpus = corpus.unwrap();
            assert_eq!((&corpus.masked, corpus.survey.hash), (&expected.masked, expected.survey.hash));
        }
        let (plain, _) = read_as(&TextConfig { chat: None, ..chat("") }, "a.jsonl", &lines);
        assert_ne!(plain.unwrap().survey.hash, expected.survey.hash, "another template, another text");
    }

    #[test]
    fn a_record_of_which_nothing_can_be_learnt_is_left_out_with_its_line_and_reason() {
        let lines = [
            record("1+1?", "2"),
            "{\"text\": \"a\"}".to_owned(),
            record("1+1?", "2").replace("assistant", "robot"),
            record("1+1?", ""),
            "no object".to_owned(),
        ];
        let (corpus, left) = read_as(&chat(CHAT_ML), "a.jsonl", &lines.join("\n"));
        assert_eq!(corpus.unwrap().masked.len(), 1);
        let expected = [
            "left out: 1 not JSON objects: a.jsonl line 5",
            "left out: 3 records of which nothing can be learnt: \
             a.jsonl line 2 (messages = nothing: must be a list of messages, each with role and content), \
             a.jsonl line 3 (messages[1].role = \"robot\": must be system, user, assistant or tool, or ShareGPT's human or \
             gpt), \
             a.jsonl line 4 (messages[1].content = \"\": must not be empty: it is what is learnt)",
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn a_template_that_refuses_fails_or_does_not_end_is_told_with_file_and_line() {
        for (template, said) in [
            ("{{ raise_exception('Roles must alternate') }}", "Roles must alternate"),
            ("{{ messages[0].content + 1 }}", "refuses this conversation"),
            ("{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}", "fuel"),
            ("{{ messages | length }}", "writes what stands around messages[1] otherwise"),
        ] {
            let (corpus, _) = read_as(&chat(template), "a.jsonl", &record("1+1?", "2"));
            let error = corpus.unwrap_err().to_string();
            assert!(error.contains("a.jsonl line 1 (") && error.contains(said), "{template}: {error}");
            assert!(error.contains("give JSON lines or Parquet with \"messages\""), "{error}");
        }
        let (corpus, _) = read_as(&chat("{% for %}"), "a.jsonl", &record("1+1?", "2"));
        assert!(corpus.unwrap_err().to_string().starts_with("text.chat.template: the run's chat template is not one"));
    }

    #[test]
    fn plain_text_is_refused_where_conversations_are_read() {
        let (corpus, _) = read_as(&chat(CHAT_ML), "a.txt", "some text\n");
        let error = corpus.unwrap_err().to_string();
        assert!(
            error.contains("a.txt: plain text, but with text.format = \"chat\" this run reads JSON lines"),
            "{error}"
        );
        let source = CorpusSource::Dependencies { manifest: Path::new("Cargo.toml").to_owned() };
        let corpus = read_corpus(&source, (&chat(CHAT_ML), Reads::Text), &AtomicBool::new(false));
        assert!(matches!(corpus, Err(CorpusError::NoRecords { .. })));
    }
}
