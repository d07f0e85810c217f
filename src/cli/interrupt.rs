//! Ctrl-C: the first one stops cleanly, the second one at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::mistake::INTERRUPTED;
#[cfg(feature = "learning")]
pub use super::mistake::Interrupted;

/// Whether the user asked to stop.
#[derive(Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    notify: Arc<Notify>,
}

impl Interrupt {
    /// Begins to listen for Ctrl-C and SIGTERM. Must be called within a tokio runtime.
    #[expect(clippy::disallowed_methods, reason = "the user asked twice: exit at once, without closing anything")]
    pub fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = Self::default();
        let (mut kill, mut key) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let heard = interrupt.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = kill.recv() => {}
                    _ = key.recv() => {}
                }
                if heard.flag.swap(true, Ordering::SeqCst) {
                    std::process::exit(INTERRUPTED.into());
                }
                heard.notify.notify_waiters();
            }
        });
        Ok(interrupt)
    }

    /// For threads that poll.
    #[cfg(feature = "learning")]
    pub fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Whether it has happened.
    pub fn happened(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }

    /// Waits until it happens.
    pub async fn wait(&self) {
        let notified = self.notify.notified();
        if !self.happened() {
            notified.await;
        }
    }
}
