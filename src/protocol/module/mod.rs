//! TODO-TOUR

pub mod chain;
pub mod collection;
pub mod places;
pub(super) mod validate;
