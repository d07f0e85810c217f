//! What must hold at every moment, or at the end, one promise a file.

pub mod counted_once;
pub mod none_lost;
pub mod one_state;
