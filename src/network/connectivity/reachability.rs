//! Whether other peers reach this one from outside without a relay, and the means to that end.
//!
//! An address is reachable in three cases: the machine's owner announced it, the router opened a port for it (UPnP), or
//! a relay reached it in a test (AutoNAT v2). Otherwise, the peer holds reservations on relays. mDNS finds peers on the
//! same LAN. Their addresses are tried when such a peer is wanted; being found does not cause a dial.

use libp2p::identity::{Keypair, ed25519};
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::{Multiaddr, autonat, identify, mdns, relay, upnp};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::network::connectivity::addresses::{is_loopback, is_private, is_relayed};
use crate::network::limits::{PROBE_INTERVAL, PROBES_AT_ONCE};

/// Asks relays to test our addresses.
pub(crate) type Prober = autonat::v2::client::Behaviour<ChaCha20Rng>;

/// Its nonces must be unpredictable: a peer that predicts them could make this one trust a false address. So the seed
/// is a new secret key.
pub(crate) fn prober() -> Prober {
    let secret = ed25519::Keypair::generate().secret();
    let rng = ChaCha20Rng::from_seed(*blake3::hash(secret.as_ref()).as_bytes());
    let config =
        autonat::v2::client::Config::default().with_max_candidates(PROBES_AT_ONCE).with_probe_interval(PROBE_INTERVAL);
    Prober::new(rng, config)
}

/// Discovers peers on the LAN, if wanted and possible.
pub(crate) fn neighbours(keypair: &Keypair, wanted: bool) -> Toggle<mdns::tokio::Behaviour> {
    let begin = || mdns::tokio::Behaviour::new(mdns::Config::default(), keypair.public().to_peer_id());
    let begun = wanted.then(begin).transpose().inspect_err(|error| {
        tracing::warn!(%error, "peers on this LAN are not looked for: mDNS does not start");
    });
    begun.ok().flatten().into()
}

/// Asks the router to open our ports.
pub(crate) fn router(wanted: bool) -> Toggle<upnp::tokio::Behaviour> {
    wanted.then(upnp::tokio::Behaviour::default).into()
}

/// Whether any peer may connect at this address without a relay.
pub(crate) fn is_public(address: &Multiaddr) -> bool {
    !is_relayed(address) && !is_loopback(address) && !is_private(address)
}

/// Whether an identified peer is a relay.
pub(crate) fn is_relay(info: &identify::Info) -> bool {
    info.protocols.contains(&relay::HOP_PROTOCOL_NAME)
}
