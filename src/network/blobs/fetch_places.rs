//! The places of fetches: a few for those that make progress, and as many again for slow ones.
//!
//! A blob that only slow donors have must not keep its place from blobs of others. So a fetch that brings little while
//! others wait moves to a slow place; if there is none left, it waits for a place again, after those that wait. One that
//! has become faster moves back.

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
    /// None while it waits for a place again.
    permit: Option<OwnedSemaphorePermit>,
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
        let mut place = FetchPlace { permit: None, is_slow: false, since: (Instant::now(), 0) };
        self.enter_again(&mut place, 0).await?;
        Some(place)
    }

    /// Gives a place up, and waits for the next one. So many bytes have come by now. `None` only if the places are gone.
    #[expect(clippy::disallowed_methods, reason = "an edge: how fast a fetch is")]
    pub(crate) async fn enter_again(&self, place: &mut FetchPlace, bytes: u64) -> Option<()> {
        place.permit = None;
        let waits = Waits::new(&self.waiting);
        let permit = self.fast.clone().acquire_owned().await;
        drop(waits);
        *place = FetchPlace { permit: Some(permit.ok()?), is_slow: false, since: (Instant::now(), bytes) };
        Some(())
    }

    /// Looks at a fetch's progress: so many bytes have come by now.
    pub(crate) fn look_at(&self, place: &mut FetchPlace, now: Instant, bytes: u64) -> Result<(), TooSlow> {
        let (since, before) = place.since;
        let took = now.saturating_duration_since(since);
        if took < FETCH_PROGRESS_WITHIN {
            return Ok(());
        }
        place.since = (now, bytes);
        match (place.is_slow, self.is_slow(took, bytes.saturating_sub(before))) {
            (true, false) => {
                if let Ok(permit) = self.fast.clone().try_acquire_owned() {
                    (place.permit, place.is_slow) = (Some(permit), false);
                }
            }
            (false, true) if self.waiting.load(Ordering::Relaxed) > 0 => {
                let permit = self.slow.clone().try_acquire_owned().map_err(|_| TooSlow)?;
                (place.permit, place.is_slow) = (Some(permit), true);
            }
            _ => {}
        }
        Ok(())
    }

    fn is_slow(&self, took: Duration, bytes: u64) -> bool {
        bytes as f64 * FETCH_PROGRESS_WITHIN.as_secs_f64() < self.least_bytes as f64 * took.as_secs_f64()
    }
}

/// Counts a fetch that waits, until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
    fn a_fetch_that_becomes_faster_is_not_slow_any_more() {
        let places = FetchPlaces::new(0);
        let mut entered: Vec<FetchPlace> = (0..FETCHES).map(|_| enter(&places).unwrap()).collect();
        let mut waits = Box::pin(places.enter());
        assert!(waits.as_mut().now_or_never().is_none());
        let mut place = entered.remove(0);
        let at = |windows: u32| entered[0].since.0 + windows * FETCH_PROGRESS_WITHIN;
        let (first, second, third) = (at(1), at(2), at(3));
        assert_eq!(places.look_at(&mut place, first, 0), Ok(()));
        let other = waits.as_mut().now_or_never().flatten().unwrap();
        assert_eq!((place.is_slow, places.slow.available_permits()), (true, SLOW_FETCHES - 1));
        assert_eq!(places.look_at(&mut place, second, FETCH_PROGRESS_BYTES), Ok(()));
        assert!(place.is_slow, "there is no place to move to");
        drop(other);
        assert_eq!(places.look_at(&mut place, third, 2 * FETCH_PROGRESS_BYTES), Ok(()));
        assert_eq!((place.is_slow, places.slow.available_permits()), (false, SLOW_FETCHES));
        assert_eq!(places.fast.available_permits(), 0);
    }

    #[test]
    fn when_all_slow_places_are_taken_another_slow_fetch_waits_again_behind_those_that_wait() {
        let places = FetchPlaces::new(0);
        let slow: Vec<_> = (0..SLOW_FETCHES).map(|_| places.slow.clone().try_acquire_owned().unwrap()).collect();
        let mut entered: Vec<FetchPlace> = (0..FETCHES).map(|_| enter(&places).unwrap()).collect();
        let mut waits = Box::pin(places.enter());
        assert!(waits.as_mut().now_or_never().is_none());
        let mut place = entered.remove(0);
        let late = place.since.0 + FETCH_PROGRESS_WITHIN;
        assert_eq!(places.look_at(&mut place, late, 7), Err(TooSlow));
        let mut again = Box::pin(places.enter_again(&mut place, 7));
        assert!(again.as_mut().now_or_never().is_none(), "the other one is first");
        let other = waits.as_mut().now_or_never().flatten().unwrap();
        assert!(again.as_mut().now_or_never().is_none());
        drop(other);
        assert_eq!(again.as_mut().now_or_never(), Some(Some(())));
        drop(again);
        assert_eq!((place.since.1, places.waiting.load(Ordering::Relaxed), slow.len()), (7, 0, SLOW_FETCHES));
    }
}
