//! The process itself: signals, panics, and the threads that the system allows.

pub mod panics;
pub mod runtime;
pub mod signals;
