//! The network: one task owns the libp2p swarm and never waits for application code.
//!
//! In the order in which data flows: [`NetworkHandle`] is a cloneable way to tell the task what to do; `actor` is the
//! task; `swarm` and `behaviour` build what it owns; `reaching` and `connecting` turn a peer and some addresses into a
//! connection; `reachability` is how others reach this peer, `relaying` and `places` how they do through a relay, `ways`
//! and `punching` how that becomes a direct connection, `relay_server` is such a relay;
//! `gossip` carries messages under 4 KiB to the members of a module, `control` a question and its answer between two
//! peers, `blobs` (with `serving` and `fetching`) bytes that are named by their hash, `providers` leads from any one
//! peer to the members of any module; [`NetworkEvents`] is what comes back. `limits` holds every bound.
//!
//! Nothing here knows what the bytes mean: that is the protocol's business.

mod acquaintance;
mod actor;
mod addresses;
mod behaviour;
mod blobs;
mod commands;
mod connecting;
mod control;
mod dial_error;
mod direct_only;
mod events;
mod fetching;
mod gossip;
mod handle;
mod identity;
pub mod limits;
mod meeting;
mod places;
mod providers;
mod punching;
mod reachability;
mod reaching;
mod reactions;
mod relay_server;
mod relaying;
mod serving;
mod swarm;
mod traffic;
mod ways;

pub use addresses::{is_relay_address, is_relayed, with_peer, with_ports_of, worth_telling};
pub use blobs::{BlobAccess, BlobSink, FetchError};
pub use connecting::Unreachable;
pub use control::{RequestError, RequestToken};
pub use dial_error::DialError;
pub use events::{NetworkEvent, NetworkEvents};
pub use gossip::{PublishError, Published, SubscribeError};
pub use handle::{NetworkConfig, NetworkHandle, NotSent, Stopped, start};
pub use identity::{Identity, IdentityError, verify};
pub use libp2p::Multiaddr;
pub use providers::{ProvideError, Provider};
pub use relay_server::{Relay, RelayBounds, RelayConfig, RelayCounts};
pub use swarm::StartError;
pub use traffic::Traffic;
