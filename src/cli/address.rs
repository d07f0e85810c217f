//! Parses an address.

use super::mistake::{Mistake, OrMistake};
use crate::network::Multiaddr;

pub fn parse(text: &str) -> Result<Multiaddr, Mistake> {
    text.parse::<Multiaddr>()
        .map_err(|error| format!("{text}: {error}"))
        .or_mistake("an address looks like /ip4/192.0.2.1/udp/4001/quic-v1, to join one it ends with /p2p/…")
}
