//! The outcome of an arm, in numbers for other programs.

use serde::{Deserialize, Serialize};

use crate::experiment::plan::Kind;
use crate::experiment::results::traffic::Exchanged;
use crate::training::Score;

/// The held-out loss at a point of the training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Phases done.
    pub phases: u64,
    /// Inner steps of a path, with those of the ancestor.
    pub steps: u64,
    /// Tokens that all paths have trained on since the ancestor.
    pub tokens: u64,
    /// Nats a token, each document on its path.
    pub loss: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Sum of negative log-probabilities.
    pub nats: f64,
    /// Number of tokens.
    pub tokens: u64,
    /// Their bytes of text.
    pub bytes: u64,
}

impl Numbers {
    /// Perplexity of the mean token; not a number if none was scored.
    pub fn perplexity(&self) -> f64 {
        Score::from(*self).perplexity().unwrap_or(f64::NAN)
    }

    /// Comparable between tokenizers; `None` for images.
    pub fn bits_per_byte(&self) -> Option<f64> {
        Score::from(*self).bits_per_byte()
    }
}

impl From<Score> for Numbers {
    fn from(Score { nats, tokens, bytes }: Score) -> Self {
        Self { nats, tokens, bytes }
    }
}

impl From<Numbers> for Score {
    fn from(Numbers { nats, tokens, bytes }: Numbers) -> Self {
        Self { nats, tokens, bytes }
    }
}

/// The test text with a route every so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Routed {
    /// Tokens between two choices.
    pub every: usize,
    /// By a transducer fine-tuned from the ancestor.
    pub transducer: Numbers,
    /// By the path that has been best so far in the document.
    pub so_far: Numbers,
    /// By the path that turns out best: a bound.
    pub oracle: Numbers,
}

/// A sample of the test text's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Honest {
    /// Each in its whole sequence, as in training.
    pub as_trained: Numbers,
    /// Each with only the tokens before it, as a language model is used.
    pub honest: Numbers,
}

impl std::ops::Add for Honest {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let sum = |a: Numbers, b: Numbers| (Score::from(a) + Score::from(b)).into();
        Self { as_trained: sum(self.as_trained, other.as_trained), honest: sum(self.honest, other.honest) }
    }
}

/// The outcome of an arm with one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub arm: String,
    /// Hash of training and scoring. An arm with stored results is not trained again.
    #[serde(default)]
    pub identity: String,
    pub seed: u64,
    pub kind: Kind,
    pub paths: u32,
    /// Parameters of a path.
    pub path_parameters: u64,
    pub parameters: u64,
    /// Inner steps of a path, with those of the ancestor.
    pub steps: u64,
    /// Tokens trained on: the ancestor's, and those of all paths.
    pub tokens: u64,
    /// Seconds of training, without the ancestor's.
    pub seconds: f64,
    /// Training sequences of each path at the end.
    pub shards: Vec<usize>,
    /// The held-out losses during training.
    pub curve: Vec<Point>,
    /// The test text on the final paths.
    pub last: Numbers,
    /// The test text on each path with its best parameters on its held-out documents.
    pub early: Numbers,
    /// The phase of the best parameters, by path.
    pub stopped_at: Vec<u64>,
    /// The same paths, with routes chosen more often.
    pub rerouted: Vec<Routed>,
    /// Early stopped paths by the domain of test documents, if known.
    #[serde(default)]
    pub domains: Vec<(String, Numbers)>,
    /// Early stopped paths on a sample of tokens, with and without later tokens in view.
    pub honest: Option<Honest>,
    /// Number of test images that early stopped paths classify right, if images are read.
    pub right: Option<u64>,
    /// The test text on the modules alone at the end, if paths keep their unsent changes.
    pub modules_alone: Option<Numbers>,
    /// Bytes and errors of outer steps.
    pub exchanged: Option<Exchanged>,
}

impl Outcome {
    /// Perplexity of the test text with early stopping, with one route per document, or one every so many tokens by the
    /// transducer.
    pub fn perplexity(&self, every: Option<usize>) -> Option<f64> {
        match every {
            None => Some(self.early.perplexity()),
            Some(every) => {
                let found = self.rerouted.iter().find(|routed| routed.every == every)?;
                Some(found.transducer.perplexity())
            }
        }
    }
}
