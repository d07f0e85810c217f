//! A machine's profile: one TOML file for a kind of machine. It is not part of a run's identity.

pub mod device;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::machine::device::{DeviceChoice, Devices};

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

/// Whose queries about text a machine answers, or whom it tells its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Nobody.
    Off,
    /// Invited peers, with their visitors; in an open run peers that are members of its modules.
    Members,
    /// Any peer that may ask.
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
    /// The device, unless `devices` are given. [`MachineConfig::first_device`] reads both.
    pub device: DeviceChoice,
    /// Devices of one peer, in place of `device`: it trains a path on each, in parallel.
    pub devices: Option<Devices>,
    /// How many trainers share the memory of the device; not a key of the file.
    #[serde(skip)]
    pub sharers: usize,
    pub precision: PrecisionChoice,
    /// Threads that a tensor operation may use; 0 for all cores.
    pub threads: usize,
    /// Sequences computed at once; gradients of a batch are accumulated over several. 0 for the whole batch.
    pub micro_batch_sequences: usize,
    /// Memory of the device that training may take, in bytes; 0 for all of it. On the CPU, memory of the process.
    pub memory_limit_bytes: u64,
    /// Activation checkpointing, block by block.
    pub checkpointing: Checkpointing,
    /// Whether a card that trains in bfloat16 uses this program's own kernels between products.
    pub fused_kernels: bool,
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
    /// Who is told the peer's status, as `pathswarm status ADDRESS` and `pathswarm watch ADDRESS` show it.
    pub tell_status: Answer,
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
    /// The folder with one folder for each run; empty for the one that the program chooses.
    pub runs: PathBuf,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            device: DeviceChoice::Auto,
            devices: None,
            sharers: 1,
            precision: PrecisionChoice::Auto,
            threads: 0,
            micro_batch_sequences: 0,
            memory_limit_bytes: 0,
            checkpointing: Checkpointing::Auto,
            fused_kernels: false,
            moments: MomentFormat::F32,
            train_tokens_per_s: 0,
            answer: Answer::All,
            answer_share: Share(0.1),
            tell_status: Answer::All,
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
            runs: PathBuf::new(),
        }
    }
}

impl MachineConfig {
    /// The device of what computes on one device alone: the first one.
    pub fn first_device(&self) -> DeviceChoice {
        self.devices.as_ref().map_or(self.device, Devices::first)
    }

    /// The profile of the first trainer of a peer on this machine, as far as its memory goes.
    pub fn first_trainer(&self) -> Self {
        self.of_trainers(1).into_iter().next().unwrap_or_else(|| self.clone())
    }

    /// The profile of each trainer of a peer on this machine, with one device: trainers on the CPU share its threads and its
    /// memory, and all of them the rate of tokens. `cores` are those of the machine.
    pub fn of_trainers(&self, cores: usize) -> Vec<Self> {
        let Some(devices) = &self.devices else { return vec![self.clone()] };
        let devices = devices.all();
        let on_cpu = devices.iter().filter(|device| **device == DeviceChoice::Cpu).count().max(1);
        let of = |device: &DeviceChoice| {
            let sharers = if *device == DeviceChoice::Cpu { on_cpu } else { 1 };
            let threads = if self.threads == 0 && sharers > 1 { cores } else { self.threads };
            Self {
                device: *device,
                devices: None,
                sharers,
                threads: if threads == 0 { 0 } else { (threads / sharers).max(1) },
                train_tokens_per_s: self.train_tokens_per_s.div_ceil(devices.len() as u64),
                ..self.clone()
            }
        };
        devices.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(devices: &[DeviceChoice]) -> MachineConfig {
        let devices = Some(Devices::try_from(devices.to_vec()).unwrap());
        MachineConfig { devices, train_tokens_per_s: 5, ..MachineConfig::default() }
    }

    #[test]
    fn two_trainers_on_the_cpu_have_half_of_its_threads_and_memory_each() {
        let (cpu, card) = (DeviceChoice::Cpu, DeviceChoice::Cuda(1));
        let each = |machine: MachineConfig| -> Vec<_> {
            machine
                .of_trainers(6)
                .into_iter()
                .map(|it| (it.device, it.threads, it.sharers, it.train_tokens_per_s))
                .collect()
        };
        assert_eq!(each(with(&[cpu, cpu])), [(cpu, 3, 2, 3), (cpu, 3, 2, 3)]);
        assert_eq!(each(with(&[card, cpu])), [(card, 0, 1, 3), (cpu, 0, 1, 3)]);
        assert_eq!(each(MachineConfig { threads: 1, ..with(&[cpu, cpu]) })[0].1, 1);
        assert_eq!(with(&[cpu, cpu]).first_trainer().sharers, 2);
        let one = MachineConfig { train_tokens_per_s: 5, ..MachineConfig::default() };
        assert_eq!(each(one), [(DeviceChoice::Auto, 0, 1, 5)]);
        assert_eq!(
            (with(&[card, cpu]).first_device(), MachineConfig::default().first_device()),
            (card, DeviceChoice::Auto)
        );
    }
}
