//! A machine's addresses, from its profile and from flags.

use super::mistake::Mistake;
pub use crate::cli::address::parse;
use crate::config::MachineConfig;
use crate::network::{Multiaddr, is_relay_address};

/// Listening addresses: those given, else those of the machine's profile.
pub fn listen(given: &[String], machine: &MachineConfig) -> Result<Vec<Multiaddr>, Mistake> {
    let chosen = if given.is_empty() { &machine.listen } else { given };
    chosen.iter().map(|text| parse(text)).collect()
}

/// Further addresses of this machine, from its profile.
pub fn announce(machine: &MachineConfig) -> Result<Vec<Multiaddr>, Mistake> {
    machine.announce.iter().map(|text| parse(text)).collect()
}

/// Relays: those of the profile, and further ones.
pub fn relays(more: &[String], machine: &MachineConfig) -> Result<Vec<Multiaddr>, Mistake> {
    let one = |text: &String| {
        let hint = "copy the whole address that `pathswarm relay` printed; it ends with /p2p/ and the relay's key";
        let address = parse(text).map_err(|error| error.hint(hint))?;
        match is_relay_address(&address) {
            true => Ok(address),
            false => Err(Mistake::new(format!("{text}: not the address of a relay")).hint(hint)),
        }
    };
    machine.relays.iter().chain(more).map(one).collect()
}
