//! What a program shows while it works: progress for whoever watches, a log for whoever looks later.

mod board;
pub mod logging;
pub mod progress;
mod views;

pub use logging::{LogGuard, LoggingError};
pub use progress::{PeerProgress, Progress, ProgressEvent, ProgressGuard, View, Waits};
