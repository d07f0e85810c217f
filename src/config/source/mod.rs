//! From text to values: files, the environment and flags, with the origin of each value.

pub(super) mod key_positions;
pub mod resolve;
pub(super) mod schema;
pub mod settings;
