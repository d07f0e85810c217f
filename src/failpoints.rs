//! Places at which a thread or task panics because a test wants it to, in builds with the feature `failpoints`. In others there
//! are none.
//!
//! `FAILPOINT=store@20` ends the thread of the store when it comes by for the twentieth time, once in the life of the
//! process: what is started again in its place goes on.

/// Panics here if the environment names this place.
///
/// # Panics
/// See there: it is what it is for.
#[cfg(feature = "failpoints")]
#[track_caller]
pub fn failpoint(place: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let read = || {
        let wanted = std::env::var("FAILPOINT").ok()?;
        let (place, times) = wanted.split_once('@')?;
        Some((place.to_owned(), times.parse().ok()?))
    };
    let wanted = WANTED.get_or_init(read).as_ref().filter(|(wanted, _)| wanted == place);
    if let Some((_, times)) = wanted
        && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *times
    {
        panic!("planted in {place}");
    }
}

/// Nothing.
#[cfg(not(feature = "failpoints"))]
pub fn failpoint(_place: &str) {}
