//! How messages travel: late, out of order, or not at all.

use rand_chacha::ChaCha8Rng;

use super::faults::{chance, within};

/// The same for every pair of peers.
#[derive(Clone, Debug)]
pub struct Links {
    /// One way. Each message has its own: a wide range reorders them.
    pub delay_ms: std::ops::Range<u64>,
    /// Share of messages that are lost. Requests and blobs are lost as a whole.
    pub loss: f64,
    /// For blobs.
    pub bytes_per_ms: u64,
}

impl Links {
    /// When a message of this size arrives after now; nothing if it is lost.
    pub fn travel_ms(&self, bytes: u64, dice: &mut ChaCha8Rng) -> Option<u64> {
        let delay = within(dice, &self.delay_ms) + bytes / self.bytes_per_ms.max(1);
        (!chance(dice, self.loss)).then_some(delay)
    }
}
