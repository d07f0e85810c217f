//! What keeps one peer from costing the others too much: limits, scores and bans.

pub(super) mod bans;
pub(super) mod per_ip_limiter;
pub(super) mod rate_limiter;
pub(super) mod score;
