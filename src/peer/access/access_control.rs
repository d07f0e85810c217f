//! Access control of one peer in a run by invitation: the credentials that it has seen, its access list on the disk, and the
//! time on its clock. [`admission`](crate::access::admission) has the rules.
//!
//! Shared by the driver, which asks for every peer that it hears; by the store, which asks before it serves a blob; and by
//! the commands that invite and revoke.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;

use crate::access::admission::{Admission, Refusal};
use crate::access::authentication::{
    AccessList, AccessNotice, AuthenticationRequest, AuthenticationResponse, RedeemedInvitation,
};
use crate::access::invitation::{
    Credential, Grant, InvitationToken, MEMBER, NO_EXPIRY_S, OneTimeInvitation, Revocation, VISITOR,
};
use crate::access::limits::{CREATOR_RANK, MAX_ADMITTED, MAX_REDEEMED};
use crate::names::{PeerKey, RunId};
use crate::network::{Identity, now_s, verify};
use crate::peer::access::invitation_token::{self, invite};
use crate::peer::manifest::Manifest;
use crate::protocol::wire::encoding;
use crate::store::write_file;

/// How long a visitor may stay that a command of this machine has brought.
const VISIT_S: u64 = 24 * 60 * 60;

/// How often a peer may show another credential on topics.
const CHANGES_S: u64 = 5;

/// Decides which peers may take part.
pub struct AccessControl {
    identity: Identity,
    folder: PathBuf,
    book: Mutex<Book>,
}

struct Book {
    admission: Admission,
    own: Option<Credential>,
    redeemed: Vec<RedeemedInvitation>,
    /// Who has shown another credential in this span of time, which is numbered.
    changed: (u64, BTreeSet<PeerKey>),
}

impl Book {
    /// Whether a peer may show another credential than it has shown: once in [`CHANGES_S`] seconds.
    fn may_change(&mut self, peer: PeerKey, credential: &Credential, now_s: u64) -> bool {
        let window = now_s / CHANGES_S;
        if self.changed.0 != window {
            self.changed = (window, BTreeSet::new());
        }
        self.admission.credential(peer) == Some(credential)
            || (self.changed.1.len() < MAX_ADMITTED && self.changed.1.insert(peer))
    }
}

/// What a notice has told.
#[derive(Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// Nothing new.
    Nothing,
    /// Its author is known by now.
    Admitted,
    /// Somebody was sent away, which others must hear.
    Revoked(PeerKey),
    /// Its author has shown what nobody has given it.
    Forged,
}

/// Why somebody cannot invite, or send away.
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

/// Where a peer keeps the invitation by which it takes part.
pub fn invitation_file(folder: &Path) -> PathBuf {
    folder.join("invitation")
}

/// Where a peer keeps what it knows of who was sent away.
pub fn guests_file(folder: &Path) -> PathBuf {
    folder.join("guests")
}

fn read_access_list(folder: &Path) -> anyhow::Result<AccessList> {
    let path = guests_file(folder);
    match std::fs::read(&path) {
        Ok(bytes) => encoding::decode(&bytes).with_context(|| format!("{} is broken", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(AccessList::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The credential in a folder, whether it still holds or not.
fn read_credential(folder: &Path, run: RunId) -> anyhow::Result<Option<Credential>> {
    let path = invitation_file(folder);
    if !path.exists() {
        return Ok(None);
    }
    match invitation_token::read(&path.to_string_lossy()).with_context(|| format!("cannot read {}", path.display()))? {
        InvitationToken { run: other, grant: Grant::Credential(credential), .. } if other == run => {
            Ok(Some(credential))
        }
        _ => anyhow::bail!("{} holds an invitation to another run", path.display()),
    }
}

/// Keeps a credential in a peer's folder.
pub fn store_credential(folder: &Path, run: RunId, credential: Credential) -> anyhow::Result<()> {
    let token = InvitationToken { run, addresses: Vec::new(), grant: Grant::Credential(credential) };
    write_file(&invitation_file(folder), format!("{}\n", invitation_token::to_text(&token)?).as_bytes())?;
    Ok(())
}

impl AccessControl {
    /// The access_control of the peer in a folder; none if its run is open.
    pub fn of(
        folder: &Path,
        identity: &Identity,
        manifest: &Manifest,
        run: RunId,
    ) -> anyhow::Result<Option<Arc<Self>>> {
        let Some(invites) = manifest.invites(run) else { return Ok(None) };
        Self::open(folder, identity, invites).map(Arc::new).map(Some)
    }

    /// The same, where it is known whose invitations are the first.
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
        Ok(Self { identity: identity.clone(), folder: folder.to_owned(), book })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Each change is whole before anything can fail.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a peer may ask and fetch.
    pub fn admits(&self, peer: PeerKey) -> bool {
        peer == self.identity.key() || self.book().admission.rank(peer, now_s()).is_some()
    }

    /// Whether a peer may take part: whether what it says to modules counts.
    pub fn takes_part(&self, peer: PeerKey) -> bool {
        peer == self.identity.key() || self.book().admission.rank(peer, now_s()).is_some_and(|rank| rank >= MEMBER)
    }

    /// What this peer shows; none if it has nothing to show.
    pub fn own(&self) -> Option<Credential> {
        self.book().own.clone()
    }

    /// Why this peer's own credential does not hold, as far as it knows.
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

    /// Passes known, and peers sent away.
    pub fn counts(&self) -> (usize, usize) {
        let book = self.book();
        (book.admission.known(), book.admission.revocations().count())
    }

    /// Somebody is at the door.
    pub fn answer(&self, from: PeerKey, request: AuthenticationRequest) -> AuthenticationResponse {
        let mut book = self.book();
        let credential = match request {
            AuthenticationRequest::Present(credential) => match book.admission.present(from, credential, now_s()) {
                Ok(_) => None,
                Err(refusal) => return not_invited(&refusal.to_string()),
            },
            AuthenticationRequest::Redeem(one) => match self.redeem(&mut book, from, &one) {
                Ok(credential) => Some(credential),
                Err(reason) => return not_invited(&reason),
            },
        };
        AuthenticationResponse::Accepted { credential, revocations: book.admission.revocations().cloned().collect() }
    }

    /// What everybody hears who asks and is not invited.
    pub fn turn_away(&self) -> AuthenticationResponse {
        not_invited(&Refusal::None.to_string())
    }

    /// A one-time invitation becomes one that is bound to whoever brings it first. That it is used up is on the disk before
    /// anybody hears of it; who comes again gets the same.
    fn redeem(&self, book: &mut Book, from: PeerKey, one: &OneTimeInvitation) -> Result<Credential, String> {
        let (run, now) = (book.admission.run(), now_s());
        if one.by != self.identity.key() {
            return Err(format!(
                "a one-time invitation can be redeemed only by the peer that made it, {}",
                one.by.short()
            ));
        }
        if !verify(one.by, &one.signed_bytes(run), &one.signature) {
            return Err(Refusal::NotSigned(one.by).to_string());
        }
        let used = book.redeemed.iter().find(|used| used.secret == one.secret).copied();
        match used.map(|used| used.by) {
            Some(Some(by)) if by == from => {}
            Some(Some(_)) => return Err("another peer has used this one-time invitation".to_owned()),
            Some(None) => return Err("the invitation was revoked".to_owned()),
            None if one.use_until_s <= now => return Err("the invitation has expired unused".to_owned()),
            None => {}
        }
        // Who was sent away does not come back by what it had before.
        let issued_s = used.map_or(now, |used| used.at_s);
        let own = book.own.clone().ok_or_else(|| Refusal::NoRight(one.by).to_string())?;
        let until_s = issued_s.saturating_add(one.lasts_s);
        let credential = invite((&self.identity, &own), run, from, one.rank, (issued_s, until_s));
        // It may have been made with more than its maker may do now.
        let mut tried = book.admission.clone();
        tried.present(from, credential.clone(), now).map_err(|refusal| refusal.to_string())?;
        if used.is_none() {
            self.note_used(book, one, Some(from)).map_err(|error| error.to_string())?;
        }
        book.admission = tried;
        Ok(credential)
    }

    fn note_used(&self, book: &mut Book, one: &OneTimeInvitation, by: Option<PeerKey>) -> Result<(), AccessError> {
        let now = now_s();
        let mut used: Vec<RedeemedInvitation> =
            book.redeemed.iter().filter(|used| used.use_until_s > now).copied().collect();
        if used.len() >= MAX_REDEEMED {
            return Err(AccessError::Full("too many one-time invitations have been used: try again later"));
        }
        used.push(RedeemedInvitation { secret: one.secret, by, at_s: now, use_until_s: one.use_until_s });
        self.keep(&book.admission, &used)?;
        book.redeemed = used;
        Ok(())
    }

    fn keep(&self, admission: &Admission, used: &[RedeemedInvitation]) -> Result<(), AccessError> {
        let guests = AccessList { redeemed: used.to_vec(), revocations: admission.revocations().cloned().collect() };
        let bytes = encoding::encode(&guests).map_err(|_| AccessError::Full("the access list is full"))?;
        Ok(write_file(&guests_file(&self.folder), &bytes)?)
    }

    /// What somebody has said on a topic.
    pub fn hear(&self, author: PeerKey, notice: AccessNotice) -> AccessChange {
        let mut book = self.book();
        match notice {
            // One peer has no reason to show one after the other, and each takes time to look at.
            AccessNotice::Present { credential, .. } if !book.may_change(author, &credential, now_s()) => {
                AccessChange::Nothing
            }
            AccessNotice::Present { credential, .. } => match book.admission.present(author, credential, now_s()) {
                Ok(true) => AccessChange::Admitted,
                Ok(false) => AccessChange::Nothing,
                Err(reason) => {
                    tracing::debug!(author = %author.short(), %reason, "a credential was refused");
                    if reason.is_forged() { AccessChange::Forged } else { AccessChange::Nothing }
                }
            },
            AccessNotice::Revoked(revocation) => self
                .take(&mut book, [revocation])
                .first()
                .map_or(AccessChange::Nothing, |of| AccessChange::Revoked(*of)),
        }
    }

    /// Whom these send away that were not known to be: they are remembered on the disk.
    pub fn learn(&self, revocations: Vec<Revocation>) -> Vec<PeerKey> {
        self.take(&mut self.book(), revocations)
    }

    fn take(&self, book: &mut Book, revocations: impl IntoIterator<Item = Revocation>) -> Vec<PeerKey> {
        let mut news = Vec::new();
        for revocation in revocations {
            let of = revocation.of;
            match book.admission.revoke(revocation) {
                Ok(true) => news.push(of),
                Ok(false) => {}
                Err(reason) => tracing::debug!(of = %of.short(), %reason, "a revocation was refused"),
            }
        }
        // It counts at once; a disk that is full hears of it with the next one.
        if !news.is_empty()
            && let Err(error) = self.keep(&book.admission, &book.redeemed)
        {
            tracing::warn!(%error, "a revocation could not be stored yet");
        }
        news
    }

    /// The revocation by which a peer was sent away last, to be said to others.
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

    /// An invitation for one peer, for so long.
    pub fn invite(&self, to: PeerKey, rank: u8, lasts_s: u64) -> Result<(RunId, Grant), AccessError> {
        let (run, own) = self.right(rank)?;
        let now = now_s();
        let credential = invite((&self.identity, &own), run, to, rank, (now, now.saturating_add(lasts_s)));
        self.book().admission.check(&credential, now).map_err(|reason| AccessError::NotYours { of: to, reason })?;
        Ok((run, Grant::Credential(credential)))
    }

    /// An invitation for whoever brings this secret first.
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

    /// What a command of this machine shows, which has a key of its own for the occasion.
    pub fn visitor(&self, key: PeerKey) -> Result<AuthenticationRequest, AccessError> {
        match self.invite(key, VISITOR, VISIT_S)? {
            (_, Grant::Credential(credential)) => Ok(AuthenticationRequest::Present(credential)),
            (_, Grant::OneTime(_)) => Err(AccessError::NoRight(VISITOR)),
        }
    }

    /// Sends a peer away, with all whom it has invited.
    pub fn send_away(&self, of: PeerKey) -> Result<Revocation, AccessError> {
        let mut book = self.book();
        let credential = book.own.clone().ok_or(AccessError::NotInvited(Refusal::None))?;
        let of_mine = match book.admission.credential(of) {
            Some(known) => {
                credential.rank() == CREATOR_RANK || known.0.iter().any(|above| above.to == self.identity.key())
            }
            // It may be known to others.
            None => true,
        };
        if !of_mine {
            return Err(AccessError::NotYours { of, reason: Refusal::NoRight(self.identity.key()) });
        }
        let mut revocation = Revocation { credential, of, at_s: now_s(), signature: Vec::new() };
        let signed = revocation.signed_bytes(book.admission.run(), self.identity.key());
        revocation.signature = self.identity.sign(&signed).to_vec();
        let mut tried = book.admission.clone();
        tried.revoke(revocation.clone()).map_err(|reason| AccessError::NotYours { of, reason })?;
        self.keep(&tried, &book.redeemed)?;
        book.admission = tried;
        Ok(revocation)
    }

    /// Takes a one-time invitation back that this peer has made; whoever has used it is sent away.
    pub fn take_back(&self, one: &OneTimeInvitation) -> Result<Option<Revocation>, AccessError> {
        let used = {
            let mut book = self.book();
            if one.by != self.identity.key() {
                return Err(AccessError::NotYours { of: one.by, reason: Refusal::NotSigned(one.by) });
            }
            let used = book.redeemed.iter().find(|used| used.secret == one.secret).copied();
            if used.is_none() {
                self.note_used(&mut book, one, None)?;
            }
            used
        };
        used.and_then(|used| used.by).map(|by| self.send_away(by)).transpose()
    }
}

fn not_invited(reason: &str) -> AuthenticationResponse {
    AuthenticationResponse::NotInvited(format!(
        "{reason}; a peer of the run that may invite can make one (pathswarm invite)"
    ))
}

/// How long from now, in words of the command line: nothing is for ever.
pub fn days(days: Option<u32>) -> u64 {
    days.map_or(NO_EXPIRY_S, |days| u64::from(days) * 24 * 60 * 60)
}
