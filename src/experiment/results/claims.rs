//! The claims of an experiment, and whether they hold.

use std::fmt::Write as _;

use crate::experiment::plan::{Claim, Experiment};
use crate::experiment::results::outcome::Outcome;
use crate::experiment::results::spread::{Spread, of_arm};

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The worst seed of the better arm beats the best of the other.
    Holds,
    /// An equal result is enough, and the ranges overlap, though the mean is worse.
    AsGood,
    /// The better arm wins, but an arm has only one seed, so no spread is known.
    OfOneSeed,
    /// Only the mean is better.
    WithinSpread,
    /// Even the mean is worse.
    Fails,
    /// An arm is not trained yet.
    Open,
}

impl Verdict {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Holds => "yes",
            Self::AsGood => "as good: worse in the mean, but the seeds' ranges overlap",
            Self::OfOneSeed => "yes, as far as one seed says",
            Self::WithinSpread => "in the mean, but the seeds' ranges overlap",
            Self::Fails => "no",
            Self::Open => "not trained yet",
        }
    }

    fn of(claim: &Claim, better: Option<Spread>, than: Option<Spread>) -> Self {
        let (Some(better), Some(than)) = (better, than) else { return Self::Open };
        let overlap = better.least <= than.most && than.least <= better.most;
        let several = better.count.min(than.count) > 1;
        match (better.mean < than.mean, overlap) {
            (true, _) if better.most < than.least && several => Self::Holds,
            (true, _) if better.most < than.least => Self::OfOneSeed,
            (true, _) => Self::WithinSpread,
            (false, true) if claim.or_equal && several => Self::AsGood,
            (false, _) => Self::Fails,
        }
    }
}

fn perplexity(outcomes: &[Outcome], arm: &str, every: Option<usize>) -> Option<Spread> {
    Spread::of(of_arm(outcomes, arm).filter_map(|outcome| outcome.perplexity(every)))
}

/// With one route per document, for the seeds with a known result for a route every so many tokens.
pub(in crate::experiment) fn once_beside(outcomes: &[Outcome], arm: &str, every: Option<usize>) -> Option<Spread> {
    let known = of_arm(outcomes, arm).filter(|outcome| outcome.perplexity(every).is_some());
    Spread::of(known.filter_map(|outcome| outcome.perplexity(None)))
}

/// The two sides of a claim. An arm is compared with itself over the same seeds.
fn compared(claim: &Claim, outcomes: &[Outcome]) -> [Option<Spread>; 2] {
    let than = if claim.than == claim.better {
        once_beside(outcomes, &claim.than, claim.better_every)
    } else {
        perplexity(outcomes, &claim.than, None)
    };
    [perplexity(outcomes, &claim.better, claim.better_every), than]
}

/// Whether each claim holds, in order.
pub fn verdicts(experiment: &Experiment, outcomes: &[Outcome]) -> Vec<Verdict> {
    let verdict = |claim: &Claim| {
        let [better, than] = compared(claim, outcomes);
        Verdict::of(claim, better, than)
    };
    experiment.claims.iter().map(verdict).collect()
}

/// Adds the table of claims, if there are any.
pub(in crate::experiment) fn table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
    if experiment.claims.is_empty() {
        return;
    }
    *page += "\n## What was expected\n\nOf early stopped paths; *every N* is by the transducer. It holds if the worst \
              seed of the first is better than the best of the second.\n\n";
    *page += "| lower perplexity | than | | | holds |\n|---|---|---|---|---|\n";
    for (claim, verdict) in experiment.claims.iter().zip(verdicts(experiment, outcomes)) {
        let every = claim.better_every.map_or_else(String::new, |every| format!(", every {every}"));
        let equal = if claim.or_equal { " (or as good)" } else { "" };
        let shown = compared(claim, outcomes).map(|spread| spread.map_or_else(String::new, |spread| spread.show(2)));
        let [better, than] = shown;
        let words = verdict.words();
        let _ = writeln!(page, "| {}{every} | {}{equal} | {better} | {than} | {words} |", claim.better, claim.than);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::Kind;
    use crate::experiment::results::outcome::{Numbers, Routed};

    fn spread(values: &[f64]) -> Option<Spread> {
        Spread::of(values.iter().copied())
    }

    fn claim(or_equal: bool) -> Claim {
        Claim { better: "a".to_owned(), better_every: None, than: "b".to_owned(), or_equal }
    }

    #[test]
    fn a_claim_holds_only_beyond_the_seeds_spread() {
        let verdict =
            |better: &[f64], than: &[f64], or_equal| Verdict::of(&claim(or_equal), spread(better), spread(than));
        assert_eq!(verdict(&[1.0, 1.5], &[1.6, 2.0], false), Verdict::Holds);
        assert_eq!(verdict(&[1.0, 1.7], &[1.6, 2.0], false), Verdict::WithinSpread);
        assert_eq!(verdict(&[2.0, 1.7], &[1.6, 1.9], false), Verdict::Fails);
        assert_eq!(verdict(&[2.0, 1.7], &[1.6, 1.9], true), Verdict::AsGood);
        assert_eq!(verdict(&[1.0, 1.7], &[1.6, 2.0], true), Verdict::WithinSpread);
        assert_eq!(verdict(&[2.0, 2.1], &[1.6, 1.9], true), Verdict::Fails);
        assert_eq!(verdict(&[2.0], &[], false), Verdict::Open);
        assert_eq!(verdict(&[1.0], &[1.6, 2.0], false), Verdict::OfOneSeed);
    }

    #[test]
    fn what_routes_chosen_more_often_do_is_compared_with_the_same_seeds() {
        let numbers = |nats: f64| Numbers { nats, tokens: 1, bytes: 1 };
        let routed = |nats| {
            let [transducer, so_far, oracle] = [numbers(nats); 3];
            Routed { every: 64, transducer, so_far, oracle }
        };
        let outcome = |seed, nats, rerouted: Vec<Routed>| Outcome {
            identity: String::new(),
            domains: Vec::new(),
            honest: None,
            right: None,
            exchanged: None,
            modules_alone: None,
            arm: "a".to_owned(),
            seed,
            kind: Kind::Paths,
            paths: 2,
            path_parameters: 1,
            parameters: 2,
            steps: 1,
            tokens: 1,
            seconds: 1.0,
            shards: vec![1, 1],
            curve: Vec::new(),
            last: numbers(nats),
            early: numbers(nats),
            stopped_at: vec![1, 1],
            rerouted,
        };
        // The third seed is an easy one, and the only one that was scored both ways.
        let outcomes = [outcome(1, 4.0, vec![]), outcome(2, 4.0, vec![]), outcome(3, 2.0, vec![routed(3.0)])];
        let claim = Claim { better_every: Some(64), than: "a".to_owned(), ..claim(false) };
        let [better, than] = compared(&claim, &outcomes);
        assert_eq!((better, than), (spread(&[3f64.exp()]), spread(&[2f64.exp()])));
        assert_eq!(Verdict::of(&claim, better, than), Verdict::Fails);
    }
}
