//! From text to values: files, the environment and flags, and where each value came from.

pub(super) mod key_positions;
pub mod resolve;
pub(super) mod schema;
pub mod settings;
