//! The models of a running swarm: each text is continued by a peer that holds its path, some tokens at a time.

use crate::names::PathId;
use crate::peer::inference::client::{Draw, InferenceClient, Swarm};
use crate::query::QueriedModel;
use crate::serve::engine::backend::{Backend, Next, Text};
use crate::training::TokenScore;

/// Tokens of one query: enough that the way there and back counts little, and few enough that a text seems to flow.
const TOKENS: usize = 8;

/// The peers of a swarm.
pub struct SwarmModels(pub Swarm);

/// What no peer can be asked for. Requests that need it are refused before.
#[derive(Debug, thiserror::Error)]
#[error("peers of a swarm tell no scores and no features")]
struct NotTold;

impl Backend for SwarmModels {
    fn ranking(&mut self, tokens: &[u32], before: Option<PathId>) -> anyhow::Result<Vec<PathId>> {
        match before {
            None => self.0.routes(&[tokens]),
            Some(own) => self.0.routes_on(&[(own, tokens)]),
        }
    }

    fn features(&mut self, _: &[Vec<u32>]) -> anyhow::Result<Vec<Vec<f32>>> {
        Err(NotTold.into())
    }

    fn scores(&mut self, _: QueriedModel, _: &[u32], _: usize) -> anyhow::Result<Vec<TokenScore>> {
        Err(NotTold.into())
    }

    fn step(&mut self, model: QueriedModel, texts: &mut [&mut Text]) -> Vec<anyhow::Result<Next>> {
        let QueriedModel::Path(path) = model else {
            return texts.iter().map(|_| Err(NotTold.into())).collect();
        };
        texts.iter_mut().map(|text| self.next(path, text)).collect()
    }
}

impl SwarmModels {
    fn next(&mut self, path: PathId, text: &mut Text) -> anyhow::Result<Next> {
        let (temperature, top_k) = (text.sampler.temperature, text.sampler.top_k);
        let (draw, count) = (Draw { temperature, top_k, seed: text.seed }, text.left.min(TOKENS));
        let made = self.0.continue_text(path, text.decoding.tokens(), count, &draw)?;
        let mut ended = made.len() < count;
        let mut tokens = Vec::with_capacity(made.len());
        for token in made {
            // Peers know only the end of a document.
            if text.ends.contains(&token) {
                ended = true;
                break;
            }
            text.push(token);
            tokens.push((token, None));
        }
        Ok(Next { tokens, ended, end: None })
    }
}
