//! Audits: what is to be found out, what was proven wrong and is told to others, and which updates are invalidated.
//!
//! One audit is in hand at a time, and few wait, of each reporter one. What cannot be had proves nothing.

use std::collections::{BTreeSet, VecDeque};

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey};
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{FRAUD_PROOF_MS, FRAUD_PROOF_REPEAT_MS, MAX_AUDITS, MAX_INVALIDATED, VERSIONS_KEPT};
use crate::protocol::wire::message::{ContributionKey, Evidence, SignedUpdate, UpdateHash};

/// What is to be found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum Case {
    /// Whether an update is what its contributions make; of the state before it, where that says how they are clipped.
    Update(SignedUpdate, Option<BlobRef>),
    /// Whether what this peer offered is a contribution.
    Contribution { author: PeerKey, key: ContributionKey, blob: BlobRef },
}

impl Case {
    /// The bytes that it takes.
    pub(in crate::protocol) fn blobs(&self) -> Vec<BlobRef> {
        match self {
            Self::Update(signed, from) => {
                let contributions = signed.update.contributions.iter().map(|counted| counted.blob);
                contributions.chain([signed.update.average]).chain(*from).collect()
            }
            Self::Contribution { blob, .. } => vec![*blob],
        }
    }

    /// Who has signed or offered it.
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

/// One audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Audit {
    pub(in crate::protocol) module: ModuleId,
    /// The update's hash, or the contribution's.
    pub(in crate::protocol) id: BlobHash,
    pub(in crate::protocol) case: Case,
    /// Who said that it is wrong, if that is why there is an audit.
    pub(in crate::protocol) reporter: Option<PeerKey>,
}

/// The audit that is in hand.
#[derive(Debug)]
struct InHand {
    audit: Audit,
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
struct Invalidated {
    module: ModuleId,
    update: UpdateHash,
    owner: PeerKey,
    since: Millis,
}

/// A node's audits.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Audits {
    /// Decides which updates are audited. Nobody else knows it.
    secret: [u8; 32],
    in_hand: Option<InHand>,
    waiting: VecDeque<Audit>,
    /// What was found out of late.
    decided: VecDeque<BlobHash>,
    /// Offered, and found to be no contribution; the last of them.
    broken: VecDeque<BlobHash>,
    proven: VecDeque<Proven>,
    /// Updates that are not what they say, and who signed them; for good.
    invalidated: VecDeque<Invalidated>,
    audited: u64,
}

impl Audits {
    pub(in crate::protocol) fn set_secret(&mut self, secret: [u8; 32]) {
        self.secret = secret;
    }

    /// From 0 to 1, by chance of this node's own.
    pub(in crate::protocol) fn draw(&self, me: PeerKey, id: BlobHash) -> f64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&me.0);
        hasher.update(&id.0);
        let mut drawn = [0; 8];
        drawn.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(drawn) as f64 / 2.0f64.powi(64)
    }

    /// Whether there is still something to find out.
    pub(in crate::protocol) fn is_busy(&self) -> bool {
        self.in_hand.is_some() || !self.waiting.is_empty()
    }

    /// How many there were, all in all.
    pub(in crate::protocol) fn audited(&self) -> u64 {
        self.audited
    }

    /// Whether it is to be found out, or was of late.
    pub(in crate::protocol) fn knows(&self, id: BlobHash) -> bool {
        let open = self.in_hand.iter().map(|in_hand| &in_hand.audit).chain(&self.waiting);
        open.into_iter().any(|audit| audit.id == id) || self.decided.contains(&id)
    }

    /// One more audit waits, unless it is known, the same peer asks for two, or too many wait. Whether it does.
    pub(in crate::protocol) fn open(&mut self, audit: Audit) -> bool {
        let mut open = self.in_hand.iter().map(|in_hand| &in_hand.audit).chain(&self.waiting);
        let twice = audit.reporter.is_some() && open.any(|other| other.reporter == audit.reporter);
        let opens = !twice && !self.knows(audit.id) && self.waiting.len() < MAX_AUDITS;
        if opens {
            self.waiting.push_back(audit);
        }
        opens
    }

    /// Takes the next one in hand, unless one is.
    pub(in crate::protocol) fn take_next(&mut self) -> Option<&Audit> {
        if self.in_hand.is_some() {
            return None;
        }
        let audit = self.waiting.pop_front()?;
        let missing = audit.case.hashes().collect();
        Some(&self.in_hand.insert(InHand { audit, missing, counting: false }).audit)
    }

    /// Bytes are here, or cannot be had. Returns the audit in hand if that decides how it goes on: everything is here, or
    /// nothing comes of it.
    pub(in crate::protocol) fn fetched(&mut self, blob: BlobHash, found: bool) -> Option<&Audit> {
        let InHand { audit, missing, counting } = self.in_hand.as_mut()?;
        if !missing.remove(&blob) || (found && (!missing.is_empty() || *counting)) {
            return None;
        }
        *counting = found;
        Some(audit)
    }

    /// A worker has found whether something is so, if it could. Returns the audit.
    pub(in crate::protocol) fn finished(&mut self, id: BlobHash, so: Option<bool>) -> Option<Audit> {
        let audit = self.in_hand.as_ref().map(|in_hand| &in_hand.audit).filter(|audit| audit.id == id)?.clone();
        self.audited += 1;
        if so.is_some() {
            self.decide(id);
        }
        Some(audit)
    }

    /// The audit in hand is over. Returns its blobs.
    pub(in crate::protocol) fn close(&mut self) -> Vec<BlobHash> {
        self.in_hand.take().map_or_else(Vec::new, |in_hand| in_hand.audit.case.hashes().collect())
    }

    /// It is known what this is.
    pub(in crate::protocol) fn decide(&mut self, id: BlobHash) {
        remember(&mut self.decided, id);
    }

    /// These bytes are no contribution.
    pub(in crate::protocol) fn note_broken(&mut self, blob: BlobHash) {
        remember(&mut self.broken, blob);
    }

    /// Whether these bytes are known to be no contribution, whoever offers them.
    pub(in crate::protocol) fn is_broken(&self, blob: BlobHash) -> bool {
        self.broken.contains(&blob)
    }

    /// Something was proven wrong, and others are to be told. Returns the blobs of what is not told of any more.
    pub(in crate::protocol) fn prove(&mut self, now: Millis, module: ModuleId, case: Case) -> Vec<BlobHash> {
        let gone = if self.proven.len() >= MAX_AUDITS { self.proven.pop_front() } else { None };
        self.proven.push_back(Proven { module, case, since: now, said_at: None });
        gone.iter().flat_map(|proven| proven.case.hashes()).collect()
    }

    /// Of what was proven, what is too old to be told of any more. Returns its blobs.
    pub(in crate::protocol) fn expire(&mut self, now: Millis) -> Vec<BlobHash> {
        let mut released = Vec::new();
        while let Some(gone) = self.proven.pop_front_if(|proven| now.since(proven.since) >= FRAUD_PROOF_MS) {
            released.extend(gone.case.hashes());
        }
        released
    }

    /// What is to be told to the members of a module now, for the first time or again.
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

    /// Remembers that it was. Whether that is new.
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

    /// These are accepted all the same, since nobody can do without them: of a module, those for which this holds, given
    /// since when they were invalidated.
    pub(in crate::protocol) fn accept(&mut self, module: ModuleId, holds: impl Fn(UpdateHash, Millis) -> bool) {
        self.invalidated.retain(|it| it.module != module || !holds(it.update, it.since));
    }

    /// Of which modules there are any.
    pub(in crate::protocol) fn invalidated_in(&self) -> BTreeSet<ModuleId> {
        self.invalidated.iter().map(|it| it.module).collect()
    }

    /// What the journal says of it.
    pub(in crate::protocol) fn records(&self) -> impl Iterator<Item = Record> {
        self.invalidated.iter().map(|it| Record::Invalidated { module: it.module, update: it.update, owner: it.owner })
    }

    /// Blobs that are needed for it.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let in_hand = self.in_hand.iter().map(|in_hand| &in_hand.audit.case);
        in_hand.chain(self.proven.iter().map(|proven| &proven.case)).flat_map(Case::hashes)
    }

    /// How many wait, how many are told of, and how many are invalidated.
    pub(in crate::protocol) fn counts(&self) -> [usize; 3] {
        [self.waiting.len(), self.proven.len(), self.invalidated.len()]
    }
}

/// The last so many.
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
    fn of_each_accuser_one_audit_waits_and_few_in_all() {
        let mut audits = Audits::default();
        assert!(audits.open(audit(0, Some(1))) && !audits.open(audit(1, Some(1))) && !audits.open(audit(0, Some(2))));
        let opened = (2..=u8::MAX).filter(|id| audits.open(audit(*id, None))).count();
        assert_eq!(opened, MAX_AUDITS - 1);
    }

    #[test]
    fn one_is_in_hand_until_it_is_closed_and_what_was_decided_is_not_opened_again() {
        let mut audits = Audits::default();
        let (first, second) = (audit(0, None), audit(1, None));
        assert!(audits.open(first.clone()) && audits.open(second.clone()));
        assert_eq!(audits.take_next(), Some(&first));
        assert_eq!(audits.take_next(), None);
        assert_eq!(audits.fetched(second.id, true), None, "another's bytes");
        assert_eq!(audits.fetched(first.id, true), Some(&first));
        assert_eq!(audits.finished(second.id, Some(true)), None);
        assert_eq!(audits.finished(first.id, Some(false)), Some(first.clone()));
        assert_eq!(audits.close(), [first.id]);
        assert!(!audits.open(first) && audits.audited() == 1);
        assert_eq!(audits.take_next(), Some(&second));
    }

    #[test]
    fn what_was_proven_is_told_of_again_and_after_a_while_no_more() {
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
