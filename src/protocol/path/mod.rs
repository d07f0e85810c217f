//! TODO-TOUR

pub(super) mod watchdog;
