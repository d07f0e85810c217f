//! Why a dial failed, in words that tell its user what to do next.

use std::error::Error;
use std::io;
use std::time::Duration;

use libp2p::Multiaddr;
use libp2p::core::transport::TransportError;
use libp2p::swarm;

use super::addresses::named_peer;
use super::behaviour::agent_version;
use super::identity::peer_key;
use crate::names::PeerKey;

/// Why a peer could not be joined at an address.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DialError {
    /// The address does not say who should be there.
    #[error("{0} does not end in /p2p/<peer>: copy the whole address that the other peer printed")]
    NoPeer(Multiaddr),
    /// The peer in the address has a key that no peer of ours has.
    #[error("{0} names a peer that cannot be one of ours: its key is not ed25519")]
    NotOurKind(Multiaddr),
    /// It is this peer.
    #[error("{0} is this peer itself")]
    Myself(Multiaddr),
    /// Neither TCP nor QUIC.
    #[error("{0} is no address that this program can dial: it needs /tcp/<port> or /udp/<port>/quic-v1")]
    NotSupported(Multiaddr),
    /// Silence.
    #[error(
        "nobody answered at {address} within {:.1} s: is that peer running, is the address right, does a firewall or \
         router in between let it through?", waited.as_secs_f64()
    )]
    NoAnswer {
        /// Where.
        address: Multiaddr,
        /// How long it was tried.
        waited: Duration,
    },
    /// A machine is there, but no program listens.
    #[error(
        "{address} refused the connection after {:.1} s: the machine is there, but no peer listens on that port",
        waited.as_secs_f64()
    )]
    Refused {
        /// Where.
        address: Multiaddr,
        /// How long it was tried.
        waited: Duration,
    },
    /// Somebody else is there.
    #[error(
        "another peer answered at {address}: {}; the one asked for may have moved, or started again with a new key",
        found.map_or_else(|| "one with an unknown kind of key".to_owned(), |key| key.to_string())
    )]
    AnotherPeer {
        /// Where.
        address: Multiaddr,
        /// Who answered.
        found: Option<PeerKey>,
    },
    /// The peer is there, but this program cannot talk with it.
    #[error(
        "the peer at {address} speaks another version: it is {found:?}, this is {:?}; use the same version on both",
        agent_version()
    )]
    AnotherVersion {
        /// Where.
        address: Multiaddr,
        /// How it introduces itself.
        found: String,
    },
    /// It answered, and then something went wrong.
    #[error("{address} answered, but the connection failed after {:.1} s: {reason}", waited.as_secs_f64())]
    Failed {
        /// Where.
        address: Multiaddr,
        /// How long it was tried.
        waited: Duration,
        /// What went wrong.
        reason: String,
    },
    /// This peer has too much under way.
    #[error("{0} was not dialled: too many connections are being made already, try again later")]
    Busy(Multiaddr),
    /// The network has stopped.
    #[error("the network has stopped")]
    Stopped,
}

/// What libp2p's error means for somebody who dialled this address and has waited so long.
pub(super) fn explain(error: &swarm::DialError, address: &Multiaddr, waited: Duration) -> DialError {
    let address = address.clone();
    match error {
        swarm::DialError::LocalPeerId { .. } => DialError::Myself(address),
        swarm::DialError::WrongPeerId { obtained, .. } => DialError::AnotherPeer { address, found: peer_key(obtained) },
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
    match innermost(error).map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => DialError::Refused { address, waited },
        Some(
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown,
        ) => DialError::NoAnswer { address, waited },
        _ if silent(error) => DialError::NoAnswer { address, waited },
        _ => DialError::Failed { address, waited, reason: error.to_string() },
    }
}

/// libp2p wraps its time-outs in private types, so that only their words are left.
fn silent(error: &io::Error) -> bool {
    let words = error.to_string();
    ["Timeout has been reached", "Handshake with the remote timed out"].iter().any(|said| words.contains(said))
}

/// The innermost error of the system, under all of libp2p's wrappings.
pub(super) fn innermost<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
    let this = error.downcast_ref::<io::Error>();
    let inner = match this.and_then(io::Error::get_ref) {
        Some(wrapped) => innermost(wrapped),
        None => error.source().and_then(innermost),
    };
    inner.or(this)
}

/// Whether two addresses differ at most in saying who is there.
fn same_place(one: &Multiaddr, other: &Multiaddr) -> bool {
    let bare = |address: &Multiaddr| {
        let mut address = address.clone();
        if named_peer(&address).is_some() {
            address.pop();
        }
        address
    };
    bare(one) == bare(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_found_under_wrappings() {
        let wrapped = io::Error::other(io::Error::other(io::Error::from(io::ErrorKind::ConnectionRefused)));
        assert_eq!(innermost(&wrapped).map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
        let address: Multiaddr = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
        let error = swarm::DialError::Transport(vec![(address.clone(), TransportError::Other(wrapped))]);
        let waited = Duration::from_millis(300);
        assert_eq!(explain(&error, &address, waited), DialError::Refused { address, waited });
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
