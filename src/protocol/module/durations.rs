//! How long the last phases took, and the deadlines that follow from it.

use std::collections::VecDeque;

use crate::protocol::limits::{DEADLINE_FACTOR, DEADLINE_LEAST_MS, DURATIONS_KEPT};

/// How long phases took, from which deadlines follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    last_ms: VecDeque<u64>,
}

impl Durations {
    /// A collection was open for this long.
    pub fn add(&mut self, duration_ms: u64) {
        if self.last_ms.len() == DURATIONS_KEPT {
            self.last_ms.pop_front();
        }
        self.last_ms.push_back(duration_ms);
    }

    /// How long the quicker ones took; nothing before anything was measured. The longest, or the middle one, would grow
    /// each time that something stops the phases.
    pub fn quicker_ms(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.last_ms.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 4).copied()
    }

    /// How long to wait at the most.
    pub fn deadline_ms(&self) -> Option<u64> {
        Some((self.quicker_ms()? * DEADLINE_FACTOR).max(DEADLINE_LEAST_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_from_what_was_measured() {
        let mut durations = Durations::default();
        assert_eq!(durations.deadline_ms(), None);
        durations.add(10);
        assert_eq!(durations.deadline_ms(), Some(DEADLINE_LEAST_MS));
        for took_ms in [60_000, 60_000, 900_000, 900_000, 900_000] {
            durations.add(took_ms);
        }
        assert_eq!(durations.deadline_ms(), Some(180_000), "those that were held up count little");
    }
}
