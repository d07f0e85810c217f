//! Who is alive, as measured: each peer's heartbeats have a arrivals of their own, and one is taken for dead when it has been
//! silent for clearly longer than it ever was lately.

use crate::clock::Millis;
use crate::protocol::limits::{
    ARRIVAL_WINDOW_MS, HEARTBEATS_MEASURED, LEASE_LEAST_MS, LEASE_MOST_MS, MEMBER_LEASE_MS, PROBE_AFTER_LEAST_MS,
};

/// How regularly a peer is heard.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrivalWindow {
    /// Since when, in this start of the peer's.
    began: Millis,
    heard: Millis,
    heartbeats: u64,
    /// The longest silence of the present and of the last stretch of time.
    longest_ms: [u64; 2],
    stretch_began: Millis,
}

impl ArrivalWindow {
    /// Begins with a heartbeat.
    pub fn new(now: Millis) -> Self {
        Self { began: now, heard: now, heartbeats: 1, longest_ms: [0; 2], stretch_began: now }
    }

    /// A heartbeat. What was not heard before `awake`, when this node stood still itself, is no silence of the peer's.
    pub fn hear(&mut self, now: Millis, awake: Millis) {
        let silence_ms = now.since(self.heard.max(awake));
        if now.since(self.stretch_began) >= ARRIVAL_WINDOW_MS {
            self.longest_ms = [0, self.longest_ms[0]];
            self.stretch_began = now;
        }
        self.longest_ms[0] = self.longest_ms[0].max(silence_ms);
        self.heard = now;
        self.heartbeats += 1;
    }

    /// Silent for longer, it is taken for dead: one and a half times its longest silence lately.
    pub fn lease_ms(&self) -> u64 {
        if self.heartbeats < HEARTBEATS_MEASURED {
            return MEMBER_LEASE_MS;
        }
        let longest_ms = self.longest_ms[0].max(self.longest_ms[1]);
        (longest_ms * 3 / 2).clamp(LEASE_LEAST_MS, LEASE_MOST_MS)
    }

    /// When it was last heard, if it has been silent for so long that it had better be asked.
    pub fn silent_since(&self, now: Millis, awake: Millis) -> Option<Millis> {
        let longest_ms = self.longest_ms[0].max(self.longest_ms[1]);
        let timeout_ms = (longest_ms * 9 / 8).max(PROBE_AFTER_LEAST_MS);
        let measured = self.heartbeats >= HEARTBEATS_MEASURED;
        (measured && now.since(self.heard.max(awake)) >= timeout_ms).then_some(self.heard)
    }

    /// Whether it is alive, as far as a node can tell that has been awake since then.
    pub fn lives(&self, now: Millis, awake: Millis) -> bool {
        now.since(self.heard.max(awake)) < self.lease_ms()
    }

    /// For how long it has been heard without a new start.
    pub fn steady_ms(&self, now: Millis) -> u64 {
        now.since(self.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::limits::HEARTBEAT_MS;

    fn sending(every_ms: u64, heartbeats: u64) -> ArrivalWindow {
        let mut arrivals = ArrivalWindow::new(Millis(0));
        for heartbeat in 1..heartbeats {
            arrivals.hear(Millis(heartbeat * every_ms), Millis(0));
        }
        arrivals
    }

    #[test]
    fn a_regular_peer_is_missed_after_two_beats_and_one_that_is_often_late_after_more() {
        assert_eq!(sending(HEARTBEAT_MS, 3).lease_ms(), MEMBER_LEASE_MS);
        assert_eq!(sending(HEARTBEAT_MS, 40).lease_ms(), LEASE_LEAST_MS);
        assert_eq!(sending(3 * HEARTBEAT_MS, 40).lease_ms(), 4_500);
        assert_eq!(sending(60 * HEARTBEAT_MS, 40).lease_ms(), LEASE_MOST_MS);
    }

    #[test]
    fn a_long_silence_is_forgotten_after_a_while() {
        let mut arrivals = sending(HEARTBEAT_MS, 40);
        arrivals.hear(Millis(44_000), Millis(0));
        assert_eq!(arrivals.lease_ms(), 7_500);
        for heartbeat in 1..=2 * ARRIVAL_WINDOW_MS / HEARTBEAT_MS {
            arrivals.hear(Millis(44_000 + heartbeat * HEARTBEAT_MS), Millis(0));
        }
        assert_eq!(arrivals.lease_ms(), LEASE_LEAST_MS);
    }

    #[test]
    fn who_stood_still_takes_nobody_for_dead() {
        let mut arrivals = sending(HEARTBEAT_MS, 40);
        assert!(!arrivals.lives(Millis(60_000), Millis(0)));
        assert!(arrivals.lives(Millis(60_000), Millis(59_000)));
        arrivals.hear(Millis(60_000), Millis(59_500));
        assert_eq!(arrivals.lease_ms(), LEASE_LEAST_MS);
    }
}
