//! Disk pressure: the disk rejects writes, because it is full, read-only or over its quota. A thread that must not lose
//! its data waits, and is listed here. The peer then takes no action whose result could be lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// Time between two attempts to write, since a disk does not signal free space.
pub const RETRY: Duration = Duration::from_secs(2);

/// The waiting writes, and their reasons. Clones share them.
#[derive(Clone, Debug)]
pub struct DiskPressure {
    waiting: Arc<watch::Sender<BTreeMap<u64, String>>>,
    next: Arc<AtomicU64>,
}

/// One waiting write, until dropped.
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
    /// Registers a waiting write.
    pub fn begin(&self, reason: impl ToString) -> PressureGuard {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.send_modify(|waiting| drop(waiting.insert(number, reason.to_string())));
        PressureGuard { number, pressure: self.clone() }
    }

    /// The reason of the first waiting write; `None` without one.
    pub fn reason(&self) -> Option<String> {
        self.waiting.borrow().values().next().cloned()
    }

    /// Whether a write waits.
    pub fn is_active(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Wakes whenever a write begins or ends to wait.
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
