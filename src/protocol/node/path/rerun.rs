//! Phases that another has trained, trained again.
//!
//! An offer says how it was made: in which phase, in how many inner steps, from which trainer, and on which class of
//! machine. A standby of the path has the states that the phase started from and keeps the holder's trainer of before for
//! one phase longer, so it can make the same again. It draws by chance of its own which phases it does, as for an
//! [audit](crate::protocol::node::module::audit), and trains them while it has nothing else to do; what it is to train or to leave for comes first,
//! and the phase is given up.
//!
//! What comes out is compared with what was offered. Machines of one class come to the very same bytes; of others it is
//! measured how far apart the two lie. Nobody else can check that without training it, too: so a difference is no
//! accusation, but adds to what this node knows of the peer.

use std::collections::BTreeMap;

use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey};
use crate::protocol::Node;
use crate::protocol::action::{Action, Outer, Part, Report};
use crate::protocol::blobs::fetch::Purpose;
use crate::protocol::journal::record::{Finished, StartedFrom};
use crate::protocol::limits::{MAX_CLAIMS, VERSIONS_KEPT};
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::message::{Made, Offer, Stage};

/// What a holder has offered for one phase of a path.
#[derive(Clone, Debug)]
struct Claim {
    holder: PeerKey,
    path: PathId,
    made: Made,
    offers: BTreeMap<ModuleId, (StartedFrom, BlobRef)>,
    /// Whether it is to be trained again: not known before all of it was heard.
    drawn: Option<bool>,
}

/// How far a phase is that is trained again.
#[derive(Clone, Debug)]
enum Progress {
    /// It waits until there is nothing else to do.
    Waits,
    /// The trainer has it; and may have been asked to give it up.
    Trains { given_up: bool },
    /// The last of these modules is being compared: what was offered, and what came out here.
    Compares(Vec<(ModuleId, BlobRef, BlobRef)>),
}

/// A phase that is trained again.
#[derive(Clone, Debug)]
struct Rerun {
    claim: Claim,
    start: Vec<(StartedFrom, BlobRef)>,
    trainer: Option<BlobRef>,
    progress: Progress,
    /// How far apart the furthest module is by now, in millionths of the longer one.
    apart_ppm: u32,
}

impl Rerun {
    fn blobs(&self) -> Vec<BlobHash> {
        let began = self.start.iter().map(|(_, state)| *state).chain(self.trainer);
        let compared: &[_] = if let Progress::Compares(left) = &self.progress { left } else { &[] };
        let compared = compared.iter().flat_map(|(_, theirs, ours)| [*theirs, *ours]);
        began.chain(compared).map(|blob| blob.hash).collect()
    }

    fn trains(&self) -> bool {
        matches!(self.progress, Progress::Trains { .. })
    }
}

/// A node's.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Reruns {
    /// The newest of each holder of a path that is stood by.
    claims: BTreeMap<(PathId, PeerKey), Claim>,
    /// The trainers of these paths before the newest.
    before: BTreeMap<PathId, BlobRef>,
    in_hand: Option<Rerun>,
}

impl Reruns {
    /// Whether the trainer is at it.
    pub(in crate::protocol) fn trains(&self) -> bool {
        self.in_hand.as_ref().is_some_and(Rerun::trains)
    }

    /// The path whose phase the trainer makes again.
    pub(in crate::protocol) fn trained(&self) -> Option<(PathId, crate::names::Phase)> {
        let rerun = self.in_hand.as_ref().filter(|rerun| rerun.trains())?;
        Some((rerun.claim.path, rerun.claim.made.phase))
    }

    /// Blobs that are needed for it, or will be.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let in_hand = self.in_hand.iter().flat_map(Rerun::blobs);
        in_hand.chain(self.before.values().map(|blob| blob.hash))
    }

    /// How many phases of others are known.
    pub(in crate::protocol) fn count(&self) -> usize {
        self.claims.len()
    }
}

impl Node {
    fn stands_by(&self, path: PathId) -> bool {
        self.held.get(&path).is_some_and(|held| held.stage == Stage::Standby)
    }

    /// A holder has offered what it has trained.
    pub(in crate::protocol) fn note_claim(&mut self, module: ModuleId, author: PeerKey, offer: &Offer) {
        let path = offer.path;
        let Some(made) = offer.made.filter(|_| self.plan.rerun_share > 0.0 && author != self.me) else { return };
        let mut holders = self.roster.holders(self.now, path);
        let holds = holders.any(|(peer, _, lease)| peer == author && Self::trains(lease.stage));
        let fits = (1..=self.plan.inner_steps).contains(&made.steps)
            && made.phase.0 < self.plan.phases
            && self.plan.slots.goes_through(path, made.phase, module)
            && made.phase.0.abs_diff(offer.parent.0) <= VERSIONS_KEPT;
        if !holds || !fits || !self.stands_by(path) {
            return;
        }
        let claims = &mut self.reruns.claims;
        let known = claims.get(&(path, author));
        if known.is_some_and(|claim| claim.made.phase > made.phase) || (known.is_none() && claims.len() >= MAX_CLAIMS) {
            return;
        }
        if known.is_none_or(|claim| claim.made != made) {
            let claim = Claim { holder: author, path, made, offers: BTreeMap::new(), drawn: None };
            claims.insert((path, author), claim);
        }
        let from = StartedFrom { module, version: offer.parent, update: offer.parent_update };
        if let Some(claim) = claims.get_mut(&(path, author)) {
            claim.offers.entry(module).or_insert((from, offer.blob));
        }
    }

    /// A trainer that another has taken the place of, of a path that is stood by.
    pub(in crate::protocol) fn keep_trainer_before(&mut self, path: PathId, trainer: BlobRef) {
        let gone = match self.plan.rerun_share > 0.0 && self.stands_by(path) {
            true => self.reruns.before.insert(path, trainer),
            false => Some(trainer),
        };
        gone.into_iter().for_each(|gone| self.forget(gone.hash));
    }

    /// A path is stood by no longer.
    pub(in crate::protocol) fn forget_claims(&mut self, path: PathId) {
        self.reruns.claims.retain(|(of, _), _| *of != path);
        let before = self.reruns.before.remove(&path);
        before.into_iter().for_each(|before| self.forget(before.hash));
    }

    fn has_other_work(&self) -> bool {
        self.active_paths() > 0 || self.leaving.is_some()
    }

    /// Gives up what is in the way of anything else; after every event.
    pub(in crate::protocol) fn give_up_rerun(&mut self) {
        let Some(rerun) = &self.reruns.in_hand else { return };
        if !self.has_other_work() && self.held.contains_key(&rerun.claim.path) {
            return;
        }
        let Some(rerun) = &mut self.reruns.in_hand else { return };
        match &mut rerun.progress {
            Progress::Trains { given_up: given_up @ false } => {
                *given_up = true;
                self.act(Action::Pause);
            }
            Progress::Waits => self.drop_rerun(),
            Progress::Trains { .. } | Progress::Compares(_) => {}
        }
    }

    /// Takes in hand what was drawn; in every sweep, after what is to be scored.
    pub(in crate::protocol) fn rerun_next(&mut self) {
        if self.plan.rerun_share == 0.0 || self.has_other_work() {
            return;
        }
        if self.reruns.in_hand.is_none() {
            self.draw_rerun();
        }
        self.begin_rerun();
    }

    /// The next phase that is to be trained again, of those of which all was heard, and can be.
    fn draw_rerun(&mut self) {
        let mut claims = std::mem::take(&mut self.reruns.claims);
        claims.retain(|(path, holder), _| self.stands_by(*path) && !self.conducts.is_named(self.now, *holder));
        for claim in claims.values_mut() {
            let modules = self.plan.modules_at(claim.path, claim.made.phase);
            if modules.iter().all(|module| claim.offers.contains_key(module)) && claim.drawn.is_none() {
                claim.drawn = Some(self.is_to_be_rerun(claim));
            }
        }
        let next = claims.values().find_map(|claim| self.rerun_of(claim));
        if let Some(rerun) = &next {
            let taken = (rerun.claim.path, rerun.claim.holder);
            claims.entry(taken).and_modify(|claim| claim.drawn = Some(false));
        }
        (self.reruns.claims, self.reruns.in_hand) = (claims, next);
    }

    /// Those who stand by a path share its phases out among them.
    fn is_to_be_rerun(&self, claim: &Claim) -> bool {
        let standbys = self.roster.holders(self.now, claim.path).filter(|(.., lease)| lease.stage == Stage::Standby);
        let offered = claim.offers.values().map(|(_, blob)| blob.hash);
        let share = self.plan.rerun_share / (standbys.count() + 1) as f64;
        offered.min().is_some_and(|id| self.drawn(id) < share)
    }

    /// What it takes, if all of it is here.
    fn rerun_of(&self, claim: &Claim) -> Option<Rerun> {
        if claim.drawn != Some(true) {
            return None;
        }
        let trainer = claim.made.trainer.map(|hash| {
            let kept = [self.trainers.get(&claim.path), self.reruns.before.get(&claim.path)];
            kept.into_iter().flatten().find(|trainer| trainer.hash == hash).copied()
        });
        let start = |module: ModuleId| {
            let (from, _) = claim.offers.get(&module)?;
            let state = self.state_after(from)?;
            self.modules.get(&module)?.states.contains(&state).then_some((*from, state))
        };
        let modules = self.plan.modules_at(claim.path, claim.made.phase);
        let start = modules.into_iter().map(start).collect::<Option<Vec<_>>>()?;
        let trainer = match trainer {
            Some(known) => Some(known?),
            None => None,
        };
        Some(Rerun { claim: claim.clone(), start, trainer, progress: Progress::Waits, apart_ppm: 0 })
    }

    fn begin_rerun(&mut self) {
        let scores = self.evaluations.reads().next().is_some();
        if self.training.is_some() || scores || self.now < self.rests_until {
            return;
        }
        let waits = |rerun: &&mut Rerun| matches!(rerun.progress, Progress::Waits);
        let Some(rerun) = self.reruns.in_hand.as_mut().filter(waits) else { return };
        rerun.progress = Progress::Trains { given_up: false };
        let (path, made) = (rerun.claim.path, rerun.claim.made);
        let due = rerun.start.iter().map(|(from, _)| from.module).collect();
        let part = Part { last: made.steps, ..Part::whole(self.plan.inner_steps, due) };
        let (start, trainer) = (rerun.start.clone(), rerun.trainer);
        self.watchdog.begin(path, made.phase);
        self.act(Action::TrainAgain { path, phase: made.phase, part, start, trainer });
    }

    /// The trainer has ended, and has not done what it was asked for.
    pub(in crate::protocol) fn stop_rerun(&mut self) {
        if self.reruns.trains() {
            self.drop_rerun();
        }
    }

    fn drop_rerun(&mut self) {
        let rerun = self.reruns.in_hand.take();
        rerun.iter().flat_map(Rerun::blobs).for_each(|blob| self.forget(blob));
    }

    /// What comes of a phase that another has trained.
    pub(in crate::protocol) fn trained_again(&mut self, finished: Finished) {
        self.watchdog.got_further();
        let Some(rerun) = &mut self.reruns.in_hand else { return };
        let theirs = &rerun.claim.made;
        let same_class = |ours: &Made| ours.class == theirs.class && ours.class != 0;
        let comparable = finished.made.filter(|ours| (ours.steps, ours.trainer) == (theirs.steps, theirs.trainer));
        let exact = comparable.as_ref().is_some_and(same_class);
        let pair = |(from, ours): &(StartedFrom, BlobRef)| {
            let (_, theirs) = rerun.claim.offers.get(&from.module)?;
            (theirs != ours).then_some((from.module, *theirs, *ours))
        };
        let differ: Vec<_> = finished.offers.iter().filter_map(pair).collect();
        let began = rerun.blobs();
        rerun.progress = Progress::Compares(differ.clone());
        let made = finished.offers.iter().map(|(_, blob)| blob.hash).chain([finished.trainer.hash]);
        began.into_iter().chain(made).for_each(|blob| self.forget(blob));
        match comparable {
            None => self.drop_rerun(),
            Some(_) if exact && !differ.is_empty() => self.judge_rerun(None),
            Some(_) => self.compare_next(),
        }
    }

    /// Gets what was offered, if anything is left to be compared.
    fn compare_next(&mut self) {
        let Some(Rerun { claim, progress: Progress::Compares(left), apart_ppm, .. }) = &self.reruns.in_hand else {
            return;
        };
        let (path, holder, apart_ppm) = (claim.path, claim.holder, *apart_ppm);
        let Some((module, theirs, _)) = left.last().copied() else { return self.judge_rerun(Some(apart_ppm)) };
        let owner = self.modules.get(&module).and_then(|state| state.owner);
        let holders: Vec<PeerKey> = [holder].into_iter().chain(owner.filter(|owner| *owner != holder)).collect();
        self.fetch_from(theirs, &holders, Purpose::Rerun(path));
    }

    /// What cannot be had proves nothing.
    pub(in crate::protocol) fn rerun_fetched(&mut self, blob: BlobHash, found: bool) {
        let Some(Rerun { progress: Progress::Compares(left), .. }) = &self.reruns.in_hand else { return };
        let Some((module, theirs, ours)) = left.last().copied().filter(|(_, theirs, _)| theirs.hash == blob) else {
            return;
        };
        match found {
            true => self.act(Action::Outer(Outer::Compare { module, theirs, ours })),
            false => self.drop_rerun(),
        }
    }

    /// How far apart what was offered for a module and what came out here are; nothing if that cannot be told.
    pub(in crate::protocol) fn compared(&mut self, theirs: BlobHash, apart_ppm: Option<u32>) {
        let Some(rerun) = &mut self.reruns.in_hand else { return };
        let Progress::Compares(left) = &mut rerun.progress else { return };
        let Some((_, theirs, ours)) = left.pop_if(|(_, blob, _)| blob.hash == theirs) else { return };
        rerun.apart_ppm = rerun.apart_ppm.max(apart_ppm.unwrap_or(0));
        [theirs, ours].into_iter().for_each(|blob| self.forget(blob.hash));
        match apart_ppm {
            Some(_) => self.compare_next(),
            None => self.drop_rerun(),
        }
    }

    /// Nothing says that it should have been the same bytes, and was not.
    fn judge_rerun(&mut self, apart_ppm: Option<u32>) {
        let Some(Rerun { claim, .. }) = self.reruns.in_hand.clone() else { return };
        self.drop_rerun();
        let tolerated = f64::from(self.plan.rerun_tolerance) * 1e6;
        let alike = apart_ppm.is_some_and(|ppm| f64::from(ppm) <= tolerated);
        let (path, phase, peer) = (claim.path, claim.made.phase, claim.holder);
        self.conducts.rerun(peer, alike);
        self.act(Action::Report(Report::TrainedAgain { path, phase, peer, apart_ppm, alike }));
        let offered = claim.offers.values().next();
        if let Some((from, blob)) = offered.filter(|_| !alike) {
            self.blame(peer, Fault::Untrained, Some((path, from.version, blob.hash)));
        }
    }
}
