//! The protocol's core: what a peer does when something happens, and nothing else.
//!
//! `Node::handle(now, event)` returns what to do. It reads no clock, rolls no dice, touches no tensor, file or socket,
//! and iterates only over ordered collections, so the same events at the same times give the same actions. The driver
//! (`peer/`) and the simulator (`simulator/`) run this same code.
//!
//! The way of an outer step: [`phases`] starts training and offers what was trained; [`gathering`] is the owner's part, from offers
//! to a signed update; [`applying`] takes an update to a new head. [`plan`] is what a run is, [`rounds`] says how far a module has
//! come, [`pace`] how fast its paths are, [`seating`] where a path is whose modules change, [`streaming`] where one is whose levels
//! are brought in step one after the other. [`membership`] beats and hears beats, [`liveness`] measures who is alive, [`ownership`]
//! decides who combines, [`suspicion`] asks owners that fall silent, and [`trust`] who is believed to, [`placement`] decides who
//! trains which path and [`idle`] who only says so, [`transfer`] how a member that is behind catches up, [`starts`] whether two run
//! with one identity, [`replicas`] who else holds a module that one peer alone would have, [`evaluating`] how good a path is.
//! [`lateness`] keeps who is late from holding up others. [`resuming`] goes on with phases that were left in the middle, [`watchdog`]
//! watches over the trainer; [`handover`] gives a path with all that its trainer has to whoever takes it, and [`leaving`] goes in
//! order. [`norm_cap`] says what counts in full, [`conduct`] remembers how peers behave, [`auditing`] counts updates again,
//! [`going_back`] leaves one that was wrong, and [`rerunning`] trains again what others have trained. [`fetching`] gets blobs,
//! [`keeping`] lets go of them, [`restore`] reads the journal.

pub mod action;
mod applying;
mod auditing;
pub mod chain;
mod check;
pub mod collect;
pub mod conduct;
mod evaluating;
pub mod event;
mod fetching;
mod gathering;
mod going_back;
mod handover;
mod idle;
mod keeping;
mod lateness;
mod leaving;
pub mod limits;
mod liveness;
mod membership;
pub mod message;
pub mod norm_cap;
mod ownership;
mod pace;
mod patience;
mod phases;
mod placement;
pub mod places;
mod plan;
mod queues;
pub mod record;
mod replicas;
mod rerunning;
mod restore;
mod resuming;
pub mod roster;
mod rounds;
mod seating;
pub mod starts;
pub mod status;
mod streaming;
mod suspects;
mod suspicion;
#[cfg(test)]
mod tests;
pub mod timers;
mod transfer;
mod trust;
pub mod waiting;
mod watchdog;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub use action::{Action, Outer, Part, Portion, Report, Resume};
pub use check::check_chain;
pub use event::{Contact, Event, ReplyToken, RequestId};
pub use message::{Message, Request, Response, SignedUpdate, Update};
pub use plan::RunPlan;
pub use queues::Queue;
pub use record::Record;

use self::applying::{Apply, Next};
use self::auditing::Auditing;
use self::chain::Chain;
use self::collect::{Collection, Durations};
use self::conduct::Conducts;
use self::evaluating::Evaluations;
use self::fetching::Fetching;
use self::handover::Handovers;
use self::idle::Idle;
use self::keeping::Rescued;
use self::leaving::Leaving;
use self::limits::{BEAT_MS, STANDSTILL_MS, SWEEP_MS};
use self::message::{Head, Stage, Start, UpdateHash};
use self::pace::Measured;
use self::patience::Patience;
use self::phases::Training;
use self::placement::Search;
use self::record::{Finished, InnerCheckpoint};
use self::replicas::Replicas;
use self::rerunning::Reruns;
use self::roster::Roster;
use self::starts::Noticed;
use self::suspicion::Suspected;
use self::timers::{Timer, Timers};
use self::transfer::CatchUp;
use self::trust::Distrusted;
use self::watchdog::Watchdog;
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, Term, Version};

/// The phase that trains from a version. Only synchronous runs draw paths anew; in others it makes no difference.
fn phase_from(parent: Version) -> Phase {
    Phase(parent.0)
}

/// A module as this node knows it.
#[derive(Debug, Default)]
struct Module {
    /// Nothing while the first state is being fetched.
    chain: Option<Chain>,
    /// States kept, oldest first; the last is the head's.
    states: VecDeque<BlobRef>,
    term: Term,
    owner: Option<PeerKey>,
    /// The last term that it has claimed itself, and how many in a row since the head or itself came.
    claimed: Term,
    terms_in_vain: u32,
    /// Since when it is this peer, in whatever terms.
    owner_since: Millis,
    /// When the head came to be here.
    advanced: Millis,
    /// Since when its phase lasts: nothing where that is not known, as the head was there before it was here.
    phase_began: Option<Millis>,
    /// How long phases took.
    advances: Durations,
    /// Since when something has been offered for the next update.
    offered_since: Option<Millis>,
    /// The term whose owner has left, or said what is not so, or is this node without knowing it.
    deposed: Option<Term>,
    /// Whether a beat of another member has been heard since this node started.
    met: bool,
    /// Since when there is no living owner, as far as this node can see.
    vacant_since: Option<Millis>,
    /// Offers heard and not yet counted.
    offers: gathering::Offers,
    /// From which updates what is counted was trained, as far as that was heard since this chain is followed.
    counted_from: BTreeSet<(PathId, Version, UpdateHash)>,
    /// While this node is the owner.
    collection: Option<Collection>,
    durations: Durations,
    /// What is read while an average is made and tried on the state, wanted or not; no other is begun meanwhile.
    combining: Option<Vec<BlobHash>>,
    /// The update that is being applied.
    next: Option<Next>,
    /// Updates to apply after it.
    replay: VecDeque<SignedUpdate>,
    /// Averages being applied, in order.
    applies: VecDeque<Apply>,
    /// Updates whose state came out differently here.
    refused: BTreeSet<UpdateHash>,
    /// What was told of as lost since this node started.
    weight_lost: u64,
    /// Since when its chain is known to have an update that was proven wrong, and cannot be without.
    tainted: Option<Millis>,
    catch_up: CatchUp,
}

impl Module {
    fn head(&self) -> Option<Head> {
        self.chain.as_ref().map(Chain::head)
    }
}

/// A path that this node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    stage: Stage,
    /// Earlier ones train first: several paths take turns.
    last_trained: Millis,
    /// The phase that it is in, as far as known, where paths are drawn anew.
    near: Phase,
    /// Less than half of its last phase was trained before it was ended.
    stub: bool,
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
    me: PeerKey,
    plan: Arc<RunPlan>,
    now: Millis,
    start: Start,
    sequence: u64,
    request: u64,
    addresses: Vec<String>,
    roster: Roster,
    distrusted: Distrusted,
    conducts: Conducts,
    auditing: Auditing,
    reruns: Reruns,
    suspected: Suspected,
    patience: Patience,
    modules: BTreeMap<ModuleId, Module>,
    held: BTreeMap<PathId, Held>,
    /// Since when a path next to ours has no living holder.
    orphans: BTreeMap<PathId, Millis>,
    /// Holders that do not train the path.
    idle: Idle,
    search: Search,
    /// What this node trained, newest last, for as long as it may be counted.
    finished: VecDeque<Finished>,
    /// What this node combined in chains that were given up.
    rescued: VecDeque<Rescued>,
    /// When all that is outstanding was last offered; nothing if that is to be done now.
    offered_at: Option<Millis>,
    trainers: BTreeMap<PathId, BlobRef>,
    /// Phases left in the middle, of paths held here.
    checkpoints: BTreeMap<PathId, InnerCheckpoint>,
    watchdog: Watchdog,
    handovers: Handovers,
    /// The phase in training, even if its path was given to another meanwhile.
    training: Option<Training>,
    /// Paths of the grid whose text was missing when they were to be trained here, and since when.
    textless: BTreeMap<PathId, Millis>,
    measured: Option<Measured>,
    /// A peer that has come back trains nothing before.
    rests_until: Millis,
    /// One that has just begun has heard nobody yet: it takes nobody for dead before.
    listens_until: Millis,
    began: Millis,
    swept: Millis,
    /// Updates signed before a restart.
    sealed_before: Vec<SignedUpdate>,
    fetching: BTreeMap<BlobHash, Fetching>,
    /// Blobs that can go once nothing refers to them.
    unwanted: BTreeSet<BlobHash>,
    let_go: bool,
    replicas: Replicas,
    evaluations: Evaluations,
    /// Peers that are heard twice.
    copies: BTreeMap<PeerKey, Noticed>,
    /// Whether a head has moved or a path was taken since this node looked where its paths are.
    moved: bool,
    timers: Timers,
    leaving: Option<Leaving>,
    actions: Vec<Action>,
}

impl Node {
    /// A node that holds nothing yet.
    pub fn new(me: PeerKey, plan: impl Into<Arc<RunPlan>>) -> Self {
        Self {
            me,
            plan: plan.into(),
            now: Millis(0),
            start: Start::default(),
            sequence: 0,
            request: 0,
            addresses: Vec::new(),
            roster: Roster::default(),
            distrusted: Distrusted::default(),
            conducts: Conducts::default(),
            auditing: Auditing::default(),
            reruns: Reruns::default(),
            suspected: Suspected::default(),
            patience: Patience::default(),
            modules: BTreeMap::new(),
            held: BTreeMap::new(),
            orphans: BTreeMap::new(),
            idle: Idle::default(),
            search: Search::default(),
            finished: VecDeque::new(),
            rescued: VecDeque::new(),
            offered_at: None,
            trainers: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            watchdog: Watchdog::default(),
            handovers: Handovers::default(),
            training: None,
            textless: BTreeMap::new(),
            measured: None,
            rests_until: Millis(0),
            listens_until: Millis(0),
            began: Millis(0),
            swept: Millis(0),
            sealed_before: Vec::new(),
            fetching: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            let_go: false,
            replicas: Replicas::default(),
            evaluations: Evaluations::default(),
            copies: BTreeMap::new(),
            moved: false,
            timers: Timers::default(),
            leaving: None,
            actions: Vec::new(),
        }
    }

    /// Whose node this is.
    pub fn me(&self) -> PeerKey {
        self.me
    }

    /// When `handle` must be called with a tick, at the latest.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.timers.next()
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
                self.patience.answered(self.now, id, response.is_some());
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
                self.textless.remove(&drawn);
            }
            Event::TrainerDied => self.trainer_died(),
            Event::Accumulated { module, target, blob, norm } => self.accumulated(module, target, blob, norm),
            Event::Combined { module, target, average, state } => self.combined(module, target, average, state),
            Event::Audited { id, so } => self.audited(id, so),
            Event::Compared { theirs, apart_ppm } => self.compared(theirs, apart_ppm),
            Event::Sealed(signed) => self.sealed(signed),
            Event::Applied { module, version, state } => self.applied(module, version, state),
            Event::Tick => self.tick(),
            Event::Leave => self.leave(),
        }
        if !self.is_gone() {
            self.go_on(concerns);
        }
        self.forget_unreferenced();
        self.beat_once();
        std::mem::take(&mut self.actions)
    }

    /// After every event: whatever has become possible is begun; elsewhere than where it was heard, in the next sweep.
    fn go_on(&mut self, concerns: Concerns) {
        let modules: Vec<ModuleId> = match concerns {
            Concerns::Nothing => return,
            Concerns::Module(module) => self.modules.contains_key(&module).then_some(module).into_iter().collect(),
            Concerns::Everything => self.modules.keys().copied().collect(),
        };
        if std::mem::take(&mut self.moved) {
            self.keep_places();
        }
        for module in modules {
            self.apply_next(module);
            self.gather(module);
        }
        if concerns == Concerns::Everything {
            self.start_next_phase();
            self.give_up_rerun();
        }
        self.end_late_phase();
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Begins to beat; called once the node has something to beat about.
    fn start_timers(&mut self) {
        (self.began, self.swept) = (self.now, self.now);
        self.timers.set(Timer::Beat, self.now);
        self.timers.set(Timer::Sweep, self.now + SWEEP_MS);
    }

    fn tick(&mut self) {
        for timer in self.timers.take_due(self.now) {
            match timer {
                Timer::Beat => {
                    self.timers.set(Timer::Beat, self.now + BEAT_MS);
                    self.forget_the_dead();
                    self.beat_everywhere();
                }
                Timer::Sweep => {
                    self.timers.set(Timer::Sweep, self.now + SWEEP_MS);
                    self.sweep();
                }
                // What can close is closed by `go_on`.
                Timer::Close(_) => {}
            }
        }
    }

    fn sweep(&mut self) {
        self.forget_copies();
        if self.now.since(self.swept) > SWEEP_MS + STANDSTILL_MS {
            self.roster.wake(self.now);
            self.stood_still(self.now.since(self.swept) - SWEEP_MS);
        }
        self.swept = self.now;
        if self.leaving.is_none() {
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
        if self.leaving.is_none() {
            self.evaluate_next();
            self.rerun_next();
        }
        self.leave_on();
    }
}
