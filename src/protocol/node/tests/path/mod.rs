//! Tests of a node's work on paths.

pub(super) mod devices;
pub(super) mod evaluation;
pub(super) mod hand_off;
pub(super) mod lateness;
pub(super) mod leave;
pub(super) mod placement;
pub(super) mod resume;
pub(super) mod streaming;
pub(super) mod trainers;
pub(super) mod watchdog;
pub(super) mod worker_slot;
