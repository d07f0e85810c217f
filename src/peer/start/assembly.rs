//! Assembly of a peer: opens its store, restores its node, and starts its actors.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::Instrument;

use crate::config::MachineConfig;
use crate::names::{PathId, PeerKey};
use crate::network::{Identity, Multiaddr, NetworkEvents, NetworkHandle};
use crate::peer::access::access_control::AccessControl;
use crate::peer::access::blob_access::StoredBlobs;
use crate::peer::access::claims::Claims;
use crate::peer::aggregator::Aggregator;
use crate::peer::boot_clock::BootClock;
use crate::peer::checkpoint_index;
use crate::peer::driver::access::AccessState;
use crate::peer::driver::address_book::AddressBook;
use crate::peer::driver::blobs::Fetches;
use crate::peer::driver::disk_pressure::PendingWrites;
use crate::peer::driver::events::EventSink;
use crate::peer::driver::handle::{COMMANDS, Command, PeerHandle};
use crate::peer::driver::inbound::Requests;
use crate::peer::driver::redial::Redial;
use crate::peer::driver::status::Observed;
use crate::peer::driver::tasks::TrainerTasks;
use crate::peer::driver::text_replication::TextReplication;
use crate::peer::driver::{Departure, Driver, ENDS_WITHIN, Inputs, PeerError};
use crate::peer::folder::amend_from;
use crate::peer::inference::server::{InferenceServer, Policy};
use crate::peer::manifest::Manifest;
use crate::peer::trainer::device_scheduler::DeviceScheduler;
use crate::peer::trainer::devices::Devices;
use crate::protocol::journal::record::read_lists;
use crate::protocol::wire::amended::Amended;
use crate::protocol::wire::encoding;
use crate::protocol::{Contact, Event, Node, Record};
use crate::store::actor::StoreThread;
use crate::store::{BlobStore, DiskError, LockedStore, StoreHandle};

/// The inputs of a peer.
pub struct PeerPlan {
    /// The peer's folder.
    pub folder: PathBuf,
    pub store: LockedStore,
    /// The run's manifest, as bytes.
    pub manifest: Vec<u8>,
    pub identity: Identity,
    pub machine: MachineConfig,
    /// The machine's queue for trainers.
    pub scheduler: Arc<DeviceScheduler>,
    /// The network, started with this identity.
    pub network: NetworkHandle,
    pub network_events: NetworkEvents,
    /// The network's access to the store, once it is open.
    pub access: StoredBlobs,
    /// First contacts; empty for the creator.
    pub contacts: Vec<(PeerKey, Vec<Multiaddr>)>,
    /// Whether this peer created the run.
    pub creator: bool,
    pub event_sink: EventSink,
    /// In a run by invitation.
    pub access_control: Option<Arc<AccessControl>>,
}

/// A running peer. It stops when dropped.
pub struct Peer {
    commands: mpsc::Sender<Command>,
    task: JoinHandle<Result<(), PeerError>>,
    store: StoreThread,
}

impl Peer {
    /// Starts a peer whose manifest and first blobs are in its store.
    ///
    /// # Errors
    /// If the store is in use or belongs to another run, or the manifest has another version.
    pub async fn start(plan: PeerPlan) -> anyhow::Result<Self> {
        let (mut manifest, run) = Manifest::decode(&plan.manifest)?;
        let amendment = amend_from(&plan.folder, &mut manifest, run);
        let folder = plan.store.of_run(run)?;
        let manifest = Arc::new(manifest.with_table_in(&folder.blobs)?);
        let records = decode_records(&folder.records)?;
        let (known, blobs) = (folder.index.peers()?, folder.blobs.clone());
        plan.access.take_in(blobs.clone());
        plan.access.serve_all_but(manifest.private_blobs(), plan.access_control.clone());
        let (store, threads) = crate::store::actor::start(folder)?;
        let amendment = amendment.filter(|bytes| blobs.put(bytes).is_ok()).and(manifest.amendment);
        let node = restored_node(plan.identity.key(), &manifest, (records, amendment), &store).await?;
        checkpoint_index::refresh(&store, &node, &manifest).await?;
        let mut node = node.started_as(RandomState::new().hash_one(run.0), |bytes| plan.identity.sign(bytes).to_vec());
        if plan.machine.disk_bytes > 0 {
            let spare_bytes = plan.machine.disk_bytes.saturating_sub(manifest.cost_of_a_path().disk_bytes);
            node = node.replicating_within(spare_bytes);
        }
        // A peer that was killed in its first second has records, but no state to resume from.
        let fresh = node.is_blank();
        // Marks this peer's log lines, since several peers may run in one process.
        let span = tracing::info_span!("peer", key = %plan.identity.key().short());
        let (aggregator, combined) = span.in_scope(|| Aggregator::start(blobs.clone(), &manifest))?;
        let policy = Policy { answer: plan.machine.answer, share: plan.machine.answer_share };
        let (device, scheduler, network) = (plan.machine.first_device(), plan.scheduler.clone(), plan.network.clone());
        let inference = span.in_scope(|| {
            InferenceServer::start(manifest.clone(), (device, policy), blobs.clone(), scheduler, network)
        })?;
        let devices = span.in_scope(|| Devices::start(&manifest, &plan.machine, &blobs, &plan.scheduler))?;
        let node = node.with_trainers(devices.count());
        plan.network.join_run(run).await?;

        let accepted = plan.contacts.iter().map(|(peer, _)| *peer).collect();
        let contacts = contacts(plan.contacts, known);
        let tried = contacts.iter().flat_map(|contact| contact.addresses.clone()).collect();
        let mut driver = Driver {
            node,
            folder: plan.folder,
            pinned: manifest.pinned_blobs(),
            level_counts: manifest.level_counts(),
            manifest,
            tell_status_to: plan.machine.tell_status,
            manifest_bytes: Arc::new(plan.manifest),
            run: run.to_string(),
            claims: Claims::new(run),
            identity: plan.identity,
            store,
            blobs,
            network: plan.network.clone(),
            devices,
            aggregator,
            inference,
            event_sink: plan.event_sink,
            contacts: tried,
            access: AccessState::new(plan.access_control, plan.access.members(), accepted),
            began: BootClock::start(),
            events: VecDeque::new(),
            actions: VecDeque::new(),
            pending_writes: PendingWrites::default(),
            redial: Redial::default(),
            text_replication: TextReplication::default(),
            addresses: AddressBook::default(),
            listening: Vec::new(),
            compacted_bytes: 0,
            requests: Requests::default(),
            fetches: Fetches::default(),
            tasks: TrainerTasks::default(),
            observed: Observed::default(),
            departure: Departure::default(),
            work: VecDeque::new(),
            aggregating: false,
        };
        driver.remove_unreferenced_blobs()?;
        driver.listens_at(plan.network.join_addresses().await?);
        driver.events.push_back(if plan.creator && fresh { Event::Create } else { Event::Join(contacts) });

        let (commands, mailbox) = mpsc::channel(COMMANDS);
        let inputs = Inputs { network: plan.network_events, aggregator: combined, commands: mailbox };
        Ok(Self { commands, task: tokio::spawn(driver.run(inputs).instrument(span)), store: threads })
    }

    pub fn handle(&self) -> PeerHandle {
        PeerHandle { commands: self.commands.clone() }
    }

    /// Leaves the swarm, and waits until that is done.
    pub async fn stop(self) -> Result<(), PeerError> {
        self.stop_within(ENDS_WITHIN).await
    }

    /// The same, without handing over what has not been handed over after this time.
    pub async fn stop_within(self, timeout: Duration) -> Result<(), PeerError> {
        let (reply, stopped) = oneshot::channel();
        if self.commands.send(Command::Stop(reply, timeout)).await.is_ok() {
            // If it fails first, the task has the reason.
            drop(stopped.await);
        }
        self.finished().await
    }

    /// Waits until the peer stops by itself.
    pub async fn finished(self) -> Result<(), PeerError> {
        let outcome = self.task.await.unwrap_or(Err(PeerError::Worker("driver")));
        // The store is free once its threads have ended.
        match tokio::task::spawn_blocking(|| self.store.join()).await {
            Err(_) => Err(PeerError::Worker("store")),
            Ok(()) => outcome,
        }
    }

    /// Whether it has stopped by itself.
    pub fn has_stopped(&self) -> bool {
        self.task.is_finished()
    }
}

/// The node from the journal, without what the disk has lost, in a run as its amendment has it.
async fn restored_node(
    key: PeerKey,
    manifest: &Manifest,
    (mut records, amendment): (Vec<Record>, Option<Amended>),
    store: &StoreHandle,
) -> anyhow::Result<Node> {
    // A list that cannot be read is as good as lost.
    read_lists(&mut records, |list| store.blobs().get(list.hash, list.bytes).ok().flatten());
    let plan = manifest.plan()?;
    let restore = |records| match amendment {
        Some(amended) => Node::restore(key, plan.clone(), records).amended(amended),
        None => Node::restore(key, plan.clone(), records),
    };
    let node = restore(records.clone());
    let mut lost = without_states(&node, store.blobs())?;
    lost.extend(without_checkpoints(&node, store.blobs())?);
    if lost.is_empty() {
        return Ok(node);
    }
    store.persist(lost.iter().map(encoding::encode).collect::<Result<_, _>>()?).await?;
    Ok(restore(records.into_iter().chain(lost).collect()))
}

fn decode_records(records: &[Vec<u8>]) -> anyhow::Result<Vec<Record>> {
    let decode = |bytes: &Vec<u8>| {
        encoding::decode::<Record>(bytes)
            .map_err(|error| anyhow::anyhow!(
                    "a record of store/journal in this folder cannot be decoded: {error}; start it with the version of pathswarm \
                     that wrote it"
                ))
    };
    records.iter().map(decode).collect()
}

/// Records that leave the modules whose states the disk has lost, and the paths through them, so that this peer fetches
/// them again like a newcomer.
fn without_states(node: &Node, blobs: &BlobStore) -> Result<Vec<Record>, DiskError> {
    let mut lost = node.modules_without_lists();
    for module in &lost {
        tracing::error!(%module, "a list of contributions is missing on the disk: the module is fetched again");
    }
    for (module, version, state) in node.states() {
        if !blobs.has(state.hash)? {
            tracing::error!(%module, %version, state = %state.hash, "a state is missing on the disk: it is fetched \
                again");
            lost.extend((!lost.contains(&module)).then_some(module));
        }
    }
    let through = |path: &PathId| node.modules_of(*path).iter().any(|module| lost.contains(module));
    let paths = node.paths().into_iter().filter(through);
    let mut records: Vec<Record> = paths.map(|path| Record::Lease { path, held: false, standby: false }).collect();
    records.extend(lost.iter().copied().map(Record::Left));
    Ok(records)
}

/// The same for lost checkpoints of phases, which begin again.
fn without_checkpoints(node: &Node, blobs: &BlobStore) -> Result<Vec<Record>, DiskError> {
    let mut lost = Vec::new();
    for checkpoint in node.checkpoints() {
        let needed = checkpoint.start.iter().map(|(_, state)| state.hash).chain([checkpoint.blob.hash]);
        let here = needed.map(|blob| blobs.has(blob)).collect::<Result<Vec<bool>, _>>()?;
        if here.contains(&false) {
            tracing::error!(path = %checkpoint.path, "the checkpoint of a phase is missing on the disk: the phase \
                begins again");
            lost.push(Record::Abandoned(checkpoint.path));
        }
    }
    Ok(lost)
}

/// The given contacts, and those known from before.
fn contacts(given: Vec<(PeerKey, Vec<Multiaddr>)>, known: Vec<(PeerKey, Vec<String>)>) -> Vec<Contact> {
    let given = given
        .into_iter()
        .map(|(peer, addresses)| Contact { peer, addresses: addresses.iter().map(ToString::to_string).collect() });
    let known = known.into_iter().map(|(peer, addresses)| Contact { peer, addresses });
    given.chain(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::folder::store_folder;
    use crate::peer::tests::tiny_run::Tiny;
    use crate::store::StoreFolder;

    #[test]
    fn a_peer_whose_disk_has_lost_a_state_comes_back_as_a_newcomer() {
        let tiny = Tiny::create(true);
        let folder = tiny.peer("damaged", &[("0.0", 2), ("1.0", 1)]);
        let store = StoreFolder::open(&store_folder(&folder), tiny.run).unwrap();
        let mut records = decode_records(&store.records).unwrap();
        records.push(Record::Lease { path: PathId(0), held: true, standby: false });
        let restored =
            |records: &[Record]| Node::restore(PeerKey([1; 32]), tiny.decoded.plan().unwrap(), records.to_vec());
        assert_eq!(without_states(&restored(&records), &store.blobs).unwrap(), []);

        let (module, _, state) = restored(&records).states()[0];
        store.blobs.remove(state.hash).unwrap();
        let lost = without_states(&restored(&records), &store.blobs).unwrap();
        assert_eq!(lost, [Record::Lease { path: PathId(0), held: false, standby: false }, Record::Left(module)]);
        records.extend(lost);
        let node = restored(&records);
        assert!(node.paths().is_empty() && node.states().len() == 1);
    }
}
