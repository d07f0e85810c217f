//! What a program shows while it works: progress for somebody who watches, a log for somebody who looks later.
//!
//! A program sends each [`ProgressEvent`] to a [`Progress`]; its thread keeps the newest of each peer on a `board` and shows
//! them in one of the `views`. [`logging`] writes the log file.

mod board;
mod event;
pub mod logging;
pub mod progress;
mod views;

pub use event::{PeerProgress, ProgressEvent, Waits};
pub use logging::{LogGuard, LoggingError};
pub use progress::{Progress, ProgressGuard};
pub use views::View;
