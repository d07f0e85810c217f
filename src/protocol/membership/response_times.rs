//! Adaptive time-outs for requests and transfers, from recent response times.

use std::collections::VecDeque;

use crate::clock::Millis;
use crate::protocol::event::RequestId;
use crate::protocol::limits::{
    ANSWER_MS, GAP_TIMEOUT_MS, MAX_ASKING, OFFER_REPEAT_MS, REQUEST_LEAST_MS, REQUEST_MOST_MS, REQUEST_TIMEOUT_MS,
    RESPONSE_TIMES_KEPT, RESPONSE_TIMES_MEASURED, SETTLE_MOST_MS, SETTLE_MS, TIMEOUT_FACTOR, TRANSFER_LEAST_BYTES,
    TRANSFER_LEAST_MS, UNMEASURED_BYTES_PER_S,
};

/// Recent measurements.
#[derive(Debug, Default)]
pub(in crate::protocol) struct ResponseTimes {
    /// Pending requests, oldest first.
    asking: VecDeque<(RequestId, Millis)>,
    /// Response times.
    answers_ms: VecDeque<u64>,
    /// Bandwidths.
    bytes_per_s: VecDeque<u64>,
}

fn keep(measures: &mut VecDeque<u64>, measure: u64) {
    measures.push_back(measure);
    if measures.len() > RESPONSE_TIMES_KEPT {
        measures.pop_front();
    }
}

impl ResponseTimes {
    /// Number of pending requests.
    pub(in crate::protocol) fn requests_under_way(&self) -> usize {
        self.asking.len()
    }

    pub(in crate::protocol) fn requested(&mut self, now: Millis, id: RequestId) {
        self.asking.push_back((id, now));
        if self.asking.len() > MAX_ASKING {
            self.asking.pop_front();
        }
    }

    /// A request has a response, or has failed. A failure does not measure a response time.
    pub(in crate::protocol) fn responded(&mut self, now: Millis, id: RequestId, answers: bool) {
        let Some(at) = self.asking.iter().position(|(asked, _)| *asked == id) else { return };
        let Some((_, asked_at)) = self.asking.remove(at) else { return };
        if answers {
            keep(&mut self.answers_ms, now.since(asked_at));
        }
    }

    /// A blob has arrived. Small blobs measure latency rather than bandwidth.
    pub(in crate::protocol) fn transferred(&mut self, bytes: u64, took_ms: u64) {
        if bytes >= TRANSFER_LEAST_BYTES {
            keep(&mut self.bytes_per_s, bytes.saturating_mul(1_000) / took_ms.max(1));
        }
    }

    /// The median response time; nothing before a few were measured.
    fn answer_ms(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.answers_ms.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().filter(|_| sorted.len() >= RESPONSE_TIMES_MEASURED)
    }

    /// The time-out of a request.
    pub(in crate::protocol) fn request_ms(&self) -> u64 {
        let longest_ms = self.answers_ms.iter().max().filter(|_| self.answers_ms.len() >= RESPONSE_TIMES_MEASURED);
        longest_ms.map_or(REQUEST_TIMEOUT_MS, |longest_ms| {
            (TIMEOUT_FACTOR * longest_ms).clamp(REQUEST_LEAST_MS, REQUEST_MOST_MS)
        })
    }

    /// The time-out of a probe.
    pub(in crate::protocol) fn probe_ms(&self) -> u64 {
        (TIMEOUT_FACTOR * self.answer_ms().unwrap_or(0)).clamp(ANSWER_MS, 2 * ANSWER_MS)
    }

    /// How long a new or returning peer listens: one heartbeat of every member and a round trip.
    pub(in crate::protocol) fn settle_ms(&self) -> u64 {
        (SETTLE_MS + self.answer_ms().unwrap_or(0)).min(SETTLE_MOST_MS)
    }

    /// How long a member waits for an update that others already have.
    pub(in crate::protocol) fn gap_ms(&self) -> u64 {
        (2 * self.answer_ms().unwrap_or(0)).clamp(GAP_TIMEOUT_MS, 4 * GAP_TIMEOUT_MS)
    }

    /// The interval at which an offer that no update counts is repeated. An update that counts it may be on its way.
    pub(in crate::protocol) fn repeat_ms(&self) -> u64 {
        (TIMEOUT_FACTOR * self.answer_ms().unwrap_or(0)).clamp(OFFER_REPEAT_MS, 4 * OFFER_REPEAT_MS)
    }

    /// The longest time that so many bytes should take.
    pub(in crate::protocol) fn bytes_ms(&self, bytes: u64) -> u64 {
        let slowest = self.bytes_per_s.iter().min().copied();
        let bytes_per_s = slowest.map_or(UNMEASURED_BYTES_PER_S, |slowest| (slowest / TIMEOUT_FACTOR).max(1));
        bytes.saturating_mul(1_000) / bytes_per_s
    }

    /// The time-out of a transfer.
    pub(in crate::protocol) fn transfer_ms(&self, bytes: u64) -> u64 {
        TRANSFER_LEAST_MS.saturating_add(self.bytes_ms(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(took_ms: &[u64]) -> ResponseTimes {
        let mut times = ResponseTimes::default();
        for (number, took_ms) in took_ms.iter().enumerate() {
            let id = RequestId(number as u64);
            times.requested(Millis(1_000), id);
            times.responded(Millis(1_000 + took_ms), id, true);
        }
        times
    }

    #[test]
    fn the_request_time_out_adapts_to_the_longest_response_time() {
        assert_eq!(answered(&[5, 5]).request_ms(), REQUEST_TIMEOUT_MS, "too few measurements");
        assert_eq!(answered(&[20; 8]).request_ms(), REQUEST_LEAST_MS);
        assert_eq!(answered(&[20, 20, 20, 1_500]).request_ms(), 6_000, "by the longest");
        assert_eq!(answered(&[60_000; 8]).request_ms(), REQUEST_MOST_MS);
        let mut forgets = answered(&[60_000]);
        (0..RESPONSE_TIMES_KEPT).for_each(|_| keep(&mut forgets.answers_ms, 10));
        assert_eq!(forgets.request_ms(), REQUEST_LEAST_MS);
    }

    #[test]
    fn round_trips_are_estimated_by_the_median_response_time() {
        let (quick, slow) = (answered(&[20, 20, 20, 9_000]), answered(&[300; 8]));
        assert_eq!((quick.probe_ms(), slow.probe_ms()), (ANSWER_MS, 1_200));
        assert_eq!((quick.settle_ms(), slow.settle_ms()), (SETTLE_MS + 20, SETTLE_MS + 300));
        assert_eq!((quick.gap_ms(), slow.gap_ms()), (GAP_TIMEOUT_MS, 600));
    }

    #[test]
    fn a_transfer_may_take_four_times_as_long_as_at_the_slowest_recent_bandwidth() {
        let mut times = ResponseTimes::default();
        assert_eq!(times.transfer_ms(10 * UNMEASURED_BYTES_PER_S), TRANSFER_LEAST_MS + 10_000);
        times.transferred(10, 5_000);
        assert_eq!(times.transfer_ms(0), TRANSFER_LEAST_MS);
        times.transferred(4_000_000, 1_000);
        times.transferred(4_000_000, 4_000);
        assert_eq!(times.transfer_ms(2_500_000), TRANSFER_LEAST_MS + 10_000);
    }

    #[test]
    fn requests_without_a_response_are_forgotten() {
        let mut times = ResponseTimes::default();
        (0..2 * MAX_ASKING as u64).for_each(|number| times.requested(Millis(number), RequestId(number)));
        assert_eq!(times.requests_under_way(), MAX_ASKING);
        times.responded(Millis(9), RequestId(2 * MAX_ASKING as u64 - 1), false);
        assert_eq!((times.requests_under_way(), times.answers_ms.len()), (MAX_ASKING - 1, 0));
    }
}
