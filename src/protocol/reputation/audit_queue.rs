//! Audits: what is to be verified, what was proven wrong and is published, and which updates are invalidated.
//!
//! One audit runs at a time and a few wait, at most one per reporter. Bytes that cannot be had prove nothing.

use std::collections::{BTreeSet, VecDeque};

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{FRAUD_PROOF_MS, FRAUD_PROOF_REPEAT_MS, MAX_AUDITS, MAX_INVALIDATED, VERSIONS_KEPT};
use crate::protocol::wire::message::{ContributionKey, Evidence, SignedUpdate, UpdateHash};

/// The claim to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum Case {
    /// Whether an update is the result of its contributions. The state before it is needed where it determines how they
    /// are clipped.
    Update(SignedUpdate, Option<BlobRef>),
    /// Whether the bytes that this peer offered are a valid contribution.
    Contribution { author: PeerKey, key: ContributionKey, blob: BlobRef },
}

impl Case {
    /// The blobs that the audit needs.
    pub(in crate::protocol) fn blobs(&self) -> Vec<BlobRef> {
        match self {
            Self::Update(signed, from) => {
                let contributions = signed.update.contributions.iter().map(|counted| counted.blob);
                let list = signed.update.contributions.list();
                contributions.chain([signed.update.average]).chain(list).chain(*from).collect()
            }
            Self::Contribution { blob, .. } => vec![*blob],
        }
    }

    /// The peer that signed or offered it.
    pub(in crate::protocol) fn author(&self) -> PeerKey {
        match self {
            Self::Update(signed, _) => signed.update.owner,
            Self::Contribution { author, .. } => *author,
        }
    }

    fn hashes(&self) -> impl Iterator<Item = BlobHash> {
        self.blobs().into_iter().map(|blob| blob.hash)
    }
}

/// An audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Audit {
    pub(in crate::protocol) module: ModuleId,
    /// The hash of the update or of the contribution.
    pub(in crate::protocol) id: BlobHash,
    pub(in crate::protocol) case: Case,
    /// The peer whose fraud proof caused the audit, if any.
    pub(in crate::protocol) reporter: Option<PeerKey>,
}

/// The running audit.
#[derive(Debug)]
struct InHand {
    audit: Audit,
    missing: BTreeSet<BlobHash>,
    /// The missing blobs that have not been requested.
    unasked: VecDeque<BlobRef>,
    /// The worker is computing it.
    counting: bool,
}

/// A claim that was proven and is published for a while. Others need the bytes to verify it.
#[derive(Clone, Debug)]
struct Proven {
    module: ModuleId,
    case: Case,
    since: Millis,
    said_at: Option<Millis>,
}

/// An invalidated update.
#[derive(Clone, Copy, Debug)]
struct Invalidated {
    module: ModuleId,
    update: UpdateHash,
    owner: PeerKey,
    since: Millis,
}

/// A node's audits.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Audits {
    /// Determines which updates are audited. No other peer knows it.
    secret: [u8; 32],
    in_hand: Option<InHand>,
    waiting: VecDeque<Audit>,
    /// Recently decided claims.
    decided: VecDeque<BlobHash>,
    /// Recent blobs that were offered and found invalid.
    broken: VecDeque<BlobHash>,
    proven: VecDeque<Proven>,
    /// Invalidated updates and their signers, permanently.
    invalidated: VecDeque<Invalidated>,
    audited: u64,
}

impl Audits {
    pub(in crate::protocol) fn set_secret(&mut self, secret: [u8; 32]) {
        self.secret = secret;
    }

    /// A number from 0 to 1, pseudorandom with this node's secret.
    pub(in crate::protocol) fn draw(&self, me: PeerKey, id: BlobHash) -> f64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&me.0);
        hasher.update(&id.0);
        let mut drawn = [0; 8];
        drawn.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(drawn) as f64 / 2.0f64.powi(64)
    }

    /// Whether an audit runs or waits.
    pub(in crate::protocol) fn is_busy(&self) -> bool {
        self.in_hand.is_some() || !self.waiting.is_empty()
    }

    /// Number of finished audits.
    pub(in crate::protocol) fn audited(&self) -> u64 {
        self.audited
    }

    /// Whether an audit of this claim runs, waits or was recently decided.
    pub(in crate::protocol) fn knows(&self, id: BlobHash) -> bool {
        let open = self.in_hand.iter().map(|in_hand| &in_hand.audit).chain(&self.waiting);
        open.into_iter().any(|audit| audit.id == id) || self.decided.contains(&id)
    }

    /// Queues an audit, unless it is known, the reporter already has one, or too many wait. Returns whether it was
    /// queued.
    pub(in crate::protocol) fn open(&mut self, audit: Audit) -> bool {
        let mut open = self.in_hand.iter().map(|in_hand| &in_hand.audit).chain(&self.waiting);
        let twice = audit.reporter.is_some() && open.any(|other| other.reporter == audit.reporter);
        let opens = !twice && !self.knows(audit.id) && self.waiting.len() < MAX_AUDITS;
        if opens {
            self.waiting.push_back(audit);
        }
        opens
    }

    /// Starts the next audit, unless one is running.
    pub(in crate::protocol) fn take_next(&mut self) -> Option<&Audit> {
        if self.in_hand.is_some() {
            return None;
        }
        let audit = self.waiting.pop_front()?;
        let (missing, unasked) = (audit.case.hashes().collect(), audit.case.blobs().into());
        Some(&self.in_hand.insert(InHand { audit, missing, unasked, counting: false }).audit)
    }

    /// The running audit, and so many of its blobs that have not been requested.
    pub(in crate::protocol) fn next_request(&mut self, most: usize) -> Option<(&Audit, Vec<BlobRef>)> {
        let InHand { audit, unasked, .. } = self.in_hand.as_mut()?;
        let most = most.min(unasked.len());
        Some((audit, unasked.drain(..most).collect()))
    }

    /// A blob has arrived or cannot be had. Returns the running audit if that decides how it continues: all blobs are
    /// here, or one is missing for good.
    pub(in crate::protocol) fn fetched(&mut self, blob: BlobHash, found: bool) -> Option<&Audit> {
        let InHand { audit, missing, counting, .. } = self.in_hand.as_mut()?;
        if !missing.remove(&blob) || (found && (!missing.is_empty() || *counting)) {
            return None;
        }
        *counting = found;
        Some(audit)
    }

    /// A worker has verified the claim, if it could. Returns the audit.
    pub(in crate::protocol) fn finished(&mut self, id: BlobHash, so: Option<bool>) -> Option<Audit> {
        let audit = self.in_hand.as_ref().map(|in_hand| &in_hand.audit).filter(|audit| audit.id == id)?.clone();
        self.audited += 1;
        if so.is_some() {
            self.decide(id);
        }
        Some(audit)
    }

    /// Ends the running audit. Returns its blobs.
    pub(in crate::protocol) fn close(&mut self) -> Vec<BlobHash> {
        self.in_hand.take().map_or_else(Vec::new, |in_hand| in_hand.audit.case.hashes().collect())
    }

    /// Remembers that this claim is decided.
    pub(in crate::protocol) fn decide(&mut self, id: BlobHash) {
        remember(&mut self.decided, id);
    }

    /// Remembers that these bytes are no valid contribution.
    pub(in crate::protocol) fn note_broken(&mut self, blob: BlobHash) {
        remember(&mut self.broken, blob);
    }

    /// Whether these bytes are known to be no valid contribution, whichever peer offers them.
    pub(in crate::protocol) fn is_broken(&self, blob: BlobHash) -> bool {
        self.broken.contains(&blob)
    }

    /// Publishes a proven claim from now on. Returns the blobs of a claim that is no longer published.
    pub(in crate::protocol) fn prove(&mut self, now: Millis, module: ModuleId, case: Case) -> Vec<BlobHash> {
        let gone = if self.proven.len() >= MAX_AUDITS { self.proven.pop_front() } else { None };
        self.proven.push_back(Proven { module, case, since: now, said_at: None });
        gone.iter().flat_map(|proven| proven.case.hashes()).collect()
    }

    /// Stops publishing claims that are too old. Returns their blobs.
    pub(in crate::protocol) fn expire(&mut self, now: Millis) -> Vec<BlobHash> {
        let mut released = Vec::new();
        while let Some(gone) = self.proven.pop_front_if(|proven| now.since(proven.since) >= FRAUD_PROOF_MS) {
            released.extend(gone.case.hashes());
        }
        released
    }

    /// The fraud proofs to publish to the members of a module now.
    pub(in crate::protocol) fn take_due(&mut self, now: Millis) -> Vec<(ModuleId, Evidence)> {
        let due = |proven: &&mut Proven| proven.said_at.is_none_or(|at| now.since(at) >= FRAUD_PROOF_REPEAT_MS);
        let tell = |proven: &mut Proven| {
            proven.said_at = Some(now);
            let what = match &proven.case {
                Case::Update(signed, _) => Evidence::Update(signed.clone()),
                Case::Contribution { key: (path, parent, _), blob, .. } => {
                    Evidence::Contribution { path: *path, parent: *parent, blob: *blob }
                }
            };
            (proven.module, what)
        };
        self.proven.iter_mut().filter(due).map(tell).collect()
    }

    /// Whether an update was proven wrong.
    pub(in crate::protocol) fn is_invalidated(&self, update: UpdateHash) -> bool {
        self.invalidated.iter().any(|it| it.update == update)
    }

    /// Invalidates an update. Returns whether that is new.
    pub(in crate::protocol) fn invalidate(
        &mut self,
        since: Millis,
        module: ModuleId,
        (update, owner): (UpdateHash, PeerKey),
    ) -> bool {
        if self.is_invalidated(update) {
            return false;
        }
        if self.invalidated.len() >= MAX_INVALIDATED {
            self.invalidated.pop_front();
        }
        self.invalidated.push_back(Invalidated { module, update, owner, since });
        true
    }

    /// Accepts invalidated updates of a module after all, because no peer can roll back before them. `holds` selects
    /// them by hash and time of invalidation.
    pub(in crate::protocol) fn accept(&mut self, module: ModuleId, holds: impl Fn(UpdateHash, Millis) -> bool) {
        self.invalidated.retain(|it| it.module != module || !holds(it.update, it.since));
    }

    /// The modules that have invalidated updates.
    pub(in crate::protocol) fn invalidated_in(&self) -> BTreeSet<ModuleId> {
        self.invalidated.iter().map(|it| it.module).collect()
    }

    /// The journal records of invalidated updates.
    pub(in crate::protocol) fn records(&self) -> impl Iterator<Item = Record> {
        self.invalidated.iter().map(|it| Record::Invalidated { module: it.module, update: it.update, owner: it.owner })
    }

    /// Blobs that the audits need.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let in_hand = self.in_hand.iter().map(|in_hand| &in_hand.audit.case);
        in_hand.chain(self.proven.iter().map(|proven| &proven.case)).flat_map(Case::hashes)
    }

    /// How many audits wait, how many claims are published, and how many updates are invalidated.
    pub(in crate::protocol) fn counts(&self) -> [usize; 3] {
        [self.waiting.len(), self.proven.len(), self.invalidated.len()]
    }
}

/// Keeps only the newest ones.
fn remember(known: &mut VecDeque<BlobHash>, blob: BlobHash) {
    if known.len() >= 2 * VERSIONS_KEPT as usize {
        known.pop_front();
    }
    known.push_back(blob);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{PathId, Version};

    const MODULE: ModuleId = ModuleId { level: 0, expert: 0 };

    fn audit(id: u8, reporter: Option<u8>) -> Audit {
        let blob = BlobRef::of(&[id]);
        let case = Case::Contribution { author: PeerKey([9; 32]), key: (PathId(0), Version(0), blob.hash), blob };
        Audit { module: MODULE, id: blob.hash, case, reporter: reporter.map(|peer| PeerKey([peer; 32])) }
    }

    #[test]
    fn one_audit_per_reporter_waits_and_few_in_all() {
        let mut audits = Audits::default();
        assert!(audits.open(audit(0, Some(1))) && !audits.open(audit(1, Some(1))) && !audits.open(audit(0, Some(2))));
        let opened = (2..=u8::MAX).filter(|id| audits.open(audit(*id, None))).count();
        assert_eq!(opened, MAX_AUDITS - 1);
    }

    #[test]
    fn one_audit_runs_at_a_time_and_a_decided_one_is_not_opened_again() {
        let mut audits = Audits::default();
        let (first, second) = (audit(0, None), audit(1, None));
        assert!(audits.open(first.clone()) && audits.open(second.clone()));
        assert_eq!(audits.take_next(), Some(&first));
        assert_eq!(audits.take_next(), None);
        assert_eq!(audits.fetched(second.id, true), None, "bytes of another audit");
        assert_eq!(audits.fetched(first.id, true), Some(&first));
        assert_eq!(audits.finished(second.id, Some(true)), None);
        assert_eq!(audits.finished(first.id, Some(false)), Some(first.clone()));
        assert_eq!(audits.close(), [first.id]);
        assert!(!audits.open(first) && audits.audited() == 1);
        assert_eq!(audits.take_next(), Some(&second));
    }

    #[test]
    fn a_fraud_proof_is_repeated_until_it_expires() {
        let mut audits = Audits::default();
        let proven = audit(0, None);
        assert!(audits.prove(Millis(0), MODULE, proven.case).is_empty());
        assert_eq!(audits.take_due(Millis(0)).len(), 1);
        assert_eq!(audits.take_due(Millis(FRAUD_PROOF_REPEAT_MS - 1)).len(), 0);
        assert_eq!(audits.take_due(Millis(FRAUD_PROOF_REPEAT_MS)).len(), 1);
        assert_eq!(audits.expire(Millis(FRAUD_PROOF_MS)), [proven.id]);
        assert_eq!(audits.take_due(Millis(2 * FRAUD_PROOF_MS)).len(), 0);
    }
}
