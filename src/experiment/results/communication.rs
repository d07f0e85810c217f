//! The table of communication: bits per value, errors of compression, and the perplexity relative to the first arm.

use std::fmt::Write as _;

use crate::experiment::plan::{Arm, Experiment};
use crate::experiment::results::outcome::Outcome;
use crate::experiment::results::spread::Spread;

/// A table of communication and its effect on perplexity, relative to the first arm with the same seed; nothing if all
/// arms use the same compression.
pub(in crate::experiment) fn table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
    let written = |arm: &Arm| (arm.run.outer.codec, arm.run.outer.average_codec());
    let differ = |first: &&Arm| experiment.arms.iter().any(|arm| written(arm) != written(first));
    let Some(first) = experiment.arms.first().filter(differ) else { return };
    *page += "\n## What travelled\n\nBits of a value in an outer step, up (an outer gradient, with what the last one lost) and \
              down (the average); what a receiver misses of it, as a part of its length; and how much more perplexity than \
              the first arm with the same seed. Paths that keep what they have not sent count as what they are with it; \
              *modules alone* are without.\n\n\
              | arm | bits up | missed | bits down | missed | perplexity | more by | modules alone |\n\
              |---|---|---|---|---|---|---|---|\n";
    for arm in &experiment.arms {
        let own = || outcomes.iter().filter(|outcome| outcome.arm == arm.name);
        let frames = || own().filter_map(|outcome| outcome.exchanged);
        let more = own().filter_map(|outcome| {
            let base = outcomes.iter().find(|base| base.arm == first.name && base.seed == outcome.seed)?;
            Some(100.0 * (outcome.early.perplexity() / base.early.perplexity() - 1.0))
        });
        let mean = |values: Vec<f64>| Spread::of(values).map_or(f64::NAN, |spread| spread.mean);
        let perplexity = Spread::of(own().map(|outcome| outcome.early.perplexity()));
        let show = |spread: Option<Spread>| spread.map_or_else(String::new, |spread| spread.show(2));
        if frames().next().is_none() {
            let trained = if own().next().is_some() { "not counted, trained before" } else { "not trained yet" };
            let (perplexity, more) = (show(perplexity), show(Spread::of(more)));
            let _ = writeln!(page, "| {} | {trained} | | | | {perplexity} | {more} % | |", arm.name);
            continue;
        }
        let _ = writeln!(
            page,
            "| {} | {:.3} | {:.1} % | {:.3} | {:.1} % | {} | {} % | {} |",
            arm.name,
            mean(frames().map(|both| both.up.bits()).collect()),
            mean(frames().map(|both| 100.0 * both.up.error()).collect()),
            mean(frames().map(|both| both.down.bits()).collect()),
            mean(frames().map(|both| 100.0 * both.down.error()).collect()),
            show(perplexity),
            show(Spread::of(more)),
            show(Spread::of(own().filter_map(|outcome| Some(outcome.modules_alone?.perplexity())))),
        );
    }
}
