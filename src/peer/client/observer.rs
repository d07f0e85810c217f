//! Looks at a swarm from outside: asks its peers for their status, from peer to peer.
//!
//! Each look asks the same few peers, the owners of modules first, and so sees a large swarm through some of its members:
//! what these hear of all others is in their statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::config::RunConfig;
use crate::names::PeerKey;
use crate::network::{Multiaddr, Stopped};
use crate::peer::client::connection::Client;
use crate::peer::client::memory_blobs::MemoryBlobs;
use crate::peer::client::{Entrance, Visit, VisitError, visit};
use crate::peer::join::JoinError;
use crate::peer::manifest::Manifest;
use crate::peer::status::PeerStatus;
use crate::peer::status::report;
use crate::protocol::limits::{MAX_ADDRESSES, MAX_DIRECTORY};
use crate::protocol::{Request, Response};

/// Peers asked in one look.
const MOST_OBSERVED: usize = 16;

/// Looks between two searches for further peers.
const LOOKS_PER_SEARCH: u64 = 10;

/// Peers whose directories are asked for in a search.
const MOST_SEARCHED: usize = 16;

/// A slower peer has not answered in this look.
const TIMEOUT: Duration = Duration::from_secs(8);

/// A visitor of a swarm that only looks.
pub struct Observer {
    client: Client,
    config: RunConfig,
    contact: PeerKey,
    address: Multiaddr,
    looks: u64,
    /// The owners of modules, as the last statuses name them.
    owners: BTreeSet<PeerKey>,
    /// Peers that did not answer the last time that they were asked, with the looks since.
    silent: BTreeMap<PeerKey, u64>,
}

/// What a look at one peer has given: its status, or why there is none.
pub type Observed = (PeerKey, Result<PeerStatus, String>);

impl Observer {
    /// Enters at the first address that answers.
    ///
    /// # Errors
    /// If none answers, or it belongs to no run that this program knows.
    pub async fn enter(entrance: Entrance<'_>) -> Result<Self, VisitError> {
        let blobs = Arc::new(MemoryBlobs::default());
        let Visit { client, contact, address, manifest } = visit(entrance, blobs).await?;
        let unfit = |source| JoinError::Manifest { address: address.to_string(), source };
        let (Manifest { config, .. }, _) = Manifest::decode(&manifest).map_err(unfit)?;
        Ok(Self { client, config, contact, address, looks: 0, owners: BTreeSet::new(), silent: BTreeMap::new() })
    }

    /// The run's configuration.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The address that answered.
    pub fn address(&self) -> &Multiaddr {
        &self.address
    }

    /// Asks some peers for their status.
    ///
    /// # Errors
    /// If the network has stopped.
    pub async fn look(&mut self) -> Result<Vec<Observed>, Stopped> {
        if self.looks.is_multiple_of(LOOKS_PER_SEARCH) {
            self.search().await?;
        }
        self.looks += 1;
        let peers = self.chosen();
        let questions: Vec<_> = peers.iter().map(|peer| (*peer, Request::Status)).collect();
        let asked = tokio::time::timeout(TIMEOUT, self.client.ask_each(&questions)).await;
        let late = || vec![Err("it does not answer".to_owned()); peers.len()];
        let answers = asked.unwrap_or_else(|_| Ok(late()))?;
        let read = |answer: Result<Response, String>| match answer? {
            Response::Status(bytes) => report::decode(&bytes).map_err(|error| error.to_string()),
            _ => Err("it answered with something else".to_owned()),
        };
        let seen: Vec<Observed> = peers.into_iter().zip(answers.into_iter().map(read)).collect();
        self.owners = owners(&seen);
        for (peer, status) in &seen {
            match status {
                Ok(_) => drop(self.silent.remove(peer)),
                Err(_) => drop(self.silent.insert(*peer, 0)),
            }
        }
        Ok(seen)
    }

    /// The peers of the next look: those that answer, owners first. One that was silent is asked again after a while.
    fn chosen(&mut self) -> Vec<PeerKey> {
        self.silent.values_mut().for_each(|looks| *looks += 1);
        let may_answer = |peer: &PeerKey| self.silent.get(peer).is_none_or(|looks| *looks > LOOKS_PER_SEARCH);
        let mut peers: Vec<PeerKey> = self.client.peers().into_iter().filter(may_answer).collect();
        if peers.is_empty() {
            peers = self.client.peers();
        }
        peers.sort_by_key(|peer| (!self.owners.contains(peer), *peer != self.contact, *peer));
        peers.truncate(MOST_OBSERVED);
        peers
    }

    /// Learns the addresses of further peers.
    async fn search(&mut self) -> Result<(), Stopped> {
        let questions: Vec<_> = self
            .chosen()
            .into_iter()
            .take(MOST_SEARCHED)
            .map(|peer| (peer, Request::Directory { start: None }))
            .collect();
        let answers = tokio::time::timeout(TIMEOUT, self.client.ask_each(&questions)).await;
        for answer in answers.unwrap_or_else(|_| Ok(Vec::new()))? {
            let Ok(Response::Directory(entries)) = answer else { continue };
            for entry in entries.into_iter().take(MAX_DIRECTORY) {
                let addresses = entry.addresses.iter().take(MAX_ADDRESSES).filter_map(|address| address.parse().ok());
                self.client.learn(entry.peer, addresses.collect::<Vec<Multiaddr>>());
            }
        }
        Ok(())
    }
}

/// Peers that own a module, by what these statuses say.
fn owners(seen: &[Observed]) -> BTreeSet<PeerKey> {
    let statuses = seen.iter().filter_map(|(_, status)| status.as_ref().ok());
    let owners = statuses.flat_map(|status| status.node.modules.iter().filter_map(|module| module.owner.as_ref()));
    owners.filter_map(|owner| owner.parse().ok()).collect()
}
