//! TODO-TOUR

pub mod record;
