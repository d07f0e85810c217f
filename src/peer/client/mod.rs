//! The client of a swarm: it sends requests and fetches blobs, and serves nothing. It does not listen, takes no path,
//! and has a new key for each visit.
//!
//! [`visit`] connects to an address and gets the run's manifest and a [`connection`]. A [`directory`] finds holders
//! from peer to peer, [`heads`] finds the versions of modules, [`memory_blobs`] holds fetched blobs. [`swarm`] combines
//! these for [collecting](crate::peer::collect) a run and for [inference](crate::peer::inference::client). An [`observer`]
//! asks for nothing but statuses.

pub(super) mod connection;
pub(super) mod directory;
pub(super) mod heads;
pub(super) mod memory_blobs;
pub mod observer;
pub(super) mod swarm;

use std::sync::Arc;

use crate::names::PeerKey;
use crate::network::{BlobAccess, Identity, Multiaddr, NetworkConfig, StartError, Stopped};
use crate::peer::access::access_control::{AccessControl, AccessError};
use crate::peer::client::connection::Client;
use crate::peer::join::{JoinError, fetch_manifest};

#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    #[error("no address was given")]
    NoAddress,
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Door(#[from] AccessError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Where to enter a swarm, and the sponsor in a run by invitation.
#[derive(Clone, Copy)]
pub struct Entrance<'a> {
    /// Addresses of its peers.
    pub addresses: &'a [Multiaddr],
    /// A peer of this machine that takes part in the run.
    pub sponsor: Option<&'a AccessControl>,
}

impl<'a> From<&'a [Multiaddr]> for Entrance<'a> {
    fn from(addresses: &'a [Multiaddr]) -> Self {
        Self { addresses, sponsor: None }
    }
}

impl<'a> From<&'a Multiaddr> for Entrance<'a> {
    fn from(address: &'a Multiaddr) -> Self {
        std::slice::from_ref(address).into()
    }
}

/// A run, as a client has entered it.
pub(super) struct Visit {
    pub client: Client,
    /// The peer that answered first.
    pub contact: PeerKey,
    pub address: Multiaddr,
    /// The manifest's bytes.
    pub manifest: Vec<u8>,
}

/// Connects to the first address that answers. Fetched blobs go to `blobs`.
pub(super) async fn visit(entrance: Entrance<'_>, blobs: Arc<dyn BlobAccess>) -> Result<Visit, VisitError> {
    let identity = Identity::generate();
    let shown = entrance.sponsor.map(|sponsor| sponsor.visitor(identity.key())).transpose()?;
    let (network, mut events) = crate::network::start(NetworkConfig::visitor(identity), blobs).await?;
    let mut refusal = None;
    for address in entrance.addresses {
        match fetch_manifest(&network, &mut events, address, shown.as_ref()).await {
            Ok((contact, manifest, _, run)) => {
                network.join_run(run).await?;
                let mut client = Client::new(network, events, shown);
                client.learn(contact, vec![address.clone()]);
                return Ok(Visit { client, contact, address: address.clone(), manifest });
            }
            Err(error) => drop(refusal.get_or_insert(error)),
        }
    }
    Err(refusal.map_or(VisitError::NoAddress, VisitError::Join))
}
