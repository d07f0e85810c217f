//! The parts of one module's replica: its history, its owner, the offers for the next update, their aggregation, and
//! the updates to apply.

pub(super) mod aggregation;
pub(super) mod apply_queue;
pub(super) mod attestation;
pub(super) mod catch_up;
pub mod chain;
pub mod collection;
pub(super) mod doubt;
pub(super) mod history;
pub(super) mod leadership;
pub(super) mod offers;
pub(super) mod phase_durations;
pub mod quorum;
pub(super) mod validate;
