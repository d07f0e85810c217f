//! Special tokens, such as those that begin a message of a chat. In ordinary text they are text like any other.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::text::tokenizer::file::File;
use crate::text::tokenizer::{TokenizerError, library};

/// The special tokens of a tokenizer.
pub(super) struct Specials {
    tokens: Vec<(String, u32)>,
    finder: AhoCorasick,
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TextPart<'a> {
    Text(&'a str),
    Special(u32),
}

impl Specials {
    pub(super) fn of(file: &File) -> Result<Self, TokenizerError> {
        let specials = file.added_tokens.iter().filter(|added| added.special && !added.content.is_empty());
        let tokens: Vec<(String, u32)> = specials.map(|added| (added.content.clone(), added.id)).collect();
        let names = tokens.iter().map(|(name, _)| name);
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(names).map_err(library)?;
        Ok(Self { tokens, finder })
    }

    /// The name of a special token.
    pub(super) fn name(&self, id: u32) -> Option<&str> {
        self.tokens.iter().find(|(_, special)| *special == id).map(|(name, _)| name.as_str())
    }

    /// A text in parts, in which the longest name is a special token where several begin.
    pub(super) fn parts<'a>(&self, text: &'a str) -> Vec<TextPart<'a>> {
        let (mut parts, mut from) = (Vec::new(), 0);
        for found in self.finder.find_iter(text) {
            parts.push(TextPart::Text(&text[from..found.start()]));
            parts.push(TextPart::Special(self.tokens[found.pattern().as_usize()].1));
            from = found.end();
        }
        parts.push(TextPart::Text(&text[from..]));
        parts.retain(|part| *part != TextPart::Text(""));
        parts
    }
}
