//! From a peer's key to a connection, without the task that owns the swarm.
//!
//! [`addresses`] decides which addresses can be dialled and passed on. [`providers`] finds the members of a module from
//! any one peer. [`connect`] makes one attempt for each peer, and [`dial_error`] explains its failure. [`relays`] has
//! the known relays and reservations; [`routes`] the connections to each peer, direct or relayed. [`reachability`] and
//! [`observed_address`] hold what others report about this peer. [`links`] is what is shown of connections. [`address_scope`] says who may name which address, and
//! [`scoped`] keeps to it, by the [`scopes`] of connections. [`direct_only`] and [`gossip_connection`] select the
//! connections for blobs and gossip.

pub(super) mod address_scope;
pub(super) mod addresses;
pub(super) mod connect;
pub(super) mod dial_error;
pub(super) mod direct_only;
pub(super) mod gossip_connection;
pub(super) mod links;
pub(super) mod observed_address;
pub(super) mod providers;
pub(super) mod reachability;
pub(super) mod relays;
pub(super) mod routes;
pub(super) mod scoped;
pub(super) mod scopes;
