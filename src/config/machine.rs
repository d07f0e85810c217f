//! What a machine brings: one TOML for a kind of machine. Never part of a run's identity.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where tensors live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceChoice {
    /// CUDA if there is some, else the CPU.
    Auto,
    Cpu,
    /// The first CUDA device.
    Cuda,
}

/// What the inner steps compute in. Parameters stay in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32 bits throughout.
    F32,
    /// Matrix products in bfloat16 (autocast).
    Bf16,
}

/// A machine's profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MachineConfig {
    /// Where tensors live.
    pub device: DeviceChoice,
    /// What inner steps compute in.
    pub precision: Precision,
    /// Threads that a tensor operation may use; 0 for all cores.
    pub threads: usize,
    /// Sequences computed at once; a batch is gathered from several. 0 for the whole batch.
    pub micro_batch_sequences: usize,
    /// Tokens a second that a path is trained on at most, by each peer of this machine; 0 for as fast as it goes. A laptop
    /// that shall stay cool, or a machine that stands for slower ones.
    pub train_tokens_per_s: u64,
    /// What the blobs of a run may take on this machine's disk; 0 for all that there is.
    pub disk_bytes: u64,
    /// Bytes a second that it sends at most; 0 for as fast as it goes. Shared evenly among the peers that fetch from it.
    pub upload_bytes_per_s: u64,
    /// Bytes a second that it receives at most; 0 for as fast as it comes.
    pub download_bytes_per_s: u64,
    /// Addresses to listen on. Those of any IPv6 address are left out where there is no IPv6.
    pub listen: Vec<String>,
    /// Addresses besides those at which others reach this machine: a port that a router forwards, a public name.
    pub announce: Vec<String>,
    /// Relays through which others reach this machine if its router lets nobody in: what `pathswarm relay` printed.
    pub relays: Vec<String>,
    /// Whether peers on the same LAN are found there (mDNS). Only those of the same run are dialled.
    pub mdns: bool,
    /// Whether the router is asked to open the ports that this machine listens on (UPnP).
    pub upnp: bool,
    /// Where runs are kept.
    pub runs: PathBuf,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            device: DeviceChoice::Auto,
            precision: Precision::F32,
            threads: 0,
            micro_batch_sequences: 0,
            train_tokens_per_s: 0,
            disk_bytes: 0,
            upload_bytes_per_s: 0,
            download_bytes_per_s: 0,
            listen: ["/ip4/0.0.0.0/udp/0/quic-v1", "/ip4/0.0.0.0/tcp/0", "/ip6/::/udp/0/quic-v1", "/ip6/::/tcp/0"]
                .map(str::to_owned)
                .to_vec(),
            announce: Vec::new(),
            relays: Vec::new(),
            mdns: true,
            upnp: true,
            runs: PathBuf::from("runs"),
        }
    }
}
