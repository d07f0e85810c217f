//! The directory: which peers hold which module and path. It asks from peer to peer until there are enough holders.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{BlobRef, ModuleId, PathId, PeerKey, Phase};
use crate::network::{Multiaddr, Stopped};
use crate::peer::client::connection::Client;
use crate::protocol::limits::{MAX_ADDRESSES, MAX_DIRECTORY};
use crate::protocol::wire::message::{DirectoryEntry, Stage};
use crate::protocol::{Request, Response, RunPlan};

/// Holders of a module after which the search ends.
const ENOUGH: usize = 3;

/// Peers searched for a path.
const ENOUGH_OF_PATH: usize = 2;

/// Peers searched at all, for requests that any peer can answer.
const ENOUGH_PEERS: usize = 4;

/// Limit of peers that are asked.
const MAX_ASKED: usize = 1_024;

/// Trainer states remembered for a path.
const MAX_TRAINERS: usize = 8;

/// Peers asked between two checks of what is missing.
const WAVE: usize = 16;

/// The search results.
#[derive(Default)]
pub(in crate::peer) struct Directory {
    /// The paths of each peer and their phases, by anyone's report.
    paths: BTreeMap<PeerKey, BTreeSet<(PathId, Phase)>>,
    /// The trainer states of finished paths, by anyone's report.
    trainers: BTreeMap<PathId, BTreeSet<(PeerKey, BlobRef)>>,
    provided: BTreeMap<ModuleId, BTreeSet<PeerKey>>,
    asked: BTreeSet<PeerKey>,
    silent: BTreeSet<PeerKey>,
}

impl Directory {
    /// Number of peers asked.
    pub(in crate::peer) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Peers with a path through a module, or that provide it; peers that did not answer come last.
    pub(in crate::peer) fn holders(&self, plan: &RunPlan, module: ModuleId) -> Vec<PeerKey> {
        let leased = self.leasing(|path, phase| plan.needs(path, phase, module));
        let provided = self.provided.get(&module).into_iter().flatten().copied();
        self.answering_first(leased.chain(provided))
    }

    /// Peers that hold a path of the grid now; peers that did not answer come last.
    pub(in crate::peer) fn holders_of_path(&self, plan: &RunPlan, path: PathId) -> Vec<PeerKey> {
        self.answering_first(self.leasing(|held, phase| plan.path_at(held, phase) == path))
    }

    /// Holders of the trainer state of a finished path.
    pub(in crate::peer) fn trainers(&self, path: PathId) -> Vec<(PeerKey, BlobRef)> {
        self.trainers.get(&path).into_iter().flatten().copied().collect()
    }

    /// Peers that can run a path of the grid: its present holders, then others with all of its modules; peers that did
    /// not answer come last.
    pub(in crate::peer) fn peers_for_path(&self, plan: &RunPlan, path: PathId) -> Vec<PeerKey> {
        let mut found = self.holders_of_path(plan, path);
        let of_each = plan.slots.grid().modules_of(path).into_iter().map(|module| self.holders(plan, module));
        let of_all = of_each.reduce(|all, of_one| all.into_iter().filter(|peer| of_one.contains(peer)).collect());
        for peer in of_all.unwrap_or_default() {
            if !found.contains(&peer) {
                found.push(peer);
            }
        }
        found.sort_by_key(|peer| self.silent.contains(peer));
        found
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
    pub(in crate::peer) fn answering(&self) -> impl Iterator<Item = PeerKey> {
        self.asked.difference(&self.silent).copied()
    }

    /// Whether a module has fewer than `enough` holders.
    fn lacking(&self, plan: &RunPlan, modules: &[ModuleId], enough: usize) -> Vec<ModuleId> {
        let count = |module: &ModuleId| {
            self.holders(plan, *module).iter().filter(|holder| !self.silent.contains(holder)).count()
        };
        modules.iter().filter(|module| count(module) < enough).copied().collect()
    }

    /// Starts the search again: a silent peer may answer now, and paths are drawn again.
    pub(in crate::peer) fn begin_again(&mut self) {
        self.asked.clear();
        self.silent.clear();
        self.paths.clear();
        self.trainers.clear();
    }

    /// Asks from peer to peer until each of these paths has a peer that can run it, or no peer is left; in any case
    /// finds some peers.
    pub(in crate::peer) async fn search_paths(
        &mut self,
        client: &mut Client,
        plan: &RunPlan,
        paths: &BTreeSet<PathId>,
    ) -> Result<(), Stopped> {
        let lacking = |known: &Self, path: &PathId, enough: usize| {
            let players = known.peers_for_path(plan, *path);
            players.iter().filter(|peer| !known.silent.contains(peer)).count() < enough
        };
        let goes_on = |known: &Self| {
            let few = known.answering().count() < ENOUGH_PEERS;
            few || paths.iter().any(|path| lacking(known, path, ENOUGH_OF_PATH))
        };
        self.walk(client, plan, &goes_on).await?;
        let modules = |path: &PathId| plan.slots.grid().modules_of(*path);
        let missing: BTreeSet<ModuleId> =
            paths.iter().filter(|path| lacking(self, path, 1)).flat_map(modules).collect();
        if missing.is_empty() { Ok(()) } else { self.search(client, plan, &Vec::from_iter(missing)).await }
    }

    /// Asks from peer to peer until these modules have enough holders, or no peer is left; then asks Kademlia for those
    /// without.
    pub(in crate::peer) async fn search(
        &mut self,
        client: &mut Client,
        plan: &RunPlan,
        modules: &[ModuleId],
    ) -> Result<(), Stopped> {
        self.walk(client, plan, &|known| !known.lacking(plan, modules, ENOUGH).is_empty()).await?;
        for module in self.lacking(plan, modules, 1) {
            for provider in client.providers_of(module).await? {
                client.learn(provider.peer, provider.addresses);
                self.provided.entry(module).or_default().insert(provider.peer);
            }
        }
        self.walk(client, plan, &|known| !known.lacking(plan, modules, 1).is_empty()).await
    }

    async fn walk(
        &mut self,
        client: &mut Client,
        plan: &RunPlan,
        goes_on: &(dyn Fn(&Self) -> bool + Sync),
    ) -> Result<(), Stopped> {
        while self.asked.len() < MAX_ASKED && goes_on(self) {
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

    /// Adds reports about other peers. A false one costs a request.
    fn take_in(&mut self, client: &mut Client, plan: &RunPlan, entries: Vec<DirectoryEntry>) {
        for entry in entries.into_iter().take(MAX_DIRECTORY) {
            let addresses = entry.addresses.iter().take(MAX_ADDRESSES).filter_map(|address| address.parse().ok());
            client.learn(entry.peer, addresses.collect::<Vec<Multiaddr>>());
            let leases = entry.leases.iter().filter(|lease| lease.path.0 < plan.slots.count());
            for lease in leases.clone().filter(|lease| lease.stage == Stage::Done) {
                let known = self.trainers.entry(lease.path).or_default();
                known.extend(lease.trainer.filter(|_| known.len() < MAX_TRAINERS).map(|blob| (entry.peer, blob)));
            }
            let paths = leases.map(|lease| (lease.path, lease.phase));
            self.paths.entry(entry.peer).or_default().extend(paths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OuterMode;
    use crate::grid::{Grid, Sharing};

    #[test]
    fn who_holds_a_path_is_asked_before_who_has_its_modules_and_who_was_silent_last() {
        let two = Sharing::Experts(2);
        let plan = RunPlan {
            slots: Grid::new(vec![two, two]).unwrap().into(),
            mode: OuterMode::Synchronous,
            phases: 3,
            inner_steps: 8,
            streaming: None,
            reshard: Vec::new(),
            weights: vec![5; 4],
            genesis: BTreeMap::new(),
            offer_bytes: vec![100; 2],
            average_bytes: vec![100; 2],
            norm_cap: 0.0,
            audit_share: 0.0,
            centred_clipping: false,
            deterministic: false,
        };
        let [all, part, holder, gone] = [1, 2, 3, 4].map(|number| PeerKey([number; 32]));
        let mut directory = Directory::default();
        let held: [(PeerKey, &[u32]); 4] = [(all, &[0, 3]), (part, &[0]), (holder, &[1]), (gone, &[1])];
        for (peer, paths) in held {
            directory.paths.insert(peer, paths.iter().map(|path| (PathId(*path), Phase(0))).collect());
        }
        assert_eq!(directory.peers_for_path(&plan, PathId(1)), [holder, gone, all]);
        directory.silent.insert(holder);
        assert_eq!(directory.peers_for_path(&plan, PathId(1)), [gone, all, holder]);
        assert_eq!(directory.peers_for_path(&plan, PathId(2)), [all], "it goes through both of its paths' modules");
    }
}
