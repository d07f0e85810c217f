//! The tables of an experiment, in Markdown: what each arm came to, and whether what was claimed holds.

use std::fmt::Write as _;

use super::exchanged;
use super::outcome::{Honest, Outcome};
use super::plan::{Arm, Claim, Experiment};
use super::wall_clock;

/// What several seeds came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// How many.
    pub count: usize,
}

impl Spread {
    /// Nothing if there is no value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let (least, most) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(Self { mean, least, most, count: values.len() })
    }

    /// The mean, and between what it lies.
    pub(super) fn show(&self, decimals: usize) -> String {
        let Self { mean, least, most, count } = self;
        if *count == 1 {
            return format!("{mean:.decimals$}");
        }
        format!("{mean:.decimals$} ({least:.decimals$} to {most:.decimals$})")
    }
}

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// For the worst seed of the better arm against the best of the other.
    Holds,
    /// As good will do, and the seeds' ranges overlap, though the mean is worse.
    AsGood,
    /// The same, but there is no spread to be seen: an arm was trained with one seed.
    OfOneSeed,
    /// For the means alone.
    WithinSpread,
    /// Not even for them.
    Fails,
    /// An arm is not trained yet.
    Open,
}

impl Verdict {
    /// In words.
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

/// What came of one arm.
pub(super) fn of_arm<'a>(outcomes: &'a [Outcome], name: &'a str) -> impl Iterator<Item = &'a Outcome> {
    outcomes.iter().filter(move |outcome| outcome.arm == name)
}

fn perplexity(outcomes: &[Outcome], arm: &str, every: Option<usize>) -> Option<Spread> {
    Spread::of(of_arm(outcomes, arm).filter_map(|outcome| outcome.perplexity(every)))
}

/// With a route for each document, of the seeds for which it is known what one every so many tokens does.
fn once_beside(outcomes: &[Outcome], arm: &str, every: Option<usize>) -> Option<Spread> {
    let known = of_arm(outcomes, arm).filter(|outcome| outcome.perplexity(every).is_some());
    Spread::of(known.filter_map(|outcome| outcome.perplexity(None)))
}

/// What a claim compares: of one arm with itself the same seeds.
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

/// All tables. `command` is what makes them again.
pub fn markdown(experiment: &Experiment, outcomes: &[Outcome], command: &str) -> String {
    let mut page = format!("# {}\n\n    {command}\n\n", experiment.title);
    page += "Perplexity of the test text, the mean of all seeds and their range. A document's first tokens, which choose \
             its path, do not count. *Early* takes each path, or the dense network, as it was when it predicted its held \
             out documents best; the other columns show it as it is at the end.\n\n";
    if experiment.score_from > 0 {
        let _ = write!(page, "No sequence is scored before its token {}, in any arm.\n\n", experiment.score_from);
    }
    arms_table(&mut page, experiment, outcomes);
    let rerouted: Vec<&Arm> = experiment.arms.iter().filter(|arm| !arm.route_every.is_empty()).collect();
    if !rerouted.is_empty() {
        page += "\n## Routes chosen more often\n\nEarly stopped paths; the first window of a document is read on the \
                 document's path. The oracle takes what turns out best: a bound, not a method.\n\n";
        rerouted_table(&mut page, &rerouted, outcomes);
    }
    domains_table(&mut page, experiment, outcomes);
    honest_table(&mut page, experiment, outcomes);
    classes_table(&mut page, experiment, outcomes);
    exchanged::table(&mut page, experiment, outcomes);
    wall_clock::table(&mut page, experiment, outcomes);
    if !experiment.claims.is_empty() {
        page += "\n## What was expected\n\nOf early stopped paths; *every N* is by the transducer. It holds if the worst \
                 seed of the first is better than the best of the second.\n\n";
        claims_table(&mut page, experiment, outcomes);
    }
    page += "\nHeld out loss against inner steps of a path ([steps.svg](steps.svg)) and against tokens of all paths together \
             ([tokens.svg](tokens.svg)); all numbers: [results.json](results.json).\n";
    page
}

fn arms_table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
    *page += "| arm | paths | parameters of a path | of all | steps | million tokens | perplexity | bits a byte | early | \
              seeds |\n|---|---|---|---|---|---|---|---|---|---|\n";
    for arm in &experiment.arms {
        let own = || of_arm(outcomes, &arm.name);
        let Some(one) = own().next() else {
            let _ = writeln!(page, "| {} | {} | | | | | not trained yet | | | |", arm.name, arm.paths());
            continue;
        };
        let show =
            |values: Vec<f64>, decimals| Spread::of(values).map_or_else(String::new, |spread| spread.show(decimals));
        let _ = writeln!(
            page,
            "| {} | {} | {:.2} M | {:.2} M | {} | {:.1} | {} | {} | {} | {} |",
            arm.name,
            one.paths,
            one.path_parameters as f64 / 1e6,
            one.parameters as f64 / 1e6,
            one.steps,
            one.tokens as f64 / 1e6,
            show(own().map(|outcome| outcome.last.perplexity()).collect(), 2),
            show(own().filter_map(|outcome| outcome.last.bits_per_byte()).collect(), 3),
            show(own().map(|outcome| outcome.early.perplexity()).collect(), 2),
            own().count(),
        );
    }
}

fn rerouted_table(page: &mut String, arms: &[&Arm], outcomes: &[Outcome]) {
    *page += "| arm | every | logistic | transducer | oracle | once |\n|---|---|---|---|---|---|\n";
    for arm in arms {
        for every in &arm.route_every {
            let once = once_beside(outcomes, &arm.name, Some(*every));
            let once = once.map_or_else(String::new, |spread| spread.show(2));
            let found =
                || of_arm(outcomes, &arm.name).flat_map(|it| it.rerouted.iter().filter(|it| it.every == *every));
            let columns = [
                Spread::of(found().map(|routed| routed.logistic.perplexity())),
                Spread::of(found().map(|routed| routed.transducer.perplexity())),
                Spread::of(found().map(|routed| routed.oracle.perplexity())),
            ];
            let columns = columns.map(|spread| spread.map_or_else(String::new, |spread| spread.show(2)));
            let _ = writeln!(page, "| {} | {every} | {} | {once} |", arm.name, columns.join(" | "));
        }
    }
}

/// Perplexity by domain, where the test text has any.
fn domains_table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
    let Some(domains) = outcomes.iter().map(|outcome| &outcome.domains).find(|domains| !domains.is_empty()) else {
        return;
    };
    let names: Vec<&str> = domains.iter().map(|(name, _)| name.as_str()).collect();
    let _ = writeln!(page, "\n## By domain\n\nEarly stopped.\n\n| arm | {} |", names.join(" | "));
    let _ = writeln!(page, "|---{}|", "|---".repeat(names.len()));
    for arm in &experiment.arms {
        let of = |name: &&str| {
            let own = of_arm(outcomes, &arm.name).flat_map(|outcome| &outcome.domains);
            let own = own.filter(|(domain, _)| domain == name).map(|(_, numbers)| numbers.perplexity());
            Spread::of(own).map_or_else(String::new, |spread| spread.show(2))
        };
        let _ = writeln!(page, "| {} | {} |", arm.name, names.iter().map(of).collect::<Vec<_>>().join(" | "));
    }
}

/// Tokens scored with and without what follows on them.
fn honest_table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
    if outcomes.iter().all(|outcome| outcome.honest.is_none()) {
        return;
    }
    let first = experiment.arms.first().map_or("", |arm| arm.name.as_str());
    let _ = writeln!(
        page,
        "\n## With nothing but what comes before\n\nPerplexity of a sample of the same tokens, each in its whole sequence, as in \
         training, and each in a text that ends before it; and how much lower that is than of {first:?} with the same seed.\n\n\
         | arm | tokens | in the whole sequence | lower by | honestly | lower by |\n|---|---|---|---|---|---|"
    );
    for arm in &experiment.arms {
        let own = || of_arm(outcomes, &arm.name).filter_map(|outcome| Some((outcome.seed, outcome.honest.as_ref()?)));
        let Some(tokens) = own().next().map(|(_, honest)| honest.honest.tokens) else { continue };
        let columns = [|honest: &Honest| honest.as_trained, |honest: &Honest| honest.honest].map(|pick| {
            let perplexity = Spread::of(own().map(|(_, honest)| pick(honest).perplexity()));
            let lower = |(seed, honest): (u64, &Honest)| {
                let base = of_arm(outcomes, first).find(|outcome| outcome.seed == seed)?.honest.as_ref()?;
                Some(100.0 * (1.0 - pick(honest).perplexity() / base.honest.perplexity()))
            };
            let show =
                |spread: Option<Spread>, decimals| spread.map_or_else(String::new, |spread| spread.show(decimals));
            format!("{} | {} %", show(perplexity, 2), show(Spread::of(own().filter_map(lower)), 1))
        });
        let _ = writeln!(page, "| {} | {tokens} | {} |", arm.name, columns.join(" | "));
    }
}

/// How often pictures' classes are told right.
fn classes_table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
    if outcomes.iter().all(|outcome| outcome.right.is_none()) {
        return;
    }
    *page += "\n## Classes\n\nThe share of test pictures whose class is the one that an early stopped path finds likeliest.\n\n\
              | arm | right |\n|---|---|\n";
    for arm in &experiment.arms {
        let share = |outcome: &Outcome| Some(100.0 * outcome.right? as f64 / outcome.early.tokens.max(1) as f64);
        let shares = Spread::of(of_arm(outcomes, &arm.name).filter_map(share));
        let shown = shares.map_or_else(|| "not trained yet".to_owned(), |spread| format!("{} %", spread.show(1)));
        let _ = writeln!(page, "| {} | {shown} |", arm.name);
    }
}

fn claims_table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
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
    use super::super::outcome::{Numbers, Routed};
    use super::super::plan::Kind;
    use super::*;

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
        let routed =
            |nats| Routed { every: 64, logistic: numbers(nats), transducer: numbers(nats), oracle: numbers(nats) };
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

    #[test]
    fn one_seed_has_no_range() {
        assert_eq!(spread(&[2.0]).unwrap().show(2), "2.00");
        assert_eq!(spread(&[2.0, 3.0]).unwrap().show(1), "2.5 (2.0 to 3.0)");
        assert_eq!(spread(&[]), None);
    }
}
