//! TODO-TOUR

pub(super) mod failure_detector;
pub mod incarnation;
pub(super) mod response_times;
pub mod roster;
