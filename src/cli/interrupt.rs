//! Ctrl-C, SIGTERM and SIGHUP: the first one stops in order, the second one at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

#[cfg(feature = "learning")]
pub use super::mistake::Interrupted;
use super::process::signals;

/// How long work on another thread may take to notice that it is no longer wanted.
#[cfg(feature = "learning")]
const NOTICES_WITHIN: Duration = Duration::from_secs(3);

/// Whether the user asked to stop.
#[derive(Clone, Default)]
pub struct Interrupt {
    notify: Arc<Notify>,
}

impl Interrupt {
    /// Begins to listen. Must be called within a tokio runtime.
    pub fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = Self::default();
        let (mut kill, mut key) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut line = signals::hears_hang_up().then(|| signal(SignalKind::hangup())).transpose()?;
        let heard = interrupt.clone();
        tokio::spawn(async move {
            loop {
                let hang_up = async {
                    match &mut line {
                        Some(line) => line.recv().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = kill.recv() => {}
                    _ = key.recv() => {}
                    _ = hang_up => {}
                }
                heard.notify.notify_waiters();
            }
        });
        signals::heed();
        Ok(interrupt)
    }

    /// Begins to listen, for commands that only look at the flag.
    #[cfg(feature = "learning")]
    pub fn flagged() -> &'static AtomicBool {
        signals::heed();
        signals::asked()
    }

    /// For threads that poll.
    #[cfg(feature = "learning")]
    pub fn flag(&self) -> &AtomicBool {
        signals::asked()
    }

    /// Whether it has happened.
    pub fn happened(&self) -> bool {
        signals::asked().load(Ordering::SeqCst)
    }

    /// Waits until it happens.
    pub async fn wait(&self) {
        let notified = self.notify.notified();
        if !self.happened() {
            notified.await;
        }
    }

    /// The outcome of work on another thread that polls the flag. Work that does not notice in time is left behind.
    ///
    /// # Errors
    /// If the user asked to stop and the work went on, or it panicked.
    #[cfg(feature = "learning")]
    pub async fn unless_left<T>(&self, work: JoinHandle<T>) -> anyhow::Result<T> {
        let left = async {
            self.wait().await;
            tokio::time::sleep(NOTICES_WITHIN).await;
        };
        tokio::select! {
            done = work => Ok(done?),
            () = left => Err(Interrupted.into()),
        }
    }
}
