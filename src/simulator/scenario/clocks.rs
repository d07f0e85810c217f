//! Peers' own clocks: with different offsets and rates.

use serde::Deserialize;

use crate::clock::Millis;
use crate::simulator::rng::SeededRng;

/// Bounds of clock differences.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Clocks {
    /// Largest offset at the start.
    pub skew_ms: u64,
    /// Largest drift, in millionths.
    pub drift_ppm: u64,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { skew_ms: 1_000_000, drift_ppm: 0 }
    }
}

/// One peer's.
#[derive(Clone, Copy, Debug)]
pub struct OwnClock {
    skew_ms: u64,
    /// Millionths of a second that pass in a second.
    rate_ppm: u64,
}

const MILLION: u64 = 1_000_000;

impl OwnClock {
    /// Draws offset and drift.
    pub fn new(clocks: &Clocks, rng: &mut SeededRng) -> Self {
        let drift_ppm = clocks.drift_ppm.min(MILLION / 2);
        let rate_ppm = rng.draw([MILLION - drift_ppm, MILLION + drift_ppm].into());
        Self { skew_ms: rng.draw([0, clocks.skew_ms].into()), rate_ppm }
    }

    /// Its reading at this time of the world.
    pub fn shows(&self, world_ms: u64) -> Millis {
        Millis(self.skew_ms + world_ms * self.rate_ppm / MILLION)
    }

    /// The first time of the world at which it has this reading.
    pub fn when_it_shows(&self, own: Millis) -> u64 {
        (own.0.saturating_sub(self.skew_ms) * MILLION).div_ceil(self.rate_ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_on_a_drifting_clock_is_met_and_not_before() {
        let mut rng = SeededRng::new(5, "test");
        let clocks = Clocks { skew_ms: 77_777, drift_ppm: 50_000 };
        for _ in 0..100 {
            let clock = OwnClock::new(&clocks, &mut rng);
            for own in [clock.shows(0).0 + 1, 100_000, 123_457, 9_999_999].map(Millis) {
                let at_ms = clock.when_it_shows(own);
                assert!(clock.shows(at_ms) >= own);
                assert!(at_ms == 0 || clock.shows(at_ms - 1) < own);
            }
        }
    }
}
