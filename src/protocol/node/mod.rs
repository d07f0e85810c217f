//! One peer: its parts, and what passes between them.

mod evidence;
mod fetch;
pub(super) mod heartbeat;
mod incarnation;
pub(in crate::protocol) mod module;
pub(in crate::protocol) mod path;
pub(super) mod restore;
pub(super) mod retention;

use crate::protocol::action::Action;
use crate::protocol::event::Event;
use crate::protocol::membership::Membership;
use crate::protocol::outbox::Outbox;
use crate::protocol::plan::RunPlan;
use crate::protocol::wire::message::SignedUpdate;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, Term, Version};
use crate::protocol::blobs::Blobs;
use crate::protocol::lifecycle::Lifecycle;
use crate::protocol::limits::{BEAT_MS, SWEEP_MS};
use crate::protocol::module::chain::Chain;
use crate::protocol::module::collection::{Collection, Durations};
use crate::protocol::node::module::apply::{Apply, Next};
use crate::protocol::node::module::audit::Auditing;
use crate::protocol::node::module::catch_up::CatchUp;
use crate::protocol::node::module::replication::Replicas;
use crate::protocol::node::path::evaluation::Evaluations;
use crate::protocol::node::path::hand_off::Handovers;
use crate::protocol::node::path::pace::Measured;
use crate::protocol::node::path::phase::Training;
use crate::protocol::node::path::placement::Search;
use crate::protocol::path::Paths;
use crate::protocol::path::contributions::Contributions;
use crate::protocol::path::watchdog::Watchdog;
use crate::protocol::reputation::Reputation;
use crate::protocol::timers::Timer;
use crate::protocol::wire::message::{Head, UpdateHash};

/// The phase that trains from a version. Only synchronous runs draw paths anew; in others it makes no difference.
pub(in crate::protocol) fn phase_from(parent: Version) -> Phase {
    Phase(parent.0)
}

/// A module as this node knows it.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Module {
    /// Nothing while the first state is being fetched.
    pub(in crate::protocol) chain: Option<Chain>,
    /// States kept, oldest first; the last is the head's.
    pub(in crate::protocol) states: VecDeque<BlobRef>,
    pub(in crate::protocol) term: Term,
    pub(in crate::protocol) owner: Option<PeerKey>,
    /// The last term that it has claimed itself, and how many in a row since the head or itself came.
    pub(in crate::protocol) claimed: Term,
    pub(in crate::protocol) terms_in_vain: u32,
    /// Since when it is this peer, in whatever terms.
    pub(in crate::protocol) owner_since: Millis,
    /// When the head came to be here.
    pub(in crate::protocol) advanced: Millis,
    /// Since when its phase lasts: nothing where that is not known, as the head was there before it was here.
    pub(in crate::protocol) phase_began: Option<Millis>,
    /// How long phases took.
    pub(in crate::protocol) advances: Durations,
    /// Since when something has been offered for the next update.
    pub(in crate::protocol) offered_since: Option<Millis>,
    /// The term whose owner has left, or said what is not so, or is this node without knowing it.
    pub(in crate::protocol) deposed: Option<Term>,
    /// Whether a beat of another member has been heard since this node started.
    pub(in crate::protocol) met: bool,
    /// Since when there is no living owner, as far as this node can see.
    pub(in crate::protocol) vacant_since: Option<Millis>,
    /// Offers heard and not yet counted.
    pub(in crate::protocol) offers: crate::protocol::node::module::aggregation::Offers,
    /// From which updates what is counted was trained, as far as that was heard since this chain is followed.
    pub(in crate::protocol) counted_from: BTreeSet<(PathId, Version, UpdateHash)>,
    /// While this node is the owner.
    pub(in crate::protocol) collection: Option<Collection>,
    pub(in crate::protocol) durations: Durations,
    /// What is read while an average is made and tried on the state, wanted or not; no other is begun meanwhile.
    pub(in crate::protocol) combining: Option<Vec<BlobHash>>,
    /// The update that is being applied.
    pub(in crate::protocol) next: Option<Next>,
    /// Updates to apply after it.
    pub(in crate::protocol) replay: VecDeque<SignedUpdate>,
    /// Averages being applied, in order.
    pub(in crate::protocol) applies: VecDeque<Apply>,
    /// Updates whose state came out differently here.
    pub(in crate::protocol) refused: BTreeSet<UpdateHash>,
    /// What was told of as lost since this node started.
    pub(in crate::protocol) weight_lost: u64,
    /// Since when its chain is known to have an update that was proven wrong, and cannot be without.
    pub(in crate::protocol) tainted: Option<Millis>,
    pub(in crate::protocol) catch_up: CatchUp,
}

impl Module {
    pub(in crate::protocol) fn head(&self) -> Option<Head> {
        self.chain.as_ref().map(Chain::head)
    }
}

/// For what something may become possible by an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concerns {
    /// It was no more than a sign of life.
    Nothing,
    /// It was heard on this module's topic.
    Module(ModuleId),
    /// It may be about anything.
    Everything,
}

/// One peer's part in the protocol.
#[derive(Debug)]
pub struct Node {
    pub(in crate::protocol) me: PeerKey,
    pub(in crate::protocol) plan: Arc<RunPlan>,
    pub(in crate::protocol) now: Millis,
    pub(in crate::protocol) out: Outbox,
    pub(in crate::protocol) membership: Membership,
    pub(in crate::protocol) reputation: Reputation,
    pub(in crate::protocol) blobs: Blobs,
    pub(in crate::protocol) paths: Paths,
    pub(in crate::protocol) life: Lifecycle,
    pub(in crate::protocol) contributions: Contributions,
    pub(in crate::protocol) auditing: Auditing,
    pub(in crate::protocol) modules: BTreeMap<ModuleId, Module>,
    /// Since when a path next to ours has no living holder.
    pub(in crate::protocol) orphans: BTreeMap<PathId, Millis>,
    pub(in crate::protocol) search: Search,
    pub(in crate::protocol) watchdog: Watchdog,
    pub(in crate::protocol) handovers: Handovers,
    /// The phase in training, even if its path was given to another meanwhile.
    pub(in crate::protocol) training: Option<Training>,
    pub(in crate::protocol) measured: Option<Measured>,
    /// Updates signed before a restart.
    pub(in crate::protocol) sealed_before: Vec<SignedUpdate>,
    pub(in crate::protocol) replicas: Replicas,
    pub(in crate::protocol) evaluations: Evaluations,
}

impl Node {
    /// A node that holds nothing yet.
    pub fn new(me: PeerKey, plan: impl Into<Arc<RunPlan>>) -> Self {
        Self {
            me,
            plan: plan.into(),
            now: Millis(0),
            out: Outbox::default(),
            membership: Membership::default(),
            reputation: Reputation::default(),
            blobs: Blobs::default(),
            paths: Paths::default(),
            life: Lifecycle::default(),
            contributions: Contributions::default(),
            auditing: Auditing::default(),
            modules: BTreeMap::new(),
            orphans: BTreeMap::new(),
            search: Search::default(),
            watchdog: Watchdog::default(),
            handovers: Handovers::default(),
            training: None,
            measured: None,
            sealed_before: Vec::new(),
            replicas: Replicas::default(),
            evaluations: Evaluations::default(),
        }
    }

    /// Whose node this is.
    pub fn me(&self) -> PeerKey {
        self.me
    }

    /// When `handle` must be called with a tick, at the latest.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.out.next_deadline()
    }

    /// What follows from something that happened.
    pub fn handle(&mut self, now: Millis, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        let mut concerns = Concerns::Everything;
        match event {
            Event::Found => self.found(),
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
            Event::TrainerDied => self.trainer_died(),
            Event::Accumulated { module, target, blob, norm } => self.accumulated(module, target, blob, norm),
            Event::Combined { module, target, average, state } => self.combined(module, target, average, state),
            Event::Audited { id, so } => self.audited(id, so),
            Event::Sealed(signed) => self.sealed(signed),
            Event::Applied { module, version, state } => self.applied(module, version, state),
            Event::Tick => self.tick(),
            Event::Leave => self.leave(),
        }
        if !self.is_gone() {
            self.go_on(concerns);
        }
        self.forget_unreferenced();
        self.out.take()
    }

    /// After every event: whatever has become possible is begun; elsewhere than where it was heard, in the next sweep.
    fn go_on(&mut self, concerns: Concerns) {
        let modules: Vec<ModuleId> = match concerns {
            Concerns::Nothing => return,
            Concerns::Module(module) => self.modules.contains_key(&module).then_some(module).into_iter().collect(),
            Concerns::Everything => self.modules.keys().copied().collect(),
        };
        if self.life.take_moved() {
            self.keep_places();
        }
        for module in modules {
            self.apply_next(module);
            self.gather(module);
        }
        if concerns == Concerns::Everything {
            self.start_next_phase();
        }
        self.end_late_phase();
    }

    pub(in crate::protocol) fn act(&mut self, action: Action) {
        self.out.act(action);
    }

    /// Begins to beat; called once the node has something to beat about.
    pub(in crate::protocol) fn start_timers(&mut self) {
        self.life.begin(self.now);
        self.out.set_timer(Timer::Beat, self.now);
        self.out.set_timer(Timer::Sweep, self.now + SWEEP_MS);
    }

    pub(in crate::protocol) fn tick(&mut self) {
        for timer in self.out.take_due(self.now) {
            match timer {
                Timer::Beat => {
                    self.out.set_timer(Timer::Beat, self.now + BEAT_MS);
                    self.forget_the_dead();
                    self.beat_everywhere();
                }
                Timer::Sweep => {
                    self.out.set_timer(Timer::Sweep, self.now + SWEEP_MS);
                    self.sweep();
                }
                // What can close is closed by `go_on`.
                Timer::Close(_) => {}
            }
        }
    }

    pub(in crate::protocol) fn sweep(&mut self) {
        self.membership.forget_copies(self.now);
        if let Some(for_ms) = self.life.sweep(self.now) {
            self.membership.wake(self.now);
            self.stood_still(for_ms);
        }
        if !self.life.is_leaving() {
            self.watch_owners();
            self.watch_holders();
            self.watch_paths();
            self.search_on();
        }
        self.watch_trainer();
        self.inherit_on();
        self.retry_fetches();
        self.close_gaps();
        self.repeat_offers();
        self.accuse_on();
        self.live_with_it();
        self.leave_unused_modules();
        self.watch_replicas();
        if !self.life.is_leaving() {
            self.evaluate_next();
        }
        self.leave_on();
    }
}
