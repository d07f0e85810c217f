//! What systemd is told, or whoever else has given this process a socket in `NOTIFY_SOCKET`. Without one, nothing is told.

use sd_notify::NotifyState;

/// The command has begun its work.
pub fn tell_ready() {
    tell(NotifyState::Ready);
}

/// Everything that was asked has answered. If this is not told for the time of `WatchdogSec`, systemd ends the process.
pub fn tell_alive() {
    tell(NotifyState::Watchdog);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}
