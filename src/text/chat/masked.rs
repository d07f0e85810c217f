//! A text of which only some parts are learnt.
//!
//! Where a template does not say what the assistant says, it is found by writing the beginning of the conversation: what
//! the text with the answer has more than the text that asks for it. Some templates write the last answer otherwise than
//! those before it: Qwen3 drops what was thought. Of such an answer the same text has to end what is written where it is
//! the last one, and to begin what follows the question in the whole conversation.

use std::ops::Range;

use crate::text::chat::template::{ChatTemplate, TemplateError};
use crate::text::chat::{ASSISTANT, Conversation, Message, Value};

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
    /// A conversation, of which what the assistant says is learnt, with its calls of tools.
    ///
    /// # Errors
    /// If the template refuses it, or does not show what the assistant says.
    pub fn conversation<'a>(&self, of: impl Into<Conversation<'a>>) -> Result<MaskedText, TemplateError> {
        let of: Conversation<'_> = of.into();
        let (text, marked) = self.write(of, false)?;
        if self.marks_generation() {
            let learnt = if marked.is_empty() { Err(TemplateError::NoGeneration) } else { Ok(marked) }?;
            return Ok(MaskedText { text, learnt, until_special: false, ends: false });
        }
        let mut learnt: Vec<Range<usize>> = Vec::new();
        for message in (0..of.messages.len()).filter(|message| of.messages[*message].role == ASSISTANT) {
            let part = self.part(&text, of, message..message + 1)?;
            match learnt.last_mut() {
                Some(last) if last.end > part.start => return Err(TemplateError::Changes { message }),
                Some(last) if last.end == part.start => last.end = part.end,
                _ => learnt.push(part),
            }
        }
        let ends = self.is_default() && of.messages.last().is_some_and(|last| last.role == ASSISTANT);
        Ok(MaskedText { text, learnt, until_special: true, ends })
    }

    /// The messages of a prompt and of its completion, which is learnt.
    ///
    /// # Errors
    /// If the template refuses them, or does not show what the completion is.
    pub fn completion(
        &self,
        prompt: &[Message],
        completion: &[Message],
        tools: Option<&Value>,
    ) -> Result<MaskedText, TemplateError> {
        let messages = [prompt, completion].concat();
        let of = Conversation { messages: &messages, tools };
        let (text, _) = self.write(of, false)?;
        let learnt = vec![self.part(&text, of, prompt.len()..messages.len())?];
        Ok(MaskedText { text, learnt, until_special: true, ends: self.is_default() })
    }

    /// Where some messages stand in the text of all.
    fn part(&self, text: &str, all: Conversation<'_>, of: Range<usize>) -> Result<Range<usize>, TemplateError> {
        let changes = TemplateError::Changes { message: of.start };
        let (before, _) = self.write(all.first(of.start), true)?;
        let Some(rest) = text.strip_prefix(&before) else { return Err(changes) };
        let until = if of.end == all.messages.len() {
            text.len()
        } else {
            let (until, _) = self.write(all.first(of.end), false)?;
            match until.strip_prefix(&before) {
                Some(_) if text.starts_with(&until) => until.len(),
                Some(last) => before.len() + common(last, rest, &all.messages[of.end - 1]).ok_or(changes)?,
                None => return Err(changes),
            }
        };
        if before.len() < until { Ok(before.len()..until) } else { Err(TemplateError::Changes { message: of.start }) }
    }
}

/// The length of the longest text that ends `last`, as a template writes a last answer, and begins `rest`, what it writes
/// where others follow. `None` if the answer is not in it.
fn common(last: &str, rest: &str, answer: &Message) -> Option<usize> {
    let (last, bytes) = (last.as_bytes(), rest.as_bytes());
    // For each beginning of the rest, the longest shorter beginning that ends it, as Knuth, Morris and Pratt search.
    let mut shorter = vec![0; bytes.len().min(last.len())];
    let mut length = 0;
    for at in 1..shorter.len() {
        while length > 0 && bytes[length] != bytes[at] {
            length = shorter[length - 1];
        }
        length += usize::from(bytes[length] == bytes[at]);
        shorter[at] = length;
    }
    let mut found = 0;
    for byte in last {
        while found > 0 && (found == shorter.len() || bytes[found] != *byte) {
            found = shorter[found - 1];
        }
        found += usize::from(bytes.get(found) == Some(byte));
    }
    let said = rest.get(..found)?;
    end_of(answer).is_some_and(|end| said.contains(&end)).then_some(found)
}

/// What the text of an answer has to have: the name of the last tool that it calls, or the last line that it says.
fn end_of(answer: &Message) -> Option<String> {
    let Some(calls) = answer.more.get("tool_calls") else {
        let line = answer.content.as_ref()?.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        return Some(line.to_owned());
    };
    let call = calls.get_item_by_index(calls.len()?.checked_sub(1)?).ok()?;
    let function = call.get_attr("function").ok().filter(|function| !function.is_undefined());
    let name = function.unwrap_or(call).get_attr("name").ok()?;
    name.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
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
        let masked = template(CHAT_ML).completion(&conversation()[..4], &conversation()[4..], None).unwrap();
        assert_eq!(learnt(&masked), ["2<|im_end|>\n"]);
        let plain = MaskedText::completed("1 + 1 =", " 2");
        assert_eq!((learnt(&plain), plain.ends), (vec![" 2"], true));
    }

    #[test]
    fn a_template_that_drops_what_was_thought_before_shows_what_is_said() {
        // As Qwen3 does.
        let thinks = |marks: [&str; 2]| {
            format!(
                "{{% for m in messages %}}[{{{{ m.role }}}}]{{% if m.role == 'assistant' %}}{}{{% if loop.last \
                 %}}<think>{{% endif %}}{{{{ m.content }}}}{{{{ eos_token }}}}{}{{% else %}}{{{{ m.content }}}}{{% endif \
                 %}}{{% endfor %}}{{% if add_generation_prompt %}}[assistant]{{% endif %}}",
                marks[0], marks[1]
            )
        };
        let masked = template(&thinks(["", ""])).conversation(&conversation()).unwrap();
        assert_eq!(learnt(&masked), ["1</s>", "<think>2</s>"]);
        let marked = template(&thinks(["{% generation %}", "{% endgeneration %}"]));
        let of_marks = marked.conversation(&conversation()).unwrap();
        assert_eq!((learnt(&of_marks), &of_marks.text), (learnt(&masked), &masked.text));
        assert!(matches!(marked.conversation(&conversation()[..2]), Err(TemplateError::NoGeneration)));
    }

    #[test]
    fn a_template_that_writes_an_answer_otherwise_when_others_follow_is_refused() {
        for answer in [
            // Not at all, in other words, and with another end.
            "{% if loop.last %}{{ m.content }}|{% endif %}",
            "{% if loop.last %}{{ m.content }}{% else %}something{% endif %}|",
            "{{ m.content }}{% if loop.last %}.{% else %},{% endif %}",
        ] {
            let of = format!(
                "{{% for m in messages %}}[{{{{ m.role }}}}]{{% if m.role == 'assistant' %}}{answer}{{% else %}}{{{{ \
                 m.content }}}}{{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}[assistant]{{% endif %}}"
            );
            let error = template(&of).conversation(&conversation()).unwrap_err();
            assert!(matches!(error, TemplateError::Changes { message: 2 }), "{error}");
            assert!(error.to_string().contains("{% generation %}"), "{error}");
        }
    }

    #[test]
    fn the_longest_text_that_ends_one_and_begins_the_other_is_found() {
        let said = |last, rest, answer| common(last, rest, &message(ASSISTANT, answer));
        assert_eq!(said("<t>ab|", "ab|[user]ab", "ab"), Some(3));
        assert_eq!(said("<t>aabaab|", "aabaab|x", "aabaab"), Some(7));
        assert_eq!(said("<t>ä|", "ä|x", "ä"), Some(3));
        assert_eq!(said("<t>ab|", "|x", "ab"), None, "the end alone is no answer");
        assert_eq!((said("ab|", "", "ab"), said("", "ab|", "ab")), (None, None));
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
