//! Random audits: an auditor aggregates the contributions of an update again and compares the average.
//!
//! For every update of another owner, each member draws whether it audits it. The draw depends on a secret of the
//! member. The configuration of the run sets the mean number of audits. A member that finds a wrong update publishes a
//! fraud proof, which contains the update with its owner's signature. No receiver trusts a fraud proof: each one
//! repeats the audit itself. A receiver that confirms it invalidates the update, rolls back to the one before
//! ([`Node::go_back`]), and no longer trusts its owner. A receiver that refutes it penalizes the reporter. An owner
//! that finds an invalid contribution publishes a fraud proof against its author in the same way.

use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};
use crate::protocol::Node;
use crate::protocol::action::{Action, Outer, Report};
use crate::protocol::blobs::Purpose;
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{LISTENED_MS, MAX_CONTRIBUTIONS, MAX_FETCHING, VERSIONS_KEPT};
use crate::protocol::reputation::audit_queue::{Audit, Case};
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::encoding::update_hash;
use crate::protocol::wire::message::{ContributionKey, Evidence, FraudProof, Message, Offer, SignedUpdate, UpdateHash};

impl Node {
    /// Whether an audit runs or waits.
    pub fn is_auditing(&self) -> bool {
        self.reputation.audits().is_busy()
    }

    /// There is a new head. Draws whether this node audits it.
    pub(in crate::protocol) fn draw_audit(&mut self, module: ModuleId, signed: &SignedUpdate) {
        let Some(id) = update_hash(&signed.update).filter(|_| signed.update.owner != self.me) else { return };
        let others = self.living_members(module).into_iter().filter(|member| *member != signed.update.owner).count();
        if self.reputation.audits().draw(self.me, id) < self.plan.audit_share / others.max(1) as f64 {
            self.open_audit_of(module, id, signed, None);
        }
    }

    /// Opens an audit of an update. If contributions may be clipped, the state before the update must be known.
    fn open_audit_of(&mut self, module: ModuleId, id: UpdateHash, signed: &SignedUpdate, reporter: Option<PeerKey>) {
        let mut from = None;
        if self.plan.centred_clipping {
            let chain = self.modules.get(&module).and_then(|state| state.history.chain());
            let genesis = self.plan.genesis.get(&module).copied();
            from = chain.zip(genesis).and_then(|(chain, genesis)| chain.state_at(signed.update.parent, genesis));
            if from.is_none() {
                return;
            }
        }
        self.open_audit(module, id, Case::Update(signed.clone(), from), reporter);
    }

    fn open_audit(&mut self, module: ModuleId, id: BlobHash, case: Case, reporter: Option<PeerKey>) {
        if self.reputation.audits_mut().open(Audit { module, id, case, reporter }) {
            self.audit_on();
        }
    }

    /// Starts the next audit.
    fn audit_on(&mut self) {
        if self.reputation.audits_mut().take_next().is_some() {
            self.fetch_for_audit(MAX_FETCHING);
        }
    }

    /// Requests further blobs for the running audit. The reporter and the owner have all of them. Any other peer may have those
    /// that it offered.
    fn fetch_for_audit(&mut self, most: usize) {
        let Some((audit, blobs)) = self.reputation.audits_mut().next_request(most) else { return };
        let offers = self.modules.get(&audit.module).map(|state| &state.offers);
        let offered_by = |blob: BlobRef| offers.into_iter().flat_map(move |offers| offers.authors(blob));
        let mut fetches = Vec::new();
        for blob in blobs {
            let holders = audit.reporter.into_iter().chain([audit.case.author()]).chain(offered_by(blob));
            let mut known: Vec<PeerKey> = Vec::new();
            holders.for_each(|holder| known.extend((!known.contains(&holder)).then_some(holder)));
            fetches.push((blob, known));
        }
        let module = audit.module;
        for (blob, holders) in fetches {
            self.fetch_from(blob, &holders, Purpose::Audit(module));
        }
    }

    pub(in crate::protocol) fn audit_fetched(&mut self, blob: BlobHash, found: bool) {
        if found {
            self.fetch_for_audit(1);
        }
        let Some(audit) = self.reputation.audits_mut().fetched(blob, found) else { return };
        if !found {
            let audit = audit.clone();
            self.cannot_be_had(&audit, blob);
            return self.close_audit();
        }
        let (module, id) = (audit.module, audit.id);
        let work = match &audit.case {
            Case::Update(signed, from) => {
                let from = *from;
                let contributions = signed.update.contributions.clone();
                let portion = self.plan.portion(module, &contributions);
                Outer::Audit { module, id, contributions, average: signed.update.average, portion, from }
            }
            Case::Contribution { blob, .. } => Outer::Inspect { module, id, blob: *blob },
        };
        self.act(Action::Outer(work));
    }

    /// A contribution of an update was not offered here, and its owner is alive but does not deliver it. The cause may
    /// be the connection between the two, so it proves nothing to others.
    fn cannot_be_had(&mut self, audit: &Audit, blob: BlobHash) {
        let Audit { module, case: Case::Update(signed, _), .. } = audit else { return };
        let (module, owner) = (*module, signed.update.owner);
        let counted = signed.update.contributions.iter().find(|counted| counted.blob.hash == blob);
        let Some(key) = counted.map(crate::protocol::wire::message::Counted::key) else { return };
        let Some(state) = self.modules.get(&module) else { return };
        // Who has just become a member has heard few of the offers.
        let would_know = state.doubt.listened_ms(self.now) >= LISTENED_MS && !state.offers.was_heard(&key);
        let is_there = self.membership.roster().lives(self.now, module, owner) && !self.is_silent(owner);
        if would_know && is_there {
            self.penalize(owner, Fault::Withheld, Some(key));
        }
    }

    fn close_audit(&mut self) {
        for blob in self.reputation.audits_mut().close() {
            self.release(blob);
        }
        self.audit_on();
    }

    /// A worker has verified a claim.
    pub(in crate::protocol) fn audited(&mut self, id: BlobHash, so: Option<bool>) {
        let Some(audit) = self.reputation.audits_mut().finished(id, so) else { return };
        match (so, audit.reporter) {
            (Some(true), Some(reporter)) => self.penalize(reporter, Fault::FalseProof, None),
            (Some(false), _) => self.prove(audit.module, id, audit.case),
            _ => {}
        }
        self.close_audit();
    }

    fn prove(&mut self, module: ModuleId, id: BlobHash, case: Case) {
        match &case {
            Case::Update(signed, _) => self.invalidate(module, id, signed),
            Case::Contribution { author, key, .. } => {
                self.reputation.audits_mut().note_broken(id);
                self.penalize(*author, Fault::Broken, Some(*key));
            }
        }
        for blob in self.reputation.audits_mut().prove(self.now, module, case) {
            self.release(blob);
        }
        self.publish_fraud_proofs();
    }

    /// This node, as owner, has found that an offered contribution is invalid.
    pub(in crate::protocol) fn found_broken(&mut self, module: ModuleId, author: PeerKey, offer: &Offer) {
        if author == self.me {
            // A disk may lose bits. The others do without this contribution.
            self.reputation.penalize(self.now, author, Fault::Broken, None);
            return;
        }
        if self.reputation.audits().knows(offer.blob.hash) {
            // The same bytes were offered by another peer, or for another version. Others know them already.
            return self.penalize(author, Fault::Broken, Some(offer.key()));
        }
        self.reputation.audits_mut().decide(offer.blob.hash);
        let case = Case::Contribution { author, key: offer.key(), blob: offer.blob };
        self.prove(module, offer.blob.hash, case);
    }

    /// Publishes fraud proofs in every sweep, because gossip may lose one and newcomers have not heard it.
    pub(in crate::protocol) fn publish_fraud_proofs(&mut self) {
        for blob in self.reputation.audits_mut().expire(self.now) {
            self.release(blob);
        }
        let mut said = self.reputation.audits_mut().take_due(self.now);
        said.retain(|(module, _)| self.modules.contains_key(module));
        for (module, what) in said {
            let fraud_proof = FraudProof { sequence: self.out.next_sequence(), what };
            self.act(Action::Publish { module, message: Message::FraudProof(fraud_proof) });
        }
    }

    /// Handles a fraud proof.
    pub(in crate::protocol) fn heard_fraud_proof(
        &mut self,
        module: ModuleId,
        author: PeerKey,
        fraud_proof: &FraudProof,
    ) {
        if self.reputation.scores().is_quarantined(self.now, author) {
            return;
        }
        let Some(state) = self.modules.get(&module) else { return };
        match &fraud_proof.what {
            Evidence::Update(signed) => {
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
            Evidence::Contribution { path, parent, blob } => {
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

    /// An update is not the result of its contributions. It is invalidated, and its owner is no longer trusted.
    fn invalidate(&mut self, module: ModuleId, id: UpdateHash, signed: &SignedUpdate) {
        let (owner, version) = (signed.update.owner, signed.update.version);
        if !self.reputation.audits_mut().invalidate(self.now, module, (id, owner)) {
            return;
        }
        self.act(Action::Persist(Record::Invalidated { module, update: id, owner }));
        self.act(Action::Report(Report::Caught { module, owner, version }));
        self.penalize(owner, Fault::WrongUpdate, None);
        self.go_back(module, id);
    }

    /// Penalizes a peer. If that quarantines it, the modules that it owned have no owner, and its offers are dropped.
    pub(in crate::protocol) fn penalize(&mut self, peer: PeerKey, fault: Fault, contribution: Option<ContributionKey>) {
        if peer == self.me || !self.reputation.penalize(self.now, peer, fault, contribution) {
            return;
        }
        self.act(Action::Report(Report::Quarantined { peer, fault }));
        let owned = self.modules.iter().filter(|(_, state)| state.leadership.is_owner(peer)).map(|(module, _)| *module);
        for module in owned.collect::<Vec<_>>() {
            self.force_step_down(module, fault.describe().to_owned());
        }
        for state in self.modules.values_mut() {
            state.offers.drop_author(peer);
        }
    }

    /// Penalizes a peer that offered bytes that were offered before. The first author is less likely to have copied
    /// them.
    pub(in crate::protocol) fn penalize_copier(
        &mut self,
        peer: PeerKey,
        fault: Fault,
        (key, first): (ContributionKey, Option<PeerKey>),
    ) {
        let told = self.reputation.scores().is_told(peer, key);
        if let Some(first) = first.filter(|_| !told) {
            self.reputation.excuse(first);
        }
        self.penalize(peer, fault, Some(key));
    }
}
