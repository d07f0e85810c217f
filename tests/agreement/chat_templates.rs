//! Conversations are written as `apply_chat_template` of `transformers` writes them. Its texts and the script that made them
//! are in tests/reference.
#![cfg(feature = "learning")]

use std::collections::BTreeMap;

use pathswarm::config::ChatConfig;
use pathswarm::text::chat::{ChatTemplate, Conversation, Message, Value};
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    tokens: BTreeMap<String, String>,
    templates: BTreeMap<String, String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    conversation: String,
    messages: Vec<BTreeMap<String, Value>>,
    tools: Value,
    /// The whole conversation.
    text: Option<String>,
    /// Without its last answer, which is asked for.
    prompt: Option<String>,
    /// What stands in `{% generation %}`.
    #[serde(default)]
    generation: Vec<String>,
    /// Why the template refuses it.
    refused: Option<String>,
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("../reference/chat_templates.json")).unwrap()
}

impl Reference {
    fn template(&self, name: &str) -> ChatTemplate {
        let token = |key: &str| self.tokens[key].clone();
        let (bos_token, eos_token) = (token("bos_token"), token("eos_token"));
        ChatTemplate::of(Some(&ChatConfig { template: self.templates[name].clone(), bos_token, eos_token })).unwrap()
    }
}

impl Case {
    fn messages(&self) -> Vec<Message> {
        let message = |of: &BTreeMap<String, Value>| {
            let mut more = of.clone();
            let role = more.remove("role").unwrap().to_string();
            let content = more.remove("content").unwrap().as_str().map(str::to_owned);
            Message { role, content, more }
        };
        self.messages.iter().map(message).collect()
    }

    fn of<'a>(&'a self, messages: &'a [Message]) -> Conversation<'a> {
        Conversation { messages, tools: Some(&self.tools).filter(|tools| !tools.is_none()) }
    }

    /// What a template writes of an answer, without its end.
    fn said(&self, answer: &Message, is_last: bool) -> String {
        let content = answer.content.clone().unwrap_or_default();
        let thought = content.split_once("</think>\n\n");
        match (self.template.as_str(), self.conversation.as_str()) {
            // Before the last question, what was thought is not written.
            ("qwen3", "thought") if is_last => format!("<think>\nAgain: 4.\n</think>\n\n{content}"),
            ("qwen3", _) if is_last => format!("<think>\n\n</think>\n\n{content}"),
            ("qwen3", _) => thought.map_or(content.clone(), |(_, said)| said.to_owned()),
            ("llama-3" | "llama-3.1", _) => content.trim().to_owned(),
            _ => content,
        }
    }
}

#[test]
fn conversations_are_written_as_transformers_writes_them() {
    let reference = reference();
    let (mut written, mut refused) = (0, 0);
    for case in &reference.cases {
        let (template, messages) = (reference.template(&case.template), case.messages());
        let name = format!("{}, {}", case.template, case.conversation);
        let found = template.conversation(case.of(&messages));
        match (&case.text, &case.refused) {
            (Some(text), None) => {
                assert_eq!(&found.unwrap().text, text, "{name}");
                let prompt = template.render(case.of(&messages[..messages.len() - 1])).unwrap();
                assert_eq!(Some(prompt), case.prompt, "{name}");
                written += 1;
            }
            (None, Some(why)) => {
                let error = found.unwrap_err().to_string();
                assert!(error.ends_with(why), "{name}: {error}");
                refused += 1;
            }
            _ => panic!("{name} is written or refused"),
        }
    }
    assert_eq!((written, refused), (34, 2));
}

const ENDS: [(&str, &str); 9] = [
    ("chatml", "<|im_end|>\n"),
    ("smollm2", "<|im_end|>\n"),
    ("qwen2.5", "<|im_end|>\n"),
    ("qwen3", "<|im_end|>\n"),
    ("llama-3", "<|eot_id|>"),
    ("llama-3.1", "<|eot_id|>"),
    ("mistral", "</s>"),
    ("zephyr", "</s>\n"),
    ("marked", "<|im_end|>"),
];

#[test]
fn what_the_assistant_says_is_found_in_every_template() {
    let reference = reference();
    let ends = BTreeMap::from(ENDS);
    for case in reference.cases.iter().filter(|case| case.refused.is_none() && case.tools.is_none()) {
        let messages = case.messages();
        let masked = reference.template(&case.template).conversation(&messages).unwrap();
        let learnt: Vec<&str> = masked.learnt.iter().map(|part| &masked.text[part.clone()]).collect();
        let answers = messages.iter().enumerate().filter(|(_, message)| message.role == "assistant");
        let said = |(at, answer)| case.said(answer, at + 1 == messages.len()) + ends[&*case.template];
        assert_eq!(learnt, answers.map(said).collect::<Vec<_>>(), "{}, {}", case.template, case.conversation);
        if case.template == "marked" {
            assert_eq!(learnt, case.generation, "as transformers marks it");
        }
    }
}

#[test]
fn calls_of_tools_are_learnt_and_what_they_return_is_not() {
    let reference = reference();
    let mut seen = 0;
    for case in reference.cases.iter().filter(|case| case.refused.is_none() && !case.tools.is_none()) {
        let messages = case.messages();
        let masked = reference.template(&case.template).conversation(case.of(&messages)).unwrap();
        let learnt: Vec<&str> = masked.learnt.iter().map(|part| &masked.text[part.clone()]).collect();
        let called = match (case.template.as_str(), case.conversation.as_str()) {
            ("llama-3.1", _) => {
                r#"{"name": "weather", "parameters": {"city": "Köln", "at": 1e+16, "b": [true, null]}}<|eot_id|>"#
            }
            (_, "called") => concat!(
                "<tool_call>\n",
                r#"{"name": "weather", "arguments": {"city": "Köln", "at": 1e+16, "b": [true, null]}}"#,
                "\n</tool_call><|im_end|>\n"
            ),
            _ => concat!(
                "Let me see.\n<tool_call>\n",
                r#"{"name": "weather", "arguments": {"city": "Köln"}}"#,
                "\n</tool_call>\n<tool_call>\n",
                r#"{"name": "weather", "arguments": {"city": "Bonn", "at": 2}}"#,
                "\n</tool_call><|im_end|>\n"
            ),
        };
        let end = BTreeMap::from(ENDS)[&*case.template];
        let thinks = if case.template == "qwen3" { "<think>\n\n</think>\n\n" } else { "" };
        let expected = [called.to_owned(), format!("Blau.{end}"), format!("{thinks}Gern.{end}")];
        assert_eq!(learnt, expected, "{}, {}", case.template, case.conversation);
        seen += 1;
    }
    assert_eq!(seen, 5);
}
