//! A path that no peer can play, since nobody has all of its modules: they come here one by one, each from somebody who has
//! it, and the path is played on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::memory::BlobsInMemory;
use crate::config::DeviceChoice;
use crate::names::{BlobRef, PathId, PeerKey};
use crate::network::Stopped;
use crate::peer::manifest::Manifest;
use crate::peer::path_state::PathState;
use crate::peer::performing::{Cast, Performer};
use crate::peer::visiting::client::Client;
use crate::peer::visiting::directory::Directory;
use crate::peer::visiting::heads::heads;
use crate::protocol::RunPlan;
use crate::protocol::message::Head;
use crate::protocol::questions::{Played, Question};

/// Plays one path after the other.
pub(super) struct Understudy {
    manifest: Arc<Manifest>,
    performer: Performer,
    blobs: BlobsInMemory,
    /// Paths that have been played here.
    knows: BTreeSet<PathId>,
    /// What is here now.
    cast: Option<(PathId, Cast)>,
    most_bytes: u64,
}

impl Understudy {
    /// One that knows no path yet; what it fetches comes to `blobs`.
    pub fn new(manifest: Arc<Manifest>, device: DeviceChoice, blobs: BlobsInMemory) -> Self {
        let performer = Performer::new(manifest.clone(), device, Box::new(blobs.clone()));
        let most_bytes = manifest.most_trainer_bytes();
        Self { manifest, performer, blobs, knows: BTreeSet::new(), cast: None, most_bytes }
    }

    /// Whether a path has been played here.
    pub fn knows(&self, path: PathId) -> bool {
        self.knows.contains(&path)
    }

    /// Fetches what a path is made of, as far as it is not here; why not, if somebody's part is not to be had.
    ///
    /// # Errors
    /// If the network goes away.
    pub async fn learn(
        &mut self,
        (client, directory, plan): (&mut Client, &Directory, &RunPlan),
        path: PathId,
    ) -> Result<Result<(), String>, Stopped> {
        if self.cast.as_ref().is_some_and(|(known, _)| *known == path) {
            return Ok(Ok(()));
        }
        self.cast = None;
        let (modules, mut reasons) = (plan.seats.grid().modules_of(path), BTreeMap::new());
        let mut heads = heads(client, directory, plan, &modules, &mut reasons).await?;
        let mut states = Vec::with_capacity(modules.len());
        for module in modules {
            let candidates = heads.remove(&module).unwrap_or_default();
            match self.fetch(client, &candidates).await? {
                Some(state) => states.push((module, state)),
                None => {
                    let reason = reasons.remove(&module);
                    let reason = reason.unwrap_or_else(|| "no peer that can be reached holds it".to_owned());
                    return Ok(Err(format!("module {module}: {reason}")));
                }
            }
        }
        let best = self.best(client, directory, path).await?;
        let wanted: Vec<_> = states.iter().map(|(_, state)| state.hash).chain(best.map(|best| best.hash)).collect();
        self.blobs.keep(&wanted);
        self.knows.insert(path);
        self.cast = Some((path, Cast { states, best }));
        Ok(Ok(()))
    }

    /// The newest state that somebody delivers.
    async fn fetch(&mut self, client: &mut Client, from: &[(Head, PeerKey)]) -> Result<Option<BlobRef>, Stopped> {
        for (head, peer) in from {
            if self.blobs.has(head.state.hash) || client.fetch(head.state, &[*peer]).await?.is_ok() {
                return Ok(Some(head.state));
            }
        }
        Ok(None)
    }

    /// The trainer of a path that counts as what it was best with.
    async fn best(&self, client: &mut Client, from: &Directory, path: PathId) -> Result<Option<BlobRef>, Stopped> {
        if !self.manifest.config.training.early_stopping {
            return Ok(None);
        }
        let counts = self.manifest.level_counts();
        for (peer, trainer) in from.trainers(path).into_iter().filter(|(_, trainer)| trainer.bytes <= self.most_bytes) {
            if client.fetch(trainer, &[peer]).await?.is_err() {
                continue;
            }
            let state = self.blobs.take(trainer.hash).map(|bytes| (PathState::decode(&bytes, &counts), bytes));
            if let Some((Ok(state), bytes)) = state
                && state.best.is_some_and(|best| best.settled)
            {
                self.blobs.put(trainer.hash, bytes);
                return Ok(Some(trainer));
            }
        }
        Ok(None)
    }

    /// Plays a question to the path that was [learnt](Self::learn) last.
    ///
    /// # Errors
    /// If what came is not what it should be, or the device fails.
    pub fn play(&mut self, question: &Question) -> anyhow::Result<Played> {
        let (_, cast) = self.cast.as_ref().ok_or_else(|| anyhow::anyhow!("no path has been learnt"))?;
        self.performer.played(question, cast)
    }
}
