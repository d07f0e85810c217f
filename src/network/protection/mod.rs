//! Limits the cost that one peer can cause to others.
//!
//! [`per_ip_limiter`] bounds connections from one IP address, [`connection_places`] shares those of all, [`rate_limiter`] a peer's messages and requests per
//! second, [`bandwidth_limiter`] the bytes of blobs. [`offences`] adds up a peer's offences; from a threshold on, it is
//! banned. [`places`] and [`fair_budget`] share what there is not enough of.

pub(super) mod bandwidth_limiter;
pub(super) mod connection_places;
pub(super) mod fair_budget;
pub(super) mod offences;
pub(super) mod per_ip_limiter;
pub(super) mod places;
pub(super) mod rate_limiter;
