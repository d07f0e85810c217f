//! The share of the device's time that answers may take from the trainers.

use std::time::Duration;

/// Time that may be used at once after a quiet while: some answers, so that a person who asks seldom does not wait.
const BURST: Duration = Duration::from_secs(10);

/// What answers may still take. Time is passed in.
#[derive(Debug)]
pub(super) struct DeviceShare {
    share: f64,
    /// Seconds; negative after an answer that took more than there was.
    left_s: f64,
    at: Duration,
}

impl DeviceShare {
    /// Of this share of the time, from 0 to 1.
    pub(super) fn new(share: f64) -> Self {
        Self { share, left_s: BURST.as_secs_f64(), at: Duration::ZERO }
    }

    /// How long no answer may begin.
    pub(super) fn wait(&mut self, now: Duration) -> Option<Duration> {
        let gained = now.saturating_sub(self.at).as_secs_f64() * self.share;
        (self.left_s, self.at) = ((self.left_s + gained).min(BURST.as_secs_f64()), now.max(self.at));
        let wait_s = (-self.left_s / self.share).max(0.0);
        (self.left_s < 0.0).then(|| Duration::try_from_secs_f64(wait_s).unwrap_or(Duration::MAX))
    }

    /// An answer has taken so long from trainers that wanted the device.
    pub(super) fn take(&mut self, took: Duration) {
        self.left_s -= took.as_secs_f64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_questions_gets_its_share_and_a_single_one_does_not_wait() {
        let (mut share, took) = (DeviceShare::new(0.1), Duration::from_millis(500));
        let (mut now, mut answering) = (Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(1_000) {
            match share.wait(now) {
                None => {
                    share.take(took);
                    (now, answering) = (now + took, answering + took);
                }
                Some(wait) => now += wait.max(Duration::from_millis(1)),
            }
        }
        assert!((100.0..=112.0).contains(&answering.as_secs_f64()), "{answering:?} of 1000 s");
        assert_eq!(share.wait(now + Duration::from_secs(200)), None, "after a quiet while");
    }

    #[test]
    fn without_a_share_only_what_trainers_do_not_want_is_used() {
        let mut share = DeviceShare::new(0.0);
        assert_eq!(share.wait(Duration::from_secs(5)), None);
        share.take(BURST + Duration::from_secs(1));
        assert_eq!(share.wait(Duration::from_secs(50)), Some(Duration::MAX));
    }
}
