//! The families of IP addresses that a machine has. A machine without IPv4, or without IPv6, listens by the other.

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;

use crate::network::limits::LISTEN_TIMEOUT;
use crate::network::swarm::build::StartError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// That of an address which stands for all interfaces: `0.0.0.0` or `::`.
    fn of_any(address: &Multiaddr) -> Option<Self> {
        match address.iter().next() {
            Some(Protocol::Ip4(ip)) if ip.is_unspecified() => Some(Self::V4),
            Some(Protocol::Ip6(ip)) if ip.is_unspecified() => Some(Self::V6),
            _ => None,
        }
    }
}

/// Why an address that was opened is not listened on after [`LISTEN_TIMEOUT`].
pub fn silence(address: &Multiaddr) -> String {
    let within_s = LISTEN_TIMEOUT.as_secs();
    match Family::of_any(address) {
        Some(Family::V4) => format!("no interface of this machine got an IPv4 address within {within_s} s"),
        Some(Family::V6) => format!("no interface of this machine got an IPv6 address within {within_s} s"),
        None => format!("no interface of this machine got this address within {within_s} s"),
    }
}

/// The failures to listen with which a machine can do as long as it listens anywhere.
#[derive(Debug, Default)]
pub struct MissingFamilies {
    families: Vec<Family>,
    first: Option<StartError>,
}

impl MissingFamilies {
    /// Whether the address was already found to have no interface, so that nobody need wait for it.
    pub fn are_of(&self, address: &Multiaddr) -> bool {
        Family::of_any(address).is_some_and(|family| self.families.contains(&family))
    }

    /// Takes note of a family that is missing.
    ///
    /// # Errors
    /// All other failures to listen.
    pub fn note(&mut self, opened: Result<(), StartError>) -> Result<(), StartError> {
        let Err(StartError::NotListening { address, reason }) = opened else { return opened };
        let Some(family) = Family::of_any(&address) else {
            return Err(StartError::NotListening { address, reason });
        };
        tracing::warn!(%address, reason, "listening without it");
        self.families.push(family);
        self.first.get_or_insert(StartError::NotListening { address, reason });
        Ok(())
    }

    /// All addresses were tried.
    ///
    /// # Errors
    /// The first failure, if nothing listens.
    pub fn conclude(self, listens: bool) -> Result<(), StartError> {
        self.first.filter(|_| !listens).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(address: &str) -> Result<(), StartError> {
        let address: Multiaddr = address.parse().unwrap();
        Err(StartError::NotListening { reason: silence(&address), address })
    }

    #[test]
    fn a_machine_without_a_family_listens_by_the_other_and_one_without_both_is_told_of_the_first() {
        for (missing, other) in
            [("/ip4/0.0.0.0/udp/0/quic-v1", "/ip6/::/tcp/0"), ("/ip6/::/tcp/0", "/ip4/0.0.0.0/tcp/0")]
        {
            let mut families = MissingFamilies::default();
            families.note(failure(missing)).unwrap();
            assert!(families.are_of(&missing.parse().unwrap()) && !families.are_of(&other.parse().unwrap()));
            families.note(Ok(())).unwrap();
            families.conclude(true).unwrap();

            let mut families = MissingFamilies::default();
            families.note(failure(missing)).unwrap();
            families.note(failure(other)).unwrap();
            let told = families.conclude(false).unwrap_err().to_string();
            let family = if missing.contains("ip4") { "IPv4" } else { "IPv6" };
            assert!(told.contains(missing) && told.contains(family), "{told}");
        }
    }

    #[test]
    fn an_address_of_one_interface_and_a_port_in_use_are_errors_whatever_else_listens() {
        let mut families = MissingFamilies::default();
        assert!(matches!(families.note(failure("/ip4/192.0.2.1/tcp/0")), Err(StartError::NotListening { .. })));
        let any: Multiaddr = "/ip4/0.0.0.0/tcp/4001".parse().unwrap();
        let taken = Err(StartError::PortTaken(any.clone()));
        assert!(matches!(families.note(taken), Err(StartError::PortTaken(at)) if at == any));
        families.conclude(false).unwrap();
    }
}
