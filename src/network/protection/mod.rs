//! Limits the cost that one peer can cause to others.
//!
//! [`per_ip_limiter`] bounds connections from one IP address, [`rate_limiter`] a peer's messages and requests per
//! second, [`bandwidth_limiter`] the bytes of blobs. [`score`] adds up offences; from a threshold on, the peer is
//! banned.

pub(super) mod bandwidth_limiter;
pub(super) mod offences;
pub(super) mod per_ip_limiter;
pub(super) mod rate_limiter;
