//! The page of an experiment, in Markdown: the results of each arm, from perplexity to communication.

use std::fmt::Write as _;

use crate::experiment::plan::{Arm, Experiment};
use crate::experiment::results::outcome::{Honest, Outcome};
use crate::experiment::results::spread::{Spread, of_arm};
use crate::experiment::results::{claims, communication, wall_clock};

/// All tables. `command` reproduces them.
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
                 document's path. *So far* takes the path that has read the document best up to there, for which all have to \
                 read it. The oracle takes what turns out best: a bound, not a method.\n\n";
        rerouted_table(&mut page, &rerouted, outcomes);
    }
    domains_table(&mut page, experiment, outcomes);
    honest_table(&mut page, experiment, outcomes);
    classes_table(&mut page, experiment, outcomes);
    communication::table(&mut page, experiment, outcomes);
    wall_clock::table(&mut page, experiment, outcomes);
    claims::table(&mut page, experiment, outcomes);
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
    *page += "| arm | every | transducer | so far | oracle | once |\n|---|---|---|---|---|---|\n";
    for arm in arms {
        for every in &arm.route_every {
            let once = claims::once_beside(outcomes, &arm.name, Some(*every));
            let once = once.map_or_else(String::new, |spread| spread.show(2));
            let found =
                || of_arm(outcomes, &arm.name).flat_map(|it| it.rerouted.iter().filter(|it| it.every == *every));
            let columns = [
                Spread::of(found().map(|routed| routed.transducer.perplexity())),
                Spread::of(found().map(|routed| routed.so_far.perplexity())),
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

/// Tokens scored with and without later tokens in view.
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

/// Accuracy on images' classes.
fn classes_table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
    if outcomes.iter().all(|outcome| outcome.right.is_none()) {
        return;
    }
    *page += "\n## Classes\n\nThe share of test images whose class is the one that an early stopped path finds likeliest.\n\n\
              | arm | right |\n|---|---|\n";
    for arm in &experiment.arms {
        let share = |outcome: &Outcome| Some(100.0 * outcome.right? as f64 / outcome.early.tokens.max(1) as f64);
        let shares = Spread::of(of_arm(outcomes, &arm.name).filter_map(share));
        let shown = shares.map_or_else(|| "not trained yet".to_owned(), |spread| format!("{} %", spread.show(1)));
        let _ = writeln!(page, "| {} | {shown} |", arm.name);
    }
}
