//! The client of a swarm: it asks and fetches, and serves nothing. It listens nowhere, takes no path, and has a key of its
//! own for each visit.
//!
//! [`visit`] connects to an address and gets the run's manifest and a [`connection`]; a [`directory`] leads from peer to
//! peer, [`heads`] says where modules stand, [`memory_blobs`] holds what was fetched. [`swarm`] has all of these together,
//! for [collecting](crate::peer::collect) a run and for [asking](crate::peer::inference::client) it about text.

pub(super) mod connection;
pub(super) mod directory;
pub(super) mod heads;
pub(super) mod memory_blobs;
pub(super) mod swarm;

use std::sync::Arc;

use crate::names::PeerKey;
use crate::network::{BlobAccess, Identity, Multiaddr, NetworkConfig, StartError, Stopped};
use crate::peer::access::access_control::{AccessControl, AccessError};
use crate::peer::client::connection::Client;
use crate::peer::join::{JoinError, fetch_manifest};

/// Why a swarm could not be visited.
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

/// Where a swarm is entered, and in whose name, if it is by invitation.
#[derive(Clone, Copy)]
pub struct Entrance<'a> {
    /// Addresses of its peers.
    pub addresses: &'a [Multiaddr],
    /// A peer of this machine that takes part in it.
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

/// A run, seen from outside.
pub(super) struct Visit {
    /// Asks and fetches.
    pub client: Client,
    /// Who answered first.
    pub contact: PeerKey,
    pub address: Multiaddr,
    /// The manifest's bytes.
    pub manifest: Vec<u8>,
}

/// Goes to the first of these addresses that answers. What is fetched goes to `blobs`.
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
