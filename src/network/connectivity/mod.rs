//! From a peer's name to a connection, without the task that owns the swarm.
//!
//! [`addresses`] says which addresses can be dialled and passed on. [`providers`] leads from any one peer to the members of a
//! module. [`connect`] makes one attempt for each peer, and [`dial_error`] says why it failed. [`relays`] are those that are
//! known and give this peer reservations; [`routes`] are the connections to each peer, direct or relayed.
//! [`reachability`] and
//! [`observed_address`] are what others say of this peer. [`direct_only`] and [`gossip_connection`] choose the connections
//! that blobs and gossip use.

pub(super) mod addresses;
pub(super) mod connect;
pub(super) mod dial_error;
pub(super) mod direct_only;
pub(super) mod gossip_connection;
pub(super) mod observed_address;
pub(super) mod providers;
pub(super) mod reachability;
pub(super) mod relays;
pub(super) mod routes;
