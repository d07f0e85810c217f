//! A machine's addresses, from its profile and from flags.

use super::mistake::Mistake;
pub use crate::cli::address::parse;
use crate::config::MachineConfig;
use crate::network::{Multiaddr, is_relay_address};

/// How addresses are written at which this machine is reached.
const HERE: &str = "write an address as /ip4/0.0.0.0/udp/4001/quic-v1 or /ip4/0.0.0.0/tcp/4001";

/// Listening addresses: those given, else those of the machine's profile.
pub fn listen(given: &[String], machine: &MachineConfig) -> Result<Vec<Multiaddr>, Mistake> {
    let (chosen, key) =
        if given.is_empty() { (&machine.listen[..], "listen in the profile") } else { (given, "--listen") };
    chosen.iter().map(|text| parse_of(key, text)).collect()
}

/// Further addresses of this machine, from its profile.
pub fn announce(machine: &MachineConfig) -> Result<Vec<Multiaddr>, Mistake> {
    machine.announce.iter().map(|text| parse_of("announce in the profile", text)).collect()
}

/// An address of a key or flag, which an error names.
fn parse_of(key: &str, text: &str) -> Result<Multiaddr, Mistake> {
    parse(text).map_err(|error| Mistake::new(format_args!("{key}: {error}")).hint(HERE))
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
