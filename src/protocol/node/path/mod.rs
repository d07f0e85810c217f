//! A node's work on its paths: placement, phases, lateness, hand-offs, evaluation and leaving.

pub(in crate::protocol) mod evaluation;
pub(in crate::protocol) mod hand_off;
pub(in crate::protocol) mod lateness;
pub(in crate::protocol) mod leave;
pub(in crate::protocol) mod pace;
pub(in crate::protocol) mod phase;
pub(in crate::protocol) mod placement;
pub(in crate::protocol) mod resume;
pub(in crate::protocol) mod streaming;
pub(in crate::protocol) mod takeover;
mod watchdog;
pub(in crate::protocol) mod worker_slot;
