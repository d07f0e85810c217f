//! The places of fetches: a few for those that make progress, and as many again for slow ones.
//!
//! A blob that only slow donors have must not keep its place from blobs of others. So a fetch that brings little while
//! others wait moves to a slow place; if there is none left, it ends, and can be resumed later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::network::limits::{FETCH_PROGRESS_BYTES, FETCH_PROGRESS_WITHIN, FETCHES, SLOW_FETCHES};

/// All places.
pub(crate) struct FetchPlaces {
    fast: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// What a fetch brings at least within [`FETCH_PROGRESS_WITHIN`] if it is not slow.
    least_bytes: u64,
}

/// The place of one fetch.
pub(crate) struct FetchPlace {
    permit: OwnedSemaphorePermit,
    is_slow: bool,
    /// When its progress was last measured, and the bytes that had come.
    since: (Instant, u64),
}

/// The fetch brings too little, and others wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooSlow;

impl FetchPlaces {
    /// With this machine's limit of bytes received a second; 0 for none.
    pub(crate) fn new(limit_bytes_per_s: u64) -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        let share = limit_bytes_per_s * FETCH_PROGRESS_WITHIN.as_secs() / (2 * FETCHES as u64);
        let least_bytes = if limit_bytes_per_s == 0 { FETCH_PROGRESS_BYTES } else { share.min(FETCH_PROGRESS_BYTES) };
        Self { fast: places(FETCHES), slow: places(SLOW_FETCHES), waiting: AtomicUsize::new(0), least_bytes }
    }

    /// Waits for a place. `None` only if the places are gone.
    #[expect(clippy::disallowed_methods, reason = "an edge: how fast a fetch is")]
    pub(crate) async fn enter(&self) -> Option<FetchPlace> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let permit = self.fast.clone().acquire_owned().await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(FetchPlace { permit: permit.ok()?, is_slow: false, since: (Instant::now(), 0) })
    }

    /// Looks at a fetch's progress: so many bytes have come by now.
    pub(crate) fn look_at(&self, place: &mut FetchPlace, now: Instant, bytes: u64) -> Result<(), TooSlow> {
        let (since, before) = place.since;
        let took = now.saturating_duration_since(since);
        if place.is_slow || took < FETCH_PROGRESS_WITHIN {
            return Ok(());
        }
        place.since = (now, bytes);
        if !self.is_slow(took, bytes.saturating_sub(before)) || self.waiting.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let permit = self.slow.clone().try_acquire_owned().map_err(|_| TooSlow)?;
        place.permit = permit;
        place.is_slow = true;
        Ok(())
    }

    fn is_slow(&self, took: Duration, bytes: u64) -> bool {
        bytes as f64 * FETCH_PROGRESS_WITHIN.as_secs_f64() < self.least_bytes as f64 * took.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn enter(places: &FetchPlaces) -> Option<FetchPlace> {
        places.enter().now_or_never().flatten()
    }

    #[test]
    fn fetches_that_bring_little_make_room_for_those_that_wait() {
        let places = FetchPlaces::new(0);
        let mut trickling: Vec<FetchPlace> = (0..FETCHES).map(|_| enter(&places).unwrap()).collect();
        let began = trickling[0].since.0;
        let mut at =
            |windows: u32, bytes| places.look_at(&mut trickling[0], began + windows * FETCH_PROGRESS_WITHIN, bytes);
        assert_eq!((at(1, 10), at(2, 20)), (Ok(()), Ok(())));
        assert!(places.slow.available_permits() == SLOW_FETCHES, "nobody waits, so it stays");
        let mut waits = Box::pin(places.enter());
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(at(3, 20 + FETCH_PROGRESS_BYTES), Ok(()));
        assert!(waits.as_mut().now_or_never().is_none(), "it brings enough");
        assert_eq!(at(4, 30 + FETCH_PROGRESS_BYTES), Ok(()));
        assert!(waits.as_mut().now_or_never().flatten().is_some(), "it brings too little");
    }

    #[test]
    fn under_a_bandwidth_limit_nobody_is_slow_that_gets_its_share() {
        let places = FetchPlaces::new(16 * 1024);
        assert!(!places.is_slow(FETCH_PROGRESS_WITHIN, 3 * 2 * 1024), "an eighth");
        assert!(places.is_slow(FETCH_PROGRESS_WITHIN, 1024));
    }

    #[test]
    fn when_all_slow_places_are_taken_another_slow_fetch_ends() {
        let places = FetchPlaces::new(0);
        let mut entered = Vec::new();
        let mut waits = Vec::new();
        for _ in 0..FETCHES + SLOW_FETCHES + 1 {
            let mut coming = Box::pin(places.enter());
            match coming.as_mut().now_or_never() {
                Some(place) => entered.push(place.unwrap()),
                None => waits.push(coming),
            }
        }
        let mut ends = 0;
        for _ in 0..SLOW_FETCHES + 1 {
            let mut place = entered.remove(0);
            let late = place.since.0 + FETCH_PROGRESS_WITHIN;
            match places.look_at(&mut place, late, 0) {
                Ok(()) => entered.push(place),
                Err(TooSlow) => ends += 1,
            }
            waits.retain_mut(|waits| match waits.as_mut().now_or_never().flatten() {
                Some(place) => {
                    entered.insert(0, place);
                    false
                }
                None => true,
            });
        }
        assert_eq!((ends, places.slow.available_permits()), (1, 0));
    }
}
