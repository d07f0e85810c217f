//! One module: its chain of updates, the collection of contributions for the next one, and what an update must fulfil.

pub mod chain;
pub mod collection;
pub(super) mod validate;
