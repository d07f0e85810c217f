//! TODO-TOUR

pub mod encoding;
pub mod message;
