//! TODO-TOUR

pub(super) mod evidence;
pub mod norm_cap;
pub(super) mod not_contributing;
pub(super) mod owner_trust;
pub mod score;
