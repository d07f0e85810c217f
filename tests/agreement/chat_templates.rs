//! Conversations are written as `apply_chat_template` of `transformers` writes them. Its texts and the script that made them
//! are in tests/reference.
#![cfg(feature = "learning")]

use std::collections::BTreeMap;

use pathswarm::config::ChatConfig;
use pathswarm::text::chat::{ChatTemplate, Message};
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
    messages: Vec<BTreeMap<String, String>>,
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
        let message = |of: &BTreeMap<String, String>| Message {
            role: of["role"].clone(),
            content: of["content"].clone(),
            name: None,
        };
        self.messages.iter().map(message).collect()
    }
}

#[test]
fn conversations_are_written_as_transformers_writes_them() {
    let reference = reference();
    let mut written = 0;
    for case in &reference.cases {
        let (template, messages) = (reference.template(&case.template), case.messages());
        let name = format!("{}, {}", case.template, case.conversation);
        let found = template.conversation(&messages);
        match (&case.text, &case.refused) {
            (Some(text), None) => {
                assert_eq!(&found.unwrap().text, text, "{name}");
                let prompt = template.render(&messages[..messages.len() - 1]).unwrap();
                assert_eq!(Some(prompt), case.prompt, "{name}");
                written += 1;
            }
            (None, Some(why)) => {
                let error = found.unwrap_err().to_string();
                assert!(error.ends_with(why), "{name}: {error}");
            }
            _ => panic!("{name} is written or refused"),
        }
    }
    assert_eq!((written, reference.cases.len()), (20, 21));
}

#[test]
fn what_the_assistant_says_is_found_in_every_template() {
    let reference = reference();
    let ends = BTreeMap::from([
        ("chatml", "<|im_end|>\n"),
        ("smollm2", "<|im_end|>\n"),
        ("qwen2.5", "<|im_end|>\n"),
        ("llama-3", "<|eot_id|>"),
        ("mistral", "</s>"),
        ("zephyr", "</s>\n"),
        ("marked", "<|im_end|>"),
    ]);
    for case in reference.cases.iter().filter(|case| case.refused.is_none()) {
        let masked = reference.template(&case.template).conversation(&case.messages()).unwrap();
        let learnt: Vec<&str> = masked.learnt.iter().map(|part| &masked.text[part.clone()]).collect();
        let answers = case.messages().into_iter().filter(|message| message.role == "assistant");
        let said = |message: Message| match case.template.as_str() {
            "llama-3" => message.content.trim().to_owned(),
            _ => message.content,
        };
        let expected: Vec<String> = answers.map(|answer| said(answer) + ends[&*case.template]).collect();
        assert_eq!(learnt, expected, "{}, {}", case.template, case.conversation);
        if case.template == "marked" {
            assert_eq!(learnt, case.generation, "as transformers marks it");
        }
    }
}
