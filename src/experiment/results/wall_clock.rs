//! The losses of arms after equal time, if an experiment asks for it.

use std::fmt::Write as _;

use crate::experiment::plan::Experiment;
use crate::experiment::results::outcome::{Outcome, Point};
use crate::experiment::results::spread::{Spread, of_arm};

/// Adds a table of seconds, and of the held-out loss of each arm at the time when the quickest was done.
pub fn table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
    // Other work of the machine only adds to a seed's seconds.
    let least = |name: &str| of_arm(outcomes, name).map(|outcome| outcome.seconds).reduce(f64::min);
    let Some(quickest) = experiment.arms.iter().filter_map(|arm| least(&arm.name)).reduce(f64::min) else { return };
    if !experiment.wall_clock {
        return;
    }
    let _ = write!(
        page,
        "\n## In equal time\n\nSeconds of training after the ancestor, of the quickest seed: what else a machine does only adds to \
         them. Held out nats a token after {quickest:.0} s, when the first arm was done, and at the end of each.\n\n\
         | arm | seconds | steps in {quickest:.0} s | loss in {quickest:.0} s | loss at the end |\n|---|---|---|---|---|\n"
    );
    for arm in &experiment.arms {
        let Some(seconds) = least(&arm.name) else { continue };
        let share = quickest / seconds;
        let then: Vec<(f64, f64)> =
            of_arm(outcomes, &arm.name).filter_map(|outcome| after(&outcome.curve, share)).collect();
        let steps = Spread::of(then.iter().map(|(steps, _)| *steps)).map(|spread| spread.mean);
        let losses = [
            Spread::of(then.iter().map(|(_, loss)| *loss)),
            Spread::of(of_arm(outcomes, &arm.name).filter_map(|outcome| Some(outcome.curve.last()?.loss))),
        ];
        let [then, end] = losses.map(|spread| spread.map_or_else(|| "unknown".to_owned(), |spread| spread.show(3)));
        let steps = steps.map_or_else(|| "unknown".to_owned(), |steps| format!("{steps:.0}"));
        let _ = writeln!(page, "| {} | {seconds:.0} | {steps} | {then} | {end} |", arm.name);
    }
}

/// Inner steps and loss after a share of a training's phases, interpolated between points; `None` before the first.
fn after(curve: &[Point], share: f64) -> Option<(f64, f64)> {
    let phases = share * curve.last()?.phases as f64;
    let values = |point: &Point| (point.steps as f64, point.loss);
    let next = curve.iter().position(|point| point.phases as f64 >= phases);
    let Some(next) = next else { return curve.last().map(values) };
    let (later, last) = (&curve[next], values(&curve[next]));
    let Some(before) = next.checked_sub(1).map(|before| &curve[before]) else {
        return (later.phases as f64 <= phases).then_some(last);
    };
    let part = (phases - before.phases as f64) / (later.phases - before.phases) as f64;
    let first = values(before);
    Some((first.0 + part * (last.0 - first.0), first.1 + part * (last.1 - first.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> Vec<Point> {
        let point = |(phases, loss)| Point { phases, steps: 100 + 50 * phases, tokens: 0, loss };
        [(1, 5.0), (2, 4.0), (4, 3.0)].map(point).into()
    }

    #[test]
    fn between_two_points_it_is_their_line() {
        assert_eq!(after(&curve(), 1.0), Some((300.0, 3.0)));
        assert_eq!(after(&curve(), 0.5), Some((200.0, 4.0)));
        assert_eq!(after(&curve(), 0.75), Some((250.0, 3.5)));
        assert_eq!(after(&curve(), 0.25), Some((150.0, 5.0)));
    }

    #[test]
    fn before_the_first_point_nothing_is_known() {
        assert_eq!(after(&curve(), 0.2), None);
        assert_eq!(after(&[], 1.0), None);
    }
}
