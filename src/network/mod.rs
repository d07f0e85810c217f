//! The network: one task owns the libp2p swarm and never waits for application code.
//!
//! [`NetworkHandle`] is a cloneable handle to send commands to the task; [`NetworkEvents`] receives its events. In the
//! order of a peer's use:
//!
//! - `identity` is its key. `swarm` builds the libp2p swarm and has the task (`swarm/actor`) that drives it.
//! - `connectivity` leads from a peer's key to a connection: addresses, providers, relays, hole punching, reachability.
//! - `gossip` carries messages of at most 5 KiB to the members of a module, `rpc` a request and its response between two
//!   peers.
//! - `blobs` serves and fetches bytes named by their hash, piece by piece from several peers.
//! - `standing` is the application's word on who is admitted, and who comes first.
//! - `protection` limits the cost of one peer, or one IP address: connections, rates, bandwidth, and a score that bans.
//! - `traffic` counts bytes, `limits` has every bound, `link_emulation` makes loopback slow, `relay_server` is a relay.
//!   `relay_shares` bounds what each of its users holds. `resolver` has the
//!   system's DNS servers.
//!
//! This layer does not interpret the bytes; the protocol does.

mod blobs;
mod connectivity;
mod gossip;
mod identity;
pub mod limits;
mod link_emulation;
mod protection;
mod relay_server;
mod relay_shares;
mod resolver;
mod rpc;
mod standing;
mod swarm;
mod traffic;

pub use crate::network::blobs::fetch::Donor;
pub use crate::network::connectivity::address_scope::Scope;
pub use crate::network::connectivity::addresses::{
    is_loopback as is_loopback_address, is_relay_address, is_relayed, peer_at, with_peer, with_ports_of, worth_telling,
};
pub use crate::network::connectivity::dial_error::DialError;
pub use crate::network::connectivity::links::{Links, Reachability};
pub use crate::network::connectivity::observed_address::{Outside, Sight};
pub use crate::network::connectivity::providers::Provider;
pub use crate::network::protection::bandwidth_limiter::Bandwidth;
pub use crate::network::protection::offences::{Ban, Offence, now_s};
pub use crate::network::relay_server::{Relay, RelayConfig, RelayCounts};
pub use crate::network::relay_shares::RelayBounds;
pub use crate::network::rpc::{RequestError, RequestToken, read_prefixed};
pub use crate::network::standing::{PeerAccess, Standing, Verdict};
pub use crate::network::swarm::build::StartError;
pub use crate::network::swarm::events::{NetworkEvent, NetworkEvents};
pub use crate::network::swarm::handle::{NetworkConfig, NetworkHandle, NotSent, Stopped, start};
pub use blobs::{BlobAccess, BlobSink, BlobSource, FetchError};
pub use gossip::{PublishError, Published, TopicError};
pub use identity::{Identity, IdentityError, key_of, verify};
pub use libp2p::Multiaddr;
