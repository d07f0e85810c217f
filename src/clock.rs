//! Time as the protocol knows it: whole milliseconds on some clock of the peer's own, passed in, never read.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// A point on a peer's own monotonic clock. Comparable only on one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Millis(pub u64);

impl Millis {
    /// Milliseconds since `earlier`; zero if that lies ahead.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Millis {
    type Output = Self;

    fn add(self, duration_ms: u64) -> Self {
        Self(self.0.saturating_add(duration_ms))
    }
}

impl Sub<u64> for Millis {
    type Output = Self;

    fn sub(self, duration_ms: u64) -> Self {
        Self(self.0.saturating_sub(duration_ms))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} s", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_wraps() {
        assert_eq!(Millis(5).since(Millis(9)), 0);
        assert_eq!(Millis(u64::MAX) + 1, Millis(u64::MAX));
        assert_eq!(Millis(3) - 9, Millis(0));
        assert_eq!(Millis(61_007).to_string(), "61.007 s");
    }
}
