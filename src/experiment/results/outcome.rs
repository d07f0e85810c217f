//! What came of an arm, in numbers that other programs can read.

use serde::{Deserialize, Serialize};

use crate::experiment::plan::Kind;
use crate::experiment::results::traffic::Exchanged;
use crate::training::Score;

/// How well held out documents were predicted in the middle of training.
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

/// A score as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Sum of negative log-probabilities.
    pub nats: f64,
    /// Of so many tokens.
    pub tokens: u64,
    /// Which stand for so many bytes.
    pub bytes: u64,
}

impl Numbers {
    /// Of the mean token.
    pub fn perplexity(&self) -> f64 {
        Score::from(*self).perplexity()
    }

    /// Comparable between tokenizers; none of images.
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
    /// By a logistic fit on features of the last tokens.
    pub logistic: Numbers,
    /// By a transducer fine-tuned from the ancestor.
    pub transducer: Numbers,
    /// By what has been best so far in the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub so_far: Option<Numbers>,
    /// By what turns out best: a bound.
    pub oracle: Numbers,
}

/// A sample of the test text's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Honest {
    /// Each in its whole sequence, as in training.
    pub as_trained: Numbers,
    /// Each with nothing but what comes before it: what a language model can do.
    pub honest: Numbers,
}

impl std::ops::Add for Honest {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let sum = |a: Numbers, b: Numbers| (Score::from(a) + Score::from(b)).into();
        Self { as_trained: sum(self.as_trained, other.as_trained), honest: sum(self.honest, other.honest) }
    }
}

/// What came of an arm with one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub arm: String,
    /// What tells it from all other trainings and scores: where this is known from results, nothing is trained again.
    #[serde(default)]
    pub identity: String,
    pub seed: u64,
    /// How it was trained.
    pub kind: Kind,
    pub paths: u32,
    /// Parameters of a path.
    pub path_parameters: u64,
    /// Of all modules together.
    pub parameters: u64,
    /// Inner steps of a path, with those of the ancestor.
    pub steps: u64,
    /// Tokens trained on: the ancestor's, and those of all paths.
    pub tokens: u64,
    /// Seconds of training, the ancestor's not counted.
    pub seconds: f64,
    /// Training sequences of each path at the end.
    pub shards: Vec<usize>,
    /// How it went.
    pub curve: Vec<Point>,
    /// The test text on the paths as they are at the end.
    pub last: Numbers,
    /// The test text on each path as it was when it was at its best on its held out documents.
    pub early: Numbers,
    /// After how many phases that was, by path.
    pub stopped_at: Vec<u64>,
    /// The same paths, with routes chosen more often.
    pub rerouted: Vec<Routed>,
    /// Early stopped paths by the domain of test documents, where their source says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<(String, Numbers)>,
    /// Early stopped paths on a sample of tokens, with and without what follows on each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub honest: Option<Honest>,
    /// Of how many test images early stopped paths find the right class likeliest, where images are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<u64>,
    /// The test text on what modules alone are at the end, where paths keep what they have not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules_alone: Option<Numbers>,
    /// What travelled in outer steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanged: Option<Exchanged>,
}

impl Outcome {
    /// Perplexity of the test text with early stopping, and with a route for each document, or every so many tokens by the
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
