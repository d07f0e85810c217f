//! What must hold at every moment, one promise a file.

pub mod counted_once;
pub mod one_state;
