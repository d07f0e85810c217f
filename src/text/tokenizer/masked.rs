//! Encoding a text of which only parts are learnt.
//!
//! A token is learnt if it begins within a part. An answer begins a token, as it does when it is generated: only a
//! tokenizer that puts a space before a text encodes question and answer at once.

use std::ops::Range;

use rayon::prelude::*;

use crate::text::chat::MaskedText;
use crate::text::tokenizer::specials::TextPart;
use crate::text::tokenizer::{Tokenizer, TokenizerError};

/// The ids of a document, and how many of them are learnt or not, by turns: first those that are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaskedIds {
    pub ids: Vec<u32>,
    pub runs: Vec<u32>,
}

/// A token of a text: where it begins, and whether it is a special one.
struct Placed {
    id: u32,
    begin: usize,
    special: bool,
}

impl Tokenizer {
    /// The ids of a masked text, in which special tokens stand by their names.
    ///
    /// # Errors
    /// If the library fails, or does not restore the text.
    pub fn encode_masked(&self, masked: &MaskedText) -> Result<MaskedIds, TokenizerError> {
        let tokens = self.placed(masked)?;
        let mut learnt = vec![false; tokens.len()];
        for part in &masked.learnt {
            let from = tokens.partition_point(|token| token.begin < part.start);
            let to = tokens.partition_point(|token| token.begin < part.end);
            let to = if masked.until_special { until_special(&masked.text, &tokens, from..to, part.end) } else { to };
            learnt[from..to].fill(true);
        }
        let mut ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        if masked.ends && ids.last() != Some(&self.end_of_document()) {
            ids.push(self.end_of_document());
            learnt.push(true);
        }
        Ok(MaskedIds { ids, runs: runs_of(&learnt) })
    }

    /// The same of many; on all cores, in order.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_masked`].
    pub fn encode_all_masked(&self, documents: &[MaskedText]) -> Result<Vec<MaskedIds>, TokenizerError> {
        documents.par_iter().map(|masked| self.encode_masked(masked)).collect()
    }

    /// The tokens of a text with their places.
    fn placed(&self, masked: &MaskedText) -> Result<Vec<Placed>, TokenizerError> {
        let cuts = masked.learnt.iter().map(|part| part.start).filter(|_| !self.adds_space);
        let mut tokens = Vec::new();
        let mut begin = 0;
        for end in cuts.chain([masked.text.len()]) {
            let mut at = begin;
            for part in self.specials.parts(&masked.text[begin..end]) {
                match part {
                    TextPart::Text(text) => {
                        self.place(text, at, &mut tokens)?;
                        at += text.len();
                    }
                    TextPart::Special(id) => {
                        tokens.push(Placed { id, begin: at, special: true });
                        at += self.special_name(id).map_or(0, str::len);
                    }
                }
            }
            begin = end;
        }
        Ok(tokens)
    }

    /// Adds the tokens of ordinary text that begins at a place.
    fn place(&self, text: &str, begin: usize, tokens: &mut Vec<Placed>) -> Result<(), TokenizerError> {
        let ids = self.encode(text)?;
        let bytes: usize = ids.iter().map(|id| self.piece(*id).len()).sum();
        // The space before the text, which is none of its bytes.
        let Some(mut added) = bytes.checked_sub(text.len()).filter(|added| *added <= usize::from(self.adds_space))
        else {
            let text: String = text.chars().take(TOLD).collect();
            return Err(TokenizerError::Library(format!("it does not restore the text that begins {text:?}")));
        };
        let mut at = begin;
        for id in ids {
            tokens.push(Placed { id, begin: at, special: false });
            let length = self.piece(id).len();
            at += length.saturating_sub(added);
            added = added.saturating_sub(length);
        }
        Ok(())
    }
}

/// Characters of a text that are told.
const TOLD: usize = 40;

/// Where the tokens of a part end that are learnt: behind its last special token, if only white space follows.
fn until_special(text: &str, tokens: &[Placed], part: Range<usize>, end: usize) -> usize {
    let last = tokens[part.clone()].iter().rposition(|token| token.special).map(|last| part.start + last + 1);
    match last {
        Some(after) if after < part.end && text[tokens[after].begin..end].trim().is_empty() => after,
        _ => part.end,
    }
}

/// The lengths of runs, first of `false`.
fn runs_of(learnt: &[bool]) -> Vec<u32> {
    let mut runs = vec![0];
    let mut now = false;
    for learnt in learnt {
        if *learnt != now {
            now = *learnt;
            runs.push(0);
        }
        if let Some(run) = runs.last_mut() {
            *run += 1;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ChatConfig;
    use crate::text::chat::ChatTemplate;
    use crate::text::chat::tests::{CHAT_ML, message};
    use crate::text::tokenizer::end_of_document::tests::sentence_piece;
    use crate::text::tokenizer::file::tests::bytes_alone;
    use serde_json::json;

    const SPECIALS: [&str; 3] = ["<|end|>", "<|im_start|>", "<|im_end|>"];

    /// The 256 bytes, whose ids are themselves, and three special tokens from 256 on.
    fn tokenizer() -> Tokenizer {
        let mut file = bytes_alone();
        let special = |(number, name): (usize, &&str)| {
            json!({ "id": 256 + number, "content": name, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false })
        };
        file["added_tokens"] = SPECIALS.iter().enumerate().map(special).collect();
        Tokenizer::from_json(&serde_json::to_vec(&file).unwrap()).unwrap()
    }

    /// The learnt parts of ids, with special tokens by their names.
    fn learnt(tokenizer: &Tokenizer, masked: &MaskedIds) -> Vec<String> {
        let (mut parts, mut at) = (Vec::new(), 0);
        for (number, run) in masked.runs.iter().enumerate() {
            let ids = &masked.ids[at..at + *run as usize];
            at += ids.len();
            if number % 2 == 1 {
                let word = |id: &u32| match tokenizer.special_name(*id) {
                    Some(name) => name.to_owned(),
                    None => tokenizer.decode(&[*id]),
                };
                parts.push(ids.iter().map(word).collect());
            }
        }
        assert_eq!(at, masked.ids.len(), "runs cover the document");
        parts
    }

    #[test]
    fn the_tokens_of_answers_and_what_ends_them_are_learnt_and_nothing_else() {
        let tokenizer = tokenizer();
        let chat = ChatConfig { template: CHAT_ML.to_owned(), ..ChatConfig::default() };
        let template = ChatTemplate::of(Some(&chat)).unwrap();
        let messages = [("system", "s"), ("user", "Hi"), ("assistant", "Ho ho\n"), ("user", "?"), ("assistant", "!")];
        let masked = template.conversation(&messages.map(|(role, content)| message(role, content))).unwrap();
        let ids = tokenizer.encode_masked(&masked).unwrap();
        assert_eq!(learnt(&tokenizer, &ids), ["Ho ho\n<|im_end|>", "!<|im_end|>"]);
        assert_eq!(ids.ids, tokenizer.encode_with_specials(&masked.text).unwrap(), "nothing is added");
    }

    #[test]
    fn a_completion_and_a_plain_conversation_end_with_the_end_of_a_document() {
        let tokenizer = tokenizer();
        let ids = tokenizer.encode_masked(&MaskedText::completed("1+1=", " 2\n")).unwrap();
        assert_eq!((ids.ids.len(), ids.runs.as_slice()), (8, &[4, 4][..]));
        assert_eq!(learnt(&tokenizer, &ids), [" 2\n<|end|>"]);
        let ended = tokenizer.encode_masked(&MaskedText::completed("1", "2<|end|>")).unwrap();
        assert_eq!(ended.ids, [49, 50, 256], "not twice");
        let plain = ChatTemplate::of(None).unwrap();
        let masked = plain.conversation(&[message("user", "Hi"), message("assistant", "Ho")]).unwrap();
        assert_eq!(learnt(&tokenizer, &tokenizer.encode_masked(&masked).unwrap()), [" Ho\n\n<|end|>"]);
    }

    #[test]
    fn a_tokenizer_that_puts_a_space_before_a_text_reads_question_and_answer_at_once() {
        let piece = sentence_piece(["▁", "a", "b", "▁a", "▁b"], ["▁ a", "▁ b"]);
        let tokenizer = Tokenizer::from_json(&serde_json::to_vec(&piece).unwrap()).unwrap();
        let ids = tokenizer.encode_masked(&MaskedText::completed("a b", " b")).unwrap();
        assert_eq!((ids.ids, ids.runs), (vec![259, 260, 260, 300], vec![2, 2]));
        let inside = tokenizer.encode_masked(&MaskedText::completed("a ", "b")).unwrap();
        assert_eq!((inside.ids, inside.runs), (vec![259, 260, 300], vec![2, 1]), "a token that begins before it");
    }

    #[test]
    fn an_answer_begins_a_token_as_it_does_when_it_is_generated() {
        let text = vec!["ab ab ab ab ab ab ab ab".to_owned()];
        let tokenizer = Tokenizer::train(&text, 260).unwrap();
        assert_eq!(tokenizer.encode("ab").unwrap().len(), 1, "which it would not if they were encoded at once");
        let ids = tokenizer.encode_masked(&MaskedText::completed("a", "b")).unwrap();
        assert_eq!((ids.ids.len(), ids.runs), (3, vec![1, 2]));
    }
}
