//! The status of a peer: the node's part, the hashes of its parameters, its traffic, and why nothing trains here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Millis;
use crate::config::Answer;
use crate::model::tensor_memory::resident_bytes;
use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};
use crate::network::{RequestToken, now_s, worth_telling};
use crate::outer::ModuleState;
use crate::peer::aggregator::OuterStep;
use crate::peer::collected::hash_of;
use crate::peer::driver::Driver;
use crate::peer::driver::events::PeerEvent;
use crate::peer::respond::respond;
use crate::peer::status::report::{self, ReportError};
use crate::peer::status::{
    Activity, DeviceActivity, MOST_PINGS, OuterStepStatus, PeerStatus, QueueStatus, Synced, Traffic,
};
use crate::peer::trainer::devices::{Device, Number};
use crate::peer::trainer::task::Stepped;
use crate::protocol::limits::MAX_ADDRESSES;
use crate::protocol::status::Status;
use crate::protocol::status::queues::Queue;
use crate::protocol::status::waiting::Waiting;
use crate::protocol::{Outer, Response};
use crate::store::BlobStore;

/// Time alone after which a peer reports it.
const ALONE: Duration = Duration::from_secs(20);

/// Milliseconds for which others are told the same.
const TOLD_EVERY_MS: u64 = 1_000;

/// Observations for the status.
#[derive(Default)]
pub(crate) struct Observed {
    /// Blobs from other peers whose purpose is not yet known.
    pub(crate) arrived: BTreeMap<BlobHash, u64>,
    synced: Synced,
    /// Of each module, as its owner: as many as there are modules here.
    outer_steps: BTreeMap<ModuleId, OuterStepStatus>,
    /// Steps made here; the rest is filled in when it is asked for.
    activity: Activity,
    /// The last reported wait.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) heard_anybody: bool,
    said_alone: bool,
    /// Hashes of parameters, by the hash of their state.
    hashes: Arc<Mutex<BTreeMap<BlobHash, String>>>,
    /// What others were told last, and when.
    told: Option<(Millis, Vec<u8>)>,
}

impl Driver {
    /// A contribution or an average is used. If another peer sent it, its bytes are counted.
    pub(crate) fn count_received(&mut self, work: &Outer) {
        let (module, blob) = match work {
            Outer::Accumulate { module, blob, .. } => (module, *blob),
            Outer::Apply { module, average, .. } => (module, average.hash),
            _ => return,
        };
        let Some(received) = self.observed.arrived.remove(&blob) else { return };
        let count = self.level_counts.get(usize::from(module.level)).map_or(0, |count| *count as u64);
        let Synced { contribution_bytes, contribution_parameters, average_bytes, average_parameters } =
            &mut self.observed.synced;
        let (bytes, parameters) = match work {
            Outer::Accumulate { .. } => (contribution_bytes, contribution_parameters),
            _ => (average_bytes, average_parameters),
        };
        (*bytes, *parameters) = (*bytes + received, *parameters + count);
    }

    /// An average was computed here.
    pub(crate) fn count_outer_step(&mut self, made: Option<OuterStep>) {
        let Some(OuterStep { module, version, norms }) = made else { return };
        let held: BTreeSet<ModuleId> = self.node.states().into_iter().map(|(module, ..)| module).collect();
        self.observed.outer_steps.retain(|module, _| held.contains(module));
        self.observed.outer_steps.insert(module, OuterStepStatus { version: version.0, norms });
        (self.event_sink)(PeerEvent::OuterStep(OuterStep { module, version, norms }));
    }

    pub(crate) fn drop_arrival(&mut self, blob: BlobHash) {
        self.observed.arrived.remove(&blob);
    }

    pub(crate) fn count_step(&mut self, number: Number, stepped: &Stepped) {
        self.observed.activity.path = Some(self.node.first_trainer(stepped.path).0);
        self.observed.activity.stepped(stepped);
        let activity = &mut self.observed.activity;
        activity.devices.resize_with(self.devices.all().len(), DeviceActivity::default);
        if stepped.seconds > 0.0 {
            activity.devices[number].tokens_per_s = Some(stepped.tokens as f64 / stepped.seconds);
        }
    }

    fn activity(&self) -> Activity {
        let queue =
            |queue: Queue| QueueStatus { name: queue.name.to_owned(), length: queue.length, limit: queue.limit };
        let links = self.network.links();
        let by_key = |(peer, took): (PeerKey, f64)| (peer.to_string(), took);
        Activity {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.began.elapsed().as_secs(),
            connections: links.connected,
            messages_dropped: self.network.traffic().gossip_dropped,
            disk_bytes: self.blobs.used_bytes(),
            resident_bytes: resident_bytes(),
            device_memory_bytes: self.devices.memory_bytes(),
            reachability: links.reachability,
            round_trip_ms: links.round_trip_ms.into_iter().take(MOST_PINGS).map(by_key).collect(),
            relayed: links.relayed.iter().take(MOST_PINGS).map(ToString::to_string).collect(),
            queues: self.node.queues().into_iter().map(queue).collect(),
            tokens_per_s: self.tokens_per_s(),
            device: self.devices.all().iter().map(Device::name).collect::<Vec<_>>().join(", "),
            devices: self.device_activity(),
            ..self.observed.activity.clone()
        }
    }

    /// Of several devices at work, the sum.
    fn tokens_per_s(&self) -> Option<f64> {
        let each = self.observed.activity.devices.iter().zip(self.devices.all());
        let at_work =
            each.filter(|(_, device)| device.path().is_some()).filter_map(|(activity, _)| activity.tokens_per_s);
        let sum: f64 = at_work.sum();
        if self.devices.all().len() > 1 && sum > 0.0 { Some(sum) } else { self.observed.activity.tokens_per_s }
    }

    fn device_activity(&self) -> Vec<DeviceActivity> {
        let devices = self.devices.all();
        let one = |(number, device): (usize, &Device)| DeviceActivity {
            device: device.name().to_owned(),
            retired: device.is_retired(),
            path: device.path().map(|path| self.node.first_trainer(path).0),
            tokens_per_s: self.observed.activity.devices.get(number).and_then(|seen| seen.tokens_per_s),
            memory_bytes: device.memory_bytes(),
        };
        if devices.len() > 1 { devices.iter().enumerate().map(one).collect() } else { Vec::new() }
    }

    pub(crate) fn report_waiting(&mut self) {
        if !self.observed.heard_anybody && !self.observed.said_alone && self.began.elapsed() >= ALONE {
            self.observed.said_alone = true;
            self.report_isolated();
        }
        if let Some(reason) = self.waiting_for()
            && self.observed.waiting.as_ref() != Some(&reason)
        {
            (self.event_sink)(PeerEvent::Waiting(reason.clone()));
            self.observed.waiting = Some(reason);
        }
    }

    /// Does not wait for the network's answer.
    fn report_isolated(&self) {
        let (network, event_sink, tried) = (self.network.clone(), self.event_sink.clone(), self.contacts.clone());
        tokio::spawn(async move {
            let outlook = network.outlook().await.unwrap_or_default();
            event_sink(PeerEvent::Alone { seconds: ALONE.as_secs(), tried, outlook });
        });
    }

    /// Why nothing trains here.
    fn waiting_for(&self) -> Option<Waiting> {
        if let Some(reason) = self.blobs.disk_pressure().reason() {
            return Some(Waiting::Disk { reason });
        }
        let text = || self.text_replication.first_wanted().map(|path| Waiting::Text { path: path.0 });
        match self.devices.are_at_work() {
            true => None,
            false => text().filter(|_| self.node.is_done()).or_else(|| self.node.waits()),
        }
    }

    /// The status without the hashes of parameters.
    pub(crate) fn status(&self) -> PeerStatus {
        let traffic = self.network.traffic();
        let addresses = self.listening.iter().map(ToString::to_string).collect();
        PeerStatus {
            run: self.run.clone(),
            name: self.manifest.config.name.clone(),
            requires: self.manifest.config.requires.clone(),
            node: Status { waits_for: self.waiting_for(), ..self.node.status() },
            parameter_hashes: BTreeMap::new(),
            addresses,
            traffic: Traffic {
                blob_bytes_sent: traffic.blobs_sent,
                blob_bytes_received: traffic.blobs_received,
                blob_bytes_forwarded: traffic.blobs_forwarded,
                message_bytes_sent: traffic.gossip_sent + traffic.control_sent,
                message_bytes_received: traffic.gossip_received + traffic.control_received,
            },
            synced: self.observed.synced,
            outer_steps: self.observed.outer_steps.iter().map(|(module, step)| (module.to_string(), *step)).collect(),
            text: self.text_here(),
            activity: self.activity(),
            phases_trained: self.tasks.phases_trained,
            scored: self.tasks.scored.iter().map(|slot| self.node.first_trainer(*slot).0).collect(),
            bans: self.network.bans().into_iter().filter(|ban| ban.until_s > now_s()).collect(),
            invited: self.access.invited(),
        }
    }

    /// Tells another peer or a visitor the status, if this machine does so. It is made once a second at most.
    pub(crate) fn tell_status(&mut self, to: PeerKey, token: RequestToken) {
        let refused = match self.tell_status_to {
            Answer::Off => Some("this peer tells its status to nobody"),
            Answer::Members if !self.access.is_member(to) => Some("this peer tells its status to members only"),
            Answer::Members | Answer::All => None,
        };
        let response = match refused {
            Some(reason) => Response::Refused(reason.to_owned()),
            None => self.told_status().map_or_else(|error| Response::Refused(error.to_string()), Response::Status),
        };
        respond(&self.network, token, &response);
    }

    fn told_status(&mut self) -> Result<Vec<u8>, ReportError> {
        let now = self.now();
        if let Some((_, told)) = self.observed.told.as_ref().filter(|(at, _)| now.since(*at) < TOLD_EVERY_MS) {
            return Ok(told.clone());
        }
        let listening = worth_telling(self.listening.clone(), MAX_ADDRESSES);
        let addresses = listening.iter().map(ToString::to_string).collect();
        let told = report::encode(PeerStatus { addresses, ..self.status() })?;
        self.observed.told = Some((now, told.clone()));
        Ok(told)
    }

    /// Reads the states on another thread: for a large run this takes seconds, in which heartbeats must continue.
    pub(crate) fn reply_with_hashes(&self, reply: oneshot::Sender<PeerStatus>) {
        let mut status = self.status();
        let states: Vec<_> = self.node.states().into_iter().map(|(module, _, state)| (module, state)).collect();
        let (known, counts, blobs) = (self.observed.hashes.clone(), self.level_counts.clone(), self.blobs.clone());
        tokio::task::spawn_blocking(move || {
            status.parameter_hashes = parameter_hashes(&blobs, &states, &counts, &known);
            // The requester may be gone.
            drop(reply.send(status));
        });
    }
}

/// By module; known hashes are not computed again.
fn parameter_hashes(
    blobs: &BlobStore,
    states: &[(ModuleId, BlobRef)],
    counts: &[usize],
    known: &Mutex<BTreeMap<BlobHash, String>>,
) -> BTreeMap<String, String> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|hash, _| states.iter().any(|(_, state)| state.hash == *hash));
    let mut hashes = BTreeMap::new();
    for (module, state) in states {
        // The router has no separate parameters, so its state's hash is used.
        let hash = known.get(&state.hash).cloned().or_else(|| match counts.get(usize::from(module.level)) {
            Some(count) => parameter_hash(blobs, *module, *state, *count),
            None => Some(state.hash.to_string()),
        });
        if let Some(hash) = hash {
            known.insert(state.hash, hash.clone());
            hashes.insert(module.to_string(), hash);
        }
    }
    hashes
}

fn parameter_hash(blobs: &BlobStore, module: ModuleId, state: BlobRef, count: usize) -> Option<String> {
    let bytes = blobs.get(state.hash, state.bytes).ok()??;
    let state = ModuleState::decode(&bytes, module, count).ok()?;
    Some(hash_of(&state.parameters).to_string())
}
