//! A talk with a run: a text, continued a few tokens at a time, with the path and the probability of each.

use std::sync::{Mutex, TryLockError};

use crate::names::PathId;
use crate::peer::inference::client::{Draw, InferenceClient};
use crate::training::GenerateError;

/// Tokens of one query: few enough that a text seems to flow.
const TOKENS: usize = 8;

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub text: String,
    /// The most tokens of the answer.
    pub tokens: usize,
    pub draw: Draw,
    /// Number of tokens after which the path is chosen again; `None` for never.
    pub every: Option<usize>,
    /// The path that answers, if the router is not asked.
    pub path: Option<PathId>,
}

/// What is said in answer, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// This path goes on from here.
    Path(PathId),
    /// A token. Its text is empty if a character is not complete, and then comes with the next.
    Token { text: String, probability: f64 },
    /// Nothing more comes.
    Ends {
        /// Whether the path has ended the text.
        ended: bool,
        tokens: usize,
    },
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    #[error("another question is being answered; ask again when it is")]
    Busy,
    #[error("{0:#}")]
    Failed(anyhow::Error),
}

/// How a run is entered, for the first question and after an error.
pub type Enter = Box<dyn Fn() -> anyhow::Result<Box<dyn InferenceClient + Send>> + Send + Sync>;

/// A run that answers one question at a time.
pub struct Talk {
    enter: Enter,
    client: Mutex<Option<Box<dyn InferenceClient + Send>>>,
}

impl Talk {
    /// Enters the run when the first question comes.
    pub fn new(enter: Enter) -> Self {
        Self { enter, client: Mutex::new(None) }
    }

    /// Answers a question, until `say` returns false. Blocks.
    ///
    /// # Errors
    /// If another question is being answered, or the run does not answer.
    pub fn answer(&self, question: &Question, say: &mut dyn FnMut(Said) -> bool) -> Result<(), TalkError> {
        let mut held = match self.client.try_lock() {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => return Err(TalkError::Busy),
            // The next question enters anew.
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut held = poisoned.into_inner();
                *held = None;
                self.client.clear_poison();
                held
            }
        };
        let mut client = match held.take() {
            Some(client) => client,
            None => (self.enter)().map_err(TalkError::Failed)?,
        };
        answer(&mut *client, question, say).map_err(TalkError::Failed)?;
        *held = Some(client);
        Ok(())
    }
}

/// The same with a run that has been entered.
fn answer(
    client: &mut dyn InferenceClient,
    question: &Question,
    say: &mut dyn FnMut(Said) -> bool,
) -> anyhow::Result<()> {
    let mut text = client.tokenizer().encode(&question.text)?;
    let prompt = text.len();
    if prompt == 0 {
        return Err(GenerateError::EmptyPrompt.into());
    }
    let prefix = client.config().routing.prefix_tokens;
    let first = match question.path {
        Some(path) => path,
        None => one(client.routes(&[&text[..prompt.min(prefix)]])?)?,
    };
    let (mut path, mut left, mut ended, mut shown) = (first, question.tokens, false, String::new());
    if !say(Said::Path(path)) {
        return Ok(());
    }
    while left > 0 && !ended {
        let mut of_path = question.every.filter(|_| question.path.is_none()).unwrap_or(left).min(left);
        while of_path > 0 && !ended {
            let count = of_path.min(TOKENS);
            let made = client.continue_with_scores(path, &text, count, &question.draw)?;
            ended = made.len() < count;
            (of_path, left) = (of_path - made.len().min(of_path), left - made.len().min(left));
            for (token, logprob) in made {
                text.push(token);
                let piece = next_piece(&client.tokenizer().decode(&text[prompt..]), &mut shown);
                if !say(Said::Token { text: piece, probability: logprob.exp() }) {
                    return Ok(());
                }
            }
        }
        if left > 0 && !ended {
            let last = &text[text.len().saturating_sub(client.reach())..];
            let next = one(client.routes_on(&[(first, last)])?)?;
            if next != path && !say(Said::Path(next)) {
                return Ok(());
            }
            path = next;
        }
    }
    say(Said::Ends { ended, tokens: text.len() - prompt });
    Ok(())
}

fn one(paths: Vec<PathId>) -> anyhow::Result<PathId> {
    paths.first().copied().ok_or_else(|| anyhow::anyhow!("the router names no path"))
}

/// What a text has more than was shown, without a character that is not complete.
fn next_piece(text: &str, shown: &mut String) -> String {
    let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
    match whole.strip_prefix(shown.as_str()) {
        Some(piece) => {
            let piece = piece.to_owned();
            shown.push_str(&piece);
            piece
        }
        // The last character was shown as a part of one that has become another.
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_shown_when_it_is_complete() {
        let mut shown = String::new();
        assert_eq!(next_piece("a", &mut shown), "a");
        assert_eq!(next_piece("a\u{fffd}", &mut shown), "");
        assert_eq!(next_piece("aé", &mut shown), "é");
        assert_eq!(next_piece("aéb", &mut shown), "b");
    }
}
