//! Starting a peer: as the creator of a run, as a newcomer with an address, or again from its own folder.
//!
//! Each way first completes the peer's folder: its key, the manifest, and a store with the blobs that every peer of the
//! run stores; `ancestor` fetches a damaged one again. [`assembly`] then restores the node and starts the actors; `bans` keeps
//! bans from one start to the next.

mod ancestor;
pub mod assembly;
pub(super) mod bans;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::access::invitation::InvitationToken;
use crate::config::{Link, MachineConfig};
use crate::model::open_device;
use crate::names::{PeerKey, RunId};
use crate::network::{
    Bandwidth, Identity, Multiaddr, NetworkConfig, NetworkEvents, NetworkHandle, is_relayed, peer_at, with_peer,
    with_ports_of,
};
use crate::peer::access::access_control::AccessControl;
use crate::peer::create;
use crate::peer::create::Text;
use crate::peer::create::local_text::own_documents;
pub use crate::peer::create::local_text::{NeedsText, OtherText, OwnText};
use crate::peer::driver::events::EventSink;
use crate::peer::folder::{
    amend_from, contact_file, key_file, lock_store, ports_before, ports_file, read_manifest, run_of_store,
    store_folder, take_along, write_amendment, write_manifest,
};
use crate::peer::join::authentication::Authentication;
use crate::peer::join::{JoinError, ask_for_amendment, fetch_part};
use crate::peer::manifest::Manifest;
use crate::peer::manifest::shard_table::Shard;
use crate::peer::start::assembly::{Peer, PeerPlan};
use crate::peer::{DeviceScheduler, StoredBlobs};
use crate::store::{BlobStore, DiskError, LockedStore, OpenError, write_file};
use crate::training::memory_plan::planned;

/// Time for the system to close the sockets of a stopped network.
const CLOSES_WITHIN: Duration = Duration::from_secs(5);

/// The inputs common to all ways.
#[derive(Clone)]
pub struct Launch {
    pub folder: PathBuf,
    pub machine: MachineConfig,
    pub listen: Vec<Multiaddr>,
    /// Further addresses at which others reach this peer.
    pub announce: Vec<Multiaddr>,
    /// Relays for a peer that others cannot reach directly.
    pub relays: Vec<Multiaddr>,
    /// An emulated link, if any.
    pub link: Option<Link>,
    /// The machine's queue for trainers.
    pub scheduler: Arc<DeviceScheduler>,
    pub event_sink: EventSink,
    /// The invitation, in a run by invitation; a credential in the folder is tried first.
    pub invitation: Option<InvitationToken>,
}

/// A peer that listens, before it is certain to run.
pub struct Listening {
    launch: Launch,
    identity: Identity,
    network: NetworkHandle,
    events: NetworkEvents,
    access: StoredBlobs,
}

/// A running peer, with its network.
pub struct Launched {
    pub peer: Peer,
    /// For addresses and traffic.
    pub network: NetworkHandle,
    /// In a run by invitation.
    pub access_control: Option<Arc<AccessControl>>,
}

fn keep_ports(launch: &Launch, addresses: &[Multiaddr]) -> Result<(), DiskError> {
    // An announced port may be a router's, and that of a circuit is a relay's.
    let outer = |address: &Multiaddr| launch.announce.iter().any(|outer| address.starts_with(outer));
    let own = addresses.iter().filter(|address| !outer(address) && !is_relayed(address));
    let lines: String = own.map(|address| format!("{address}\n")).collect();
    write_file(&ports_file(&launch.folder), lines.as_bytes())
}

fn limit(store: &LockedStore, machine: &MachineConfig) {
    if machine.disk_bytes > 0 {
        store.blobs.limit(machine.disk_bytes);
    }
}

impl Launch {
    /// Opens the listening ports, so that a port in use is noticed before anything is written.
    ///
    /// # Errors
    /// If it cannot listen, or the folder has no valid key.
    pub async fn listen(self) -> anyhow::Result<Listening> {
        self.listen_with_timeout(Duration::ZERO).await
    }

    /// The same when this process has just closed these ports: the sockets take a moment to close.
    pub async fn listen_again(self) -> anyhow::Result<Listening> {
        self.listen_with_timeout(CLOSES_WITHIN).await
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how long sockets take to close")]
    async fn listen_with_timeout(self, timeout: Duration) -> anyhow::Result<Listening> {
        let identity = Identity::load_or_generate(&key_file(&self.folder))?;
        let access = StoredBlobs::default();
        let begin = |listen| {
            let config = NetworkConfig {
                identity: identity.clone(),
                listen,
                announce: self.announce.clone(),
                relays: self.relays.clone(),
                bandwidth: Bandwidth {
                    upload_bytes_per_s: self.machine.upload_bytes_per_s,
                    download_bytes_per_s: self.machine.download_bytes_per_s,
                },
                link: self.link,
                mdns: self.machine.mdns,
                upnp: self.machine.upnp,
            };
            crate::network::start(config, Arc::new(access.clone()))
        };
        let before = with_ports_of(&ports_before(&self.folder), &self.listen);
        let began = Instant::now();
        let (network, events) = loop {
            match begin(before.clone()).await {
                Err(_) if began.elapsed() < timeout => tokio::time::sleep(Duration::from_millis(50)).await,
                // Another program has them now.
                Err(_) if before != self.listen => break begin(self.listen.clone()).await?,
                begun => break begun?,
            }
        };
        Ok(Listening { launch: self, identity, network, events, access })
    }
}

impl Listening {
    /// The store is this run's, or does not exist yet.
    fn check_store(&self, run: RunId) -> Result<(), OpenError> {
        let folder = &self.launch.folder;
        match run_of_store(folder)? {
            Some(found) if found != run => {
                Err(OpenError::OtherRun { folder: store_folder(folder), found, expected: run })
            }
            _ => Ok(()),
        }
    }

    async fn start(
        self,
        store: LockedStore,
        manifest: Vec<u8>,
        contacts: Vec<(PeerKey, Vec<Multiaddr>)>,
        creator: bool,
    ) -> anyhow::Result<Launched> {
        let Self { launch, identity, network, mut events, access } = self;
        let (decoded, run) = Manifest::decode(&manifest)?;
        access.take_in(store.blobs.clone());
        let mut again =
            Authentication { network: &network, events: &mut events, identity: &identity, folder: &launch.folder };
        ancestor::make_whole(&mut again, &decoded, &store, &contacts).await?;
        let access_control = AccessControl::of(&launch.folder, &identity, &decoded, run)?;
        limit(&store, &launch.machine);
        // The holder of the store's lock also owns the key.
        identity.keep(&key_file(&launch.folder))?;
        keep_ports(&launch, &network.join_addresses().await?)?;
        bans::keep(&network, &launch.folder);
        let plan = PeerPlan {
            folder: launch.folder.clone(),
            store,
            manifest,
            identity,
            machine: launch.machine,
            scheduler: launch.scheduler,
            network: network.clone(),
            network_events: events,
            access,
            contacts,
            creator,
            event_sink: launch.event_sink,
            access_control: access_control.clone(),
        };
        Ok(Launched { peer: Peer::start(plan).await?, network, access_control })
    }

    /// The identity of a run's creator, which the manifest names. It is to be kept before the manifest is written, and not
    /// earlier: a run that is refused leaves nothing behind.
    pub fn creator(&self) -> Identity {
        self.identity.clone()
    }

    /// Authenticates, and asks for the manifest.
    async fn ask_for_manifest(
        &mut self,
        address: &Multiaddr,
    ) -> anyhow::Result<Result<(PeerKey, Vec<u8>, Manifest, RunId), JoinError>> {
        let Self { network, events, identity, launch, .. } = self;
        let mut newcomer = Authentication { network, events, identity, folder: &launch.folder };
        let asked = match newcomer.enter(address, launch.invitation.as_ref()).await {
            Ok(()) => crate::peer::join::fetch_manifest(network, events, address, None).await,
            Err(error) => Err(error.downcast::<JoinError>()?),
        };
        // A refused peer can be invited by its key, so the key is kept.
        if matches!(asked, Err(JoinError::NotInvited { .. } | JoinError::NotForMe { .. })) {
            identity.keep(&key_file(&launch.folder))?;
        }
        Ok(asked)
    }

    /// Starts or resumes as creator: the folder has the manifest, and its store, which may still be locked from
    /// creation, all blobs.
    ///
    /// # Errors
    /// If the folder has no manifest, or the peer cannot start.
    pub async fn start_created(self, held: Option<LockedStore>) -> anyhow::Result<Launched> {
        let (bytes, manifest, run) = read_manifest(&self.launch.folder)?.context("the folder has no manifest")?;
        let store = match held {
            Some(store) => store,
            None => {
                self.check_store(run)?;
                lock_store(&self.launch.folder)?
            }
        };
        for (blob, what) in crate::peer::join::parts(&manifest) {
            if !store.blobs.has(blob.hash)? {
                return Err(PartGone { folder: store_folder(&self.launch.folder), what }.into());
            }
        }
        // A second stage that others created may lack blobs that others have.
        let shards = manifest.clone().with_table_in(&store.blobs)?;
        let all = manifest.genesis.iter().map(|(_, state)| *state);
        let all = all.chain(shards.shards.listed().iter().flat_map(Shard::blobs));
        let creator = all.map(|blob| store.blobs.has(blob.hash)).collect::<Result<Vec<bool>, _>>()?;
        self.start(store, bytes, Vec::new(), !creator.contains(&false)).await
    }

    /// Whether the folder's run has had a peer at an address that does not answer. It may be that of another run.
    fn check_known(&self, address: &Multiaddr, run: RunId, error: &JoinError) -> anyhow::Result<()> {
        self.check_store(run)?;
        let mut known = lock_store(&self.launch.folder)?.peers()?;
        let joined_by = std::fs::read_to_string(contact_file(&self.launch.folder)).unwrap_or_default();
        let contact = joined_by.trim().parse::<Multiaddr>().ok();
        known.extend(contact.and_then(|contact| Some((peer_at(&contact)?, vec![contact.to_string()]))));
        let peer = peer_at(address);
        let written = address.to_string();
        let is_there = |(key, addresses): &(PeerKey, Vec<String>)| match peer {
            Some(peer) => *key == peer,
            None => {
                addresses.iter().any(|known| known.parse().is_ok_and(|known: Multiaddr| known.starts_with(address)))
            }
        };
        // A folder of an earlier build may not say by which address it joined.
        if known.is_empty() || known.iter().any(is_there) {
            return Ok(());
        }
        let (reason, folder) = (error.to_string(), self.launch.folder.clone());
        Err(JoinError::NotKnown { address: written, reason, run, folder }.into())
    }

    /// Whether a path fits into the disk, and into the memory that its trainer has here.
    fn check_machine(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let (needs_bytes, disk_bytes) = (manifest.cost_of_a_path().disk_bytes, self.launch.machine.disk_bytes);
        if disk_bytes > 0 && needs_bytes > disk_bytes {
            return Err(JoinError::TooLarge { needs_bytes, disk_bytes }.into());
        }
        for machine in self.launch.machine.of_trainers(1) {
            planned(&manifest.config, &machine, open_device(machine.device)?)?;
        }
        Ok(())
    }

    /// Resumes the run of the folder.
    ///
    /// # Errors
    /// If there is none, or the peer cannot start.
    pub async fn resume(self, told: &mut dyn FnMut(&Manifest, RunId)) -> anyhow::Result<Launched> {
        let (bytes, manifest, run) = read_manifest(&self.launch.folder)?.context("the folder has no manifest")?;
        told(&manifest, run);
        self.come_back(bytes, run, None).await
    }

    /// Resumes in the folder's run with the known peers. An address that did not answer is retried later.
    async fn come_back(self, manifest: Vec<u8>, run: RunId, address: Option<&Multiaddr>) -> anyhow::Result<Launched> {
        self.check_store(run)?;
        let store = lock_store(&self.launch.folder)?;
        let contact = address.and_then(|address| Some((peer_at(address)?, vec![address.clone()])));
        self.start(store, manifest, contact.into_iter().collect(), false).await
    }

    /// Fetches the run's amendment before this peer takes part, if the peer at the address has a newer one. Without it, this
    /// peer hears of it from others.
    async fn fetch_amendment(
        &mut self,
        (peer, address): (PeerKey, &Multiaddr),
        manifest: &mut Manifest,
        run: RunId,
        blobs: &BlobStore,
    ) {
        let told = ask_for_amendment(&self.network, &mut self.events, address).await;
        let Some(told) = told.filter(|told| manifest.amendment.is_none_or(|here| here.rank() < told.rank())) else {
            return;
        };
        let what = "the amendment of the run";
        let fetched = fetch_part(&self.network, &mut self.events, told.blob, what, (peer, address)).await;
        let taken = fetched.map_err(anyhow::Error::from).and_then(|()| {
            let bytes = blobs.get(told.blob.hash, told.blob.bytes)?.context("it was fetched, but is gone again")?;
            manifest.amend(run, &bytes)?;
            write_amendment(&self.launch.folder, &bytes)
        });
        if let Err(error) = taken {
            tracing::warn!(error = %format!("{error:#}"), "no amendment of the run from the peer at the address");
        }
    }

    /// Joins by an address, or resumes the run of the folder.
    ///
    /// `own_text` is this machine's own copy of the corpus, for runs that do not share theirs. `told` receives the
    /// manifest before anything is downloaded.
    ///
    /// # Errors
    /// If no peer answers, its run is not the folder's, or a part of the run cannot be fetched.
    pub async fn join(
        mut self,
        address: &Multiaddr,
        own_text: Option<OwnText>,
        told: &mut dyn FnMut(&Manifest, RunId),
    ) -> anyhow::Result<Launched> {
        let mut held = read_manifest(&self.launch.folder)?;
        let asked = self.ask_for_manifest(address).await?;
        let (peer, bytes, mut manifest, run) = match (asked, &held) {
            (Ok(asked), _) => asked,
            // A returning peer may know other peers, even if this one is gone.
            (Err(error @ (JoinError::Dial(_) | JoinError::NoAnswer { .. })), Some((bytes, manifest, run))) => {
                self.check_known(address, *run, &error)?;
                tracing::warn!(%error, "the address does not answer; trying the peers known from before");
                told(manifest, *run);
                return self.come_back(bytes.clone(), *run, Some(address)).await;
            }
            (Err(error), _) => return Err(error.into()),
        };
        if let Some((bytes, held, own)) = &held
            && held.after == Some(run)
        {
            tracing::warn!("the peer at the address is in the stage before; trying the peers known from this one");
            told(held, *own);
            return self.come_back(bytes.clone(), *own, None).await;
        }
        if let Some((_, known, before)) = &held
            && manifest.follows(known, *before)
        {
            // The swarm is in the next stage by now.
            self.launch.folder = take_along(&self.launch.folder)?;
            held = read_manifest(&self.launch.folder)?;
        }
        if let Some((_, _, expected)) = &held
            && *expected != run
        {
            return Err(JoinError::OtherRun { address: address.to_string(), found: run, expected: *expected }.into());
        }
        self.check_store(run)?;
        let abandoned = Abandoned::default();
        // A folder with the manifest has its text already.
        let own_text = match manifest.share_text || held.is_some() {
            true => None,
            false => {
                let manifest = manifest.clone();
                let stop = abandoned.0.clone();
                Some(tokio::task::spawn_blocking(move || own_documents(&manifest, own_text, &stop)).await??)
            }
        };
        amend_from(&self.launch.folder, &mut manifest, run);
        told(&manifest, run);
        self.check_machine(&manifest)?;
        let store = lock_store(&self.launch.folder)?;
        limit(&store, &self.launch.machine);
        let blobs = store.blobs.clone();
        self.access.take_in(blobs.clone());
        self.fetch_amendment((peer, address), &mut manifest, run, &blobs).await;
        for (blob, what) in crate::peer::join::parts(&manifest) {
            if !blobs.has(blob.hash)? {
                fetch_part(&self.network, &mut self.events, blob, what, (peer, address)).await?;
            }
        }
        if let Some(documents) = own_text {
            let tokenizer = blobs.get(manifest.tokenizer.hash, manifest.tokenizer.bytes)?;
            let (kept, stop) = (create::text_folder(&self.launch.folder), abandoned.0.clone());
            let make = move || -> anyhow::Result<()> {
                let manifest = manifest.with_table_in(&blobs)?;
                let kept = (Some(kept.as_path()), &*stop);
                let text = Text::of(documents, tokenizer.as_deref(), &manifest.config, kept, &mut |_| {})?;
                create::make_shards(&manifest, &text, &blobs)
            };
            tokio::task::spawn_blocking(make).await??;
        }
        write_manifest(&self.launch.folder, &bytes)?;
        create::remove_text(&self.launch.folder);
        write_file(&contact_file(&self.launch.folder), format!("{}\n", with_peer(address, peer)).as_bytes())?;
        self.start(store, bytes, vec![(peer, vec![address.clone()])], false).await
    }
}

/// Tells work on another thread that its result is no longer needed.
#[derive(Default)]
struct Abandoned(Arc<AtomicBool>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The creator's store has lost blobs of the creation.
#[derive(Debug, thiserror::Error)]
#[error("{what} of this run is missing in {}", folder.display())]
pub struct PartGone {
    pub folder: PathBuf,
    pub what: &'static str,
}
