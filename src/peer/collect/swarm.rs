//! Collecting from a swarm that runs: who holds what, the newest attested state of each module, and its bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::names::{BlobRef, ModuleId, PeerKey, Version};
use crate::peer::access::blob_access::StoredBlobs;
use crate::peer::client::connection::Client;
use crate::peer::client::directory::Directory;
use crate::peer::client::heads::heads;
use crate::peer::client::{Entrance, Visit, visit};
use crate::peer::collect::CollectError;
use crate::peer::collected::writing::{Summary, Unfinished, Writer};
use crate::peer::join::JoinError;
use crate::protocol::RunPlan;
use crate::protocol::wire::message::Head;
use crate::store::BlobStore;

/// Peers from whom a path's text is tried, besides its holders.
const OTHERS: usize = 4;

/// Rounds through the modules that are missing: the swarm goes on while its states are fetched.
const ROUNDS: usize = 6;

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(500);

/// How it is going, for whoever watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The manifest is here.
    Run {
        /// The run's name.
        name: String,
        /// Modules to fetch.
        modules: usize,
    },
    /// A module is here: how many of them are now.
    Module {
        /// Which.
        module: ModuleId,
        /// At which version.
        version: Version,
        /// From whom.
        from: PeerKey,
        /// Modules so far.
        done: usize,
    },
}

/// Joins the network as a client, by the first of these addresses that answers, and writes the newest version of every
/// module to `target`.
///
/// # Errors
/// If nobody answers, or a module has no holder that can be reached.
pub async fn collect_from_swarm(
    entrance: impl Into<Entrance<'_>>,
    target: &Path,
    told: &mut (dyn FnMut(Told) + Send),
) -> Result<Summary, CollectError> {
    let unfinished = Unfinished::begin(target)?;
    let blobs = BlobStore::open(&unfinished.scratch())?;
    let access = StoredBlobs::default();
    access.take_in(blobs.clone());
    let Visit { mut client, contact: peer, address, manifest, .. } = visit(entrance.into(), Arc::new(access)).await?;
    let mut writer = unfinished.of_run(&manifest)?;
    if let Some(table) = writer.manifest.shards.table() {
        let bytes = bytes(&mut client, &blobs, table, &[peer]).await?;
        let lacking = |reason| JoinError::Blob { what: "the shard table", from: address.to_string(), reason };
        writer.put_shard_table(&bytes.map_err(lacking)?)?;
    }
    let plan = writer.manifest.plan()?;
    told(Told::Run { name: writer.manifest.config.name.clone(), modules: plan.slots.grid().modules().len() });
    Collecting { client, directory: Directory::default(), blobs, plan, writer, contact: peer }.run(told).await
}

/// The bytes of a blob, which does not stay in the store.
async fn bytes(
    client: &mut Client,
    blobs: &BlobStore,
    blob: BlobRef,
    from: &[PeerKey],
) -> Result<Result<Vec<u8>, String>, CollectError> {
    if let Err(reason) = client.fetch(blob, from).await? {
        return Ok(Err(reason));
    }
    let bytes = blobs.get(blob.hash, blob.bytes)?;
    blobs.remove(blob.hash)?;
    Ok(bytes.ok_or_else(|| "it went away again".to_owned()))
}

struct Collecting {
    client: Client,
    directory: Directory,
    blobs: BlobStore,
    plan: RunPlan,
    writer: Writer,
    contact: PeerKey,
}

impl Collecting {
    async fn run(mut self, told: &mut (dyn FnMut(Told) + Send)) -> Result<Summary, CollectError> {
        let modules = self.plan.slots.grid().modules();
        self.directory.search(&mut self.client, &self.plan, &modules).await?;
        let tokenizer = self.part(self.writer.manifest.tokenizer, "the tokenizer").await?;
        self.writer.put_tokenizer(&tokenizer)?;
        let router = self.part(self.writer.manifest.router, "the router").await?;
        self.writer.put_router(&router)?;
        let ancestor = self.part(self.writer.manifest.ancestor, "the ancestor").await?;
        self.writer.put_ancestor(&ancestor)?;
        drop((tokenizer, router, ancestor));
        self.modules(&modules, told).await?;
        if self.writer.manifest.config.paths_end_apart() {
            self.best().await?;
        }
        if self.writer.manifest.share_text {
            self.test_text().await?;
        }
        Ok(self.writer.finish()?)
    }

    /// Something that every peer of the run has.
    async fn part(&mut self, blob: BlobRef, what: &'static str) -> Result<Vec<u8>, CollectError> {
        let from: Vec<PeerKey> = std::iter::once(self.contact).chain(self.directory.answering()).collect();
        match self.bytes(blob, &from).await? {
            Ok(bytes) => Ok(bytes),
            Err(reason) => Err(JoinError::Blob { what, from: format!("{} peers", from.len()), reason }.into()),
        }
    }

    async fn bytes(&mut self, blob: BlobRef, from: &[PeerKey]) -> Result<Result<Vec<u8>, String>, CollectError> {
        bytes(&mut self.client, &self.blobs, blob, from).await
    }

    async fn modules(&mut self, modules: &[ModuleId], told: &mut (dyn FnMut(Told) + Send)) -> Result<(), CollectError> {
        let mut reasons: BTreeMap<ModuleId, String> = BTreeMap::new();
        for round in 0..ROUNDS {
            let missing = self.writer.missing(modules);
            if missing.is_empty() {
                return Ok(());
            }
            if round > 0 {
                tokio::time::sleep(PAUSE).await;
                self.directory.begin_again();
                self.directory.search(&mut self.client, &self.plan, &missing).await?;
            }
            let heads = heads(&mut self.client, &self.directory, &self.plan, &missing, &mut reasons).await?;
            for (module, candidates) in heads {
                match self.newest(module, &candidates).await? {
                    Ok((version, from)) => {
                        let done = modules.len() - self.writer.missing(modules).len();
                        told(Told::Module { module, version, from, done });
                    }
                    Err(reason) => drop(reasons.insert(module, reason)),
                }
            }
        }
        let missing = self.writer.missing(modules);
        let without: Vec<ModuleId> =
            missing.iter().filter(|module| self.directory.holders(&self.plan, **module).is_empty()).copied().collect();
        match missing.first() {
            None => Ok(()),
            Some(_) if !without.is_empty() => {
                Err(CollectError::NoHolder { modules: without, asked: self.directory.asked() })
            }
            Some(module) => {
                let reason = reasons.remove(module).unwrap_or_else(|| "no holder answered".to_owned());
                Err(CollectError::NotFetched { module: *module, reason })
            }
        }
    }

    /// Fetches and writes the newest state that somebody delivers.
    async fn newest(
        &mut self,
        module: ModuleId,
        candidates: &[(Head, PeerKey)],
    ) -> Result<Result<(Version, PeerKey), String>, CollectError> {
        let mut reason = "no holder answered".to_owned();
        for (head, peer) in candidates {
            let bytes = match self.bytes(head.state, &[*peer]).await? {
                Ok(bytes) => bytes,
                Err(why) => {
                    reason = why;
                    continue;
                }
            };
            match self.writer.put_state(module, &bytes, *head)? {
                Ok(()) => return Ok(Ok((head.version, *peer))),
                Err(why) => reason = why,
            }
        }
        Ok(Err(reason))
    }

    /// What paths that are done count as, where that is not what their modules have in the end.
    async fn best(&mut self) -> Result<(), CollectError> {
        let most_bytes = self.writer.manifest.most_trainer_bytes();
        for path in self.plan.slots.grid().paths() {
            let trainers = self.directory.trainers(path);
            for (peer, trainer) in trainers.into_iter().filter(|(_, trainer)| trainer.bytes <= most_bytes) {
                if let Ok(bytes) = self.bytes(trainer, &[peer]).await?
                    && self.writer.put_best(path, &bytes)?
                {
                    break;
                }
            }
        }
        Ok(())
    }

    /// From the holders of each path first; then from anybody, since the founder has it all.
    async fn test_text(&mut self) -> Result<(), CollectError> {
        for path in self.plan.slots.grid().paths() {
            let test = self.writer.manifest.shard(path).test;
            let mut from = self.directory.holders_of_path(&self.plan, path);
            from.push(self.contact);
            from.extend(self.directory.answering().take(OTHERS));
            let bytes = self.bytes(test, &from).await?.ok();
            self.writer.put_test(path, bytes.as_deref())?;
        }
        Ok(())
    }
}
