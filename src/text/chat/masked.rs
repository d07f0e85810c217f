//! A text of which only some parts are learnt.
//!
//! Where a template does not say what the assistant says, it is found by writing the beginning of the conversation: what
//! the text with the answer has more than the text that asks for it.

use std::ops::Range;

use crate::text::chat::template::{ChatTemplate, TemplateError};
use crate::text::chat::{ASSISTANT, Message};

/// A text, and the parts of it that are learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaskedText {
    pub text: String,
    /// In bytes, in order, apart from each other. None is empty.
    pub learnt: Vec<Range<usize>>,
    /// Whether white space behind the last special token of a part is not learnt: a template writes it between two
    /// messages, where a model has stopped already.
    pub until_special: bool,
    /// Whether the end token of documents follows, and is learnt.
    pub ends: bool,
}

impl MaskedText {
    /// A prompt, and its completion with an end.
    pub fn completed(prompt: &str, completion: &str) -> Self {
        let text = format!("{prompt}{completion}");
        let learnt = (prompt.len() < text.len()).then_some(prompt.len()..text.len());
        Self { text, learnt: learnt.into_iter().collect(), until_special: false, ends: true }
    }
}

impl ChatTemplate {
    /// A conversation, of which what the assistant says is learnt.
    ///
    /// # Errors
    /// If the template refuses it, or does not show what the assistant says.
    pub fn conversation(&self, messages: &[Message]) -> Result<MaskedText, TemplateError> {
        let (text, marked) = self.write(messages, false)?;
        if self.marks_generation() {
            let learnt = if marked.is_empty() { Err(TemplateError::NoGeneration) } else { Ok(marked) }?;
            return Ok(MaskedText { text, learnt, until_special: false, ends: false });
        }
        let mut learnt: Vec<Range<usize>> = Vec::new();
        for message in (0..messages.len()).filter(|message| messages[*message].role == ASSISTANT) {
            let part = self.part(&text, messages, message..message + 1)?;
            match learnt.last_mut() {
                Some(last) if last.end > part.start => return Err(TemplateError::Changes { message }),
                Some(last) if last.end == part.start => last.end = part.end,
                _ => learnt.push(part),
            }
        }
        let ends = self.is_default() && messages.last().is_some_and(|last| last.role == ASSISTANT);
        Ok(MaskedText { text, learnt, until_special: true, ends })
    }

    /// The messages of a prompt and of its completion, which is learnt.
    ///
    /// # Errors
    /// If the template refuses them, or does not show what the completion is.
    pub fn completion(&self, prompt: &[Message], completion: &[Message]) -> Result<MaskedText, TemplateError> {
        let messages = [prompt, completion].concat();
        let (text, _) = self.write(&messages, false)?;
        let learnt = vec![self.part(&text, &messages, prompt.len()..messages.len())?];
        Ok(MaskedText { text, learnt, until_special: true, ends: self.is_default() })
    }

    /// Where some messages stand in the text of all.
    fn part(&self, text: &str, messages: &[Message], of: Range<usize>) -> Result<Range<usize>, TemplateError> {
        let changes = TemplateError::Changes { message: of.start };
        let (before, _) = self.write(&messages[..of.start], true)?;
        let until = if of.end == messages.len() {
            text.len()
        } else {
            let (until, _) = self.write(&messages[..of.end], false)?;
            if text.starts_with(&until) { until.len() } else { return Err(changes) }
        };
        if text.starts_with(&before) && before.len() < until { Ok(before.len()..until) } else { Err(changes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ChatConfig;
    use crate::text::chat::tests::{CHAT_ML, message};

    fn template(template: &str) -> ChatTemplate {
        let eos_token = "</s>".to_owned();
        ChatTemplate::of(Some(&ChatConfig { template: template.to_owned(), eos_token, ..ChatConfig::default() }))
            .unwrap()
    }

    fn learnt(masked: &MaskedText) -> Vec<&str> {
        masked.learnt.iter().map(|part| &masked.text[part.clone()]).collect()
    }

    /// Two questions with a system message.
    fn conversation() -> Vec<Message> {
        [("system", "Be brief."), ("user", "One?"), ("assistant", "1"), ("user", "Two?"), ("assistant", "2")]
            .map(|(role, content)| message(role, content))
            .to_vec()
    }

    #[test]
    fn what_the_assistant_says_is_learnt_with_what_ends_it() {
        let masked = template(CHAT_ML).conversation(&conversation()).unwrap();
        assert!(masked.text.starts_with("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?"));
        assert_eq!(learnt(&masked), ["1<|im_end|>\n", "2<|im_end|>\n"]);
        assert!(masked.until_special && !masked.ends);
    }

    #[test]
    fn without_a_template_the_last_answer_ends_the_document() {
        let plain = ChatTemplate::of(None).unwrap();
        let masked = plain.conversation(&conversation()).unwrap();
        assert_eq!(masked.text, "System: Be brief.\n\nUser: One?\n\nAssistant: 1\n\nUser: Two?\n\nAssistant: 2\n\n");
        assert_eq!((learnt(&masked), masked.ends), (vec![" 1\n\n", " 2\n\n"], true));
        assert!(!plain.conversation(&conversation()[..4]).unwrap().ends, "a question is not an end");
    }

    #[test]
    fn a_completion_is_learnt_whole() {
        let masked = template(CHAT_ML).completion(&conversation()[..4], &conversation()[4..]).unwrap();
        assert_eq!(learnt(&masked), ["2<|im_end|>\n"]);
        let plain = MaskedText::completed("1 + 1 =", " 2");
        assert_eq!((learnt(&plain), plain.ends), (vec![" 2"], true));
    }

    #[test]
    fn a_template_that_changes_what_it_wrote_is_refused_unless_it_marks_what_is_said() {
        // As Qwen3 does with what was thought.
        let thinks = |marks: [&str; 2]| {
            format!(
                "{{% for m in messages %}}[{{{{ m.role }}}}]{{% if m.role == 'assistant' %}}{}{{% if loop.last \
                 %}}<think>{{% endif %}}{{{{ m.content }}}}{{{{ eos_token }}}}{}{{% else %}}{{{{ m.content }}}}{{% endif \
                 %}}{{% endfor %}}{{% if add_generation_prompt %}}[assistant]{{% endif %}}",
                marks[0], marks[1]
            )
        };
        let error = template(&thinks(["", ""])).conversation(&conversation()).unwrap_err();
        assert!(matches!(error, TemplateError::Changes { message: 2 }), "{error}");
        assert!(error.to_string().contains("{% generation %}"), "{error}");
        let marked = template(&thinks(["{% generation %}", "{% endgeneration %}"]));
        let masked = marked.conversation(&conversation()).unwrap();
        assert_eq!(learnt(&masked), ["1</s>", "<think>2</s>"]);
        assert!(matches!(marked.conversation(&conversation()[..2]), Err(TemplateError::NoGeneration)));
    }

    #[test]
    fn a_template_that_refuses_or_does_not_end_is_told_in_words() {
        let refuses = template("{{ raise_exception('Conversation roles must alternate') }}");
        assert!(refuses.conversation(&conversation()).unwrap_err().to_string().contains("roles must alternate"));
        let endless = template("{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}");
        assert!(endless.conversation(&conversation()).unwrap_err().to_string().contains("fuel"));
        let wrong = template("{{ messages[0].content + 1 }}");
        assert!(matches!(wrong.conversation(&conversation()), Err(TemplateError::Refused(_))));
    }
}
