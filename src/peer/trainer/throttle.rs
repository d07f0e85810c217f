//! The rate limit of a trainer: with a limit in the machine's profile, the trainer rests after a step, and others may
//! use the device.

use std::time::{Duration, Instant};

/// Keeps to a rate, from the first step on.
#[derive(Debug)]
pub struct Pace {
    tokens_per_s: u64,
    /// The end of the last step at this rate.
    due: Option<Instant>,
}

impl Pace {
    /// Tokens a second; 0 for no limit.
    pub fn new(tokens_per_s: u64) -> Self {
        Self { tokens_per_s, due: None }
    }

    /// Records a step. Returns the time that it counts for: at least that of the rate, with the wait for the device.
    pub fn made(&mut self, tokens: u64, began: Instant, now: Instant) -> Duration {
        if self.tokens_per_s == 0 {
            return now.saturating_duration_since(began);
        }
        let least = Duration::from_secs_f64(tokens as f64 / self.tokens_per_s as f64);
        // A late step does not hurry the next one.
        let due = (self.due.unwrap_or(began) + least).max(now);
        let counts = if due > now { least } else { least.max(now.saturating_duration_since(began)) };
        self.due = Some(due);
        counts
    }

    /// The rest before the next step.
    pub fn rest(&self, now: Instant) -> Duration {
        self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    #[expect(clippy::disallowed_methods, reason = "some instant to count from")]
    fn steps_come_at_the_rate_however_long_each_took_and_one_that_is_late_is_not_made_up_for() {
        let began = Instant::now();
        let at = |tenths: u32| began + SECOND * tenths / 10;
        let mut pace = Pace::new(100);
        assert_eq!(pace.made(100, at(0), at(2)), SECOND);
        assert_eq!(pace.rest(at(2)), SECOND * 8 / 10);
        // It had to wait for the device, and is nevertheless due a second after the first.
        assert_eq!((pace.made(100, at(14), at(16)), pace.rest(at(16))), (SECOND, SECOND * 4 / 10));
        assert_eq!((pace.made(100, at(20), at(35)), pace.rest(at(35))), (SECOND * 15 / 10, Duration::ZERO));
        assert_eq!((pace.made(100, at(35), at(36)), pace.rest(at(36))), (SECOND, SECOND * 9 / 10));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "some instant to count from")]
    fn without_a_rate_a_step_counts_for_what_it_took_and_nobody_rests() {
        let (began, mut pace) = (Instant::now(), Pace::new(0));
        assert_eq!(pace.made(100, began, began + SECOND / 2), SECOND / 2);
        assert_eq!(pace.rest(began + SECOND / 2), Duration::ZERO);
    }
}
