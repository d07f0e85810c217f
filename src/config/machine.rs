//! A machine's profile: one TOML file for a kind of machine. It is not part of a run's identity.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The device that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceChoice {
    /// The first CUDA device if it can be used, else the CPU.
    Auto,
    Cpu,
    /// The CUDA device of this index.
    Cuda(usize),
}

/// Not the name of a device.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no device: give \"auto\", \"cpu\", \"cuda\", or a card by its index such as \"cuda:1\"")]
pub struct NotADevice(String);

impl TryFrom<String> for DeviceChoice {
    type Error = NotADevice;

    fn try_from(name: String) -> Result<Self, NotADevice> {
        let index = |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        match (name.as_str(), name.strip_prefix("cuda:").and_then(index)) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(index)) => Ok(Self::Cuda(index)),
            _ => Err(NotADevice(name)),
        }
    }
}

impl From<DeviceChoice> for String {
    fn from(device: DeviceChoice) -> Self {
        device.to_string()
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(0) => f.write_str("cuda"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// Precision of the inner steps. Parameters stay in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits throughout.
    F32,
    /// Matrix products in bfloat16 (autocast).
    Bf16,
}

/// The precision of a machine's profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrecisionChoice {
    /// bfloat16 on a card that is made for it, else f32.
    Auto,
    F32,
    Bf16,
}

impl From<Precision> for PrecisionChoice {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::Bf16 => Self::Bf16,
        }
    }
}

/// Whether the backward pass computes blocks again instead of keeping their activations: less memory, more time, the same
/// result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checkpointing {
    /// Where the memory plan needs it.
    Auto,
    Off,
    On,
}

/// How the moments of the inner optimiser are kept between steps. In a step they are f32, and so they are for other
/// machines and in checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MomentFormat {
    /// 4 bytes a moment of a parameter.
    F32,
    /// 2 bytes.
    Bf16,
    /// 1 byte, and 4 for each block of 256.
    #[serde(rename = "8bit")]
    Bits8,
}

impl MomentFormat {
    /// Bytes of a moment of so many parameters, without what blocks at the ends of tensors lack.
    pub fn bytes(self, parameters: u64) -> u64 {
        match self {
            Self::F32 => 4 * parameters,
            Self::Bf16 => 2 * parameters,
            Self::Bits8 => parameters + parameters / 64,
        }
    }
}

/// Whose queries about text a machine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Nobody's.
    Off,
    /// Those of invited peers, with their visitors; in an open run those of peers that are members of its modules.
    Members,
    /// Those of any peer that may ask.
    All,
}

/// A share of a whole, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

/// Not a share.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not a share: give a number from 0 to 1")]
pub struct NotAShare(f64);

impl TryFrom<f64> for Share {
    type Error = NotAShare;

    fn try_from(share: f64) -> Result<Self, NotAShare> {
        if (0.0..=1.0).contains(&share) { Ok(Self(share)) } else { Err(NotAShare(share)) }
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        share.0
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MachineConfig {
    pub device: DeviceChoice,
    pub precision: PrecisionChoice,
    /// Threads that a tensor operation may use; 0 for all cores.
    pub threads: usize,
    /// Sequences computed at once; gradients of a batch are accumulated over several. 0 for the whole batch.
    pub micro_batch_sequences: usize,
    /// Memory of the device that training may take, in bytes; 0 for all of it. On the CPU, memory of the process.
    pub memory_limit_bytes: u64,
    /// Activation checkpointing, block by block.
    pub checkpointing: Checkpointing,
    /// How the moments of the inner optimiser are kept. Below f32 they are rounded after each step, at random without bias.
    pub moments: MomentFormat,
    /// Limit of tokens a second for training, for each peer of this machine; 0 for none. Keeps a laptop cool, or
    /// emulates a slower machine.
    pub train_tokens_per_s: u64,
    /// Whose queries about text are answered.
    pub answer: Answer,
    /// Share of the device's time that answers may take while trainers want it. After a quiet while, 5 s may be taken at
    /// once. Peers that are no members get half of it.
    pub answer_share: Share,
    /// Disk quota for the blobs of a run, in bytes; 0 for none.
    pub disk_bytes: u64,
    /// Limit of bytes sent a second; 0 for none. The peers that fetch from this one share it evenly.
    pub upload_bytes_per_s: u64,
    /// Limit of bytes received a second; 0 for none.
    pub download_bytes_per_s: u64,
    /// Addresses to listen on. Without IPv6, the IPv6 wildcard addresses are left out.
    pub listen: Vec<String>,
    /// Further addresses at which other peers reach this machine: a forwarded port, or a public name.
    pub announce: Vec<String>,
    /// Relays for a machine that accepts no connections from outside: the addresses that `pathswarm relay` printed.
    pub relays: Vec<String>,
    /// Whether peers of the run are discovered on the LAN (mDNS).
    pub mdns: bool,
    /// Whether the router is asked to open the listening ports (UPnP).
    pub upnp: bool,
    /// The folder with one folder for each run.
    pub runs: PathBuf,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            device: DeviceChoice::Auto,
            precision: PrecisionChoice::Auto,
            threads: 0,
            micro_batch_sequences: 0,
            memory_limit_bytes: 0,
            checkpointing: Checkpointing::Auto,
            moments: MomentFormat::F32,
            train_tokens_per_s: 0,
            answer: Answer::All,
            answer_share: Share(0.1),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_its_kind_or_a_card_by_its_index() {
        for (name, device) in [
            ("auto", DeviceChoice::Auto),
            ("cpu", DeviceChoice::Cpu),
            ("cuda", DeviceChoice::Cuda(0)),
            ("cuda:1", DeviceChoice::Cuda(1)),
            ("cuda:12", DeviceChoice::Cuda(12)),
        ] {
            assert_eq!(DeviceChoice::try_from(name.to_owned()).unwrap(), device);
            assert_eq!(device.to_string(), name, "it is written as it is read");
        }
        for wrong in ["", "tpu", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda1", "CUDA", "cuda:99999999999999999999"]
        {
            let refused = DeviceChoice::try_from(wrong.to_owned()).unwrap_err().to_string();
            assert!(refused.contains("\"cuda:1\""), "{refused}");
        }
    }
}
