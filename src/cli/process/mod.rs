//! The process itself: signals, panics, and the threads that the system allows.

pub mod panics;
pub mod runtime;
pub mod signals;

/// From now on, what this process writes is its user's alone: a run's folder
/// holds a key, text and private models.
pub fn private_files() {
    // SAFETY: it only sets a number of this process.
    unsafe { libc::umask(0o077) };
}
