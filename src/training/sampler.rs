//! Chooses a token from logits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::seed::Seed;

/// Why no token is chosen.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    #[error("temperature = {0}: must be 0 or more, and finite")]
    Temperature(f64),
    #[error("the model's logits are not finite; it diverged or was never loaded")]
    NotFinite,
}

/// How tokens are chosen. In this order: `logit_bias` and the penalties change the logits, the temperature divides them,
/// and `top_k`, `min_p` and `top_p` leave out the less likely tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    /// Divisor of the logits; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Only this many of the likeliest tokens are drawn from; 0 for all.
    pub top_k: usize,
    /// Only the likeliest tokens that together have this probability are drawn from; 1 for all.
    pub top_p: f64,
    /// Only tokens at least this share as likely as the likeliest are drawn from; 0 for all.
    pub min_p: f64,
    /// Taken from the logit of each token that was generated before.
    pub presence_penalty: f64,
    /// Taken from the logit of a token for each time that it was generated before.
    pub frequency_penalty: f64,
    /// Added to logits, by token.
    pub logit_bias: BTreeMap<u32, f64>,
    /// Seed of the draws; each position in a text has its own draw.
    pub seed: Seed,
}

impl Sampler {
    /// Without penalties and bias.
    pub fn new(temperature: f64, top_k: usize, seed: Seed) -> Self {
        Self {
            temperature,
            top_k,
            top_p: 1.0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            seed,
        }
    }

    /// # Errors
    /// If the temperature is negative or not finite.
    pub fn check(&self) -> Result<(), SamplerError> {
        match self.temperature.is_finite() && self.temperature >= 0.0 {
            true => Ok(()),
            false => Err(SamplerError::Temperature(self.temperature)),
        }
    }

    /// The token at a position of a text. `counts` says how often each token was generated before.
    ///
    /// # Errors
    /// If the logits are not finite, or there are none.
    pub fn choose(&self, logits: &[f32], counts: &BTreeMap<u32, u32>, position: u64) -> Result<u32, SamplerError> {
        if logits.is_empty() || logits.iter().any(|logit| !logit.is_finite()) {
            return Err(SamplerError::NotFinite);
        }
        if self.logit_bias.is_empty() && !self.penalizes() {
            return Ok(self.pick(logits, &mut self.seed.number(position).generator()));
        }
        let mut changed = logits.to_vec();
        let mut change = |token: u32, by: f64| {
            if let Some(logit) = changed.get_mut(token as usize) {
                *logit = (f64::from(*logit) + by) as f32;
            }
        };
        self.logit_bias.iter().for_each(|(token, bias)| change(*token, *bias));
        for (token, count) in counts {
            change(*token, -self.presence_penalty - self.frequency_penalty * f64::from(*count));
        }
        Ok(self.pick(&changed, &mut self.seed.number(position).generator()))
    }

    fn penalizes(&self) -> bool {
        self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    fn pick(&self, logits: &[f32], generator: &mut ChaCha8Rng) -> u32 {
        if self.temperature == 0.0 {
            return likeliest(logits, 1).first().copied().unwrap_or(0);
        }
        if self.top_k == 0 && self.min_p == 0.0 && self.top_p >= 1.0 {
            return self.pick_of_all(logits, generator);
        }
        let mut ranked = likeliest(logits, if self.top_k == 0 { logits.len() } else { self.top_k });
        let best = ranked.first().copied().unwrap_or(0);
        let peak = f64::from(logits[best as usize]);
        let weight = |token: u32| ((f64::from(logits[token as usize]) - peak) / self.temperature).exp();
        if self.min_p > 0.0 {
            ranked.retain(|token| weight(*token) >= self.min_p);
        }
        let sum = |ranked: &[u32]| ranked.iter().map(|token| weight(*token)).sum::<f64>();
        if self.top_p < 1.0 {
            let mut left = sum(&ranked) * self.top_p;
            let within = ranked.iter().take_while(|token| {
                let within = left > 0.0;
                left -= weight(**token);
                within
            });
            let count = within.count().max(1);
            ranked.truncate(count);
        }
        let mut left = generator.random_range(0.0..1.0) * sum(&ranked);
        for token in &ranked {
            left -= weight(*token);
            if left < 0.0 {
                return *token;
            }
        }
        best
    }

    /// One of all tokens. Mostly it is one of the likeliest, so that the others need not be ranked.
    fn pick_of_all(&self, logits: &[f32], generator: &mut ChaCha8Rng) -> u32 {
        let first = likeliest(logits, FIRST);
        let best = first.first().copied().unwrap_or(0);
        let peak = f64::from(logits[best as usize]);
        let weight = |logit: f32| ((f64::from(logit) - peak) / self.temperature).exp();
        let mut left = generator.random_range(0.0..1.0) * logits.iter().map(|logit| weight(*logit)).sum::<f64>();
        let mut drawn = |ranked: &[u32]| {
            ranked.iter().copied().find(|token| {
                left -= weight(logits[*token as usize]);
                left < 0.0
            })
        };
        let found = drawn(&first);
        found.or_else(|| drawn(&likeliest(logits, logits.len())[first.len()..])).unwrap_or(best)
    }
}

/// Tokens that are ranked first where all are drawn from.
const FIRST: usize = 64;

/// The tokens with the largest logits, at most `count`, largest first, equals by number, so that the choice is the same
/// everywhere.
pub fn likeliest(logits: &[f32], count: usize) -> Vec<u32> {
    let order = |a: &u32, b: &u32| -> Ordering { logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)) };
    if count <= 1 {
        return (0..logits.len() as u32).take(count * logits.len()).min_by(order).into_iter().collect();
    }
    let mut ranked: Vec<u32> = (0..logits.len() as u32).collect();
    if count < ranked.len() {
        ranked.select_nth_unstable_by(count - 1, order);
        ranked.truncate(count);
    }
    ranked.sort_unstable_by(order);
    ranked
}

/// The logarithm of the sum of the exponentials of logits, in f64: a logit minus it is a log-probability.
pub fn log_normalizer(logits: &[f32]) -> f64 {
    let peak = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    peak + logits.iter().map(|logit| (f64::from(*logit) - peak).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler() -> Sampler {
        Sampler::new(1.0, 0, Seed::root(4))
    }

    /// How often each of some tokens is drawn in a thousand positions.
    fn drawn(sampler: &Sampler, logits: &[f32], counts: &BTreeMap<u32, u32>) -> Vec<u32> {
        let mut found = vec![0; logits.len()];
        (0..1_000).for_each(|position| found[sampler.choose(logits, counts, position).unwrap() as usize] += 1);
        found
    }

    /// Logits of tokens with these probabilities.
    fn logits(of: &[f32]) -> Vec<f32> {
        of.iter().map(|chance| chance.ln()).collect()
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let found = drawn(&sampler(), &logits(&[0.25, 0.75]), &BTreeMap::new());
        assert!((700..800).contains(&found[1]), "{found:?}");
        assert_eq!(
            drawn(&Sampler { temperature: 0.0, ..sampler() }, &[1.0, 2.0, 2.0], &BTreeMap::new()),
            [0, 1_000, 0]
        );
    }

    #[test]
    fn unlikely_tokens_are_left_out_as_asked_for() {
        let four = logits(&[0.1, 0.4, 0.2, 0.3]);
        let none_of = |sampler: Sampler, left_out: &[usize]| {
            let found = drawn(&sampler, &four, &BTreeMap::new());
            let never: Vec<usize> = (0..4).filter(|token| found[*token] == 0).collect();
            assert_eq!(never, left_out, "{found:?}");
        };
        none_of(sampler(), &[]);
        none_of(Sampler { top_k: 2, ..sampler() }, &[0, 2]);
        none_of(Sampler { top_p: 0.65, ..sampler() }, &[0, 2]);
        none_of(Sampler { top_p: 0.75, ..sampler() }, &[0]);
        none_of(Sampler { top_p: 1e-9, ..sampler() }, &[0, 2, 3]);
        none_of(Sampler { min_p: 0.45, ..sampler() }, &[0]);
        none_of(Sampler { top_k: 3, top_p: 0.7, ..sampler() }, &[0, 2]);
        none_of(Sampler { top_p: 0.0, ..sampler() }, &[0, 2, 3]);
    }

    #[test]
    fn a_draw_from_all_tokens_is_that_from_as_many_of_the_likeliest() {
        let logits: Vec<f32> = (0..500).map(|token| ((token * 37) % 91) as f32 / 30.0).collect();
        let ranked = Sampler { top_k: 500, ..sampler() };
        for position in 0..300 {
            let choose = |sampler: &Sampler| sampler.choose(&logits, &BTreeMap::new(), position).unwrap();
            assert_eq!(choose(&sampler()), choose(&ranked));
        }
    }

    #[test]
    fn bias_and_penalties_change_the_choice() {
        let greedy = Sampler { temperature: 0.0, ..sampler() };
        let choose = |sampler: &Sampler, counts: &[(u32, u32)]| {
            sampler.choose(&[1.0, 2.0, 3.0], &counts.iter().copied().collect(), 0).unwrap()
        };
        assert_eq!(choose(&greedy, &[(2, 9)]), 2);
        let biased = Sampler { logit_bias: BTreeMap::from([(0, 100.0), (77, 100.0)]), ..greedy.clone() };
        assert_eq!(choose(&biased, &[]), 0);
        let banned = Sampler { logit_bias: BTreeMap::from([(2, -100.0)]), ..greedy.clone() };
        assert_eq!(choose(&banned, &[]), 1);
        let present = Sampler { presence_penalty: 1.5, ..greedy.clone() };
        assert_eq!((choose(&present, &[(2, 1)]), choose(&present, &[(2, 9), (1, 1)])), (1, 2));
        let frequent = Sampler { frequency_penalty: 0.5, ..greedy };
        assert_eq!((choose(&frequent, &[(2, 1)]), choose(&frequent, &[(2, 3)])), (2, 1));
    }

    #[test]
    fn a_few_of_the_likeliest_are_the_first_of_all() {
        let logits: Vec<f32> = (0..500).map(|token| ((token * 37) % 91) as f32).collect();
        let all = likeliest(&logits, 500);
        assert!(all.windows(2).all(|two| {
            let [a, b] = [two[0], two[1]].map(|token| logits[token as usize]);
            a > b || (a == b && two[0] < two[1])
        }));
        for count in [0, 1, 2, 7, 499, 900] {
            assert_eq!(likeliest(&logits, count), all[..count.min(500)]);
        }
    }

    #[test]
    fn probabilities_sum_to_one() {
        let logits = [1000.0, 999.0, 0.0, -500.0];
        let normalizer = log_normalizer(&logits);
        let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - normalizer).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        assert!(matches!(sampler().choose(&[f32::NAN], &BTreeMap::new(), 0), Err(SamplerError::NotFinite)));
        assert!(matches!(sampler().choose(&[], &BTreeMap::new(), 0), Err(SamplerError::NotFinite)));
        assert!(Sampler { temperature: f64::NAN, ..sampler() }.check().is_err());
    }
}
