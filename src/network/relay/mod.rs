//! Relays: the server, and the client side that reserves a place on one and connects through it.

pub(super) mod relay_connect;
pub(super) mod relays;
pub(super) mod reservations;
pub(super) mod server;
