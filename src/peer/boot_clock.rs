//! A clock that goes on while the machine is suspended: to the other peers, a laptop that wakes was away.

use std::time::Duration;

/// The clock of the system since its start. `Instant` stands still while a Linux machine is suspended.
#[cfg(target_os = "linux")]
const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
/// On macOS, this one counts the time of sleep.
#[cfg(not(target_os = "linux"))]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// Counts from when it was made.
#[derive(Clone, Copy, Debug)]
pub struct BootClock(Duration);

impl BootClock {
    pub fn start() -> Self {
        Self(now())
    }

    /// The time since the start, with that of suspensions.
    pub fn elapsed(self) -> Duration {
        now().saturating_sub(self.0)
    }
}

fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one `timespec`, and fails only for an unknown clock.
    unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "the clock is compared with it")]
    #[test]
    fn it_never_goes_back_and_counts_no_less_than_the_time_awake() {
        let (clock, awake) = (BootClock::start(), std::time::Instant::now());
        let mut last = Duration::ZERO;
        for _ in 0..1000 {
            let at_least = awake.elapsed();
            let elapsed = clock.elapsed();
            assert!(elapsed >= last && elapsed >= at_least, "{elapsed:?} {at_least:?}");
            last = elapsed;
        }
    }
}
