//! The status of a peer as a value: the node's part, and the machine's. [`report`] is what others are told of it.

pub mod report;

use std::collections::BTreeMap;

use crate::config::admission::Requires;
use crate::network::Ban;
pub use crate::network::Reachability;
use crate::outer::GradientNorms;
use crate::peer::trainer::task::Stepped;
use crate::protocol::status::Status;

/// Peers whose round-trip times are told, so that a status stays short.
pub const MOST_PINGS: usize = 64;

/// A node's status and its machine's part.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PeerStatus {
    pub run: String,
    pub name: String,
    /// The version of the program that phases of the run need.
    #[serde(default)]
    pub requires: Option<Requires>,
    /// The protocol's part.
    #[serde(flatten)]
    pub node: Status,
    /// BLAKE3 of each module's parameters alone, by module.
    pub parameter_hashes: BTreeMap<String, String>,
    /// Addresses at which the peer can be joined.
    pub addresses: Vec<String>,
    /// Payload bytes sent and received.
    pub traffic: Traffic,
    /// Bytes of outer steps.
    pub synced: Synced,
    /// The newest outer step of each module that was computed here, by module.
    #[serde(default)]
    pub outer_steps: BTreeMap<String, OuterStepStatus>,
    /// Share of the run's text here, if peers send it to each other.
    pub text: Option<TextHere>,
    /// Training, connections and disk of this machine since the peer started.
    #[serde(default)]
    pub activity: Activity,
    /// Phases trained here.
    pub phases_trained: u64,
    /// Paths scored here.
    pub scored: Vec<u32>,
    /// Banned peers with reasons.
    pub bans: Vec<Ban>,
    /// Access, in a run by invitation.
    pub invited: Option<Invited>,
}

/// What this machine does, since the peer started.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Activity {
    /// The version of this program.
    pub program: String,
    pub uptime_s: u64,
    /// The path in training or trained last.
    pub path: Option<u32>,
    /// Its phase, from 0.
    pub phase: Option<u64>,
    /// Inner steps made in this phase.
    pub step: Option<u64>,
    /// Training loss of its last step, in nats a token.
    pub loss: Option<f64>,
    /// On what the peer trains, such as `cpu` or `cuda:0, cuda:1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// The devices, if this peer trains on several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceActivity>,
    /// Tokens trained on in a second of inner steps, as last reported; of several devices, their sum.
    pub tokens_per_s: Option<f64>,
    /// Tokens trained on.
    pub tokens: u64,
    /// Seconds of inner steps.
    pub trained_s: f64,
    /// Connected peers.
    pub connections: usize,
    /// Whether peers outside connect to this one without a relay.
    pub reachability: Reachability,
    /// Milliseconds of the last ping, by the keys of at most [`MOST_PINGS`] connected peers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub round_trip_ms: BTreeMap<String, f64>,
    /// Keys of connected peers to which all connections go through relays, at most [`MOST_PINGS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relayed: Vec<String>,
    /// Gossip messages dropped because this peer was slow.
    pub messages_dropped: u64,
    /// Bytes of blobs in the store.
    pub disk_bytes: u64,
    /// Bytes of memory that this process has, with all peers in it.
    pub resident_bytes: Option<u64>,
    /// Bytes of this process's tensors on the CUDA devices that train here; nothing without one.
    pub device_memory_bytes: Option<u64>,
    /// Tables that other peers can make grow, and their limits.
    pub queues: Vec<QueueStatus>,
}

/// The outer gradients of an update that this peer computed as owner.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct OuterStepStatus {
    /// The version that it made.
    pub version: u64,
    #[serde(flatten)]
    pub norms: GradientNorms,
}

/// What one of several devices does.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DeviceActivity {
    /// Its name in the machine's profile.
    pub device: String,
    /// Whether it is out of service, since it failed again and again.
    pub retired: bool,
    /// The path that it trains or scores now.
    pub path: Option<u32>,
    /// Tokens trained on in a second of inner steps, as last reported.
    pub tokens_per_s: Option<f64>,
    /// Bytes of this process's tensors there, of a CUDA device.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// The length of a table of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QueueStatus {
    pub name: String,
    pub length: usize,
    pub limit: usize,
}

impl Activity {
    /// The median of the told round-trip times, in milliseconds.
    pub fn median_round_trip_ms(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.round_trip_ms.values().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    pub(crate) fn stepped(&mut self, stepped: &Stepped) {
        (self.phase, self.step, self.loss) = (Some(stepped.phase.0), Some(stepped.step), Some(stepped.loss));
        self.tokens += stepped.tokens;
        self.trained_s += stepped.seconds;
        if stepped.seconds > 0.0 {
            self.tokens_per_s = Some(stepped.tokens as f64 / stepped.seconds);
        }
    }
}

/// Access in a run by invitation, as one peer knows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Invited {
    /// Known credentials.
    pub known: usize,
    /// Revoked peers.
    pub revoked: usize,
    /// Expiry of this peer's own credential, in seconds since 1970, if it expires.
    pub until_s: Option<u64>,
    /// Why other peers do not admit this one.
    pub refused: Option<String>,
}

/// Payload bytes by kind, without the overhead of transports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// Contributions, averages, states, text.
    pub blob_bytes_sent: u64,
    pub blob_bytes_received: u64,
    /// Between two others that have no direct connection.
    pub blob_bytes_forwarded: u64,
    /// Heartbeats, offers, updates, and requests.
    pub message_bytes_sent: u64,
    pub message_bytes_received: u64,
}

/// Bytes of outer steps from other peers, with their numbers of parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Synced {
    /// Compressed outer gradients fetched as owner.
    pub contribution_bytes: u64,
    /// Their parameters.
    pub contribution_parameters: u64,
    /// Compressed averages fetched as member.
    pub average_bytes: u64,
    /// Their parameters.
    pub average_parameters: u64,
}

/// The share of a run's text at one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TextHere {
    /// Paths of the grid with their text here.
    pub here: u64,
    /// Paths of the grid.
    pub of: u64,
}
