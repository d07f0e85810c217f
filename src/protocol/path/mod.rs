//! TODO-TOUR

pub(super) mod contributions;
pub(super) mod watchdog;
