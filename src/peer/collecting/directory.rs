//! Who holds which module: from peer to peer, until every module has holders.

use std::collections::{BTreeMap, BTreeSet};

use super::client::Client;
use crate::grid::Grid;
use crate::names::{ModuleId, PathId, PeerKey};
use crate::network::{Multiaddr, Stopped};
use crate::protocol::limits::{MAX_ADDRESSES, MAX_DIRECTORY};
use crate::protocol::message::DirectoryEntry;
use crate::protocol::{Request, Response};

/// With so many holders a module is not looked for any further.
const ENOUGH: usize = 3;

/// Peers that are asked for what they know.
const MAX_ASKED: usize = 1_024;

/// Peers asked between two looks at what is still missing.
const WAVE: usize = 16;

/// What has been found out.
#[derive(Default)]
pub(super) struct Directory {
    paths: BTreeMap<PeerKey, BTreeSet<PathId>>,
    provided: BTreeMap<ModuleId, BTreeSet<PeerKey>>,
    asked: BTreeSet<PeerKey>,
    silent: BTreeSet<PeerKey>,
}

impl Directory {
    /// How many peers have been asked.
    pub(super) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Peers that have a path through a module, or say that they provide it; those that did not answer come last.
    pub(super) fn holders(&self, grid: &Grid, module: ModuleId) -> Vec<PeerKey> {
        let through = |paths: &BTreeSet<PathId>| paths.iter().any(|path| grid.modules_of(*path).contains(&module));
        let leased = self.paths.iter().filter(|(_, paths)| through(paths)).map(|(peer, _)| *peer);
        let provided = self.provided.get(&module).into_iter().flatten().copied();
        self.answering_first(leased.chain(provided))
    }

    /// Peers that hold a path; those that did not answer come last.
    pub(super) fn holders_of_path(&self, path: PathId) -> Vec<PeerKey> {
        let holders = self.paths.iter().filter(|(_, paths)| paths.contains(&path));
        self.answering_first(holders.map(|(peer, _)| *peer))
    }

    fn answering_first(&self, peers: impl Iterator<Item = PeerKey>) -> Vec<PeerKey> {
        let peers: BTreeSet<PeerKey> = peers.collect();
        let (silent, answering): (Vec<_>, Vec<_>) = peers.into_iter().partition(|peer| self.silent.contains(peer));
        answering.into_iter().chain(silent).collect()
    }

    /// Peers that answered.
    pub(super) fn answering(&self) -> impl Iterator<Item = PeerKey> {
        self.asked.difference(&self.silent).copied()
    }

    /// Whether some module has no holder, or fewer than it takes to compare.
    fn lacking(&self, grid: &Grid, modules: &[ModuleId], enough: usize) -> Vec<ModuleId> {
        let count = |module: &ModuleId| {
            self.holders(grid, *module).iter().filter(|holder| !self.silent.contains(holder)).count()
        };
        modules.iter().filter(|module| count(module) < enough).copied().collect()
    }

    /// Begins again: a peer that was silent, or held nothing, may have changed.
    pub(super) fn begin_again(&mut self) {
        self.asked.clear();
        self.silent.clear();
    }

    /// Asks from peer to peer until these modules have enough holders, or nobody is left; then Kademlia for those that
    /// have none.
    pub(super) async fn search(
        &mut self,
        client: &mut Client,
        grid: &Grid,
        modules: &[ModuleId],
    ) -> Result<(), Stopped> {
        self.walk(client, grid, modules, ENOUGH).await?;
        for module in self.lacking(grid, modules, 1) {
            for provider in client.providers_of(module).await? {
                client.learn(provider.peer, provider.addresses);
                self.provided.entry(module).or_default().insert(provider.peer);
            }
        }
        self.walk(client, grid, modules, 1).await
    }

    async fn walk(
        &mut self,
        client: &mut Client,
        grid: &Grid,
        modules: &[ModuleId],
        enough: usize,
    ) -> Result<(), Stopped> {
        while self.asked.len() < MAX_ASKED && !self.lacking(grid, modules, enough).is_empty() {
            let mut wave = client.peers();
            wave.retain(|peer| !self.asked.contains(peer));
            wave.truncate(WAVE);
            if wave.is_empty() {
                break;
            }
            let questions: Vec<_> = wave.iter().map(|peer| (*peer, Request::Directory { start: None })).collect();
            let answers = client.ask_each(&questions).await?;
            for (peer, answer) in wave.into_iter().zip(answers) {
                self.asked.insert(peer);
                match answer {
                    Ok(Response::Directory(entries)) => self.take_in(client, grid, entries),
                    other => {
                        tracing::debug!(peer = %peer.short(), answer = ?other.err(), "no directory");
                        self.silent.insert(peer);
                    }
                }
            }
        }
        Ok(())
    }

    /// What one peer says about others costs a question each if it is not true.
    fn take_in(&mut self, client: &mut Client, grid: &Grid, entries: Vec<DirectoryEntry>) {
        for entry in entries.into_iter().take(MAX_DIRECTORY) {
            let addresses = entry.addresses.iter().take(MAX_ADDRESSES).filter_map(|address| address.parse().ok());
            client.learn(entry.peer, addresses.collect::<Vec<Multiaddr>>());
            let paths = entry.leases.iter().map(|lease| lease.path).filter(|path| path.0 < grid.path_count());
            self.paths.entry(entry.peer).or_default().extend(paths);
        }
    }
}
