//! From the first stage of a run to the second, without a coordinator. Each stage is a run; the manifest of the second
//! names the first.
//!
//! A peer that has finished the first stage looks for a peer in the second ([`StageDiscovery`]), and follows it. If
//! there is none, the owner of the first module creates the second run, from the trained modules and from the text of
//! all peers ([`gather`]). If that owner is gone, the next owner of the module does so.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use crate::names::{BlobRef, PathId, PeerKey, RunId};
use crate::network::{Identity, Multiaddr, NetworkConfig, NetworkEvents, NetworkHandle, StartError};
use crate::peer::StoredBlobs;
use crate::peer::access::access_control::AccessControl;
use crate::peer::client::directory::Directory;
use crate::peer::client::{Entrance, Visit, visit};
use crate::peer::create::Text;
use crate::peer::folder::{abandon, key_file, lock_store, next_folder, read_manifest, take_along};
use crate::peer::join::{JoinError, fetch_manifest};
use crate::peer::manifest::Manifest;
use crate::peer::status::PeerStatus;
use crate::store::{BlobStore, DiskError, write_file};
use crate::text::{Domains, IdsWriter, TokenSet, Tokenizer};

/// The file with addresses of the first stage's peers, one a line: a peer that crashes while it creates the second
/// stage may find that the others have gone on without it.
fn others_file(next: &Path) -> PathBuf {
    next.join("others")
}

/// Writes that file.
pub fn remember_others(next: &Path, others: &[Multiaddr]) -> Result<(), DiskError> {
    let lines: String = others.iter().map(|address| format!("{address}\n")).collect();
    write_file(&others_file(next), lines.as_bytes())
}

/// The address of a peer in another second stage than the one that this peer has created, if there is one. Its own is
/// then removed.
pub async fn elsewhere(folder: &Path) -> anyhow::Result<Option<Multiaddr>> {
    let next = next_folder(folder);
    let (Some((_, _, own)), Some((_, first, before))) = (read_manifest(&next)?, read_manifest(folder)?) else {
        return Ok(None);
    };
    // A peer that runs there is left alone.
    let _lock = lock_store(&next)?;
    let others = std::fs::read_to_string(others_file(&next)).unwrap_or_default();
    let others: Vec<Multiaddr> = others.lines().filter_map(|line| line.parse().ok()).collect();
    if others.is_empty() {
        return Ok(None);
    }
    let identity = Identity::load_or_generate(&key_file(folder))?;
    let sponsor = AccessControl::of(folder, &identity, &first, before)?;
    match StageDiscovery::start(sponsor).await?.successor(&others, (&first, before)).await {
        Some((address, run)) if run != own => {
            tracing::warn!(%run, %own, "the other peers are in the next stage; this peer follows");
            abandon(folder)?;
            take_along(folder)?;
            Ok(Some(address))
        }
        _ => Ok(None),
    }
}

/// Whether a peer creates the second stage: it has finished the first, and owns the first module.
pub fn is_first(status: &PeerStatus) -> bool {
    status.node.done && status.node.modules.iter().any(|module| module.module == "0.0" && module.owned_here)
}

/// Asks peers for their run, with the sponsor of this machine if needed.
pub struct StageDiscovery {
    network: NetworkHandle,
    events: NetworkEvents,
    sponsor: Option<Arc<AccessControl>>,
}

impl StageDiscovery {
    /// Does not listen.
    pub async fn start(sponsor: Option<Arc<AccessControl>>) -> Result<Self, StartError> {
        let config = NetworkConfig::visitor(Identity::generate());
        let (network, events) = crate::network::start(config, Arc::new(StoredBlobs::default())).await?;
        Ok(Self { network, events, sponsor })
    }

    /// The address and run of a peer that has left a run for the next.
    pub async fn successor(
        &mut self,
        addresses: &[Multiaddr],
        (first, of): (&Manifest, RunId),
    ) -> Option<(Multiaddr, RunId)> {
        // A visitor's credential expires after a while, but a stage may take weeks.
        let shown = self.sponsor.as_ref().and_then(|sponsor| sponsor.visitor(self.network.me()).ok());
        for address in addresses {
            let asked = fetch_manifest(&self.network, &mut self.events, address, shown.as_ref()).await;
            if let Ok((_, _, manifest, run)) = asked
                && manifest.follows(first, of)
            {
                return Some((address.clone(), run));
            }
        }
        None
    }
}

/// The text of a run that shares it, from the peers at these addresses and those that they know. Files are in `folder`
/// while they are read.
///
/// # Errors
/// If no peer answers, a shard has no holder, or the disk fails.
pub async fn gather(entrance: Entrance<'_>, of: RunId, folder: &Path) -> anyhow::Result<Text> {
    let blobs = BlobStore::open(folder)?;
    let access = StoredBlobs::default();
    access.take_in(blobs.clone());
    let Visit { mut client, contact, address, manifest, .. } = visit(entrance, Arc::new(access)).await?;
    let (manifest, run) = Manifest::decode(&manifest)?;
    anyhow::ensure!(run == of, "the peer at {address} is already in another run");
    let mut directory = Directory::default();
    let mut wanted = vec![(manifest.tokenizer, "the tokenizer", None)];
    let fetched = client.fetch(manifest.shards.table, &[contact]).await?;
    fetched.map_err(|reason| lacking("the shard table", &address, reason))?;
    let manifest = manifest.with_table_in(&blobs)?;
    let plan = manifest.plan()?;
    directory.search(&mut client, &plan, &plan.slots.grid().modules()).await?;
    for path in plan.slots.grid().paths() {
        wanted.extend(manifest.shard(path).blobs().map(|blob| (blob, "the text of a path", Some(path))));
    }
    for (blob, what, path) in wanted {
        let of_path = path.map(|path: PathId| directory.holders_of_path(&plan, path)).unwrap_or_default();
        let from: Vec<PeerKey> = of_path.into_iter().chain([contact]).chain(directory.answering()).collect();
        if !blobs.holds(blob)? {
            client.fetch(blob, &from).await?.map_err(|reason| lacking(what, &address, reason))?;
        }
    }
    tokio::task::spawn_blocking(move || text_of(&manifest, &blobs)).await?
}

fn lacking(what: &'static str, from: &Multiaddr, reason: String) -> JoinError {
    JoinError::Blob { what, from: format!("{from} and the peers it knows"), reason }
}

/// All shards in one. Held-out text becomes training text again.
fn text_of(manifest: &Manifest, blobs: &BlobStore) -> anyhow::Result<Text> {
    let model = &manifest.config.model;
    let set = |blob: BlobRef| -> anyhow::Result<TokenSet> {
        let file = blobs.verified(blob)?.context("it was fetched, but is gone again")?;
        let ids = IdsWriter::unnamed(&blobs.scratch())?;
        Ok(TokenSet::read_for(model, BufReader::new(file), blob.bytes, ids)?)
    };
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for shard in manifest.shards.listed() {
        train.extend([set(shard.train)?, set(shard.held_out)?]);
        test.push(set(shard.test)?);
    }
    let tokenizer = blobs.get(manifest.tokenizer.hash, manifest.tokenizer.bytes)?;
    let joined = |sets: &[TokenSet]| TokenSet::joined(sets, IdsWriter::unnamed(&blobs.scratch())?);
    Ok(Text {
        tokenizer: Tokenizer::from_json(&tokenizer.context("the tokenizer was fetched, but is gone again")?)?,
        train: joined(&train)?,
        test: joined(&test)?,
        // A shard does not name the domains of its documents.
        domains: Domains::default(),
        corpus: manifest.corpus,
        test_corpus: manifest.test_corpus,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::tests::tiny_run::Tiny;

    #[test]
    fn all_shards_together_are_the_text_again() {
        let tiny = Tiny::create(true);
        let text = text_of(&tiny.decoded, &tiny.blobs).unwrap();
        let documents = |set: &TokenSet| {
            let mut spans: Vec<Vec<u32>> = set.documents().map(|document| set.span(document)).collect();
            spans.sort();
            spans
        };
        assert_eq!(documents(&text.train), documents(&tiny.train));
        assert_eq!(documents(&text.test), documents(&tiny.test));
        assert_eq!(text.corpus, tiny.decoded.corpus);
        assert!(!text.train.is_empty());
    }
}
