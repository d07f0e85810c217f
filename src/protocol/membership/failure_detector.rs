//! Who is alive, as measured: each peer's beats have a rhythm of their own, and one is taken for dead when it has been
//! silent for clearly longer than it ever was lately.

use crate::clock::Millis;
use crate::protocol::limits::{
    BEATS_MEASURED, LEASE_LEAST_MS, LEASE_MOST_MS, MEMBER_LEASE_MS, RHYTHM_MS, SUSPECT_LEAST_MS,
};

/// How regularly a peer is heard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rhythm {
    /// Since when, in this start of the peer's.
    began: Millis,
    heard: Millis,
    beats: u64,
    /// The longest silence of the present and of the last stretch of time.
    longest_ms: [u64; 2],
    stretch_began: Millis,
}

impl Rhythm {
    /// Begins with a beat.
    pub fn new(now: Millis) -> Self {
        Self { began: now, heard: now, beats: 1, longest_ms: [0; 2], stretch_began: now }
    }

    /// A beat. What was not heard before `awake`, when this node stood still itself, is no silence of the peer's.
    pub fn hear(&mut self, now: Millis, awake: Millis) {
        let silence_ms = now.since(self.heard.max(awake));
        if now.since(self.stretch_began) >= RHYTHM_MS {
            self.longest_ms = [0, self.longest_ms[0]];
            self.stretch_began = now;
        }
        self.longest_ms[0] = self.longest_ms[0].max(silence_ms);
        self.heard = now;
        self.beats += 1;
    }

    /// Silent for longer, it is taken for dead: one and a half times its longest silence lately.
    pub fn lease_ms(&self) -> u64 {
        if self.beats < BEATS_MEASURED {
            return MEMBER_LEASE_MS;
        }
        let longest_ms = self.longest_ms[0].max(self.longest_ms[1]);
        (longest_ms * 3 / 2).clamp(LEASE_LEAST_MS, LEASE_MOST_MS)
    }

    /// When it was last heard, if it has been silent for so long that it had better be asked.
    pub fn silent_since(&self, now: Millis, awake: Millis) -> Option<Millis> {
        let longest_ms = self.longest_ms[0].max(self.longest_ms[1]);
        let patience_ms = (longest_ms * 9 / 8).max(SUSPECT_LEAST_MS);
        let measured = self.beats >= BEATS_MEASURED;
        (measured && now.since(self.heard.max(awake)) >= patience_ms).then_some(self.heard)
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
    use crate::protocol::limits::BEAT_MS;

    fn beating(every_ms: u64, beats: u64) -> Rhythm {
        let mut rhythm = Rhythm::new(Millis(0));
        for beat in 1..beats {
            rhythm.hear(Millis(beat * every_ms), Millis(0));
        }
        rhythm
    }

    #[test]
    fn a_regular_peer_is_missed_after_two_beats_and_one_that_is_often_late_after_more() {
        assert_eq!(beating(BEAT_MS, 3).lease_ms(), MEMBER_LEASE_MS);
        assert_eq!(beating(BEAT_MS, 40).lease_ms(), LEASE_LEAST_MS);
        assert_eq!(beating(3 * BEAT_MS, 40).lease_ms(), 4_500);
        assert_eq!(beating(60 * BEAT_MS, 40).lease_ms(), LEASE_MOST_MS);
    }

    #[test]
    fn a_long_silence_is_forgotten_after_a_while() {
        let mut rhythm = beating(BEAT_MS, 40);
        rhythm.hear(Millis(44_000), Millis(0));
        assert_eq!(rhythm.lease_ms(), 7_500);
        for beat in 1..=2 * RHYTHM_MS / BEAT_MS {
            rhythm.hear(Millis(44_000 + beat * BEAT_MS), Millis(0));
        }
        assert_eq!(rhythm.lease_ms(), LEASE_LEAST_MS);
    }

    #[test]
    fn who_stood_still_takes_nobody_for_dead() {
        let mut rhythm = beating(BEAT_MS, 40);
        assert!(!rhythm.lives(Millis(60_000), Millis(0)));
        assert!(rhythm.lives(Millis(60_000), Millis(59_000)));
        rhythm.hear(Millis(60_000), Millis(59_500));
        assert_eq!(rhythm.lease_ms(), LEASE_LEAST_MS);
    }
}
