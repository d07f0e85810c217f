//! The inner learning rate: linear warm-up, then decay to a share of the peak, by a cosine or linearly at the end.

use std::f64::consts::PI;

use crate::config::{Decay, TrainingConfig};
use crate::names::Phase;

/// Position in the schedule of a step in a path's phase of `steps` inner steps. A phase with fewer steps than the run's
/// covers the same part of the schedule, since the progress of the path's modules sets the learning rate.
pub fn place_in_schedule(training: &TrainingConfig, phase: Phase, step: u64, steps: u64) -> u64 {
    let all = training.inner_steps;
    training.ancestor_steps + phase.0 * all + step.min(steps) * all / steps.max(1)
}

/// The learning rate of a step by an optimiser that took so many since it started from rest. It is at most what linear
/// warm-up over [`TrainingConfig::rewarm_steps`] allows.
pub fn learning_rate_since_rest(training: &TrainingConfig, step: u64, since_rest: u64) -> f64 {
    let scheduled = learning_rate(training, step);
    match training.rewarm_steps {
        0 => scheduled,
        steps => scheduled.min(training.learning_rate * (since_rest + 1) as f64 / steps as f64),
    }
}

/// The learning rate of a step. Step 0 is the ancestor's first. After the run's last step it stays at its final value.
/// Each restart begins at the peak and ends where the next one begins.
pub fn learning_rate(training: &TrainingConfig, step: u64) -> f64 {
    let (peak, warmup) = (training.learning_rate, training.warmup_steps);
    if step < warmup {
        return peak * (step + 1) as f64 / warmup as f64;
    }
    let restarts = training.decay_restarts.iter().map(|phase| training.ancestor_steps + phase * training.inner_steps);
    let mut from = warmup;
    let mut until = training.total_steps();
    for restart in restarts {
        if step < restart {
            until = restart;
            break;
        }
        from = from.max(restart);
    }
    let from = match training.decay {
        Decay::Cosine => from,
        Decay::Last(steps) => from.max(until.saturating_sub(steps)),
    };
    let progress = (step.saturating_sub(from) as f64 / until.saturating_sub(from).max(1) as f64).min(1.0);
    let left = match training.decay {
        Decay::Cosine => 0.5 * (1.0 + (PI * progress).cos()),
        Decay::Last(_) => 1.0 - progress,
    };
    let share = training.final_learning_rate_share;
    peak * (share + (1.0 - share) * left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::samples::small_run;

    #[test]
    fn an_optimiser_that_starts_from_rest_is_warmed_up_again() {
        let mut training = small_run().training;
        (training.ancestor_steps, training.phases, training.inner_steps) = (10, 9, 10);
        (training.learning_rate, training.warmup_steps) = (1e-3, 10);
        let rate = |training: &TrainingConfig, step, since| learning_rate_since_rest(training, step, since);
        assert_eq!(rate(&training, 10, 0), 1e-3, "not unless one asks for it");
        training.rewarm_steps = 4;
        let found = [0, 1, 2, 3, 4].map(|since| rate(&training, 10 + since, since));
        assert!(
            found[..3].iter().zip([2.5e-4, 5e-4, 7.5e-4]).all(|(found, expected)| (found - expected).abs() < 1e-12)
        );
        assert_eq!(found[3..], [13, 14].map(|step| learning_rate(&training, step)), "what the schedule allows");
        assert_eq!(rate(&training, 0, 0), 1e-4, "the first warm-up is slower");
    }

    #[test]
    fn it_rises_to_the_peak_and_falls_to_its_share() {
        let mut training = small_run().training;
        (training.ancestor_steps, training.phases, training.inner_steps) = (10, 9, 10);
        (training.learning_rate, training.final_learning_rate_share, training.warmup_steps) = (1e-3, 0.1, 10);
        let rate = |step| learning_rate(&training, step);
        assert!((rate(0) - 1e-4).abs() < 1e-12);
        assert!((rate(9) - 1e-3).abs() < 1e-12);
        assert!((rate(10) - 1e-3).abs() < 1e-12);
        assert!((rate(55) - 5.5e-4).abs() < 1e-12);
        assert!((rate(100) - 1e-4).abs() < 1e-12);
        assert!((rate(u64::MAX) - 1e-4).abs() < 1e-12);
        assert!((10..99).all(|step| rate(step) > rate(step + 1)));
    }

    #[test]
    fn it_falls_anew_from_each_restart() {
        let mut training = small_run().training;
        (training.ancestor_steps, training.phases, training.inner_steps) = (10, 9, 10);
        (training.learning_rate, training.final_learning_rate_share, training.warmup_steps) = (1e-3, 0.1, 10);
        training.decay_restarts = vec![4, 7];
        let rate = |step| learning_rate(&training, step);
        assert!((rate(30) - 5.5e-4).abs() < 1e-12, "half way to the first restart");
        for (restart, next) in [(50, 80), (80, 100)] {
            assert!((rate(restart) - 1e-3).abs() < 1e-12 && rate(restart - 1) < 2e-4, "{restart}");
            assert!((restart..next - 1).all(|step| rate(step) > rate(step + 1)));
        }
        assert!((rate(u64::MAX) - 1e-4).abs() < 1e-12);
        // A restart within the warm-up changes nothing.
        training.warmup_steps = 60;
        assert!((learning_rate(&training, 59) - 1e-3).abs() < 1e-12);
        assert!((learning_rate(&training, 60) - 1e-3).abs() < 1e-12);
    }

    #[test]
    fn it_may_stay_at_the_peak_and_fall_in_a_line_at_the_end() {
        let mut training = small_run().training;
        (training.ancestor_steps, training.phases, training.inner_steps) = (10, 9, 10);
        (training.learning_rate, training.final_learning_rate_share, training.warmup_steps) = (1e-3, 0.0, 10);
        training.decay = Decay::Last(20);
        let rate = |step| learning_rate(&training, step);
        assert!((10..=80).all(|step| rate(step) == 1e-3));
        assert!((rate(90) - 5e-4).abs() < 1e-12 && rate(100) == 0.0);
        assert!((80..99).all(|step| rate(step) > rate(step + 1)));
        // Longer than the steps after the warm-up: decay begins at the warm-up's end.
        training.decay = Decay::Last(99);
        assert!((learning_rate(&training, 55) - 5e-4).abs() < 1e-12);
    }

    #[test]
    fn a_phase_of_fewer_steps_takes_as_much_of_the_schedule() {
        let mut training = small_run().training;
        (training.ancestor_steps, training.inner_steps) = (10, 8);
        let places = |steps| (0..steps).map(|step| place_in_schedule(&training, Phase(2), step, steps)).collect();
        let all: Vec<u64> = places(8);
        assert_eq!(all, (26..34).collect::<Vec<u64>>());
        let three: Vec<u64> = places(3);
        assert_eq!(three, [26, 28, 31]);
        assert_eq!(place_in_schedule(&training, Phase(3), 0, 3), 34);
    }

    #[test]
    fn a_run_of_warm_up_alone_does_not_divide_by_zero() {
        let mut training = small_run().training;
        training.warmup_steps = training.total_steps();
        assert!(learning_rate(&training, training.warmup_steps).is_finite());
    }
}
