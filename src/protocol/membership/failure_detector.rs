//! The failure detector. It measures the arrival window of each peer's heartbeats, and considers a peer dead when it
//! has been silent for clearly longer than its recent silences.

use crate::clock::Millis;
use crate::protocol::limits::{
    ARRIVAL_WINDOW_MS, HEARTBEATS_MEASURED, LEASE_LEAST_MS, LEASE_MOST_MS, MEMBER_LEASE_MS, PROBE_AFTER_LEAST_MS,
};

/// The arrival window: how regularly a peer's heartbeats arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrivalWindow {
    /// When the first heartbeat of the peer's current start arrived.
    began: Millis,
    heard: Millis,
    heartbeats: u64,
    /// The longest silence in the current and in the previous stretch of time.
    longest_ms: [u64; 2],
    stretch_began: Millis,
}

impl ArrivalWindow {
    /// Begins with the first heartbeat.
    pub fn new(now: Millis) -> Self {
        Self { began: now, heard: now, heartbeats: 1, longest_ms: [0; 2], stretch_began: now }
    }

    /// Notes a heartbeat. Before `awake` this node was suspended itself, so that time is not a silence of the peer.
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

    /// The adaptive time-out: one and a half times the longest recent silence. A peer that is silent for longer is
    /// considered dead.
    pub fn lease_ms(&self) -> u64 {
        if self.heartbeats < HEARTBEATS_MEASURED {
            return MEMBER_LEASE_MS;
        }
        let longest_ms = self.longest_ms[0].max(self.longest_ms[1]);
        (longest_ms * 3 / 2).clamp(LEASE_LEAST_MS, LEASE_MOST_MS)
    }

    /// When the peer was last heard, if it has been silent for so long that it should be probed.
    pub fn silent_since(&self, now: Millis, awake: Millis) -> Option<Millis> {
        let longest_ms = self.longest_ms[0].max(self.longest_ms[1]);
        let timeout_ms = (longest_ms * 9 / 8).max(PROBE_AFTER_LEAST_MS);
        let measured = self.heartbeats >= HEARTBEATS_MEASURED;
        (measured && now.since(self.heard.max(awake)) >= timeout_ms).then_some(self.heard)
    }

    /// Whether the peer is alive, as judged by a node that has been awake since then.
    pub fn lives(&self, now: Millis, awake: Millis) -> bool {
        now.since(self.heard.max(awake)) < self.lease_ms()
    }

    /// How long the peer has been heard without a restart.
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
    fn a_regular_peer_times_out_after_two_heartbeats_and_an_irregular_one_later() {
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
    fn a_node_that_was_suspended_considers_nobody_dead() {
        let mut arrivals = sending(HEARTBEAT_MS, 40);
        assert!(!arrivals.lives(Millis(60_000), Millis(0)));
        assert!(arrivals.lives(Millis(60_000), Millis(59_000)));
        arrivals.hear(Millis(60_000), Millis(59_500));
        assert_eq!(arrivals.lease_ms(), LEASE_LEAST_MS);
    }
}
