//! TODO-TOUR

pub(super) mod fetch;
