//! Addresses, from text.

use super::mistake::{Mistake, OrMistake};
use crate::config::MachineConfig;
use crate::network::Multiaddr;

/// Where to listen: what was given, else what the machine's profile says.
///
/// # Errors
/// If one is no address.
pub fn listen(given: &[String], machine: &MachineConfig) -> Result<Vec<Multiaddr>, Mistake> {
    let chosen = if given.is_empty() { &machine.listen } else { given };
    chosen.iter().map(|text| parse(text)).collect()
}

/// Where others reach this machine besides, from its profile.
///
/// # Errors
/// If one is no address.
pub fn announce(machine: &MachineConfig) -> Result<Vec<Multiaddr>, Mistake> {
    machine.announce.iter().map(|text| parse(text)).collect()
}

/// One address.
///
/// # Errors
/// If it is none.
pub fn parse(text: &str) -> Result<Multiaddr, Mistake> {
    text.parse::<Multiaddr>()
        .map_err(|error| format!("{text}: {error}"))
        .or_mistake("an address looks like /ip4/192.0.2.1/udp/4001/quic-v1, to join one it ends with /p2p/…")
}
