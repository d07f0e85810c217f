//! Limits the bandwidth of blobs: a token bucket that fills at the machine's rate, from which peers take in turn.
//!
//! Gossip and RPC never wait for it, but their bytes are subtracted. So all traffic together stays under the limit,
//! unless gossip and RPC alone exceed it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libp2p::PeerId;
use tokio::sync::oneshot;

use crate::network::traffic::{Counters, Direction};

/// Limits of sending and receiving, all traffic included; 0 for none. Only blobs wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    pub upload_bytes_per_s: u64,
    pub download_bytes_per_s: u64,
}

/// Bytes taken at a time: a thirtieth of a second, so that many peers take turns without long waits, but at least this.
const LEAST_SLICE_BYTES: u64 = 1024;
/// And at most this.
const MOST_SLICE_BYTES: u64 = 64 * 1024;

/// Time for which a peer's use counts after its last turn.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Number of a request.
type Ticket = u64;

/// A bucket from which peers take equal shares in turn. Time is passed in.
struct Bucket<K> {
    bytes_per_s: u64,
    /// Capacity: a quarter of a second.
    most: u64,
    /// Level, in bytes times 10^9; negative after charges without waiting.
    level: i128,
    at: Duration,
    waiting: BTreeMap<K, VecDeque<(Ticket, u64)>>,
    /// Recent use of each peer, and its last turn. The peer with the least use comes first.
    taken: BTreeMap<K, (u64, Duration)>,
    next_ticket: Ticket,
}

const NANO: i128 = 1_000_000_000;

impl<K: Ord + Copy> Bucket<K> {
    fn new(bytes_per_s: u64) -> Self {
        let most = (bytes_per_s / 4).max(slice_of(bytes_per_s));
        Self {
            bytes_per_s,
            most,
            level: i128::from(most) * NANO,
            at: Duration::ZERO,
            waiting: BTreeMap::new(),
            taken: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    fn ask(&mut self, who: K, bytes: u64) -> Ticket {
        self.next_ticket += 1;
        let now = self.at;
        self.taken.retain(|other, (_, at)| *other == who || now.saturating_sub(*at) < REMEMBERED);
        // A new or returning peer has no claim from before.
        let least = self.taken.values().map(|(bytes, _)| *bytes).min().unwrap_or(0);
        let of = self.taken.entry(who).or_insert((least, now));
        if now.saturating_sub(of.1) >= REMEMBERED {
            *of = (of.0.max(least), now);
        }
        self.waiting.entry(who).or_default().push_back((self.next_ticket, bytes.min(self.most)));
        self.next_ticket
    }

    fn cancel(&mut self, who: K, ticket: Ticket) {
        if let Some(queue) = self.waiting.get_mut(&who) {
            queue.retain(|(other, _)| *other != ticket);
            self.waiting.retain(|_, queue| !queue.is_empty());
        }
    }

    /// Subtracts bytes that did not wait. At most one second's worth is kept as debt.
    fn charge(&mut self, bytes: u64) {
        self.level = (self.level - i128::from(bytes) * NANO).max(-i128::from(self.bytes_per_s) * NANO);
    }

    /// The requests whose turn it is by now, in order.
    fn due(&mut self, now: Duration) -> Vec<Ticket> {
        let passed = now.saturating_sub(self.at).as_nanos() as i128;
        self.at = self.at.max(now);
        self.level = (self.level + passed * i128::from(self.bytes_per_s)).min(i128::from(self.most) * NANO);
        let mut due = Vec::new();
        while let Some((who, bytes)) = self.next() {
            if self.level < i128::from(bytes) * NANO {
                break;
            }
            self.level -= i128::from(bytes) * NANO;
            let of = self.taken.entry(who).or_default();
            *of = (of.0 + bytes, self.at);
            let Some(queue) = self.waiting.get_mut(&who) else { break };
            due.extend(queue.pop_front().map(|(ticket, _)| ticket));
            if queue.is_empty() {
                self.waiting.remove(&who);
            }
        }
        due
    }

    /// The first request of the peer with the least use.
    fn next(&self) -> Option<(K, u64)> {
        let taken = |who: &K| self.taken.get(who).map_or(0, |(bytes, _)| *bytes);
        let (who, queue) = self.waiting.iter().min_by_key(|(who, _)| taken(who))?;
        Some((*who, queue.front()?.1))
    }

    /// Time until the next turn.
    fn until_next(&self) -> Option<Duration> {
        let (_, bytes) = self.next()?;
        let lacking = (i128::from(bytes) * NANO - self.level).max(0);
        let nanos = lacking / i128::from(self.bytes_per_s).max(1) + 1;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

fn slice_of(bytes_per_s: u64) -> u64 {
    (bytes_per_s / 30).clamp(LEAST_SLICE_BYTES, MOST_SLICE_BYTES)
}

/// The limit of one direction; unlimited without a rate.
pub(crate) struct BandwidthLimiter {
    limited: Option<Limited>,
}

struct Limited {
    state: Mutex<State>,
    direction: Direction,
    counters: Arc<Counters>,
    began: Instant,
    slice: usize,
}

struct State {
    bucket: Bucket<PeerId>,
    granted: BTreeMap<Ticket, oneshot::Sender<()>>,
    /// Bytes of messages already charged.
    messages: u64,
}

impl BandwidthLimiter {
    /// Bytes a second; 0 for no limit.
    #[expect(clippy::disallowed_methods, reason = "an edge: bytes for each second that really passes")]
    pub(crate) fn new(bytes_per_s: u64, direction: Direction, counters: Arc<Counters>) -> Self {
        let limited = (bytes_per_s > 0).then(|| Limited {
            state: Mutex::new(State { bucket: Bucket::new(bytes_per_s), granted: BTreeMap::new(), messages: 0 }),
            direction,
            counters,
            began: Instant::now(),
            slice: slice_of(bytes_per_s) as usize,
        });
        Self { limited }
    }

    /// How many of these bytes to move at a time.
    pub(crate) fn slice(&self, bytes: usize) -> usize {
        self.limited.as_ref().map_or(bytes, |limited| limited.slice.min(bytes))
    }

    /// Waits until so many bytes may be moved to or from a peer: at most [`BandwidthLimiter::slice`].
    pub(crate) async fn take(&self, peer: PeerId, bytes: usize) {
        let Some(limited) = &self.limited else { return };
        let (told, mut granted) = oneshot::channel();
        let waiting = {
            let mut state = limited.lock();
            let ticket = state.bucket.ask(peer, bytes as u64);
            state.granted.insert(ticket, told);
            Waiting { limited, peer, ticket }
        };
        loop {
            let pause = waiting.limited.grant_due();
            tokio::select! {
                _ = &mut granted => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

impl Limited {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The bucket is consistent between two calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all whose turn it is. Returns the time until the next turn.
    fn grant_due(&self) -> Duration {
        let mut state = self.lock();
        let messages = self.counters.messages(self.direction);
        let before = std::mem::replace(&mut state.messages, messages);
        state.bucket.charge(messages.saturating_sub(before));
        for ticket in state.bucket.due(self.began.elapsed()) {
            if let Some(told) = state.granted.remove(&ticket) {
                // A task that has ended does not need it.
                let _ = told.send(());
            }
        }
        state.bucket.until_next().unwrap_or(Duration::from_secs(1))
    }
}

/// A place in the queue, left when dropped.
struct Waiting<'a> {
    limited: &'a Limited,
    peer: PeerId,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.limited.lock();
        if state.granted.remove(&self.ticket).is_some() {
            state.bucket.cancel(self.peer, self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of two peers after some seconds, one of which uses several streams; checked every millisecond.
    fn shared_out(seconds: u64, streams: [usize; 2]) -> [u64; 2] {
        let mut bucket = Bucket::new(1_000_000);
        let slice = slice_of(1_000_000);
        let mut got = [0, 0];
        let mut whose = BTreeMap::new();
        let wants = |bucket: &mut Bucket<usize>, whose: &mut BTreeMap<Ticket, usize>, who: usize| {
            whose.insert(bucket.ask(who, slice), who);
        };
        for (who, streams) in streams.into_iter().enumerate() {
            (0..streams).for_each(|_| wants(&mut bucket, &mut whose, who));
        }
        for millisecond in 0..=seconds * 1_000 {
            for ticket in bucket.due(Duration::from_millis(millisecond)) {
                let who = whose.remove(&ticket).unwrap();
                got[who] += slice;
                wants(&mut bucket, &mut whose, who);
            }
        }
        got
    }

    #[test]
    fn a_second_brings_what_the_cap_says_and_no_more() {
        let [bytes, _] = shared_out(10, [1, 0]);
        let most = 10 * 1_000_000 + 250_000;
        assert!(bytes <= most && bytes > most - 2 * slice_of(1_000_000), "{bytes}");
    }

    #[test]
    fn peers_get_the_same_however_many_streams_each_has() {
        let [one, other] = shared_out(10, [1, 7]);
        assert!(one.abs_diff(other) <= slice_of(1_000_000), "{one} and {other}");
    }

    #[test]
    fn whoever_is_slow_to_ask_again_gets_no_less_and_whoever_was_away_no_more() {
        let mut bucket = Bucket::new(1_000);
        let turn = |bucket: &mut Bucket<u8>, second: u64| bucket.due(Duration::from_secs(second));
        let (first, second) = (bucket.ask(1, 1_024), bucket.ask(2, 1_024));
        assert_eq!(turn(&mut bucket, 0), [first]);
        let third = bucket.ask(1, 1_024);
        assert_eq!(turn(&mut bucket, 2), [second], "it has had nothing yet");
        let fourth = bucket.ask(2, 1_024);
        assert_eq!((turn(&mut bucket, 4), turn(&mut bucket, 6)), (vec![third], vec![fourth]));
        for second in 7..20 {
            let ticket = bucket.ask(1, 1_024);
            assert_eq!(turn(&mut bucket, 2 * second), [ticket]);
        }
        // Peer 2 has taken thirteen fewer, but was away.
        let tickets = [bucket.ask(2, 1_024), bucket.ask(2, 1_024), bucket.ask(1, 1_024)];
        let turns: Vec<Ticket> = [42, 44, 46].into_iter().flat_map(|second| turn(&mut bucket, second)).collect();
        assert_eq!(turns, [tickets[2], tickets[0], tickets[1]]);
    }

    #[test]
    fn messages_never_wait_and_are_taken_into_account() {
        let mut bucket = Bucket::new(1_000);
        bucket.charge(1_024 + 500);
        let ticket = bucket.ask(1, 1_024);
        assert!(bucket.due(Duration::from_millis(1_500)).is_empty());
        assert_eq!(bucket.until_next(), Some(Duration::from_nanos(24_000_001)));
        assert_eq!(bucket.due(Duration::from_millis(1_525)), [ticket]);
        // However many bytes are charged, a blob is delayed by at most one second.
        bucket.charge(u64::MAX);
        let ticket = bucket.ask(1, 1_000);
        assert!(bucket.due(Duration::from_millis(3_400)).is_empty());
        assert_eq!(bucket.due(Duration::from_millis(3_600)), [ticket]);
    }

    #[test]
    fn whoever_leaves_the_queue_takes_nothing() {
        let mut bucket = Bucket::new(1_000);
        let (first, second) = (bucket.ask(1, 1_024), bucket.ask(2, 1_024));
        bucket.cancel(1, first);
        assert_eq!(bucket.due(Duration::ZERO), [second]);
        assert_eq!((bucket.until_next(), bucket.waiting.len()), (None, 0));
    }
}
