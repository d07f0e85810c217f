//! Updates are counted again, at random: from the contributions that an update names to the average that it publishes.
//!
//! Every member draws for every update of another whether it audits it, by chance of its own that nobody else can know;
//! so many do on average as the run's configuration says. Whoever finds an update that is not what it says *accuses* its
//! owner: it says the update again, which the owner has signed. Nobody is believed: each who hears it counts again
//! itself. Who finds it so condemns the update, goes back to the one before ([`Node::go_back`]), and believes its owner
//! nothing any more; who finds it not so remembers who accused falsely. An owner that finds a contribution to be none
//! accuses whoever offered it in the same way.
//!
//! One audit is in hand at a time, and few wait, of each accuser one. What cannot be had proves nothing.

use std::collections::{BTreeSet, VecDeque};

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};
use crate::protocol::Node;
use crate::protocol::action::{Action, Outer, Report};
use crate::protocol::blobs::Purpose;
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{
    ACCUSE_REPEAT_MS, ACCUSED_MS, MAX_AUDITS, MAX_CONDEMNED, MAX_CONTRIBUTIONS, VERSIONS_KEPT,
};
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::encoding::update_hash;
use crate::protocol::wire::message::{Accusation, Accused, ContributionKey, Message, Offer, SignedUpdate, UpdateHash};

/// What is to be found out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Case {
    /// Whether an update is what its contributions make; of the state before it, where that says how they are clipped.
    Update(SignedUpdate, Option<BlobRef>),
    /// Whether what this peer offered is a contribution.
    Contribution { author: PeerKey, key: ContributionKey, blob: BlobRef },
}

impl Case {
    /// The bytes that it takes.
    fn blobs(&self) -> Vec<BlobRef> {
        match self {
            Self::Update(signed, from) => {
                let contributions = signed.update.contributions.iter().map(|counted| counted.blob);
                contributions.chain([signed.update.average]).chain(*from).collect()
            }
            Self::Contribution { blob, .. } => vec![*blob],
        }
    }
}

#[derive(Clone, Debug)]
struct Audit {
    module: ModuleId,
    /// The update's place, or the contribution's hash.
    id: BlobHash,
    case: Case,
    accuser: Option<PeerKey>,
    missing: BTreeSet<BlobHash>,
    /// The worker has it.
    counting: bool,
}

/// What was proven, and is told to others for a while: they need the bytes.
#[derive(Clone, Debug)]
struct Proven {
    module: ModuleId,
    case: Case,
    since: Millis,
    said_at: Option<Millis>,
}

/// An update that is not what it says.
#[derive(Clone, Copy, Debug)]
struct Condemned {
    module: ModuleId,
    update: UpdateHash,
    owner: PeerKey,
    since: Millis,
}

/// A node's audits.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Auditing {
    /// Nobody else knows it.
    pub(in crate::protocol) chance: [u8; 32],
    in_hand: Option<Audit>,
    waiting: VecDeque<Audit>,
    /// What was found out of late.
    judged: VecDeque<BlobHash>,
    /// Offered, and found to be no contribution; the last of them.
    broken: VecDeque<BlobHash>,
    proven: VecDeque<Proven>,
    /// Updates that are not what they say, and who signed them; for good.
    condemned: VecDeque<Condemned>,
    /// Counted again here, all in all.
    pub(in crate::protocol) audited: u64,
}

impl Auditing {
    /// Whether an update was proven wrong.
    pub(in crate::protocol) fn is_condemned(&self, update: UpdateHash) -> bool {
        self.condemned.iter().any(|condemned| condemned.update == update)
    }

    /// Remembers that it was. Whether that is new.
    pub(in crate::protocol) fn condemn(
        &mut self,
        since: Millis,
        module: ModuleId,
        (update, owner): (UpdateHash, PeerKey),
    ) -> bool {
        if self.is_condemned(update) {
            return false;
        }
        if self.condemned.len() >= MAX_CONDEMNED {
            self.condemned.pop_front();
        }
        self.condemned.push_back(Condemned { module, update, owner, since });
        true
    }

    /// These are taken for what they are, since nobody can do without them: of a module, those for which this holds, given
    /// since when they were condemned.
    pub(in crate::protocol) fn acquit(&mut self, module: ModuleId, holds: impl Fn(UpdateHash, Millis) -> bool) {
        self.condemned.retain(|it| it.module != module || !holds(it.update, it.since));
    }

    /// Of which modules there are any.
    pub(in crate::protocol) fn condemned_in(&self) -> BTreeSet<ModuleId> {
        self.condemned.iter().map(|condemned| condemned.module).collect()
    }

    /// What the journal says of it.
    pub(in crate::protocol) fn records(&self) -> impl Iterator<Item = Record> {
        self.condemned.iter().map(|it| Record::Condemned { module: it.module, update: it.update, owner: it.owner })
    }

    /// Blobs that are needed for it.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let cases = self.in_hand.iter().map(|audit| &audit.case).chain(self.proven.iter().map(|proven| &proven.case));
        cases.flat_map(Case::blobs).map(|blob| blob.hash)
    }

    /// How many wait, how many are told of, and how many are condemned.
    pub(in crate::protocol) fn counts(&self) -> [usize; 3] {
        [self.waiting.len(), self.proven.len(), self.condemned.len()]
    }

    fn knows(&self, id: BlobHash) -> bool {
        self.in_hand.iter().chain(&self.waiting).any(|audit| audit.id == id) || self.judged.contains(&id)
    }

    fn judge(&mut self, id: BlobHash) {
        remember(&mut self.judged, id);
    }

    /// Whether these bytes are known to be no contribution, whoever offers them.
    pub(in crate::protocol) fn is_broken(&self, blob: BlobHash) -> bool {
        self.broken.contains(&blob)
    }
}

/// The last so many.
fn remember(known: &mut VecDeque<BlobHash>, blob: BlobHash) {
    if known.len() >= 2 * VERSIONS_KEPT as usize {
        known.pop_front();
    }
    known.push_back(blob);
}

impl Node {
    /// Whether it has still to find out about something.
    pub fn is_auditing(&self) -> bool {
        self.auditing.in_hand.is_some() || !self.auditing.waiting.is_empty()
    }

    /// From 0 to 1, by chance of this node's own.
    pub(in crate::protocol) fn drawn(&self, id: BlobHash) -> f64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.auditing.chance);
        hasher.update(&self.me.0);
        hasher.update(&id.0);
        let mut drawn = [0; 8];
        drawn.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(drawn) as f64 / 2.0f64.powi(64)
    }

    /// A new head: it may be this node's turn to count it again.
    pub(in crate::protocol) fn draw_audit(&mut self, module: ModuleId, signed: &SignedUpdate) {
        let Some(id) = update_hash(&signed.update).filter(|_| signed.update.owner != self.me) else { return };
        let others = self.living_members(module).into_iter().filter(|member| *member != signed.update.owner).count();
        if self.drawn(id) < self.plan.audit_share / others.max(1) as f64 {
            self.open_audit_of(module, id, signed, None);
        }
    }

    /// If it may be clipped, what it was made from must be known.
    fn open_audit_of(&mut self, module: ModuleId, id: UpdateHash, signed: &SignedUpdate, accuser: Option<PeerKey>) {
        let mut from = None;
        if self.plan.centred_clipping {
            let chain = self.modules.get(&module).and_then(|state| state.chain.as_ref());
            let genesis = self.plan.genesis.get(&module).copied();
            from = chain.zip(genesis).and_then(|(chain, genesis)| chain.state_at(signed.update.parent, genesis));
            if from.is_none() {
                return;
            }
        }
        self.open_audit(module, id, Case::Update(signed.clone(), from), accuser);
    }

    fn open_audit(&mut self, module: ModuleId, id: BlobHash, case: Case, accuser: Option<PeerKey>) {
        let same_accuser = |audit: &Audit| accuser.is_some() && audit.accuser == accuser;
        let waits = self.auditing.in_hand.iter().chain(&self.auditing.waiting).any(same_accuser);
        if waits || self.auditing.knows(id) || self.auditing.waiting.len() >= MAX_AUDITS {
            return;
        }
        let missing = case.blobs().into_iter().map(|blob| blob.hash).collect();
        self.auditing.waiting.push_back(Audit { module, id, case, accuser, missing, counting: false });
        self.audit_on();
    }

    /// Takes the next in hand. Those who say that it is wrong have all of it, and so has its owner; of the rest whoever has
    /// offered it.
    fn audit_on(&mut self) {
        if self.auditing.in_hand.is_some() {
            return;
        }
        let Some(audit) = self.auditing.waiting.pop_front() else { return };
        let offers = self.modules.get(&audit.module).map(|state| &state.offers);
        let offered_by = |blob: BlobRef| {
            let offers = offers.into_iter().flat_map(|offers| offers.values());
            offers.filter(|(offer, _)| offer.blob == blob).map(|(_, author)| *author).collect::<Vec<_>>()
        };
        let signer = match &audit.case {
            Case::Update(signed, _) => signed.update.owner,
            Case::Contribution { author, .. } => *author,
        };
        let mut fetches = Vec::new();
        for blob in audit.case.blobs() {
            let holders = audit.accuser.into_iter().chain([signer]).chain(offered_by(blob));
            let mut known: Vec<PeerKey> = Vec::new();
            holders.for_each(|holder| known.extend((!known.contains(&holder)).then_some(holder)));
            fetches.push((blob, known));
        }
        let module = audit.module;
        self.auditing.in_hand = Some(audit);
        for (blob, holders) in fetches {
            self.fetch_from(blob, &holders, Purpose::Audit(module));
        }
    }

    pub(in crate::protocol) fn audit_fetched(&mut self, blob: BlobHash, found: bool) {
        let Some(audit) = &mut self.auditing.in_hand else { return };
        if !audit.missing.remove(&blob) {
            return;
        }
        if !found {
            self.cannot_be_had(blob);
            return self.close_audit();
        }
        if !audit.missing.is_empty() || audit.counting {
            return;
        }
        audit.counting = true;
        let (module, id) = (audit.module, audit.id);
        let work = match &audit.case {
            Case::Update(signed, from) => {
                let from = *from;
                let contributions = signed.update.contributions.clone();
                let portion = self.plan.portion(module, signed.update.version, &contributions);
                Outer::Audit { module, id, contributions, average: signed.update.average, portion, from }
            }
            Case::Contribution { blob, .. } => Outer::Inspect { module, id, blob: *blob },
        };
        self.act(Action::Outer(work));
    }

    /// A contribution in an update that nobody has offered here, and that its owner, who is there, does not have either. It
    /// may be the way between us: so it proves nothing to others.
    fn cannot_be_had(&mut self, blob: BlobHash) {
        let Some(Audit { module, case: Case::Update(signed, _), .. }) = &self.auditing.in_hand else { return };
        let (module, owner) = (*module, signed.update.owner);
        let counted = signed.update.contributions.iter().find(|counted| counted.blob.hash == blob);
        let Some(key) = counted.map(crate::protocol::wire::message::Counted::key) else { return };
        let offered = self.modules.get(&module).is_some_and(|state| state.offers.contains_key(&key));
        if !offered && self.membership.roster().lives(self.now, module, owner) {
            self.blame(owner, Fault::Withheld, Some(key));
        }
    }

    fn close_audit(&mut self) {
        let Some(audit) = self.auditing.in_hand.take() else { return };
        for blob in audit.case.blobs() {
            self.forget(blob.hash);
        }
        self.audit_on();
    }

    /// What a worker has found: whether it is so.
    pub(in crate::protocol) fn audited(&mut self, id: BlobHash, so: Option<bool>) {
        let Some(audit) = self.auditing.in_hand.clone().filter(|audit| audit.id == id) else { return };
        let Audit { module, case, accuser, .. } = audit;
        self.auditing.audited += 1;
        match so {
            None => {}
            Some(true) => {
                self.auditing.judge(id);
                if let Some(accuser) = accuser {
                    self.blame(accuser, Fault::FalselyAccused, None);
                }
            }
            Some(false) => {
                self.auditing.judge(id);
                self.prove(module, id, case);
            }
        }
        self.close_audit();
    }

    fn prove(&mut self, module: ModuleId, id: BlobHash, case: Case) {
        match &case {
            Case::Update(signed, _) => self.condemn(module, id, signed),
            Case::Contribution { author, key, .. } => {
                remember(&mut self.auditing.broken, id);
                self.blame(*author, Fault::Broken, Some(*key));
            }
        }
        if self.auditing.proven.len() >= MAX_AUDITS {
            let gone = self.auditing.proven.pop_front();
            gone.into_iter().flat_map(|proven| proven.case.blobs()).for_each(|blob| self.forget(blob.hash));
        }
        self.auditing.proven.push_back(Proven { module, case, since: self.now, said_at: None });
        self.accuse_on();
    }

    /// This node, as owner, has found that what was offered to it is no contribution.
    pub(in crate::protocol) fn found_broken(&mut self, module: ModuleId, author: PeerKey, offer: &Offer) {
        if author == self.me {
            // A disk may lose bits. The others do without what is lost.
            self.reputation.blame(self.now, author, Fault::Broken, None);
            return;
        }
        if self.auditing.knows(offer.blob.hash) {
            // The same bytes again, of another, or for another version: others know them.
            return self.blame(author, Fault::Broken, Some(offer.key()));
        }
        self.auditing.judge(offer.blob.hash);
        let case = Case::Contribution { author, key: offer.key(), blob: offer.blob };
        self.prove(module, offer.blob.hash, case);
    }

    /// In every sweep: gossip may lose an accusation, and newcomers have not heard it.
    pub(in crate::protocol) fn accuse_on(&mut self) {
        let now = self.now;
        let mut said = Vec::new();
        while self.auditing.proven.front().is_some_and(|proven| now.since(proven.since) >= ACCUSED_MS) {
            let gone = self.auditing.proven.pop_front();
            gone.into_iter().flat_map(|proven| proven.case.blobs()).for_each(|blob| self.forget(blob.hash));
        }
        for proven in &mut self.auditing.proven {
            if proven.said_at.is_some_and(|at| now.since(at) < ACCUSE_REPEAT_MS) {
                continue;
            }
            proven.said_at = Some(now);
            let what = match &proven.case {
                Case::Update(signed, _) => Accused::Update(signed.clone()),
                Case::Contribution { key: (path, parent, _), blob, .. } => {
                    Accused::Contribution { path: *path, parent: *parent, blob: *blob }
                }
            };
            said.push((proven.module, what));
        }
        said.retain(|(module, _)| self.modules.contains_key(module));
        for (module, what) in said {
            let accusation = Accusation { sequence: self.out.next_sequence(), what };
            self.act(Action::Publish { module, message: Message::Accusation(accusation) });
        }
    }

    /// Another says that something is not so.
    pub(in crate::protocol) fn heard_accusation(&mut self, module: ModuleId, author: PeerKey, accusation: &Accusation) {
        if self.reputation.scores().is_named(self.now, author) {
            return;
        }
        let Some(state) = self.modules.get(&module) else { return };
        match &accusation.what {
            Accused::Update(signed) => {
                let update = &signed.update;
                let near = state.head().is_some_and(|head| head.version.0.abs_diff(update.version.0) <= VERSIONS_KEPT);
                let offer_bytes = self.plan.offer_bytes(module);
                let fits = update.module == module
                    && update.contributions.len() <= MAX_CONTRIBUTIONS
                    && update.contributions.iter().all(|counted| counted.blob.bytes <= offer_bytes)
                    && update.average.bytes <= self.plan.average_bytes(module);
                if let Some(id) = update_hash(update).filter(|_| near && fits && update.owner != self.me) {
                    self.open_audit_of(module, id, signed, Some(author));
                }
            }
            Accused::Contribution { path, parent, blob } => {
                let key = (*path, *parent, blob.hash);
                let Some((offer, by)) = state.offers.get(&key) else { return };
                let (by, blob) = (*by, offer.blob);
                if by != self.me {
                    let case = Case::Contribution { author: by, key, blob };
                    self.open_audit(module, blob.hash, case, Some(author));
                }
            }
        }
    }

    /// An update is not what its contributions make: it is none, and its owner is believed nothing any more.
    fn condemn(&mut self, module: ModuleId, id: UpdateHash, signed: &SignedUpdate) {
        let (owner, version) = (signed.update.owner, signed.update.version);
        if !self.auditing.condemn(self.now, module, (id, owner)) {
            return;
        }
        self.act(Action::Persist(Record::Condemned { module, update: id, owner }));
        self.act(Action::Report(Report::Caught { module, owner, version }));
        self.blame(owner, Fault::WrongUpdate, None);
        self.go_back(module, id);
    }

    /// It was wrong. If that names it, what it owned has no owner, and what it offered is not taken.
    pub(in crate::protocol) fn blame(&mut self, peer: PeerKey, fault: Fault, contribution: Option<ContributionKey>) {
        if peer == self.me || !self.reputation.blame(self.now, peer, fault, contribution) {
            return;
        }
        self.act(Action::Report(Report::Named { peer, fault }));
        let owned = self.modules.iter().filter(|(_, state)| state.owner == Some(peer)).map(|(module, _)| *module);
        for module in owned.collect::<Vec<_>>() {
            self.depose(module, fault.describe().to_owned());
        }
        for state in self.modules.values_mut() {
            state.offers.retain(|_, (_, author)| *author != peer);
        }
    }

    /// It has offered what was offered before; whoever was first is the less likely to have copied anything.
    pub(in crate::protocol) fn blame_copier(
        &mut self,
        peer: PeerKey,
        fault: Fault,
        (key, first): (ContributionKey, Option<PeerKey>),
    ) {
        let told = self.reputation.scores().is_told(peer, key);
        if let Some(first) = first.filter(|_| !told) {
            self.reputation.excuse(first);
        }
        self.blame(peer, fault, Some(key));
    }
}
