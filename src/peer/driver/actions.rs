//! Carries out the node's actions: one match over all of them.

use std::collections::BTreeSet;

use crate::names::{BlobHash, ModuleId, PeerKey};
use crate::network::{Multiaddr, Offence};
use crate::peer::aggregator::Work;
use crate::peer::checkpoint_index;
use crate::peer::driver::events::PeerEvent;
use crate::peer::driver::{Driver, PeerError};
use crate::peer::trainer::task::{PhaseTask, Task};
use crate::protocol::wire::encoding;
use crate::protocol::{Action, Event, Message, Record, Report, SignedUpdate, Update};

/// The journal is rewritten when it exceeds this and twice its size after the last rewrite.
const JOURNAL_BYTES: u64 = 1 << 20;

impl Driver {
    pub(crate) async fn carry_out(&mut self, action: Action) -> Result<(), PeerError> {
        match action {
            Action::Persist(record) => self.persist(record).await?,
            Action::Subscribe(module) => self.subscribe(module).await,
            Action::Unsubscribe(module) => self.unsubscribe(module).await,
            Action::Publish { module, message } => self.publish(module, message).await,
            Action::Learn { peer, addresses } => {
                let addresses: Vec<Multiaddr> = addresses.iter().filter_map(|address| address.parse().ok()).collect();
                self.remember(peer, &addresses).await;
                self.learn(peer, addresses);
            }
            Action::Ask { id, to, request } => match encoding::encode(&request) {
                Ok(bytes) if self.must_authenticate(to) => self.hold_until_authenticated(to, id, bytes),
                Ok(bytes) => self.ask(id, to, bytes),
                Err(_) => self.events.push_back(Event::Answered { id, response: None }),
            },
            Action::Reply { token, response } => self.reply(token, &response),
            Action::Fetch { blob, from } => {
                let from: Vec<_> = from.into_iter().filter(|peer| *peer != self.node.me()).collect();
                if self.blobs.has(blob.hash)? || from.is_empty() {
                    let found = self.blobs.holds(blob)?;
                    self.events.push_back(Event::Fetched { blob: blob.hash, found });
                } else {
                    self.obtain(blob, from);
                }
            }
            Action::Release(blob) => self.release_blob(blob),
            Action::Train { path, phase, part, start, trainer, resume } => {
                let (drawn, trainer_number) = (self.node.path_at(path, phase), self.node.trainer_number(path));
                let task = PhaseTask { path, drawn, trainer_number, phase, part, start, trainer, resume };
                self.queue_task(Task::Train(task));
            }
            Action::Evaluate { path, phase, states } => {
                let drawn = self.node.path_at(path, phase);
                self.queue_scoring(Task::Score { path, drawn, phase, states });
            }
            Action::ReadAmendment(blob) => self.read_amendment(blob),
            Action::Gone => self.departure.gone = true,
            Action::Pause { path } => self.pause_trainer(path),
            Action::EndPhase { path } => self.end_phase(path),
            Action::RestartTrainer { path } => self.restart_trainer(path)?,
            Action::RetireTrainer { path } => self.retire_trainer(path),
            Action::GiveUp { restarts } => return Err(PeerError::TrainerStuck(restarts)),
            Action::Outer(work) => {
                self.count_received(&work);
                self.queue_work(Work::Outer(work));
            }
            Action::Seal(update) => self.seal(update),
            Action::Report(report) => self.report(report)?,
        }
        Ok(())
    }

    /// Stores addresses for the next start, which otherwise knows only the address on the command line. In an open run,
    /// anybody can make up peers, so those that are no members yet are stored only while there are few.
    async fn remember(&mut self, peer: PeerKey, addresses: &[Multiaddr]) {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        if addresses.is_empty() {
            return;
        }
        let is_member = self.access.is_member(peer);
        let kept: BTreeSet<PeerKey> = match is_member {
            true => self.addresses.peers().filter(|peer| self.access.is_member(*peer)).collect(),
            false => BTreeSet::new(),
        };
        self.addresses.unstored.note(peer, is_member);
        let stored = self.store.index(move |index| match is_member {
            true => index.set_peer(peer, &addresses, |peer| kept.contains(&peer)),
            false => index.set_stranger(peer, &addresses),
        });
        if let Err(error) = stored.await {
            tracing::warn!(%error, "a peer's addresses were not kept");
        }
    }

    /// Stores the addresses of a peer that has become a member since they were learnt.
    pub(crate) async fn remember_new_members(&mut self) {
        let now = self.now();
        let Some(peer) = self.addresses.unstored.next(now, |peer| self.access.is_member(peer)) else { return };
        let addresses = self.addresses.of(peer);
        self.remember(peer, &addresses).await;
    }

    async fn persist(&mut self, record: Record) -> Result<(), PeerError> {
        checkpoint_index::note(&self.store, &self.node, &self.manifest, &record).await;
        let size = match self.store.persist(vec![encoding::encode(&record)?]).await {
            Err(error) if error.is_transient() => {
                self.hold(record, &error);
                return Ok(());
            }
            written => written?,
        };
        if size > JOURNAL_BYTES.max(2 * self.compacted_bytes) {
            match self.compact().await {
                Err(PeerError::Store(error)) if error.is_transient() => {
                    tracing::warn!(%error, "the journal was not shortened");
                    self.compacted_bytes = size;
                }
                compacted => compacted?,
            }
        }
        Ok(())
    }

    /// Rewrites the journal without obsolete records.
    pub(crate) async fn compact(&mut self) -> Result<(), PeerError> {
        let records = self.node.records().iter().map(encoding::encode).collect::<Result<_, _>>()?;
        self.compacted_bytes = self.store.rewrite(records).await?;
        Ok(())
    }

    async fn subscribe(&mut self, module: ModuleId) {
        self.access.joined(module);
        if let Err(error) = self.network.subscribe(module).await {
            tracing::error!(%module, %error, "a module's topic cannot be joined");
        }
        if let Err(error) = self.network.provide(module).await {
            tracing::warn!(%module, %error, "a member of a module cannot be announced");
        }
    }

    async fn unsubscribe(&mut self, module: ModuleId) {
        self.access.left(module);
        let gone = self.network.unsubscribe(module).await.is_err() || self.network.stop_providing(module).is_err();
        if gone {
            tracing::warn!(%module, "a module's topic could not be left");
        }
    }

    async fn publish(&mut self, module: ModuleId, mut message: Message) {
        if let Message::Heartbeat(heartbeat) = &mut message {
            self.claims.sign(&self.identity, module, heartbeat);
        }
        let bytes = match encoding::encode(&message) {
            Ok(bytes) => bytes,
            Err(error) => return tracing::error!(%module, %error, "a message is too large"),
        };
        if matches!(message, Message::Heartbeat(_)) {
            self.access.said_heartbeat(module, &bytes);
        }
        if let Err(error) = self.network.publish(module, bytes).await {
            tracing::warn!(%module, %error, "a message was not sent");
        }
    }

    /// The blobs of the run itself stay.
    fn release_blob(&mut self, blob: BlobHash) {
        self.drop_arrival(blob);
        if !self.pinned.contains(&blob)
            && let Err(error) = self.blobs.remove(blob)
        {
            tracing::warn!(%error, "an unneeded blob stays until the next start");
        }
    }

    fn seal(&mut self, update: Update) {
        match encoding::encode(&update) {
            Ok(bytes) => {
                let signature = self.identity.sign(&bytes).to_vec();
                self.events.push_back(Event::Sealed(SignedUpdate { update, signature }));
            }
            Err(error) => tracing::error!(%error, "an update is too large"),
        }
    }

    fn report(&mut self, report: Report) -> Result<(), PeerError> {
        match &report {
            Report::CopiedIdentity { gives_way: true, .. } => return Err(PeerError::CopiedIdentity),
            Report::CopiedIdentity { peer, addresses, .. } => {
                tracing::warn!(peer = %peer.short(), ?addresses, "two machines run with the key of one peer");
            }
            Report::PathYielded(path) => self.reset_path(*path),
            Report::PathTaken(path) if self.manifest.config.outer.keep_unsent => {
                tracing::info!(%path, "took a path");
                // As a standby, this peer has left the scoring to the holder.
                self.reset_path(*path);
            }
            Report::Unattested { module, by } => {
                tracing::info!(%module, by = by.short(), "the other members do not attest the chain that a peer sent");
            }
            Report::Refused { module, by, reason } => {
                tracing::warn!(%module, by = %by.short(), reason, "an update was rejected");
                self.report_offence(*by, Offence::WrongUpdate);
            }
            Report::Caught { module, owner, version } => {
                tracing::error!(%module, owner = %owner.short(), %version, "an audit found a wrong update: its owner \
                    stays quarantined");
            }
            Report::WentBack { module, from, to } => {
                tracing::warn!(%module, %from, %to, "a chain is rolled back to before a wrong update");
            }
            Report::Quarantined { peer, fault } => {
                tracing::warn!(peer = %peer.short(), "a peer {}: quarantined for now, its offers are not \
                    used", fault.describe());
            }
            Report::SteppedDown { module, owner, reason } => {
                tracing::warn!(%module, owner = %owner.short(), reason, "an owner is replaced");
            }
            Report::ChainSwitched { module, from, to } => {
                tracing::warn!(%module, %from, %to, "a heavier chain replaced ours");
            }
            Report::Advanced { module, version, contributions } => {
                tracing::info!(%module, %version, contributions, "a module advanced");
            }
            Report::Owner { module, owner } => tracing::info!(%module, owner = %owner.short(), "a module's owner"),
            Report::Lost { module, path, parent, weight } => {
                tracing::warn!(%module, %path, %parent, weight, "a contribution became too old to be counted");
            }
            Report::TrainerStuck { path, steps, silent_ms } => {
                tracing::error!(%path, ?steps, silent_ms, "the trainer hangs and is restarted");
            }
            Report::TrainerRetired { left } => {
                tracing::error!(left, "a trainer fails again and again: its device is used no more");
            }
            Report::Amended { .. } => {}
            Report::TrainerDied => tracing::error!("the trainer has died and is restarted"),
            Report::HandedOff { path, from } => {
                tracing::info!(%path, from = %from.short(), "a path came with its trainer state");
            }
            Report::BeganAfresh { path, from } => {
                tracing::warn!(%path, from = %from.short(), "a path came without its trainer state: AdamW starts from \
                    zero");
            }
            Report::PathTaken(path) => tracing::info!(%path, "took a path"),
            Report::PathDone(path) => tracing::info!(%path, "a path is done"),
        }
        (self.event_sink)(PeerEvent::Reported(report));
        Ok(())
    }
}
