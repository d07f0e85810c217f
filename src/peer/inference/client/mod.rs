//! Inference on the paths of a run, on other peers or on this machine.
//!
//! [`InferenceClient`] is what [`scoring`](crate::peer::inference::score) and
//! [`sampling`](crate::peer::inference::sample) need of a run. [`local`] is a collected folder on this disk, [`swarm`]
//! the peers of a running swarm, each of which holds a few paths. `requests` divides work into queries;
//! `local_fallback` runs paths that no peer can run.

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
    /// 0 always takes the likeliest token.
    pub temperature: f64,
    /// Only this many of the likeliest tokens are drawn from; 0 for all.
    pub top_k: usize,
    /// Seed of the draws.
    pub seed: u64,
}

/// A run with its ancestor and its paths.
pub trait InferenceClient {
    fn config(&self) -> &RunConfig;

    fn tokenizer(&self) -> &Tokenizer;

    /// Whether the run sends its text to other peers.
    fn shares_text(&self) -> bool;

    /// Its location, for people.
    fn place(&self) -> String;

    /// The run's own test text of a path; `None` if it is not available.
    fn test_text(&mut self, path: PathId) -> anyhow::Result<Option<TokenSet>>;

    /// The paths of texts by their first tokens, at most as many as choose a path.
    fn routes(&mut self, prefixes: &[&[u32]]) -> anyhow::Result<Vec<PathId>>;

    /// Number of a text's last tokens that can choose the path on which it continues, at most.
    fn reach(&self) -> usize {
        self.config().routing.prefix_tokens
    }

    /// The paths on which texts continue, from the paths of their first tokens and their last tokens, at most
    /// [`InferenceClient::reach`].
    fn routes_on(&mut self, before: &[(PathId, &[u32])]) -> anyhow::Result<Vec<PathId>> {
        self.routes(&before.iter().map(|(_, tokens)| *tokens).collect::<Vec<_>>())
    }

    /// The ancestor's parameters, in the order of one level with all parameters.
    fn ancestor(&mut self) -> anyhow::Result<Vec<f32>>;

    /// The nats of all these pieces, each on its model.
    fn nats(&mut self, readings: &[(QueriedModel, &[TokenSpan])]) -> anyhow::Result<Vec<Vec<f64>>>;

    /// The number of images whose class is the likeliest, each on its path; `None` if the client cannot tell: the swarm
    /// answers only with nats.
    fn right(&mut self, _readings: &[(PathId, &[TokenSpan])]) -> anyhow::Result<Option<Vec<u64>>> {
        Ok(None)
    }

    /// The next tokens of a text, at most `count`; fewer if the text ends.
    fn continue_text(&mut self, path: PathId, text: &[u32], count: usize, draw: &Draw) -> anyhow::Result<Vec<u32>>;

    /// The same, each with the natural logarithm of its probability.
    fn continue_with_scores(
        &mut self,
        path: PathId,
        text: &[u32],
        count: usize,
        draw: &Draw,
    ) -> anyhow::Result<Vec<(u32, f64)>>;

    /// The peers that answered; empty without a swarm.
    fn answered(&self) -> Vec<PeerKey>;
}
