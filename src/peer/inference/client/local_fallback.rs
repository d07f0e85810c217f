//! Local fallback: runs a path for which no peer has all modules. The modules are fetched one by one from their
//! holders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::DeviceChoice;
use crate::grid::Grid;
use crate::names::{BlobRef, ModuleId, PathId};
use crate::network::Stopped;
use crate::outer::ModuleState;
use crate::peer::client::memory_blobs::MemoryBlobs;
use crate::peer::client::swarm::SwarmClient;
use crate::peer::inference::engine::{Engine, PathParts};
use crate::peer::manifest::Manifest;
use crate::peer::trainer::path_state::PathState;
use crate::protocol::wire::message::Head;
use crate::query::{Query, QueryResult};

/// Attempts for a module, whose head may move while its state is fetched.
const LOOKS: usize = 3;

/// Limit of cached blobs of paths.
const KEPT_BYTES: u64 = 1 << 31;

/// Runs one path after the other.
pub(super) struct LocalFallback {
    manifest: Arc<Manifest>,
    grid: Grid,
    engine: Engine,
    blobs: MemoryBlobs,
    /// Paths that have run here.
    knows: BTreeSet<PathId>,
    /// Paths whose blobs are here, the latest last.
    loaded: Vec<(PathId, PathParts)>,
}

impl LocalFallback {
    /// Without any path; fetched blobs go to `blobs`.
    pub fn new(manifest: Arc<Manifest>, device: DeviceChoice, blobs: MemoryBlobs) -> anyhow::Result<Self> {
        let (grid, engine) = (manifest.config.grid()?, Engine::new(manifest.clone(), device, Box::new(blobs.clone())));
        Ok(Self { manifest, grid, engine, blobs, knows: BTreeSet::new(), loaded: Vec::new() })
    }

    /// Whether a path has run here.
    pub fn knows(&self, path: PathId) -> bool {
        self.knows.contains(&path)
    }

    /// Fetches the missing blobs of a path, or returns why one cannot be fetched.
    pub async fn learn(&mut self, from: &mut SwarmClient, path: PathId) -> Result<Result<(), String>, Stopped> {
        if self.loaded.iter().any(|(known, _)| *known == path) {
            return Ok(Ok(()));
        }
        let learnt = self.fetch(from, path).await?.map(|parts| {
            self.loaded.push((path, parts));
            self.knows.insert(path);
        });
        self.make_room();
        Ok(learnt)
    }

    /// The blobs of a path are unusable.
    pub fn forget(&mut self, path: PathId) {
        self.loaded.retain(|(known, _)| *known != path);
        self.knows.remove(&path);
        self.make_room();
    }

    async fn fetch(&mut self, from: &mut SwarmClient, path: PathId) -> Result<Result<PathParts, String>, Stopped> {
        let modules = self.grid.modules_of(path);
        from.search(&modules).await?;
        let (mut states, mut over) = (Vec::with_capacity(modules.len()), true);
        for module in modules {
            match self.newest(from, module).await? {
                Ok(head) => {
                    over &= from.plan.is_done(module, head);
                    states.push((module, head.state));
                }
                Err(reason) => return Ok(Err(format!("module {module}: {reason}"))),
            }
        }
        if self.manifest.config.frozen().is_some() && !self.blobs.has(self.manifest.ancestor.hash) {
            match from.part_of_run(self.manifest.ancestor).await? {
                Ok(ancestor) => self.blobs.put(self.manifest.ancestor.hash, ancestor),
                Err(reason) => return Ok(Err(format!("the ancestor: {reason}"))),
            }
        }
        // Only at the end does a path have best parameters of its own.
        let config = &self.manifest.config;
        let apart = config.outer.keep_unsent || (over && config.training.early_stopping);
        if !apart {
            return Ok(Ok(PathParts { states, trainer: None }));
        }
        Ok(self.trainer(from, path).await?.map(|trainer| PathParts { states, trainer }))
    }

    /// The newest valid state that a holder sends.
    async fn newest(&self, from: &mut SwarmClient, module: ModuleId) -> Result<Result<Head, String>, Stopped> {
        let mut last = None;
        for _ in 0..LOOKS {
            let mut reasons = BTreeMap::new();
            let candidates = from.heads(&[module], &mut reasons).await?.remove(&module).unwrap_or_default();
            last = reasons.remove(&module).or(last);
            let accept = |head, bytes| Ok::<_, Stopped>(self.looked_at(module, head, bytes).map(|()| head));
            match from.newest(&candidates, accept).await? {
                Ok((head, _)) => return Ok(Ok(head)),
                Err(reason) if !candidates.is_empty() => last = Some(reason),
                Err(_) => {}
            }
        }
        let nobody = "no reachable peer delivers it";
        Ok(Err(last.map_or_else(|| nobody.to_owned(), |why| format!("{nobody} ({why})"))))
    }

    /// Refuses a state that its owner has not signed, or that has values that are not finite.
    fn looked_at(&self, module: ModuleId, head: Head, bytes: Vec<u8>) -> Result<(), String> {
        let count = self.manifest.level_counts()[usize::from(module.level)];
        let state = ModuleState::decode(&bytes, module, count).map_err(|error| error.to_string())?;
        if state.version != head.version {
            return Err(format!(
                "its state has version {}, but its owner signed version {}",
                state.version, head.version
            ));
        }
        if let Some(wrong) = state.parameters.iter().position(|value| !value.is_finite()) {
            return Err(format!("parameter {wrong} of its state is not finite"));
        }
        self.blobs.put(head.state.hash, bytes);
        Ok(())
    }

    /// The trainer state of a path with own parameters; `None` if it has none.
    async fn trainer(&self, from: &mut SwarmClient, path: PathId) -> Result<Result<Option<BlobRef>, String>, Stopped> {
        let (counts, keeps_unsent) = (self.manifest.level_counts(), self.manifest.config.outer.keep_unsent);
        let accept = |trainer: BlobRef, bytes: Vec<u8>| {
            let Ok(state) = PathState::decode(&bytes, &counts) else { return Ok::<_, Stopped>(None) };
            let own = keeps_unsent || state.best.is_some_and(|best| best.settled);
            if own {
                self.blobs.put(trainer.hash, bytes);
            }
            Ok(Some(own.then_some(trainer)))
        };
        if let Some(trainer) = from.trainer(path, accept).await? {
            return Ok(Ok(trainer));
        }
        if keeps_unsent {
            tracing::warn!(%path, "no reachable peer has its unsent values: the result is without them");
            return Ok(Ok(None));
        }
        Ok(Err(format!("no reachable peer has the own state of path {path}")))
    }

    /// Drops the oldest path while the limit is exceeded, except the latest, and all unreferenced blobs.
    fn make_room(&mut self) {
        let blobs = |parts: &PathParts| -> Vec<BlobRef> {
            parts.states.iter().map(|(_, state)| *state).chain(parts.trainer).collect()
        };
        let all = |loaded: &[(PathId, PathParts)]| -> BTreeMap<_, u64> {
            loaded.iter().flat_map(|(_, parts)| blobs(parts)).map(|blob| (blob.hash, blob.bytes)).collect()
        };
        while self.loaded.len() > 1 && all(&self.loaded).into_values().sum::<u64>() > KEPT_BYTES {
            self.loaded.remove(0);
        }
        let frozen = self.manifest.config.frozen().map(|_| self.manifest.ancestor.hash);
        self.blobs.keep(&all(&self.loaded).into_keys().chain(frozen).collect::<Vec<_>>());
    }

    /// Runs a query on a [fetched](Self::learn) path.
    pub fn play(&mut self, path: PathId, question: &Query) -> anyhow::Result<QueryResult> {
        let parts = self.loaded.iter().find(|(known, _)| *known == path);
        let (_, parts) = parts.ok_or_else(|| anyhow::anyhow!("the placement of path {path} is not known"))?;
        self.engine.result(question, parts)
    }
}
