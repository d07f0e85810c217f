//! The devices of a machine, by name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Devices of one peer: it holds at most 16 paths.
pub const MOST_DEVICES: usize = 15;

/// The device that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceChoice {
    /// The first CUDA device if it can be used, else Apple's Metal, else the CPU.
    Auto,
    Cpu,
    /// The CUDA device of this index.
    Cuda(usize),
    /// Apple's Metal Performance Shaders.
    Mps,
}

/// Not the name of a device.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no device: give \"auto\", \"cpu\", \"cuda\", a card by its index such as \"cuda:1\", or \"mps\"")]
pub struct NotADevice(String);

impl TryFrom<String> for DeviceChoice {
    type Error = NotADevice;

    fn try_from(name: String) -> Result<Self, NotADevice> {
        let index = |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        match (name.as_str(), name.strip_prefix("cuda:").and_then(index)) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            ("mps", _) => Ok(Self::Mps),
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
            Self::Mps => f.write_str("mps"),
            Self::Cuda(0) => f.write_str("cuda"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// Devices of one peer, each with a trainer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<DeviceChoice>", into = "Vec<DeviceChoice>")]
pub struct Devices(Vec<DeviceChoice>);

/// Not the devices of a peer.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotDevices {
    #[error("names no device: give one or more, such as [\"cuda:0\", \"cuda:1\"], or leave `devices` out")]
    Empty,
    #[error("names {0} devices: give at most {MOST_DEVICES}")]
    TooMany(usize),
    #[error("names \"{0}\" twice: only \"cpu\" can have several trainers")]
    Twice(DeviceChoice),
    #[error("names \"auto\" beside others: give each device by its name")]
    Auto,
}

impl TryFrom<Vec<DeviceChoice>> for Devices {
    type Error = NotDevices;

    fn try_from(devices: Vec<DeviceChoice>) -> Result<Self, NotDevices> {
        let is_twice = |device: &&DeviceChoice| {
            **device != DeviceChoice::Cpu && devices.iter().filter(|other| other == device).count() > 1
        };
        match devices.len() {
            0 => return Err(NotDevices::Empty),
            count if count > MOST_DEVICES => return Err(NotDevices::TooMany(count)),
            2.. if devices.contains(&DeviceChoice::Auto) => return Err(NotDevices::Auto),
            _ => {}
        }
        match devices.iter().find(is_twice) {
            Some(device) => Err(NotDevices::Twice(*device)),
            None => Ok(Self(devices)),
        }
    }
}

impl From<Devices> for Vec<DeviceChoice> {
    fn from(devices: Devices) -> Self {
        devices.0
    }
}

impl Devices {
    pub fn all(&self) -> &[DeviceChoice] {
        &self.0
    }

    /// There is one.
    pub fn first(&self) -> DeviceChoice {
        self.0.first().copied().unwrap_or(DeviceChoice::Auto)
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
            ("mps", DeviceChoice::Mps),
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

    #[test]
    fn several_devices_are_different_cards_or_the_cpu_several_times() {
        use DeviceChoice::{Auto, Cpu, Cuda, Mps};
        let said = |devices: Vec<DeviceChoice>| Devices::try_from(devices).unwrap_err().to_string();
        for fine in [vec![Cuda(0), Cuda(1)], vec![Cpu, Cpu], vec![Auto], vec![Mps, Cpu]] {
            assert_eq!(Devices::try_from(fine.clone()).unwrap().all(), fine);
        }
        assert!(said(vec![]).contains("leave `devices` out"));
        assert!(said(vec![Cuda(1), Cpu, Cuda(1)]).contains("\"cuda:1\" twice"));
        assert!(said(vec![Mps, Mps]).contains("\"mps\" twice"));
        assert!(said(vec![Cpu, Auto]).contains("\"auto\""));
        assert!(said(vec![Cpu; MOST_DEVICES + 1]).contains("at most 15"));
    }
}
