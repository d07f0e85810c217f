//! TODO-TOUR

pub mod chain;
pub mod collection;
pub(super) mod validate;
