//! Disk pressure: a disk does not take what is written, because it is full, read-only or over its quota. A thread that must
//! not lose what it writes waits, and is listed here meanwhile; the peer then acts on nothing that it could lose.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// Between two attempts to write. A disk gives no sign when there is room again.
pub const RETRY: Duration = Duration::from_secs(2);

/// The writes that wait, and why. Clones share it.
#[derive(Clone, Debug)]
pub struct DiskPressure {
    waiting: Arc<watch::Sender<BTreeMap<u64, String>>>,
    next: Arc<AtomicU64>,
}

/// One write that waits, until this is dropped.
#[derive(Debug)]
#[must_use = "the pressure ends when this is dropped"]
pub struct PressureGuard {
    number: u64,
    pressure: DiskPressure,
}

impl Default for DiskPressure {
    fn default() -> Self {
        Self { waiting: Arc::new(watch::Sender::default()), next: Arc::default() }
    }
}

impl DiskPressure {
    /// Somebody begins to wait.
    pub fn begin(&self, reason: impl ToString) -> PressureGuard {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.send_modify(|waiting| drop(waiting.insert(number, reason.to_string())));
        PressureGuard { number, pressure: self.clone() }
    }

    /// Why the first of those who wait does; nothing if nobody waits.
    pub fn reason(&self) -> Option<String> {
        self.waiting.borrow().values().next().cloned()
    }

    /// Whether anybody waits.
    pub fn is_active(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Wakes whenever somebody begins or ends to wait.
    pub fn watch(&self) -> watch::Receiver<BTreeMap<u64, String>> {
        self.waiting.subscribe()
    }
}

impl Drop for PressureGuard {
    fn drop(&mut self) {
        self.pressure.waiting.send_modify(|waiting| drop(waiting.remove(&self.number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_lasts_until_the_last_that_waits_is_served() {
        let pressure = DiskPressure::default();
        let mut watch = pressure.watch();
        let (first, second) = (pressure.begin("the journal"), pressure.clone().begin("a blob"));
        assert_eq!(pressure.reason().as_deref(), Some("the journal"));
        drop(first);
        assert_eq!(pressure.reason().as_deref(), Some("a blob"));
        drop(second);
        assert!(!pressure.is_active() && watch.has_changed().unwrap() && watch.borrow_and_update().is_empty());
    }
}
