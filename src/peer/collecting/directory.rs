//! Who holds which module: from peer to peer, until every module has holders.

use std::collections::{BTreeMap, BTreeSet};

use super::client::Client;
use crate::names::{ModuleId, PathId, PeerKey, Phase};
use crate::network::{Multiaddr, Stopped};
use crate::protocol::limits::{MAX_ADDRESSES, MAX_DIRECTORY};
use crate::protocol::message::DirectoryEntry;
use crate::protocol::{Request, Response, RunPlan};

/// With so many holders a module is not looked for any further.
const ENOUGH: usize = 3;

/// Peers that are asked for what they know.
const MAX_ASKED: usize = 1_024;

/// Peers asked between two looks at what is still missing.
const WAVE: usize = 16;

/// What has been found out.
#[derive(Default)]
pub(super) struct Directory {
    /// Where each peer's paths stand, as anybody says.
    paths: BTreeMap<PeerKey, BTreeSet<(PathId, Phase)>>,
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
    pub(super) fn holders(&self, plan: &RunPlan, module: ModuleId) -> Vec<PeerKey> {
        let leased = self.leasing(|path, phase| plan.needs(path, phase, module));
        let provided = self.provided.get(&module).into_iter().flatten().copied();
        self.answering_first(leased.chain(provided))
    }

    /// Peers that hold a path of the grid now; those that did not answer come last.
    pub(super) fn holders_of_path(&self, plan: &RunPlan, path: PathId) -> Vec<PeerKey> {
        self.answering_first(self.leasing(|held, phase| plan.path_at(held, phase) == path))
    }

    fn leasing(&self, is_one: impl Fn(PathId, Phase) -> bool) -> impl Iterator<Item = PeerKey> {
        let holds = move |paths: &BTreeSet<(PathId, Phase)>| paths.iter().any(|(path, phase)| is_one(*path, *phase));
        self.paths.iter().filter(move |(_, paths)| holds(paths)).map(|(peer, _)| *peer)
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
    fn lacking(&self, plan: &RunPlan, modules: &[ModuleId], enough: usize) -> Vec<ModuleId> {
        let count = |module: &ModuleId| {
            self.holders(plan, *module).iter().filter(|holder| !self.silent.contains(holder)).count()
        };
        modules.iter().filter(|module| count(module) < enough).copied().collect()
    }

    /// Begins again: a peer that was silent, or held nothing, may have changed, and paths go on to other modules.
    pub(super) fn begin_again(&mut self) {
        self.asked.clear();
        self.silent.clear();
        self.paths.clear();
    }

    /// Asks from peer to peer until these modules have enough holders, or nobody is left; then Kademlia for those that
    /// have none.
    pub(super) async fn search(
        &mut self,
        client: &mut Client,
        plan: &RunPlan,
        modules: &[ModuleId],
    ) -> Result<(), Stopped> {
        self.walk(client, plan, modules, ENOUGH).await?;
        for module in self.lacking(plan, modules, 1) {
            for provider in client.providers_of(module).await? {
                client.learn(provider.peer, provider.addresses);
                self.provided.entry(module).or_default().insert(provider.peer);
            }
        }
        self.walk(client, plan, modules, 1).await
    }

    async fn walk(
        &mut self,
        client: &mut Client,
        plan: &RunPlan,
        modules: &[ModuleId],
        enough: usize,
    ) -> Result<(), Stopped> {
        while self.asked.len() < MAX_ASKED && !self.lacking(plan, modules, enough).is_empty() {
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
                    Ok(Response::Directory(entries)) => self.take_in(client, plan, entries),
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
    fn take_in(&mut self, client: &mut Client, plan: &RunPlan, entries: Vec<DirectoryEntry>) {
        for entry in entries.into_iter().take(MAX_DIRECTORY) {
            let addresses = entry.addresses.iter().take(MAX_ADDRESSES).filter_map(|address| address.parse().ok());
            client.learn(entry.peer, addresses.collect::<Vec<Multiaddr>>());
            let leases = entry.leases.iter().filter(|lease| lease.path.0 < plan.seats.count());
            let paths = leases.map(|lease| (lease.path, lease.phase));
            self.paths.entry(entry.peer).or_default().extend(paths);
        }
    }
}
