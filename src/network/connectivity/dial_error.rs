//! Errors of dialling, with advice for the user.

use std::io;
use std::time::Duration;

use libp2p::Multiaddr;
use libp2p::core::transport::TransportError;
use libp2p::swarm;

use crate::names::PeerKey;
use crate::network::connectivity::addresses::same_place;
use crate::network::identity::{agent_version, peer_key};

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DialError {
    #[error("{0} does not end in /p2p/<peer>: copy the whole address that the other peer printed")]
    NoPeer(Multiaddr),
    /// The peer in the address has a key that no peer of this program can have.
    #[error("{0} does not name a peer of pathswarm: its key is not ed25519")]
    NotOurKind(Multiaddr),
    #[error("{0} is this peer itself")]
    Myself(Multiaddr),
    #[error("{0} cannot be dialled: an address needs /tcp/<port> or /udp/<port>/quic-v1")]
    NotSupported(Multiaddr),
    #[error(
        "nobody answered at {address} within {:.1} s: check that the peer runs, that the address is right, and that no \
         firewall or router blocks it", waited.as_secs_f64()
    )]
    NoAnswer { address: Multiaddr, waited: Duration },
    #[error(
        "{address} refused the connection after {:.1} s: the machine is up, but no peer listens on that port",
        waited.as_secs_f64()
    )]
    Refused { address: Multiaddr, waited: Duration },
    #[error(
        "another peer answered at {address}: {}; the expected peer may have moved, or restarted with a new key",
        found.map_or_else(|| "one with an unknown kind of key".to_owned(), |key| key.to_string())
    )]
    AnotherPeer { address: Multiaddr, found: Option<PeerKey> },
    #[error(
        "the peer at {address} has another protocol version: {found:?}, this peer has {:?}; use the same version on \
         both",
        agent_version()
    )]
    AnotherVersion { address: Multiaddr, found: String },
    #[error("{address} answered, but the connection failed after {:.1} s: {reason}", waited.as_secs_f64())]
    Failed { address: Multiaddr, waited: Duration, reason: String },
    #[error("{0} was not dialled: too many connections are being dialled, try again later")]
    Busy(Multiaddr),
    #[error("the network has stopped")]
    Stopped,
}

/// Explains libp2p's error for this address and time waited.
pub(crate) fn explain(error: &swarm::DialError, address: &Multiaddr, waited: Duration) -> DialError {
    let address = address.clone();
    match error {
        swarm::DialError::LocalPeerId { .. } => DialError::Myself(address),
        swarm::DialError::WrongPeerId { obtained, address } => {
            DialError::AnotherPeer { address: address.clone(), found: peer_key(obtained) }
        }
        swarm::DialError::Transport(failures) => {
            let about_it = failures.iter().find(|(tried, _)| same_place(tried, &address)).or(failures.first());
            match about_it {
                Some((_, TransportError::MultiaddrNotSupported(_))) => DialError::NotSupported(address),
                Some((_, TransportError::Other(error))) => explain_io(error, address, waited),
                None => DialError::NoAnswer { address, waited },
            }
        }
        other => DialError::Failed { address, waited, reason: other.to_string() },
    }
}

fn explain_io(error: &io::Error, address: Multiaddr, waited: Duration) -> DialError {
    let words = error.to_string();
    match system_error(&words) {
        Some(io::ErrorKind::ConnectionRefused) => DialError::Refused { address, waited },
        Some(
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown,
        ) => DialError::NoAnswer { address, waited },
        _ if SILENCE.iter().any(|said| words.contains(said)) => DialError::NoAnswer { address, waited },
        _ => {
            let reason = words.trim_start_matches("Multiple dial errors occurred:").trim().trim_start_matches("- ");
            DialError::Failed { address, waited, reason: reason.to_owned() }
        }
    }
}

/// libp2p's texts for its own time-outs, of the whole dial and of QUIC's handshake.
const SILENCE: [&str; 2] = ["Timeout has been reached", "Handshake with the remote timed out"];

/// The system's error in libp2p's text. Its DNS layer keeps only the text of the errors below, but those of the system
/// end in their number.
pub(crate) fn system_error(words: &str) -> Option<io::ErrorKind> {
    let (_, number) = words.rsplit_once("(os error ")?;
    let (number, _) = number.split_once(')')?;
    Some(io::Error::from_raw_os_error(number.parse().ok()?).kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_found_under_wrappings() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let refused = std::net::TcpStream::connect(socket).unwrap_err();
        let wrapped = io::Error::other(format!("Multiple dial errors occurred:\n - {refused}"));
        let address: Multiaddr = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
        let error = swarm::DialError::Transport(vec![(address.clone(), TransportError::Other(wrapped))]);
        let waited = Duration::from_millis(300);
        assert_eq!(explain(&error, &address, waited), DialError::Refused { address, waited });
        assert_eq!(system_error("error (os error x)"), None);
    }

    #[test]
    fn errors_name_the_address_and_the_time() {
        let address: Multiaddr = "/ip4/10.1.2.3/udp/4001/quic-v1".parse().unwrap();
        let silence = io::Error::other("Handshake with the remote timed out.");
        let error = swarm::DialError::Transport(vec![(address.clone(), TransportError::Other(silence))]);
        let words = explain(&error, &address, Duration::from_millis(5_020)).to_string();
        assert!(words.starts_with("nobody answered at /ip4/10.1.2.3/udp/4001/quic-v1 within 5.0 s"), "{words}");
    }
}
