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

/// Whether opening an address waits until it is listened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    UntilUp,
    /// Should an interface come up later, it is listened on.
    No,
}

/// What can listen on addresses.
pub trait Listening {
    /// Opens an address.
    fn open(&mut self, address: &Multiaddr, wait: Wait) -> impl Future<Output = Result<(), StartError>> + Send;
}

/// Opens all addresses, one after the other. All interfaces of a family that the machine lacks are left out, as long as it
/// listens anywhere; nobody waits for them twice.
///
/// # Errors
/// If any other address cannot be listened on, or none at all.
pub async fn listen_on_all(listening: &mut impl Listening, addresses: &[Multiaddr]) -> Result<(), StartError> {
    let (mut missing, mut first, mut listens) = (Vec::new(), None, false);
    for address in addresses {
        let family = Family::of_any(address);
        let wait = if family.is_some_and(|family| missing.contains(&family)) { Wait::No } else { Wait::UntilUp };
        match (listening.open(address, wait).await, family) {
            (Ok(()), _) => listens |= wait == Wait::UntilUp,
            (Err(StartError::NotListening { address, reason }), Some(family)) => {
                tracing::warn!(%address, reason, "listening without it");
                missing.push(family);
                first.get_or_insert(StartError::NotListening { address, reason });
            }
            (Err(error), _) => return Err(error),
        }
    }
    first.filter(|_| !listens).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "/ip4/0.0.0.0/tcp/0";
    const V6: &str = "/ip6/::/tcp/0";

    /// A machine that lacks all that begins so, and where a port is taken.
    struct Machine {
        lacks: Vec<&'static str>,
        taken: Option<&'static str>,
        waited: Vec<bool>,
    }

    impl Listening for Machine {
        async fn open(&mut self, address: &Multiaddr, wait: Wait) -> Result<(), StartError> {
            self.waited.push(wait == Wait::UntilUp);
            let written = address.to_string();
            if self.taken == Some(&written) {
                return Err(StartError::PortTaken(address.clone()));
            }
            match wait == Wait::UntilUp && self.lacks.iter().any(|begins| written.starts_with(begins)) {
                true => Err(StartError::NotListening { address: address.clone(), reason: silence(address) }),
                false => Ok(()),
            }
        }
    }

    /// What comes of opening these there, and whether each was waited for.
    async fn opened(addresses: &[&str], lacks: &[&'static str]) -> (Result<(), StartError>, Vec<bool>) {
        let mut machine = Machine { lacks: lacks.to_vec(), taken: None, waited: Vec::new() };
        let addresses: Vec<Multiaddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let outcome = listen_on_all(&mut machine, &addresses).await;
        (outcome, machine.waited)
    }

    #[tokio::test]
    async fn a_machine_without_a_family_listens_by_the_other_and_one_without_both_is_told_of_the_first() {
        let all = ["/ip4/0.0.0.0/udp/0/quic-v1", V4, "/ip6/::/udp/0/quic-v1", V6];
        let (outcome, waited) = opened(&all, &["/ip4"]).await;
        outcome.unwrap();
        assert_eq!(waited, [true, false, true, true], "nobody waits for IPv4 twice");
        let (outcome, waited) = opened(&all, &["/ip6"]).await;
        outcome.unwrap();
        assert_eq!(waited, [true, true, true, false]);
        for (first, second, family) in [(V4, V6, "IPv4"), (V6, V4, "IPv6")] {
            let told = opened(&[first, second], &["/ip"]).await.0.unwrap_err().to_string();
            assert!(told.contains(first) && told.contains(family), "{told}");
        }
        assert!(opened(&[V4, V4], &["/ip4"]).await.0.is_err(), "what nobody waited for is no place to listen");
        opened(&[], &[]).await.0.unwrap();
    }

    #[tokio::test]
    async fn an_address_of_one_interface_and_a_port_in_use_are_errors_whatever_else_listens() {
        let one = "/ip4/192.0.2.1/tcp/0";
        assert!(matches!(opened(&[V6, one], &[one]).await.0, Err(StartError::NotListening { .. })));
        let any: [Multiaddr; 2] = [V6, V4].map(|address| address.parse().unwrap());
        let mut machine = Machine { lacks: Vec::new(), taken: Some(V4), waited: Vec::new() };
        let taken = listen_on_all(&mut machine, &any).await;
        assert!(matches!(taken, Err(StartError::PortTaken(_))));
    }
}
