//! What keeps one peer from costing the others too much.
//!
//! [`per_ip_limiter`] bounds connections from one address, [`rate_limiter`] what a peer says and asks in a second,
//! [`bandwidth_limiter`] the bytes of blobs. [`score`] adds up offences; from a threshold on the peer is banned.

pub(super) mod bandwidth_limiter;
pub(super) mod per_ip_limiter;
pub(super) mod rate_limiter;
pub(super) mod score;
