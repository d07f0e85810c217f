//! The node: its parts, and the translation between them.

mod amendment;
mod evidence;
mod fetch;
pub(super) mod heartbeat;
mod incarnation;
pub(in crate::protocol) mod module;
pub(in crate::protocol) mod path;
pub(super) mod restore;
pub(super) mod retention;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Millis;
use crate::names::{BlobRef, ModuleId, PeerKey, Phase, Version};
use crate::protocol::action::Action;
use crate::protocol::blobs::Blobs;
use crate::protocol::event::Event;
use crate::protocol::lifecycle::Lifecycle;
use crate::protocol::limits::{HEARTBEAT_MS, SWEEP_MS};
use crate::protocol::membership::Membership;
use crate::protocol::module::aggregation::Aggregation;
use crate::protocol::module::apply_queue::ApplyQueue;
use crate::protocol::module::catch_up::CatchUp;
use crate::protocol::module::doubt::Doubt;
use crate::protocol::module::history::History;
use crate::protocol::module::leadership::Leadership;
use crate::protocol::module::offers::Offers;
use crate::protocol::node::module::replication::Replicas;
use crate::protocol::outbox::Outbox;
use crate::protocol::path::Paths;
use crate::protocol::path::contributions::Contributions;
use crate::protocol::path::evaluation::Evaluations;
use crate::protocol::path::search::Search;
use crate::protocol::path::trainers::Trainers;
use crate::protocol::plan::RunPlan;
use crate::protocol::reputation::Reputation;
use crate::protocol::timers::Timer;
use crate::protocol::wire::message::Head;

/// The phase that trains from a version. Only synchronous runs sample paths anew; in asynchronous runs the phase makes
/// no difference.
pub(in crate::protocol) fn phase_from(parent: Version) -> Phase {
    Phase(parent.0)
}

/// One module, as this node knows it.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Replica {
    history: History,
    leadership: Leadership,
    offers: Offers,
    aggregation: Aggregation,
    applying: ApplyQueue,
    catch_up: CatchUp,
    doubt: Doubt,
    /// Weight known to be lost since this node started.
    weight_lost: u64,
}

impl Replica {
    fn at_genesis(state: BlobRef) -> Self {
        Self { history: History::at_genesis(state), ..Self::default() }
    }

    fn head(&self) -> Option<Head> {
        self.history.head()
    }
}

/// The part of the node that an event may unblock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concerns {
    /// None: the event was only a sign of life.
    Nothing,
    /// One module: the message came on its topic.
    Module(ModuleId),
    /// Any.
    Everything,
}

/// One peer's state machine.
#[derive(Debug)]
pub struct Node {
    me: PeerKey,
    plan: Arc<RunPlan>,
    now: Millis,
    out: Outbox,
    lifecycle: Lifecycle,
    membership: Membership,
    reputation: Reputation,
    blobs: Blobs,
    modules: BTreeMap<ModuleId, Replica>,
    replicas: Replicas,
    paths: Paths,
    search: Search,
    trainers: Trainers,
    contributions: Contributions,
    evaluations: Evaluations,
}

impl Node {
    /// A node that holds nothing yet.
    pub fn new(me: PeerKey, plan: impl Into<Arc<RunPlan>>) -> Self {
        Self {
            me,
            plan: plan.into(),
            now: Millis(0),
            out: Outbox::default(),
            lifecycle: Lifecycle::default(),
            membership: Membership::default(),
            reputation: Reputation::default(),
            blobs: Blobs::default(),
            modules: BTreeMap::new(),
            replicas: Replicas::default(),
            paths: Paths::default(),
            search: Search::default(),
            trainers: Trainers::default(),
            contributions: Contributions::default(),
            evaluations: Evaluations::default(),
        }
    }

    /// The same node with so many trainers, each with a device of its own. It keeps so many paths in training at a time.
    #[must_use]
    pub fn with_trainers(mut self, count: usize) -> Self {
        self.trainers = Trainers::of(count);
        self
    }

    /// The key of this node's peer.
    pub fn me(&self) -> PeerKey {
        self.me
    }

    /// When `handle` must be called with [`Event::Tick`], at the latest.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.out.next_deadline()
    }

    /// Handles an event and returns the actions that follow from it.
    pub fn handle(&mut self, now: Millis, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        let mut concerns = Concerns::Everything;
        match event {
            Event::Create => self.create(),
            Event::Join(contacts) => self.join(contacts),
            Event::Listening(addresses) => self.listening(addresses),
            Event::Heard { module, author, message } => {
                let is_news = self.heard(module, author, &message);
                concerns = if is_news { Concerns::Module(module) } else { Concerns::Nothing };
            }
            Event::Asked { from, token, request } => self.asked(from, token, request),
            Event::Answered { id, response } => {
                self.membership.responded(self.now, id, response.is_some());
                self.answered(id, response);
            }
            Event::Fetched { blob, found } => self.fetched(blob, found),
            Event::Trained(finished) => self.trained(finished),
            Event::Reviewed { path, trainer } => self.reviewed(path, trainer),
            Event::Evaluated { path, phase, millibits_per_byte } => self.evaluated(path, phase, millibits_per_byte),
            Event::Progress { path, phase, steps } => self.progressed(path, phase, steps),
            Event::Checkpointed { path, phase, steps, blob } => self.checkpointed(path, phase, steps, blob),
            Event::Paused { path, phase, middle } => self.paused(path, phase, middle),
            Event::TextMissing { path, phase } => self.text_is_missing(path, phase),
            Event::TextHere(drawn) => {
                self.paths.text_is_here(drawn);
            }
            Event::TrainerDied { path } => self.trainer_died(path),
            Event::TrainerLost { path } => self.trainer_lost(path),
            Event::Accumulated { module, target, blob, norm } => self.accumulated(module, target, blob, norm),
            Event::Combined { module, target, average, state } => self.combined(module, target, average, state),
            Event::Audited { id, so } => self.audited(id, so),
            Event::Decoded { module, state, so } => self.state_read(module, state, so),
            Event::ListRead { list, contributions } => self.list_read(list, contributions),
            Event::Sealed(signed) => self.sealed(signed),
            Event::Applied { module, version, state } => self.applied(module, version, state),
            Event::Amended(amended) => self.amend(amended),
            Event::AmendmentRefused { blob, is_false } => self.amendment_refused(blob, is_false),
            Event::Tick => self.tick(),
            Event::Leave => self.leave(),
        }
        if !self.is_gone() {
            self.go_on(concerns);
        }
        self.release_unreferenced();
        self.out.take()
    }

    /// Runs after every event and begins whatever has become possible. Other modules than that of a message wait for
    /// the next sweep.
    fn go_on(&mut self, concerns: Concerns) {
        let modules: Vec<ModuleId> = match concerns {
            Concerns::Nothing => return,
            Concerns::Module(module) => self.modules.contains_key(&module).then_some(module).into_iter().collect(),
            Concerns::Everything => self.modules.keys().copied().collect(),
        };
        if self.lifecycle.take_moved() {
            self.move_worker_slots();
        }
        for module in modules {
            self.look_at_doubted(module);
            self.apply_next(module);
            self.gather(module);
        }
        if concerns == Concerns::Everything {
            self.start_next_phase();
        }
        self.end_late_phase(false);
    }

    pub(in crate::protocol) fn act(&mut self, action: Action) {
        self.out.act(action);
    }

    /// Starts the heartbeat. Called once the node has something to announce.
    pub(in crate::protocol) fn start_timers(&mut self) {
        self.lifecycle.begin(self.now);
        self.out.set_timer(Timer::Heartbeat, self.now);
        self.out.set_timer(Timer::Sweep, self.now + SWEEP_MS);
    }

    pub(in crate::protocol) fn tick(&mut self) {
        for timer in self.out.take_due(self.now) {
            match timer {
                Timer::Heartbeat => {
                    self.out.set_timer(Timer::Heartbeat, self.now + HEARTBEAT_MS);
                    self.prune_members();
                    self.send_heartbeats();
                }
                Timer::Sweep => {
                    self.out.set_timer(Timer::Sweep, self.now + SWEEP_MS);
                    self.sweep();
                }
                // `go_on` closes a collection that is due.
                Timer::Close(_) => {}
            }
        }
    }

    pub(in crate::protocol) fn sweep(&mut self) {
        self.membership.prune_copies(self.now);
        if let Some(for_ms) = self.lifecycle.sweep(self.now) {
            self.membership.wake(self.now);
            self.stood_still(for_ms);
            self.modules.values_mut().for_each(|state| state.doubt.missed_offers());
        }
        if !self.lifecycle.is_leaving() {
            self.watch_owners();
            self.watch_holders();
            self.watch_paths();
            self.search_on();
            self.reconsider();
        }
        self.end_late_phase(true);
        self.watch_trainers();
        self.continue_hand_offs();
        self.retry_fetches();
        self.close_gaps();
        self.repeat_offers();
        self.publish_fraud_proofs();
        self.live_with_it();
        self.leave_unused_modules();
        self.watch_replicas();
        if !self.lifecycle.is_leaving() {
            self.evaluate_next();
        }
        self.leave_on();
    }
}
