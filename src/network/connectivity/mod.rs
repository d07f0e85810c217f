//! Addresses, dials, routes, hole punching and reachability.

pub(super) mod addresses;
pub(super) mod connect;
pub(super) mod dial;
pub(super) mod dial_error;
pub(super) mod direct_only;
pub(super) mod gossip_connection;
pub(super) mod hole_punching;
pub(super) mod observed_address;
pub(super) mod providers;
pub(super) mod reachability;
pub(super) mod routes;
