//! Limits the bandwidth of blobs: a bucket that fills at the machine's rate, from which streams take in turn.
//!
//! Gossip and RPC never wait for it, but their bytes are subtracted. So all traffic together stays under the limit,
//! unless gossip and RPC alone exceed it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::network::traffic::{Counters, Direction};

/// Limits of sending and receiving, all traffic included; 0 for none. Only blobs wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    pub upload_bytes_per_s: u64,
    pub download_bytes_per_s: u64,
}

/// Bytes taken at a time: a thirtieth of a second, so that many streams take turns without long waits, but at least
/// this.
const LEAST_SLICE_BYTES: u64 = 1024;
/// And at most this.
const MOST_SLICE_BYTES: u64 = 64 * 1024;

/// Capacity of the bucket.
const BURST: Duration = Duration::from_millis(250);

/// Limit of the delay of blobs by messages.
const MOST_DEBT: Duration = Duration::from_secs(1);

/// The bucket. Time is passed in.
struct Bucket {
    bytes_per_s: u64,
    /// When the bytes so far have passed at the rate.
    free_at: Duration,
    /// Bytes of messages already charged.
    messages: u64,
}

impl Bucket {
    fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, free_at: Duration::ZERO, messages: 0 }
    }

    /// Time until bytes may be taken, with so many bytes of messages since the start.
    fn wait(&mut self, now: Duration, messages: u64) -> Duration {
        let before = std::mem::replace(&mut self.messages, messages);
        let charged = self.free_at.max(now.saturating_sub(BURST)) + self.time_of(messages.saturating_sub(before));
        self.free_at = charged.min(self.free_at.max(now + MOST_DEBT));
        self.free_at.saturating_sub(now)
    }

    fn take(&mut self, bytes: u64) {
        self.free_at += self.time_of(bytes);
    }

    fn time_of(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64)
    }
}

/// The limit of one direction; unlimited without a rate.
pub(crate) struct BandwidthLimiter {
    limited: Option<Limited>,
}

struct Limited {
    /// Locked by the stream that waits for its bytes. Other streams wait for the lock.
    bucket: Mutex<Bucket>,
    direction: Direction,
    counters: Arc<Counters>,
    began: Instant,
    slice: usize,
}

impl BandwidthLimiter {
    /// Bytes a second; 0 for no limit.
    #[expect(clippy::disallowed_methods, reason = "an edge: bytes for each second that really passes")]
    pub(crate) fn new(bytes_per_s: u64, direction: Direction, counters: Arc<Counters>) -> Self {
        let limited = (bytes_per_s > 0).then(|| Limited {
            bucket: Mutex::new(Bucket::new(bytes_per_s)),
            direction,
            counters,
            began: Instant::now(),
            slice: (bytes_per_s / 30).clamp(LEAST_SLICE_BYTES, MOST_SLICE_BYTES) as usize,
        });
        Self { limited }
    }

    /// How many of these bytes to move at a time.
    pub(crate) fn slice(&self, bytes: usize) -> usize {
        self.limited.as_ref().map_or(bytes, |limited| limited.slice.min(bytes))
    }

    /// Waits until so many bytes may be moved: at most [`BandwidthLimiter::slice`].
    pub(crate) async fn take(&self, bytes: usize) {
        let Some(limited) = &self.limited else { return };
        let mut bucket = limited.bucket.lock().await;
        loop {
            match bucket.wait(limited.began.elapsed(), limited.counters.messages(limited.direction)) {
                Duration::ZERO => return bucket.take(bytes as u64),
                wait => tokio::time::sleep(wait).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_second_brings_what_the_cap_says_and_no_more() {
        let (mut bucket, mut bytes) = (Bucket::new(1_000_000), 0);
        for millisecond in 5_000..=15_000 {
            while bucket.wait(Duration::from_millis(millisecond), 0).is_zero() {
                bucket.take(30_000);
                bytes += 30_000;
            }
        }
        assert!((10_220_000..=10_280_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn messages_never_wait_and_are_taken_into_account() {
        let mut bucket = Bucket::new(1_000);
        assert_eq!(bucket.wait(SECOND, 500), Duration::from_millis(250));
        assert_eq!(bucket.wait(SECOND, 500), Duration::from_millis(250), "they are charged once");
        bucket.take(1_000);
        assert_eq!(bucket.wait(SECOND, 500), Duration::from_millis(1_250));
        // However many bytes are charged, a blob is delayed by at most one second.
        assert_eq!(bucket.wait(2 * SECOND, u64::MAX), SECOND);
    }
}
