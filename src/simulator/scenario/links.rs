//! Links: messages are delayed, reordered, duplicated or lost.

use serde::Deserialize;

use crate::simulator::rng::{Between, SeededRng};

/// A network. A wide range of delays reorders messages.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Links {
    /// One way, drawn for each message.
    pub delay_ms: Between,
    /// Share of messages that take ten times as long.
    pub stragglers: f64,
    /// Share of messages that are lost. Requests and blobs are lost as a whole.
    pub loss: f64,
    /// Share of gossip that arrives twice.
    pub duplication: f64,
    /// Largest ratio of the delays of both directions, drawn for each pair.
    pub asymmetry: u64,
    /// Bandwidth for blobs.
    pub bytes_per_ms: u64,
    /// How long a fetch takes to fail if nobody serves the blob, as with a peer that does not answer until the time-out.
    pub unserved_ms: Between,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            delay_ms: [1, 20].into(),
            stragglers: 0.0,
            loss: 0.0,
            duplication: 0.0,
            asymmetry: 1,
            bytes_per_ms: 10_000,
            unserved_ms: [200, 200].into(),
        }
    }
}

impl Links {
    /// The delay of a message of this size between two peers; `None` if it is lost.
    pub fn travel_ms(&self, from: usize, to: usize, bytes: u64, rng: &mut SeededRng) -> Option<u64> {
        if rng.chance(self.loss) {
            return None;
        }
        let tail = if rng.chance(self.stragglers) { 10 } else { 1 };
        let delay_ms = rng.draw(self.delay_ms) * tail + bytes / self.bytes_per_ms.max(1);
        Some(delay_ms * self.slowness(from, to))
    }

    /// Fixed for each direction of each pair.
    fn slowness(&self, from: usize, to: usize) -> u64 {
        let mixed =
            (from as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (to as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        1 + (mixed >> 32) % self.asymmetry.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_direction_is_slower_than_the_other_and_some_messages_are_lost() {
        let links = Links { asymmetry: 5, loss: 0.1, delay_ms: [10, 10].into(), ..Links::default() };
        let mut rng = SeededRng::new(3, "test");
        let mut times =
            |from, to| -> Vec<Option<u64>> { (0..2_000).map(|_| links.travel_ms(from, to, 0, &mut rng)).collect() };
        let pairs = (0..6).flat_map(|a| (0..6).map(move |b| (a, b)));
        assert!(pairs.filter(|(a, b)| a != b).any(|(a, b)| links.slowness(a, b) != links.slowness(b, a)));
        let lost = times(0, 1).iter().filter(|time| time.is_none()).count();
        assert!((150..250).contains(&lost), "{lost}");
    }
}
