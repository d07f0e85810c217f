//! A whole answer, collected from the engine's events.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::grid::Grid;
use crate::names::PathId;
use crate::serve::engine::job::{AnsweredToken, Ending, Event, Happening};
use crate::serve::request::ApiError;
use crate::serve::request::sampling::Target;
use crate::serve::served_run::NamedModel;
use crate::training::TokenScore;

/// One choice.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub text: String,
    pub tokens: Vec<AnsweredToken>,
    /// The token that ended it, if scores were asked for.
    pub end: Option<AnsweredToken>,
    /// Scores of the prompt's tokens, if that was asked for.
    pub prompt: Arc<[Option<TokenScore>]>,
    pub ranking: Vec<PathId>,
    pub paths: Vec<(Option<PathId>, usize)>,
    pub ending: Option<Ending>,
    /// Tokens generated.
    pub generated: usize,
}

impl Choice {
    /// The mean log-probability of its tokens.
    pub fn mean_logprob(&self) -> f64 {
        let scores = self.tokens.iter().filter_map(|token| token.score.as_ref());
        let sum: f64 = scores.map(|score| score.logprob).sum();
        sum / self.tokens.len().max(1) as f64
    }

    /// Takes an event of this choice.
    ///
    /// # Errors
    /// If the choice failed.
    pub fn take(&mut self, what: Happening) -> Result<(), ApiError> {
        match what {
            Happening::Begins { ranking } => self.ranking = ranking,
            Happening::Prompt(scores) => self.prompt = scores,
            Happening::Piece { text, tokens } => {
                self.text.push_str(&text);
                self.tokens.extend(tokens);
            }
            Happening::Ends { ending, paths, tokens, end } => {
                (self.ending, self.paths, self.generated, self.end) = (Some(ending), paths, tokens, end);
            }
            Happening::Fails(error) => return Err(error),
        }
        Ok(())
    }

    /// Why it has ended, in OpenAI's words.
    pub fn finish_reason(&self) -> Option<&'static str> {
        self.ending.map(finish_reason)
    }
}

/// Why a choice has ended, in OpenAI's words.
pub fn finish_reason(ending: Ending) -> &'static str {
    match ending {
        Ending::Stop => "stop",
        Ending::Tokens | Ending::Time => "length",
    }
}

/// All choices of a request, in order.
pub struct Answer(pub Vec<Choice>);

impl Answer {
    /// Waits for all choices.
    ///
    /// # Errors
    /// If one failed, or the engine has ended.
    pub async fn collect(mut events: mpsc::Receiver<Event>, choices: usize) -> Result<Self, ApiError> {
        let mut all = vec![Choice::default(); choices];
        while let Some(Event { choice, what }) = events.recv().await {
            if let Some(choice) = all.get_mut(choice) {
                choice.take(what)?;
            }
        }
        match all.iter().all(|choice| choice.ending.is_some()) {
            true => Ok(Self(all)),
            false => Err(ApiError::plain(503, "unavailable", "this server is stopping; ask again when it runs")),
        }
    }
}

/// What this server adds to a choice: its path, and why.
pub fn extension(target: &Target, choice: &Choice, seed: u64, grid: &Grid, prefix_tokens: usize) -> Value {
    let why = match (target.model, target.by_field) {
        (NamedModel::Routed, _) if target.every.is_some() => {
            format!("the router chose it by the first {prefix_tokens} tokens, and again later")
        }
        (NamedModel::Routed, _) => format!("the router chose it by the first {prefix_tokens} tokens"),
        (_, true) => "the request names it in path".to_owned(),
        (_, false) => "the request names it in model".to_owned(),
    };
    let path = choice.paths.first().and_then(|(path, _)| *path).or(match target.model {
        NamedModel::Path(path) => Some(path),
        NamedModel::Ancestor => None,
        NamedModel::Routed => choice.ranking.iter().copied().find(|path| !target.without.contains(path)),
    });
    let modules: Vec<String> =
        path.map(|path| grid.modules_of(path).iter().map(ToString::to_string).collect()).unwrap_or_default();
    let mut value = json!({
        "path": path,
        "modules": modules,
        "why": why,
        "paths": choice.paths.iter().map(|(path, tokens)| json!({ "path": path, "tokens": tokens })).collect::<Vec<_>>(),
        "seed": seed,
    });
    if choice.ranking.len() > 1 {
        value["ranking"] = json!(choice.ranking);
    }
    if choice.ending == Some(Ending::Time) {
        value["ended_by"] = json!("time");
    }
    value
}
