//! The network: one task owns the libp2p swarm and never waits for application code.
//!
//! In the order in which data flows: [`NetworkHandle`] is a cloneable way to tell the task what to do; `actor` is the
//! task; `swarm` and `behaviour` build what it owns (over
//! links made slow by `shaping`, if so wished); `reaching` and `connecting` turn a peer and some addresses into a
//! connection; `reachability` is how others reach this peer, `outside` where they see it, `relaying` and `places` how they do through a relay, `ways`
//! and `punching` how that becomes a direct connection, `relay_server` is such a relay;
//! `gossip` carries messages under 4 KiB to the members of a module, `control` a question and its answer between two
//! peers, `blobs` bytes that are named by their hash: `serving` gives them, `fetching` takes them from several, each of them
//! `giving` what is `sharing_out` to it, under the machine's `cap`; `providers` leads from any one
//! peer to the members of any module; [`NetworkEvents`] is what comes back. `rates` and `crowd` say how much
//! one peer, or one address, may ask and say; `conduct` remembers who does what no honest peer does, and `banning` keeps it
//! out for a while. `limits` holds every bound.
//!
//! Nothing here knows what the bytes mean: that is the protocol's business.

mod blobs;
mod connectivity;
mod gossip;
mod identity;
pub mod limits;
mod link_emulation;
mod protection;
mod relay;
mod rpc;
mod swarm;
mod traffic;

pub use crate::network::blobs::fetch::Donor;
pub use crate::network::connectivity::addresses::{
    is_loopback as is_loopback_address, is_relay_address, is_relayed, peer_at, with_peer, with_ports_of, worth_telling,
};
pub use crate::network::connectivity::connect::Unreachable;
pub use crate::network::connectivity::dial_error::DialError;
pub use crate::network::connectivity::observed_address::{Outside, Sight};
pub use crate::network::connectivity::providers::{ProvideError, Provider};
pub use crate::network::protection::score::{Ban, Offence, now_s};
pub use crate::network::relay::server::{Relay, RelayBounds, RelayConfig, RelayCounts};
pub use crate::network::rpc::{RequestError, RequestToken, read_prefixed};
pub use crate::network::swarm::build::StartError;
pub use crate::network::swarm::events::{NetworkEvent, NetworkEvents};
pub use crate::network::swarm::handle::{Bandwidth, NetworkConfig, NetworkHandle, NotSent, Stopped, start};
pub use blobs::{BlobAccess, BlobSink, BlobSource, FetchError};
pub use gossip::{PublishError, Published, SubscribeError};
pub use identity::{Identity, IdentityError, key_of, verify};
pub use libp2p::Multiaddr;
pub use traffic::Traffic;
