//! What networks remember of texts that have ended, for prompts that begin like them: each message of a chat comes with all
//! that was said before.

use std::collections::VecDeque;

use crate::query::QueriedModel;
use crate::training::{Decoding, GenerateError};

/// Fewer tokens than these are read again: that costs less than a search and a copy.
const LEAST_TOKENS: usize = 16;

/// Texts that are kept at most, so that a search is short.
const MOST_TEXTS: usize = 256;

/// A text that has ended.
struct Kept {
    model: QueriedModel,
    text: Decoding,
    bytes: usize,
}

/// Texts that have ended, the one used last at the end.
pub(super) struct Prefixes {
    kept: VecDeque<Kept>,
    bytes: usize,
    most_bytes: usize,
}

impl Prefixes {
    /// Keeps at most so many bytes of keys and values.
    pub fn new(most_bytes: usize) -> Self {
        Self { kept: VecDeque::new(), bytes: 0, most_bytes }
    }

    /// Keeps a text that has ended. Those that it begins like are of no more use.
    pub fn keep(&mut self, model: QueriedModel, mut text: Decoding) {
        if self.most_bytes == 0 || text.begins_like(text.tokens()) < LEAST_TOKENS {
            return;
        }
        // Without memory for a copy it is not kept.
        let Ok(bytes) = text.detach() else { return };
        if bytes == 0 || bytes > self.most_bytes {
            return;
        }
        // By what was read: who hangs up while a long prompt is read has read little of it.
        let is_covered = |kept: &Kept| {
            let tokens = kept.text.tokens();
            kept.model == model && text.begins_like(tokens) >= kept.text.begins_like(tokens)
        };
        self.kept.retain(|kept| !is_covered(kept));
        self.kept.push_back(Kept { model, text, bytes });
        self.bytes = self.kept.iter().map(|kept| kept.bytes).sum();
        while self.bytes > self.most_bytes || self.kept.len() > MOST_TEXTS {
            self.bytes -= self.kept.pop_front().map_or(0, |kept| kept.bytes);
        }
    }

    /// Begins a prompt on a model. Returns how many of its tokens need not be read, too.
    ///
    /// # Errors
    /// If the prompt is empty.
    pub fn begin(&mut self, model: QueriedModel, prompt: Vec<u32>) -> Result<(Decoding, usize), GenerateError> {
        let of_model = self.kept.iter().enumerate().filter(|(_, kept)| kept.model == model);
        let best = of_model.map(|(place, kept)| (kept.text.begins_like(&prompt), place)).max();
        let Some((tokens, place)) = best.filter(|(tokens, _)| *tokens >= LEAST_TOKENS) else {
            return Ok((Decoding::new(prompt, 0)?, 0));
        };
        let Some(kept) = self.kept.remove(place) else { return Ok((Decoding::new(prompt, 0)?, 0)) };
        let begun = kept.text.begin_like(prompt, tokens);
        self.kept.push_back(kept);
        Ok((begun?, tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{modern_models, small_levels, small_path};
    use crate::names::PathId;

    const PATH: QueriedModel = QueriedModel::Path(PathId(0));

    #[test]
    fn what_is_kept_is_bounded_and_serves_prompts_of_its_own_model() {
        let (_, model) = modern_models().remove(0);
        let path = small_path(&model, &small_levels());
        let read = |tokens: Vec<u32>| {
            let mut text = Decoding::new(tokens, 0).unwrap();
            text.logits(&path).unwrap();
            text
        };
        let begin = |first: u32| -> Vec<u32> { (first..first + 20).collect() };
        let bytes = read(begin(0)).detach().unwrap();
        let mut prefixes = Prefixes::new(2 * bytes);
        prefixes.keep(PATH, read(begin(0)));
        prefixes.keep(PATH, read(vec![1; LEAST_TOKENS - 1]));
        assert_eq!((prefixes.kept.len(), prefixes.bytes), (1, bytes), "short ones are not kept");
        let reused = |prefixes: &mut Prefixes, model, prompt| prefixes.begin(model, prompt).unwrap().1;
        let longer = [begin(0), vec![7; 3]].concat();
        assert_eq!(reused(&mut prefixes, PATH, longer.clone()), 20);
        assert_eq!(reused(&mut prefixes, PATH, begin(0)), 19, "the last token is read");
        assert_eq!(reused(&mut prefixes, QueriedModel::Ancestor, longer.clone()), 0);
        assert_eq!(reused(&mut prefixes, PATH, begin(5)), 0);
        // One that another continues is not kept beside it, and the one used longest ago goes first.
        prefixes.keep(PATH, read(begin(0)));
        assert_eq!(prefixes.kept.len(), 1);
        let mut hung_up = Decoding::new([begin(0), vec![7; 3]].concat(), 0).unwrap();
        hung_up.read_some(&path, 17).unwrap();
        prefixes.keep(PATH, hung_up);
        assert_eq!(reused(&mut prefixes, PATH, longer.clone()), 20, "one that has read less takes no place");
        prefixes.keep(PATH, read(begin(30)));
        assert_eq!(reused(&mut prefixes, PATH, longer.clone()), 20);
        prefixes.keep(PATH, read(begin(60)));
        assert_eq!((prefixes.kept.len(), prefixes.bytes), (2, 2 * bytes));
        assert_eq!(reused(&mut prefixes, PATH, [begin(30), vec![1]].concat()), 0);
        assert_eq!(reused(&mut prefixes, PATH, longer), 20);
        let mut none = Prefixes::new(0);
        none.keep(PATH, read(begin(0)));
        assert!(none.kept.is_empty());
    }
}
