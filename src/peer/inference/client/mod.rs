//! Asking a run about text: whoever can play its paths, here or elsewhere.
//!
//! [`InferenceClient`] is what [`scoring`](crate::peer::inference::score) and [`sampling`](crate::peer::inference::sample) need of a run. [`local`] is a collected
//! folder on this disk, [`swarm`] the peers of a run that goes on, each of which holds a few paths: what they are asked in
//! parts is in `sequences`, and what none of them can play is result by an `fallback` here.

pub mod local;
pub(in crate::peer::inference::client) mod local_fallback;
pub(in crate::peer::inference::client) mod requests;
pub mod swarm;
#[cfg(test)]
mod tests;

use crate::config::RunConfig;
use crate::names::{PathId, PeerKey};
pub use crate::peer::inference::client::local::Local;
pub use crate::peer::inference::client::swarm::{AskError, Swarm};
use crate::query::{QueriedModel, TokenSpan};
use crate::text::{TokenSet, Tokenizer};

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// 0 takes the likeliest token always.
    pub temperature: f64,
    /// Only so many of the likeliest tokens are drawn from; 0 for all.
    pub top_k: usize,
    /// Root of the draws.
    pub seed: u64,
}

/// A run, and whoever plays its ancestor and its paths.
pub trait InferenceClient {
    /// What is trained.
    fn config(&self) -> &RunConfig;

    /// How its text becomes tokens.
    fn tokenizer(&self) -> &Tokenizer;

    /// Whether the run sends its text to whoever asks.
    fn shares_text(&self) -> bool;

    /// Where it is, for people.
    fn place(&self) -> String;

    /// The run's own test text of a path; nothing if it is not to be had.
    fn test_text(&mut self, path: PathId) -> anyhow::Result<Option<TokenSet>>;

    /// The paths of texts by their first tokens, at most as many as choose a path.
    fn routes(&mut self, prefixes: &[&[u32]]) -> anyhow::Result<Vec<PathId>>;

    /// How many of a text's last tokens choose the path on which it goes on, at most.
    fn reach(&self) -> usize {
        self.config().routing.prefix_tokens
    }

    /// The paths on which texts go on, by the paths that their first tokens chose and their last tokens, at most
    /// [`InferenceClient::reach`].
    fn routes_on(&mut self, before: &[(PathId, &[u32])]) -> anyhow::Result<Vec<PathId>> {
        self.routes(&before.iter().map(|(_, tokens)| *tokens).collect::<Vec<_>>())
    }

    /// The ancestor's parameters, in the order of one level that holds all of them.
    fn ancestor(&mut self) -> anyhow::Result<Vec<f32>>;

    /// The nats of all these pieces, each on its player.
    fn nats(&mut self, readings: &[(QueriedModel, &[TokenSpan])]) -> anyhow::Result<Vec<Vec<f64>>>;

    /// Of how many of these images no other class is likelier than theirs, each on its path; nothing if whoever plays is
    /// not asked that: a question of the swarm is answered by nats.
    fn right(&mut self, _readings: &[(PathId, &[TokenSpan])]) -> anyhow::Result<Option<Vec<u64>>> {
        Ok(None)
    }

    /// So many tokens that follow a text; fewer if it ends.
    fn continue_text(&mut self, path: PathId, text: &[u32], count: usize, draw: &Draw) -> anyhow::Result<Vec<u32>>;

    /// The peers that answered; none where nobody had to be asked.
    fn answered(&self) -> Vec<PeerKey>;
}
