//! Display of a running program: progress for the terminal, and a log file.
//!
//! A program sends each [`ProgressEvent`] to a [`Progress`], which keeps it in a bounded `queue`. The display's thread
//! keeps the newest event of each peer on a `board` and shows them in one of the `views`. [`logging`] writes the log file.

mod board;
mod event;
pub mod logging;
pub mod progress;
mod queue;
mod terminal;
mod views;

pub use event::{PeerProgress, ProgressEvent, Waits};
pub use progress::Progress;
pub use views::View;
