//! The models of a running swarm: each text is continued by a peer that holds its path, some tokens at a time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::names::PathId;
use crate::peer::inference::client::{Draw, InferenceClient, Swarm};
use crate::query::{MAX_MADE_TOKENS, QueriedModel};
use crate::serve::engine::backend::{Backend, Next, Text};
use crate::training::TokenScore;

/// Tokens of the first query of a path. Each query goes there and back, and its peer reads the text anew.
const FIRST_TOKENS: usize = 8;

/// Answers that come sooner are followed by longer ones: a text still seems to flow.
const SOON: Duration = Duration::from_millis(300);

/// Answers that come later are followed by shorter ones.
const LATE: Duration = Duration::from_millis(1_200);

#[expect(clippy::disallowed_methods, reason = "an edge: how long an answer takes")]
fn now() -> Instant {
    Instant::now()
}

/// The peers of a swarm.
pub struct SwarmModels {
    swarm: Swarm,
    /// Tokens of the next query of each path.
    tokens: BTreeMap<PathId, usize>,
}

/// What no peer can be asked for. Requests that need it are refused before.
#[derive(Debug, thiserror::Error)]
#[error("peers of a swarm tell no scores and no features")]
struct NotTold;

impl Backend for SwarmModels {
    fn ranking(&mut self, tokens: &[u32], before: Option<PathId>) -> anyhow::Result<Vec<PathId>> {
        match before {
            None => self.swarm.routes(&[tokens]),
            Some(own) => self.swarm.routes_on(&[(own, tokens)]),
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

/// How many tokens are asked for after an answer that took so long.
fn tokens_after(took: Duration, tokens: usize) -> usize {
    match took {
        soon if soon < SOON => (2 * tokens).min(MAX_MADE_TOKENS),
        late if late > LATE => (tokens / 2).max(FIRST_TOKENS),
        _ => tokens,
    }
}

impl SwarmModels {
    pub fn new(swarm: Swarm) -> Self {
        Self { swarm, tokens: BTreeMap::new() }
    }

    fn next(&mut self, path: PathId, text: &mut Text) -> anyhow::Result<Next> {
        let (temperature, top_k) = (text.sampler.temperature, text.sampler.top_k);
        let most = self.tokens.get(&path).copied().unwrap_or(FIRST_TOKENS);
        let (draw, count) = (Draw { temperature, top_k, seed: text.seed }, text.left.min(most));
        let asked = now();
        let made = self.swarm.continue_text(path, text.decoding.tokens(), count, &draw)?;
        if made.len() == most {
            self.tokens.insert(path, tokens_after(now().saturating_duration_since(asked), most));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_grow_as_long_as_answers_come_soon() {
        let after = |milliseconds: u64, tokens| tokens_after(Duration::from_millis(milliseconds), tokens);
        assert_eq!([after(120, 8), after(120, 24), after(299, 32)], [16, 32, 32]);
        assert_eq!([after(300, 16), after(1_200, 32)], [16, 32]);
        assert_eq!([after(1_300, 32), after(9_000, 8), after(1_300, 12)], [16, 8, 8]);
    }
}
