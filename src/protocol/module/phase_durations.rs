//! The durations of recent phases, and the deadlines that follow from them.

use std::collections::VecDeque;

use crate::protocol::limits::{DEADLINE_FACTOR, DEADLINE_LEAST_MS, DURATIONS_KEPT};

/// The durations of phases. Deadlines follow from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    last_ms: VecDeque<u64>,
}

impl Durations {
    /// Adds the duration of a phase.
    pub fn add(&mut self, duration_ms: u64) {
        if self.last_ms.len() == DURATIONS_KEPT {
            self.last_ms.pop_front();
        }
        self.last_ms.push_back(duration_ms);
    }

    /// The duration of the faster phases; nothing before any was measured. The longest one, or the median, would grow
    /// each time something stalls the phases.
    pub fn quicker_ms(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.last_ms.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 4).copied()
    }

    /// The longest time to collect.
    pub fn deadline_ms(&self) -> Option<u64> {
        Some((self.quicker_ms()? * DEADLINE_FACTOR).max(DEADLINE_LEAST_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_follow_from_measured_durations() {
        let mut durations = Durations::default();
        assert_eq!(durations.deadline_ms(), None);
        durations.add(10);
        assert_eq!(durations.deadline_ms(), Some(DEADLINE_LEAST_MS));
        for took_ms in [60_000, 60_000, 900_000, 900_000, 900_000] {
            durations.add(took_ms);
        }
        assert_eq!(durations.deadline_ms(), Some(180_000), "stalled phases count little");
    }
}
