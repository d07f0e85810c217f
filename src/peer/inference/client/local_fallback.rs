//! A path that no peer can play, since nobody has all of its modules: they come here one by one, each from somebody who has
//! it, and the path is played on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::DeviceChoice;
use crate::grid::Grid;
use crate::names::{BlobRef, ModuleId, PathId};
use crate::network::Stopped;
use crate::outer::ModuleState;
use crate::peer::client::connection::Client;
use crate::peer::client::directory::Directory;
use crate::peer::client::heads::heads;
use crate::peer::inference::client::memory_blobs::BlobsInMemory;
use crate::peer::inference::engine::{Cast, Performer};
use crate::peer::manifest::Manifest;
use crate::peer::trainer::path_state::PathState;
use crate::protocol::RunPlan;
use crate::protocol::wire::message::Head;
use crate::query::{Query, QueryResult};

/// Looks at where a module stands: it may move on while its state is fetched.
const LOOKS: usize = 3;

/// What was learnt is kept as long as it is no more than this.
const KEPT_BYTES: u64 = 1 << 31;

/// Plays one path after the other.
pub(super) struct Understudy {
    manifest: Arc<Manifest>,
    grid: Grid,
    performer: Performer,
    blobs: BlobsInMemory,
    /// Paths that have been played here.
    knows: BTreeSet<PathId>,
    /// What is here now, the last one last.
    casts: Vec<(PathId, Cast)>,
}

/// Where modules are looked for.
pub(super) struct Sources<'a> {
    pub client: &'a mut Client,
    pub directory: &'a mut Directory,
    pub plan: &'a RunPlan,
}

impl Understudy {
    /// One that knows no path yet; what it fetches comes to `blobs`.
    ///
    /// # Errors
    /// If the manifest's levels make no grid.
    pub fn new(manifest: Arc<Manifest>, device: DeviceChoice, blobs: BlobsInMemory) -> anyhow::Result<Self> {
        let (grid, performer) =
            (manifest.config.grid()?, Performer::new(manifest.clone(), device, Box::new(blobs.clone())));
        Ok(Self { manifest, grid, performer, blobs, knows: BTreeSet::new(), casts: Vec::new() })
    }

    /// Whether a path has been played here.
    pub fn knows(&self, path: PathId) -> bool {
        self.knows.contains(&path)
    }

    /// Fetches what a path is made of, as far as it is not here; why not, if somebody's part is not to be had.
    ///
    /// # Errors
    /// If the network goes away.
    pub async fn learn(&mut self, from: &mut Sources<'_>, path: PathId) -> Result<Result<(), String>, Stopped> {
        if self.casts.iter().any(|(known, _)| *known == path) {
            return Ok(Ok(()));
        }
        let learnt = self.fetch(from, path).await?.map(|cast| {
            self.casts.push((path, cast));
            self.knows.insert(path);
        });
        self.make_room();
        Ok(learnt)
    }

    /// What was learnt of a path is of no use.
    pub fn forget(&mut self, path: PathId) {
        self.casts.retain(|(known, _)| *known != path);
        self.knows.remove(&path);
        self.make_room();
    }

    async fn fetch(&mut self, from: &mut Sources<'_>, path: PathId) -> Result<Result<Cast, String>, Stopped> {
        let modules = self.grid.modules_of(path);
        from.directory.search(from.client, from.plan, &modules).await?;
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
        // Only in the end does a path count as what it was best with.
        let config = &self.manifest.config;
        let apart = config.outer.keep_unsent || (over && config.training.early_stopping);
        if !apart {
            return Ok(Ok(Cast { states, trainer: None }));
        }
        Ok(self.trainer(from, path).await?.map(|trainer| Cast { states, trainer }))
    }

    /// The newest state that somebody delivers and that is what it should be.
    async fn newest(&mut self, from: &mut Sources<'_>, module: ModuleId) -> Result<Result<Head, String>, Stopped> {
        let mut last = None;
        for _ in 0..LOOKS {
            let mut reasons = BTreeMap::new();
            let heads = heads(from.client, from.directory, from.plan, &[module], &mut reasons).await?;
            last = reasons.remove(&module).or(last);
            for (head, peer) in heads.into_values().flatten() {
                let fetched = match self.blobs.has(head.state.hash) {
                    true => Ok(()),
                    false => from.client.fetch(head.state, &[peer]).await?,
                };
                match fetched.and_then(|()| self.looked_at(module, head)) {
                    Ok(()) => return Ok(Ok(head)),
                    Err(why) => last = Some(format!("peer …{}: {why}", peer.short())),
                }
            }
        }
        let nobody = "no peer that can be reached delivers it";
        Ok(Err(last.map_or_else(|| nobody.to_owned(), |why| format!("{nobody} ({why})"))))
    }

    /// Lets a state go that is not what its owner has signed, or that no network can be made of.
    fn looked_at(&self, module: ModuleId, head: Head) -> Result<(), String> {
        let bytes = self.blobs.take(head.state.hash).ok_or("it went away again")?;
        let count = self.manifest.level_counts()[usize::from(module.level)];
        let state = ModuleState::decode(&bytes, module, count).map_err(|error| error.to_string())?;
        if state.version != head.version {
            return Err(format!("its state is of version {}, its owner signed {}", state.version, head.version));
        }
        if let Some(wrong) = state.parameters.iter().position(|value| !value.is_finite()) {
            return Err(format!("parameter {wrong} of its state is no number"));
        }
        self.blobs.put(head.state.hash, bytes);
        Ok(())
    }

    /// The trainer of a path that counts as something of its own; none if it counts as what its modules have come to.
    async fn trainer(&self, from: &mut Sources<'_>, path: PathId) -> Result<Result<Option<BlobRef>, String>, Stopped> {
        let (counts, most_bytes) = (self.manifest.level_counts(), self.manifest.most_trainer_bytes());
        let trainers = from.directory.trainers(path).into_iter();
        for (peer, trainer) in trainers.filter(|(_, trainer)| trainer.bytes <= most_bytes) {
            if !self.blobs.has(trainer.hash) && from.client.fetch(trainer, &[peer]).await?.is_err() {
                continue;
            }
            let Some(bytes) = self.blobs.take(trainer.hash) else { continue };
            let Ok(state) = PathState::decode(&bytes, &counts) else { continue };
            let keeps_unsent = self.manifest.config.outer.keep_unsent;
            let counts = keeps_unsent || state.best.is_some_and(|best| best.settled);
            if counts {
                self.blobs.put(trainer.hash, bytes);
            }
            return Ok(Ok(counts.then_some(trainer)));
        }
        if self.manifest.config.outer.keep_unsent {
            tracing::warn!(%path, "nobody who can be reached says what it has not sent: it is played without that");
            return Ok(Ok(None));
        }
        Ok(Err(format!("nobody who can be reached knows what path {path} has of its own")))
    }

    /// The oldest goes while there is too much; the last one stays. Blobs that belong to none go always.
    fn make_room(&mut self) {
        let blobs =
            |cast: &Cast| -> Vec<BlobRef> { cast.states.iter().map(|(_, state)| *state).chain(cast.trainer).collect() };
        let all = |casts: &[(PathId, Cast)]| -> BTreeMap<_, u64> {
            casts.iter().flat_map(|(_, cast)| blobs(cast)).map(|blob| (blob.hash, blob.bytes)).collect()
        };
        while self.casts.len() > 1 && all(&self.casts).into_values().sum::<u64>() > KEPT_BYTES {
            self.casts.remove(0);
        }
        self.blobs.keep(&all(&self.casts).into_keys().collect::<Vec<_>>());
    }

    /// Plays a question to a path that has been [learnt](Self::learn).
    ///
    /// # Errors
    /// If what came is not what it should be, or the device fails.
    pub fn play(&mut self, path: PathId, question: &Query) -> anyhow::Result<QueryResult> {
        let cast = self.casts.iter().find(|(known, _)| *known == path);
        let (_, cast) = cast.ok_or_else(|| anyhow::anyhow!("path {path} has not been learnt"))?;
        self.performer.played(question, cast)
    }
}
