//! Access control of one peer in a run by invitation: the known credentials, the access list on the disk, and the
//! clock. [`admission`](crate::access::admission) has the rules.
//!
//! Shared by the driver, which asks about every peer; by the store, before it serves a blob; and by the commands that
//! invite and revoke.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::access::admission::{Admission, Refusal};
use crate::access::authentication::{
    AccessList, AccessNotice, AuthenticationRequest, AuthenticationResponse, RedeemedInvitation,
};
use crate::access::invitation::{Credential, Grant, MEMBER, NO_EXPIRY_S, OneTimeInvitation, Revocation, VISITOR};
use crate::access::limits::{CREATOR_RANK, MAX_ADMITTED, MAX_REDEEMED};
use crate::names::{PeerKey, RunId};
use crate::network::{Identity, Standing, Verdict, now_s, verify};
use crate::peer::access::access_files::{guests_file, read_access_list, read_credential};
use crate::peer::access::invitation_token::{self, invite};
use crate::peer::manifest::Manifest;
use crate::protocol::wire::encoding;
use crate::protocol::wire::encoding::WireError;
use crate::store::write_file;

/// Life of a visitor's credential, for a command of this machine.
const VISIT_S: u64 = 24 * 60 * 60;

/// Interval at which a peer may present another credential on topics.
const CHANGES_S: u64 = 5;

/// Decides which peers may take part.
pub struct AccessControl {
    identity: Identity,
    folder: PathBuf,
    book: Mutex<Book>,
    /// Held while the list on the disk changes. The book is not: the network's task asks it about every message.
    writing: Mutex<()>,
}

struct Book {
    admission: Admission,
    own: Option<Credential>,
    redeemed: Vec<RedeemedInvitation>,
    /// Number of the present interval, and the peers that presented another credential in it.
    changed: (u64, BTreeSet<PeerKey>),
}

impl Book {
    /// Whether a peer may present another credential: once in [`CHANGES_S`] seconds.
    fn may_change(&mut self, peer: PeerKey, credential: &Credential, now_s: u64) -> bool {
        let window = now_s / CHANGES_S;
        if self.changed.0 != window {
            self.changed = (window, BTreeSet::new());
        }
        self.admission.credential(peer) == Some(credential)
            || (self.changed.1.len() < MAX_ADMITTED && self.changed.1.insert(peer))
    }
}

/// The effect of a notice.
#[derive(Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// Nothing new.
    Nothing,
    /// The author is admitted.
    Admitted,
    /// Access of this peer was revoked, which others must learn.
    Revoked(PeerKey),
    /// The author presented a forged credential.
    Forged,
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("this run is open: any peer that knows an address can join, without an invitation")]
    Open,
    #[error("this peer is not invited itself: {0}")]
    NotInvited(Refusal),
    #[error("this peer may not invite others{}", if *.0 > MEMBER { " that may invite in turn" } else { "" })]
    NoRight(u8),
    #[error("{} was invited neither by this peer nor by a peer that it has invited: {reason}", of.short())]
    NotYours { of: PeerKey, reason: Refusal },
    #[error("{0}")]
    Full(&'static str),
    #[error(transparent)]
    Disk(#[from] crate::store::DiskError),
}

impl AccessControl {
    /// The access control of the peer in a folder; `None` if its run is open.
    pub fn of(
        folder: &Path,
        identity: &Identity,
        manifest: &Manifest,
        run: RunId,
    ) -> anyhow::Result<Option<Arc<Self>>> {
        let Some(invites) = manifest.invites(run) else { return Ok(None) };
        Self::open(folder, identity, invites).map(Arc::new).map(Some)
    }

    /// The same, with the creator known.
    pub(in crate::peer) fn open(
        folder: &Path,
        identity: &Identity,
        (run, creator): (RunId, PeerKey),
    ) -> anyhow::Result<Self> {
        let AccessList { redeemed, revocations } = read_access_list(folder)?;
        let mut admission = Admission::new(run, creator, verify);
        for revocation in revocations {
            if let Err(error) = admission.revoke(revocation) {
                tracing::warn!(%error, "a stored revocation is not valid");
            }
        }
        let own = if creator == identity.key() { Some(Credential::default()) } else { read_credential(folder, run)? };
        let book = Mutex::new(Book { admission, own, redeemed, changed: (0, BTreeSet::new()) });
        Ok(Self { identity: identity.clone(), folder: folder.to_owned(), book, writing: Mutex::default() })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Each change is complete before anything can fail.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a peer may send requests and fetch blobs.
    pub fn admits(&self, peer: PeerKey) -> bool {
        peer == self.identity.key() || self.book().admission.rank(peer, now_s()).is_some()
    }

    /// Whether a peer may take part: whether its messages to modules count.
    pub fn takes_part(&self, peer: PeerKey) -> bool {
        peer == self.identity.key() || self.book().admission.rank(peer, now_s()).is_some_and(|rank| rank >= MEMBER)
    }

    /// How this peer regards another.
    pub fn standing(&self, peer: PeerKey) -> Standing {
        if peer == self.identity.key() {
            return Standing::Member;
        }
        match self.book().admission.rank(peer, now_s()) {
            None => Standing::NotAdmitted,
            Some(rank) if rank >= MEMBER => Standing::Member,
            Some(_) => Standing::Visitor,
        }
    }

    /// Whether a message on a topic may be handled and forwarded. Of a peer that is not known to be invited, only its
    /// credential is.
    pub fn verdict(&self, author: PeerKey, bytes: &[u8]) -> Verdict {
        if self.takes_part(author) {
            return Verdict::Accept;
        }
        if !encoding::is_a::<AccessNotice>(bytes) {
            return Verdict::Ignore;
        }
        match encoding::decode::<AccessNotice>(bytes) {
            Ok(notice @ AccessNotice::Present { .. }) => match self.hear(author, notice) {
                AccessChange::Forged => Verdict::Reject,
                _ if self.takes_part(author) => Verdict::Accept,
                _ => Verdict::Ignore,
            },
            Ok(AccessNotice::Revoked(_)) => Verdict::Ignore,
            Err(WireError::Version { .. }) => Verdict::Ignore,
            Err(_) => Verdict::Reject,
        }
    }

    /// This peer's own credential, if any.
    pub fn own(&self) -> Option<Credential> {
        self.book().own.clone()
    }

    /// Why this peer's own credential is not valid, as far as it knows.
    pub fn own_trouble(&self) -> Option<Refusal> {
        let book = self.book();
        match &book.own {
            None => Some(Refusal::None),
            Some(credential) if credential.holder(book.admission.creator()) != self.identity.key() => {
                Some(Refusal::NotYours(credential.holder(book.admission.creator())))
            }
            Some(credential) => book.admission.check(credential, now_s()).err(),
        }
    }

    /// Known credentials, and revoked peers.
    pub fn counts(&self) -> (usize, usize) {
        let book = self.book();
        (book.admission.known(), book.admission.revocations().count())
    }

    /// Answers an authentication request.
    pub fn answer(&self, from: PeerKey, request: AuthenticationRequest) -> AuthenticationResponse {
        let credential = match request {
            AuthenticationRequest::Present(credential) => {
                let presented = self.book().admission.present(from, credential, now_s());
                match presented {
                    Ok(_) => None,
                    Err(refusal) => return not_invited(&refusal.to_string()),
                }
            }
            AuthenticationRequest::Redeem(one) => match self.redeem(from, &one) {
                Ok(credential) => Some(credential),
                Err(reason) => return not_invited(&reason),
            },
        };
        let revocations = self.book().admission.revocations().cloned().collect();
        AuthenticationResponse::Accepted { credential, revocations }
    }

    /// The answer to a peer without an invitation.
    pub fn turn_away(&self) -> AuthenticationResponse {
        not_invited(&Refusal::None.to_string())
    }

    /// Turns a one-time invitation into a credential of the first peer that presents it. The redemption is on the disk
    /// before the answer; the same peer gets the same credential again.
    fn redeem(&self, from: PeerKey, one: &OneTimeInvitation) -> Result<Credential, String> {
        let _turn = self.writing();
        let (mut admission, own, used) = {
            let book = self.book();
            let used = book.redeemed.iter().find(|used| used.secret == one.secret).copied();
            (book.admission.clone(), book.own.clone(), used)
        };
        let (run, now) = (admission.run(), now_s());
        if one.by != self.identity.key() {
            return Err(format!(
                "a one-time invitation can be redeemed only by the peer that made it, {}",
                one.by.short()
            ));
        }
        if !verify(one.by, &one.signed_bytes(run), &one.signature) {
            return Err(Refusal::NotSigned(one.by).to_string());
        }
        match used.map(|used| used.by) {
            Some(Some(by)) if by == from => {}
            Some(Some(_)) => return Err("another peer has used this one-time invitation".to_owned()),
            Some(None) => return Err("the invitation was revoked".to_owned()),
            None if one.use_until_s <= now => return Err("the invitation has expired unused".to_owned()),
            None => {}
        }
        // A revoked peer must not return by its earlier redemption.
        let issued_s = used.map_or(now, |used| used.at_s);
        let own = own.ok_or_else(|| Refusal::NoRight(one.by).to_string())?;
        let until_s = issued_s.saturating_add(one.lasts_s);
        let credential = invite((&self.identity, &own), run, from, one.rank, (issued_s, until_s));
        // Its maker may have lost rights since it was made.
        admission.present(from, credential.clone(), now).map_err(|refusal| refusal.to_string())?;
        if used.is_none() {
            self.note_used(one, Some(from)).map_err(|error| error.to_string())?;
        }
        let presented = self.book().admission.present(from, credential.clone(), now);
        presented.map(|_| credential).map_err(|refusal| refusal.to_string())
    }

    /// The caller has its turn to write.
    fn note_used(&self, one: &OneTimeInvitation, by: Option<PeerKey>) -> Result<(), AccessError> {
        let now = now_s();
        let (mut used, revocations) = self.list();
        used.retain(|used| used.use_until_s > now);
        if used.len() >= MAX_REDEEMED {
            return Err(AccessError::Full("too many one-time invitations have been used: try again later"));
        }
        used.push(RedeemedInvitation { secret: one.secret, by, at_s: now, use_until_s: one.use_until_s });
        self.keep(AccessList { redeemed: used.clone(), revocations })?;
        self.book().redeemed = used;
        Ok(())
    }

    /// What is stored, as it is now.
    fn list(&self) -> (Vec<RedeemedInvitation>, Vec<Revocation>) {
        let book = self.book();
        (book.redeemed.clone(), book.admission.revocations().cloned().collect())
    }

    fn keep(&self, list: AccessList) -> Result<(), AccessError> {
        let bytes = encoding::encode(&list).map_err(|_| AccessError::Full("the access list is full"))?;
        Ok(write_file(&guests_file(&self.folder), &bytes)?)
    }

    /// Handles a notice on a topic.
    pub fn hear(&self, author: PeerKey, notice: AccessNotice) -> AccessChange {
        let credential = match notice {
            AccessNotice::Present { credential, .. } => credential,
            AccessNotice::Revoked(revocation) => {
                let news = self.learn(vec![revocation]);
                return news.first().map_or(AccessChange::Nothing, |of| AccessChange::Revoked(*of));
            }
        };
        let mut book = self.book();
        // A peer has no reason to present many credentials, and each takes time to verify.
        if !book.may_change(author, &credential, now_s()) {
            return AccessChange::Nothing;
        }
        match book.admission.present(author, credential, now_s()) {
            Ok(true) => AccessChange::Admitted,
            Ok(false) => AccessChange::Nothing,
            Err(reason) => {
                tracing::debug!(author = %author.short(), %reason, "a credential was refused");
                if reason.is_forged() { AccessChange::Forged } else { AccessChange::Nothing }
            }
        }
    }

    /// Learns revocations, and stores them. Returns the newly revoked peers.
    pub fn learn(&self, revocations: Vec<Revocation>) -> Vec<PeerKey> {
        let _turn = self.writing();
        let mut news = Vec::new();
        for revocation in revocations {
            let of = revocation.of;
            let revoked = self.book().admission.revoke(revocation);
            match revoked {
                Ok(true) => news.push(of),
                Ok(false) => {}
                Err(reason) => tracing::debug!(of = %of.short(), %reason, "a revocation was refused"),
            }
        }
        if !news.is_empty() {
            let (redeemed, revocations) = self.list();
            // It counts at once. If the disk is full, it is stored with the next one.
            if let Err(error) = self.keep(AccessList { redeemed, revocations }) {
                tracing::warn!(%error, "a revocation could not be stored yet");
            }
        }
        news
    }

    /// The latest revocation of a peer, to tell others.
    pub fn revocation_of(&self, of: PeerKey) -> Option<Revocation> {
        self.book().admission.revocations().filter(|known| known.of == of).max_by_key(|known| known.at_s).cloned()
    }

    fn right(&self, rank: u8) -> Result<(RunId, Credential), AccessError> {
        if let Some(trouble) = self.own_trouble() {
            return Err(AccessError::NotInvited(trouble));
        }
        let book = self.book();
        let own = book.own.clone().unwrap_or_default();
        if rank >= own.rank() { Err(AccessError::NoRight(rank)) } else { Ok((book.admission.run(), own)) }
    }

    /// An invitation for one peer, with its validity in seconds.
    pub fn invite(&self, to: PeerKey, rank: u8, lasts_s: u64) -> Result<(RunId, Grant), AccessError> {
        let (run, own) = self.right(rank)?;
        let now = now_s();
        let credential = invite((&self.identity, &own), run, to, rank, (now, now.saturating_add(lasts_s)));
        self.book().admission.check(&credential, now).map_err(|reason| AccessError::NotYours { of: to, reason })?;
        Ok((run, Grant::Credential(credential)))
    }

    /// An invitation for the first peer that presents this secret.
    pub fn invite_once(
        &self,
        secret: [u8; 16],
        rank: u8,
        (use_s, lasts_s): (u64, u64),
    ) -> Result<(RunId, Grant), AccessError> {
        let (run, _) = self.right(rank)?;
        let use_until_s = now_s().saturating_add(use_s);
        Ok((
            run,
            Grant::OneTime(invitation_token::invite_once(&self.identity, run, secret, rank, (use_until_s, lasts_s))),
        ))
    }

    /// The authentication request of a command of this machine, which has a temporary key.
    pub fn visitor(&self, key: PeerKey) -> Result<AuthenticationRequest, AccessError> {
        match self.invite(key, VISITOR, VISIT_S)? {
            (_, Grant::Credential(credential)) => Ok(AuthenticationRequest::Present(credential)),
            (_, Grant::OneTime(_)) => Err(AccessError::NoRight(VISITOR)),
        }
    }

    /// Revokes the access of a peer and of all peers that it has invited.
    pub fn send_away(&self, of: PeerKey) -> Result<Revocation, AccessError> {
        let _turn = self.writing();
        self.revoke(of)
    }

    /// The caller has its turn to write.
    fn revoke(&self, of: PeerKey) -> Result<Revocation, AccessError> {
        let (mut admission, own, redeemed) = {
            let book = self.book();
            (book.admission.clone(), book.own.clone(), book.redeemed.clone())
        };
        let credential = own.ok_or(AccessError::NotInvited(Refusal::None))?;
        let of_mine = match admission.credential(of) {
            Some(known) => {
                credential.rank() == CREATOR_RANK || known.0.iter().any(|above| above.to == self.identity.key())
            }
            // Other peers may know it.
            None => true,
        };
        let refused = |reason| AccessError::NotYours { of, reason };
        if !of_mine {
            return Err(refused(Refusal::NoRight(self.identity.key())));
        }
        let mut revocation = Revocation { credential, of, at_s: now_s(), signature: Vec::new() };
        let signed = revocation.signed_bytes(admission.run(), self.identity.key());
        revocation.signature = self.identity.sign(&signed).to_vec();
        admission.revoke(revocation.clone()).map_err(refused)?;
        self.keep(AccessList { redeemed, revocations: admission.revocations().cloned().collect() })?;
        let revoked = self.book().admission.revoke(revocation.clone());
        revoked.map(|_| revocation).map_err(refused)
    }

    /// Revokes a one-time invitation that this peer has made, and the access of the peer that has used it.
    pub fn take_back(&self, one: &OneTimeInvitation) -> Result<Option<Revocation>, AccessError> {
        if one.by != self.identity.key() {
            return Err(AccessError::NotYours { of: one.by, reason: Refusal::NotSigned(one.by) });
        }
        let _turn = self.writing();
        let used = self.book().redeemed.iter().find(|used| used.secret == one.secret).copied();
        if used.is_none() {
            self.note_used(one, None)?;
        }
        used.and_then(|used| used.by).map(|by| self.revoke(by)).transpose()
    }
}

fn not_invited(reason: &str) -> AuthenticationResponse {
    AuthenticationResponse::NotInvited(format!(
        "{reason}; a peer of the run that may invite can make one (pathswarm invite)"
    ))
}

/// Seconds from the days of a command line; without days, no expiry.
pub fn days(days: Option<u32>) -> u64 {
    days.map_or(NO_EXPIRY_S, |days| u64::from(days) * 24 * 60 * 60)
}
