//! Who crashes when, and the dice.

use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// Crashes: the peer loses everything that is not on its disk, and comes back later.
#[derive(Clone, Debug)]
pub struct Faults {
    /// How many.
    pub crashes: usize,
    /// How long a crashed peer is away.
    pub down_ms: Range<u64>,
    /// None begins after this time; what follows must make progress.
    pub until_ms: u64,
}

/// A peer that is away from one time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Which.
    pub peer: usize,
    /// From.
    pub at_ms: u64,
    /// Back at.
    pub back_ms: u64,
}

impl Faults {
    /// The crashes of one seed, drawn for this many peers.
    pub fn draw(&self, peers: usize, dice: &mut ChaCha8Rng) -> Vec<Crash> {
        let mut crashes: Vec<Crash> = Vec::new();
        for _ in 0..self.crashes {
            let peer = within(dice, &(0..peers as u64)) as usize;
            let at_ms = within(dice, &(10_000..self.until_ms.max(10_001)));
            let back_ms = at_ms + within(dice, &self.down_ms);
            let overlaps = |crash: &Crash| crash.peer == peer && at_ms <= crash.back_ms && crash.at_ms <= back_ms;
            if !crashes.iter().any(overlaps) {
                crashes.push(Crash { peer, at_ms, back_ms });
            }
        }
        crashes
    }
}

/// A number from a range.
pub fn within(dice: &mut ChaCha8Rng, range: &Range<u64>) -> u64 {
    let width = range.end.saturating_sub(range.start).max(1);
    range.start + dice.next_u64() % width
}

/// Whether something of this probability happens.
pub fn chance(dice: &mut ChaCha8Rng, probability: f64) -> bool {
    (dice.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= probability && probability > 0.0
}
