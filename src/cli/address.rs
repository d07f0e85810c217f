//! Parses an address.

use super::mistake::{Mistake, OrMistake};
use crate::network::Multiaddr;

pub fn parse(text: &str) -> Result<Multiaddr, Mistake> {
    let address = match text.trim() {
        "" => Err("an empty address".to_owned()),
        trimmed => trimmed.parse::<Multiaddr>().map_err(|_| format!("{text}: not an address")),
    };
    address.or_mistake("an address looks like /ip4/192.0.2.1/udp/4001/quic-v1, to join one it ends with /p2p/…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_around_an_address_do_not_matter_and_blanks_alone_are_none() {
        assert_eq!(parse(" /ip4/192.0.2.1/tcp/1\n").unwrap().to_string(), "/ip4/192.0.2.1/tcp/1");
        assert!(parse("").is_err() && parse(" ").is_err() && parse("192.0.2.1").is_err());
    }
}
