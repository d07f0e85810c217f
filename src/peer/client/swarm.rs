//! A run as a client sees it: its manifest, a directory of its peers, and fetched blobs in memory.
//!
//! Collecting a run and inference both use [`SwarmClient`], so neither searches peers or fetches by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::names::{BlobRef, ModuleId, PathId, PeerKey, RunId};
use crate::network::{Multiaddr, Stopped};
use crate::peer::client::connection::Client;
use crate::peer::client::directory::Directory;
use crate::peer::client::heads::heads;
use crate::peer::client::memory_blobs::MemoryBlobs;
use crate::peer::client::{Entrance, Visit, VisitError, visit};
use crate::peer::join::{JoinError, amendment_of};
use crate::peer::manifest::Manifest;
use crate::protocol::wire::message::Head;
use crate::protocol::{Request, RunPlan};

/// Attempts to fetch a part of the run that every peer has.
const ATTEMPTS: usize = 3;

/// Further peers asked for a path's text, besides those of the path and the first contact.
const OTHERS: usize = 4;

pub(in crate::peer) struct SwarmClient {
    pub connection: Client,
    pub directory: Directory,
    pub manifest: Manifest,
    pub manifest_bytes: Vec<u8>,
    /// The amendment that is in the manifest, as bytes.
    pub amendment: Option<Vec<u8>>,
    pub shard_table: Vec<u8>,
    pub plan: RunPlan,
    /// Fetched blobs that have not been taken.
    pub blobs: MemoryBlobs,
    /// The peer that answered first, and its address.
    pub contact: (PeerKey, Multiaddr),
}

impl SwarmClient {
    /// Connects to the first address that answers, and fetches the run's manifest and shard table.
    pub async fn connect(entrance: Entrance<'_>) -> Result<Self, VisitError> {
        let blobs = MemoryBlobs::default();
        let Visit { mut client, contact, address, manifest: manifest_bytes } =
            visit(entrance, Arc::new(blobs.clone())).await?;
        let unfit = |source| JoinError::Manifest { address: address.to_string(), source };
        let (mut manifest, run) = Manifest::decode(&manifest_bytes).map_err(unfit)?;
        let amendment = amendment(&mut client, &blobs, contact, (&mut manifest, run)).await?;
        let shard_table = part(&mut client, &blobs, manifest.shards.table, "the shard table", &[contact]).await?;
        manifest.take_table(&shard_table).map_err(unfit)?;
        let plan = manifest.plan().map_err(unfit)?;
        let (connection, directory, contact) = (client, Directory::default(), (contact, address));
        Ok(Self { connection, directory, manifest, manifest_bytes, amendment, shard_table, plan, blobs, contact })
    }

    /// A blob that every peer of the run has.
    pub async fn part(&mut self, blob: BlobRef, what: &'static str) -> Result<Vec<u8>, VisitError> {
        let from: Vec<PeerKey> = std::iter::once(self.contact.0).chain(self.directory.answering()).collect();
        part(&mut self.connection, &self.blobs, blob, what, &from).await
    }

    /// A blob that every peer of the run has; else the last reason.
    pub async fn part_of_run(&mut self, blob: BlobRef) -> Result<Result<Vec<u8>, String>, Stopped> {
        let from: Vec<PeerKey> = std::iter::once(self.contact.0).chain(self.directory.answering()).collect();
        self.fetch(blob, &from).await
    }

    /// The bytes of a blob, from memory or from those of these peers that have it; else the last reason.
    pub async fn fetch(&mut self, blob: BlobRef, from: &[PeerKey]) -> Result<Result<Vec<u8>, String>, Stopped> {
        fetch(&mut self.connection, &self.blobs, blob, from).await
    }

    /// Searches holders of these modules.
    pub async fn search(&mut self, modules: &[ModuleId]) -> Result<(), Stopped> {
        self.directory.search(&mut self.connection, &self.plan, modules).await
    }

    /// Searches peers that can run these paths.
    pub async fn search_paths(&mut self, paths: &BTreeSet<PathId>) -> Result<(), Stopped> {
        self.directory.search_paths(&mut self.connection, &self.plan, paths).await
    }

    /// The heads of these modules at their holders, signed by owners, best first.
    pub async fn heads(
        &mut self,
        modules: &[ModuleId],
        reasons: &mut BTreeMap<ModuleId, String>,
    ) -> Result<BTreeMap<ModuleId, Vec<(Head, PeerKey)>>, Stopped> {
        heads(&mut self.connection, &self.directory, &self.plan, modules, reasons).await
    }

    /// The first of these states that its holder sends and `accept` accepts, with its holder; else the last reason.
    pub async fn newest<T, E: From<Stopped>>(
        &mut self,
        candidates: &[(Head, PeerKey)],
        mut accept: impl FnMut(Head, Vec<u8>) -> Result<Result<T, String>, E>,
    ) -> Result<Result<(T, PeerKey), String>, E> {
        let mut last = "no holder answered".to_owned();
        for (head, peer) in candidates {
            let accepted = match self.fetch(head.state, &[*peer]).await? {
                Ok(bytes) => accept(*head, bytes)?,
                Err(reason) => Err(reason),
            };
            match accepted {
                Ok(value) => return Ok(Ok((value, *peer))),
                Err(reason) => last = format!("peer …{}: {reason}", peer.short()),
            }
        }
        Ok(Err(last))
    }

    /// The first trainer state of a finished path that is sent and accepted.
    pub async fn trainer<T, E: From<Stopped>>(
        &mut self,
        path: PathId,
        mut accept: impl FnMut(BlobRef, Vec<u8>) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let most_bytes = self.manifest.most_trainer_bytes();
        for (peer, trainer) in self.directory.trainers(path) {
            if trainer.bytes <= most_bytes
                && let Ok(bytes) = self.fetch(trainer, &[peer]).await?
                && let Some(found) = accept(trainer, bytes)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The test text of a path: from the peers of the path, then from others, since the run's creator has all of it.
    pub async fn test_text(&mut self, path: PathId) -> Result<Option<Vec<u8>>, Stopped> {
        self.search_paths(&BTreeSet::from([path])).await?;
        let mut from = self.directory.peers_for_path(&self.plan, path);
        from.push(self.contact.0);
        from.extend(self.directory.answering().take(OTHERS));
        let text = self.manifest.shard(path).test;
        Ok(self.fetch(text, &from).await?.ok())
    }
}

/// The amendment of the run that the first contact knows, if the creator has signed it.
async fn amendment(
    connection: &mut Client,
    blobs: &MemoryBlobs,
    contact: PeerKey,
    (manifest, run): (&mut Manifest, RunId),
) -> Result<Option<Vec<u8>>, Stopped> {
    let answers = connection.ask_each(&[(contact, Request::Directory { start: None })]).await?;
    let told = answers.into_iter().flatten().find_map(|answer| amendment_of(contact, &answer));
    let Some(told) = told else { return Ok(None) };
    let Ok(bytes) = fetch(connection, blobs, told.blob, &[contact]).await? else { return Ok(None) };
    let taken = manifest.amend(run, &bytes);
    Ok(taken.inspect_err(|error| tracing::warn!(%error, "what a peer told of is no amendment")).ok().map(|()| bytes))
}

async fn part(
    connection: &mut Client,
    blobs: &MemoryBlobs,
    blob: BlobRef,
    what: &'static str,
    from: &[PeerKey],
) -> Result<Vec<u8>, VisitError> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match fetch(connection, blobs, blob, from).await? {
            Ok(bytes) => return Ok(bytes),
            Err(reason) => last = reason,
        }
    }
    Err(JoinError::Blob { what, from: format!("{} peers", from.len()), reason: last }.into())
}

async fn fetch(
    connection: &mut Client,
    blobs: &MemoryBlobs,
    blob: BlobRef,
    from: &[PeerKey],
) -> Result<Result<Vec<u8>, String>, Stopped> {
    if let Some(bytes) = blobs.take(blob.hash) {
        return Ok(Ok(bytes));
    }
    let fetched = connection.fetch(blob, from).await?;
    Ok(fetched.and_then(|()| blobs.take(blob.hash).ok_or_else(|| "it is no longer in memory".to_owned())))
}
