//! Three ways to begin: as the founder of a run, as a newcomer with an address, or again from one's own folder.
//!
//! Each leaves the peer's folder complete before the peer starts: its key, the manifest, and a store with what
//! everybody of the run keeps.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use super::founding::{self, Text};
use super::joining::{self, JoinError};
use super::manifest::Manifest;
use super::news::Newsroom;
use super::start::{Peer, PeerPlan, store_folder};
use super::{StoredBlobs, Turns};
use crate::config::MachineConfig;
use crate::names::{PeerKey, RunId};
use crate::network::{Identity, Multiaddr, NetworkConfig, NetworkEvents, NetworkHandle};
use crate::store::BlobStore;
use crate::text::CorpusSource;

/// What every way has in common.
#[derive(Clone)]
pub struct Launch {
    /// The peer's folder.
    pub folder: PathBuf,
    /// What the machine brings.
    pub machine: MachineConfig,
    /// Where to listen.
    pub listen: Vec<Multiaddr>,
    /// The machine's queue for trainers.
    pub turns: Arc<Turns>,
    /// Takes the peer's news.
    pub newsroom: Newsroom,
}

/// A network that listens, before it is certain that the peer will run.
struct Connected {
    identity: Identity,
    network: NetworkHandle,
    events: NetworkEvents,
    access: StoredBlobs,
}

/// A peer that runs, and how to reach it.
pub struct Launched {
    /// The peer.
    pub peer: Peer,
    /// Its network, to ask for addresses and traffic.
    pub network: NetworkHandle,
}

/// Where a peer's manifest is.
pub fn manifest_file(folder: &Path) -> PathBuf {
    folder.join("manifest.json")
}

/// The blobs of a peer's folder, before its store is opened as a whole.
///
/// # Errors
/// If the folder cannot be made or read.
pub fn open_blobs(folder: &Path) -> anyhow::Result<BlobStore> {
    Ok(BlobStore::open(&store_folder(folder).join("blobs"))?)
}

/// The manifest in a folder, if there is one.
///
/// # Errors
/// If it cannot be read or is not one of this program's.
pub fn read_manifest(folder: &Path) -> anyhow::Result<Option<(Vec<u8>, Manifest, RunId)>> {
    let path = manifest_file(folder);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let (manifest, run) = Manifest::decode(&bytes).with_context(|| path.display().to_string())?;
    Ok(Some((bytes, manifest, run)))
}

/// Puts a manifest into a folder, whole or not at all.
///
/// # Errors
/// If the disk fails.
pub fn write_manifest(folder: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    crate::store::write_file(&manifest_file(folder), bytes)?;
    Ok(())
}

impl Launch {
    /// Writes nothing yet.
    async fn network(&self) -> anyhow::Result<Connected> {
        let identity = Identity::load_or_generate(&self.key_file())?;
        let access = StoredBlobs::default();
        let config = NetworkConfig { identity: identity.clone(), listen: self.listen.clone(), announce: Vec::new() };
        let (network, events) = crate::network::start(config, Arc::new(access.clone())).await?;
        Ok(Connected { identity, network, events, access })
    }

    fn key_file(&self) -> PathBuf {
        self.folder.join("key")
    }

    async fn start(
        self,
        manifest: Vec<u8>,
        connected: Connected,
        contacts: Vec<(PeerKey, Vec<Multiaddr>)>,
        founder: bool,
    ) -> anyhow::Result<Launched> {
        connected.identity.keep(&self.key_file())?;
        connected.access.set(open_blobs(&self.folder)?);
        let plan = PeerPlan {
            folder: self.folder,
            manifest,
            identity: connected.identity,
            machine: self.machine,
            turns: self.turns,
            network: connected.network.clone(),
            network_events: connected.events,
            contacts,
            founder,
            newsroom: self.newsroom,
        };
        Ok(Launched { peer: Peer::start(plan).await?, network: connected.network })
    }

    /// Begins as founder, or goes on as the founder that one was: the folder has the manifest and all blobs.
    ///
    /// # Errors
    /// If the folder has no manifest, or the peer cannot start.
    pub async fn as_founder(self, contacts: Vec<(PeerKey, Vec<Multiaddr>)>) -> anyhow::Result<Launched> {
        let (bytes, _, _) = read_manifest(&self.folder)?.context("the folder has no manifest")?;
        let network = self.network().await?;
        self.start(bytes, network, contacts, true).await
    }

    /// Begins with nothing but an address, or comes back to the run that the folder holds.
    ///
    /// `own_text` is this machine's own copy of the corpus, for runs that do not share theirs. `told` hears the
    /// manifest before anything is downloaded.
    ///
    /// # Errors
    /// If nobody answers, it is another run than the folder's, or a part of the run cannot be had.
    pub async fn join(
        self,
        address: &Multiaddr,
        own_text: Option<OwnText>,
        told: &mut dyn FnMut(&Manifest, RunId),
    ) -> anyhow::Result<Launched> {
        let mut network = self.network().await?;
        let held = read_manifest(&self.folder)?;
        let asked = joining::fetch_manifest(&network.network, &mut network.events, address).await;
        let (peer, bytes, manifest, run) = match (asked, &held) {
            (Ok(asked), _) => asked,
            // One that comes back may know others, even if this one is gone.
            (Err(JoinError::Dial(error)), Some((bytes, manifest, run))) => {
                tracing::warn!(%error, "the address does not answer; trying the peers known from before");
                told(manifest, *run);
                return self.start(bytes.clone(), network, Vec::new(), false).await;
            }
            (Err(error), _) => return Err(error.into()),
        };
        if let Some((_, _, expected)) = held
            && expected != run
        {
            return Err(JoinError::OtherRun { address: address.to_string(), found: run, expected }.into());
        }
        told(&manifest, run);
        let blobs = open_blobs(&self.folder)?;
        network.access.set(blobs.clone());
        for (blob, what) in joining::parts(&manifest) {
            if !blobs.has(blob.hash)? {
                joining::fetch_blob(&network.network, &mut network.events, blob, what, (peer, address)).await?;
            }
        }
        if !manifest.share_text {
            make_own_shards(&manifest, own_text, &self.machine, &blobs)?;
        }
        write_manifest(&self.folder, &bytes)?;
        self.start(bytes, network, vec![(peer, vec![address.clone()])], false).await
    }
}

/// A peer's own copy of the corpus.
#[derive(Clone)]
pub struct OwnText {
    /// To train on.
    pub corpus: CorpusSource,
    /// To test on, if the run has a test text of its own.
    pub test_corpus: Option<CorpusSource>,
}

/// The run does not share its text, and no own copy was given.
#[derive(Debug, thiserror::Error)]
#[error("this run does not send its text to newcomers; its corpus has hash {corpus}")]
pub struct NeedsText {
    /// What the own copy must hash to.
    pub corpus: crate::names::BlobHash,
}

fn make_own_shards(
    manifest: &Manifest,
    own_text: Option<OwnText>,
    machine: &MachineConfig,
    blobs: &BlobStore,
) -> anyhow::Result<()> {
    let here = |shard: &super::manifest::Shard| -> anyhow::Result<bool> {
        Ok(blobs.has(shard.train.hash)? && blobs.has(shard.held_out.hash)? && blobs.has(shard.test.hash)?)
    };
    if manifest.shards.iter().map(here).collect::<anyhow::Result<Vec<bool>>>()?.into_iter().all(|here| here) {
        return Ok(());
    }
    let Some(own) = own_text else { return Err(NeedsText { corpus: manifest.corpus }.into()) };
    let tokenizer = blobs.get(manifest.tokenizer.hash, manifest.tokenizer.bytes)?;
    let plan = founding::Plan {
        run: &manifest.config,
        machine,
        corpus: own.corpus,
        test_corpus: own.test_corpus,
        share_text: false,
        tokenizer,
        ancestor: None,
    };
    let text = Text::read(&plan, &mut |_| {})?;
    founding::make_shards(manifest, &text, blobs)
}
