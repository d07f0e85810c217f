//! Who may take part in a run by invitation, as one peer knows it: what [`admission`](crate::protocol::admission) says of
//! what it has heard, what it has on its disk, and the time on its clock.
//!
//! Shared by the driver, which asks of everybody whom it hears; by the store, which asks before a blob is served; and by
//! whoever invites and sends away.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;

use crate::names::{PeerKey, RunId};
use crate::network::{Identity, now_s, verify};
use crate::peer::access::invitation_token;
use crate::peer::access::invitation_token::invite;
use crate::peer::manifest::Manifest;
use crate::protocol::admission::{Admission, Refusal};
use crate::protocol::invitations::{
    Doorway, FOR_EVER_S, Grant, Guestbook, Knock, Letter, MEMBER, Notice, OneTime, Pass, Revocation, Used, VISITOR,
};
use crate::protocol::limits::{FOUNDER_RANK, MAX_ADMITTED, MAX_USED};
use crate::protocol::wire::encoding;
use crate::store::write_file;

/// How long a visitor may stay that a command of this machine has brought.
const VISIT_S: u64 = 24 * 60 * 60;

/// How often a peer may show another pass on topics.
const CHANGES_S: u64 = 5;

/// Watches a peer's door.
pub struct Doorkeeper {
    identity: Identity,
    folder: PathBuf,
    book: Mutex<Book>,
}

struct Book {
    admission: Admission,
    own: Option<Pass>,
    used: Vec<Used>,
    /// Who has shown another pass in this span of time, which is numbered.
    changed: (u64, BTreeSet<PeerKey>),
}

impl Book {
    /// Whether a peer may show another pass than it has shown: once in [`CHANGES_S`] seconds.
    fn may_change(&mut self, peer: PeerKey, pass: &Pass, now_s: u64) -> bool {
        let window = now_s / CHANGES_S;
        if self.changed.0 != window {
            self.changed = (window, BTreeSet::new());
        }
        self.admission.pass(peer) == Some(pass) || (self.changed.1.len() < MAX_ADMITTED && self.changed.1.insert(peer))
    }
}

/// What a notice has told.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing new.
    Nothing,
    /// Its author is known by now.
    Came,
    /// Somebody was sent away, which others must hear.
    Left(PeerKey),
    /// Its author has shown what nobody has given it.
    Forged,
}

/// Why somebody cannot invite, or send away.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The run lets everybody in.
    #[error("this run is open: whoever knows an address takes part, without an invitation")]
    Open,
    /// This peer has no pass of its own.
    #[error("this peer is not invited itself: {0}")]
    NotInvited(Refusal),
    /// Its rank is too low.
    #[error("this peer may not invite others{}", if *.0 > MEMBER { " who may invite so far themselves" } else { "" })]
    NoRight(u8),
    /// Not below it.
    #[error("{} was not invited by this peer, nor in its name: {reason}", of.short())]
    NotYours {
        /// Whom it is about.
        of: PeerKey,
        /// What is said to it.
        reason: Refusal,
    },
    /// Too many are remembered.
    #[error("{0}")]
    Full(&'static str),
    /// The disk.
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

fn read_guests(folder: &Path) -> anyhow::Result<Guestbook> {
    let path = guests_file(folder);
    match std::fs::read(&path) {
        Ok(bytes) => encoding::decode(&bytes).with_context(|| format!("{} is broken", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Guestbook::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The pass in a folder, whether it still holds or not.
fn read_pass(folder: &Path, run: RunId) -> anyhow::Result<Option<Pass>> {
    let path = invitation_file(folder);
    if !path.exists() {
        return Ok(None);
    }
    match invitation_token::read(&path.to_string_lossy()).with_context(|| format!("cannot read {}", path.display()))? {
        Letter { run: other, grant: Grant::Pass(pass), .. } if other == run => Ok(Some(pass)),
        _ => anyhow::bail!("{} holds an invitation to another run", path.display()),
    }
}

/// Keeps a pass in a peer's folder.
///
/// # Errors
/// If the disk fails.
pub fn keep_pass(folder: &Path, run: RunId, pass: Pass) -> anyhow::Result<()> {
    let letter = Letter { run, addresses: Vec::new(), grant: Grant::Pass(pass) };
    write_file(&invitation_file(folder), format!("{}\n", invitation_token::to_text(&letter)?).as_bytes())?;
    Ok(())
}

impl Doorkeeper {
    /// The doorkeeper of the peer in a folder; none if its run is open.
    ///
    /// # Errors
    /// If what the folder has cannot be read.
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
    ///
    /// # Errors
    /// If what the folder has cannot be read.
    pub(in crate::peer) fn open(
        folder: &Path,
        identity: &Identity,
        (run, founder): (RunId, PeerKey),
    ) -> anyhow::Result<Self> {
        let Guestbook { used, revocations } = read_guests(folder)?;
        let mut admission = Admission::new(run, founder, verify);
        for revocation in revocations {
            if let Err(error) = admission.revoke(revocation) {
                tracing::warn!(%error, "a revocation on the disk is none");
            }
        }
        let own = if founder == identity.key() { Some(Pass::default()) } else { read_pass(folder, run)? };
        let book = Mutex::new(Book { admission, own, used, changed: (0, BTreeSet::new()) });
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
    pub fn own(&self) -> Option<Pass> {
        self.book().own.clone()
    }

    /// Why this peer's own pass does not hold, as far as it knows.
    pub fn own_trouble(&self) -> Option<Refusal> {
        let book = self.book();
        match &book.own {
            None => Some(Refusal::None),
            Some(pass) if pass.holder(book.admission.founder()) != self.identity.key() => {
                Some(Refusal::NotYours(pass.holder(book.admission.founder())))
            }
            Some(pass) => book.admission.check(pass, now_s()).err(),
        }
    }

    /// Passes known, and peers sent away.
    pub fn counts(&self) -> (usize, usize) {
        let book = self.book();
        (book.admission.known(), book.admission.revocations().count())
    }

    /// Somebody is at the door.
    pub fn answer(&self, from: PeerKey, knock: Knock) -> Doorway {
        let mut book = self.book();
        let pass = match knock {
            Knock::Present(pass) => match book.admission.present(from, pass, now_s()) {
                Ok(_) => None,
                Err(refusal) => return not_invited(&refusal.to_string()),
            },
            Knock::Redeem(one) => match self.redeem(&mut book, from, &one) {
                Ok(pass) => Some(pass),
                Err(reason) => return not_invited(&reason),
            },
        };
        Doorway::Welcome { pass, revocations: book.admission.revocations().cloned().collect() }
    }

    /// What everybody hears who asks and is not invited.
    pub fn turn_away(&self) -> Doorway {
        not_invited(&Refusal::None.to_string())
    }

    /// A one-time invitation becomes one that is bound to whoever brings it first. That it is used up is on the disk before
    /// anybody hears of it; who comes again gets the same.
    fn redeem(&self, book: &mut Book, from: PeerKey, one: &OneTime) -> Result<Pass, String> {
        let (run, now) = (book.admission.run(), now_s());
        if one.by != self.identity.key() {
            return Err(format!("a one-time invitation is redeemed by whoever made it, which is {}", one.by.short()));
        }
        if !verify(one.by, &one.signed_bytes(run), &one.signature) {
            return Err(Refusal::NotSigned(one.by).to_string());
        }
        let used = book.used.iter().find(|used| used.secret == one.secret).copied();
        match used.map(|used| used.by) {
            Some(Some(by)) if by == from => {}
            Some(Some(_)) => return Err("another peer has used this one-time invitation".to_owned()),
            Some(None) => return Err("the invitation was taken back".to_owned()),
            None if one.use_until_s <= now => return Err("the invitation was not used in time".to_owned()),
            None => {}
        }
        // Who was sent away does not come back by what it had before.
        let issued_s = used.map_or(now, |used| used.at_s);
        let own = book.own.clone().ok_or_else(|| Refusal::NoRight(one.by).to_string())?;
        let until_s = issued_s.saturating_add(one.lasts_s);
        let pass = invite((&self.identity, &own), run, from, one.rank, (issued_s, until_s));
        // It may have been made with more than its maker may do now.
        let mut tried = book.admission.clone();
        tried.present(from, pass.clone(), now).map_err(|refusal| refusal.to_string())?;
        if used.is_none() {
            self.note_used(book, one, Some(from)).map_err(|error| error.to_string())?;
        }
        book.admission = tried;
        Ok(pass)
    }

    fn note_used(&self, book: &mut Book, one: &OneTime, by: Option<PeerKey>) -> Result<(), DoorError> {
        let now = now_s();
        let mut used: Vec<Used> = book.used.iter().filter(|used| used.use_until_s > now).copied().collect();
        if used.len() >= MAX_USED {
            return Err(DoorError::Full("too many one-time invitations are used up already: try again later"));
        }
        used.push(Used { secret: one.secret, by, at_s: now, use_until_s: one.use_until_s });
        self.keep(&book.admission, &used)?;
        book.used = used;
        Ok(())
    }

    fn keep(&self, admission: &Admission, used: &[Used]) -> Result<(), DoorError> {
        let guests = Guestbook { used: used.to_vec(), revocations: admission.revocations().cloned().collect() };
        let bytes = encoding::encode(&guests).map_err(|_| DoorError::Full("the guest book is full"))?;
        Ok(write_file(&guests_file(&self.folder), &bytes)?)
    }

    /// What somebody has said on a topic.
    pub fn hear(&self, author: PeerKey, notice: Notice) -> Told {
        let mut book = self.book();
        match notice {
            // One peer has no reason to show one after the other, and each takes time to look at.
            Notice::Present { pass, .. } if !book.may_change(author, &pass, now_s()) => Told::Nothing,
            Notice::Present { pass, .. } => match book.admission.present(author, pass, now_s()) {
                Ok(true) => Told::Came,
                Ok(false) => Told::Nothing,
                Err(reason) => {
                    tracing::debug!(author = %author.short(), %reason, "a pass that does not hold");
                    if reason.is_forged() { Told::Forged } else { Told::Nothing }
                }
            },
            Notice::Revoked(revocation) => {
                self.take(&mut book, [revocation]).first().map_or(Told::Nothing, |of| Told::Left(*of))
            }
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
                Err(reason) => tracing::debug!(of = %of.short(), %reason, "a revocation that does not count"),
            }
        }
        // It counts at once; a disk that is full hears of it with the next one.
        if !news.is_empty()
            && let Err(error) = self.keep(&book.admission, &book.used)
        {
            tracing::warn!(%error, "who was sent away is not on the disk yet");
        }
        news
    }

    /// The revocation by which a peer was sent away last, to be said to others.
    pub fn revocation_of(&self, of: PeerKey) -> Option<Revocation> {
        self.book().admission.revocations().filter(|known| known.of == of).max_by_key(|known| known.at_s).cloned()
    }

    fn right(&self, rank: u8) -> Result<(RunId, Pass), DoorError> {
        if let Some(trouble) = self.own_trouble() {
            return Err(DoorError::NotInvited(trouble));
        }
        let book = self.book();
        let own = book.own.clone().unwrap_or_default();
        if rank >= own.rank() { Err(DoorError::NoRight(rank)) } else { Ok((book.admission.run(), own)) }
    }

    /// An invitation for one peer, for so long.
    ///
    /// # Errors
    /// If this peer has no right to give it.
    pub fn invite(&self, to: PeerKey, rank: u8, lasts_s: u64) -> Result<(RunId, Grant), DoorError> {
        let (run, own) = self.right(rank)?;
        let now = now_s();
        let pass = invite((&self.identity, &own), run, to, rank, (now, now.saturating_add(lasts_s)));
        self.book().admission.check(&pass, now).map_err(|reason| DoorError::NotYours { of: to, reason })?;
        Ok((run, Grant::Pass(pass)))
    }

    /// An invitation for whoever brings this secret first.
    ///
    /// # Errors
    /// If this peer has no right to give it.
    pub fn invite_once(
        &self,
        secret: [u8; 16],
        rank: u8,
        (use_s, lasts_s): (u64, u64),
    ) -> Result<(RunId, Grant), DoorError> {
        let (run, _) = self.right(rank)?;
        let use_until_s = now_s().saturating_add(use_s);
        Ok((
            run,
            Grant::OneTime(invitation_token::invite_once(&self.identity, run, secret, rank, (use_until_s, lasts_s))),
        ))
    }

    /// What a command of this machine shows, which has a key of its own for the occasion.
    ///
    /// # Errors
    /// If this peer is not invited itself.
    pub fn visitor(&self, key: PeerKey) -> Result<Knock, DoorError> {
        match self.invite(key, VISITOR, VISIT_S)? {
            (_, Grant::Pass(pass)) => Ok(Knock::Present(pass)),
            (_, Grant::OneTime(_)) => Err(DoorError::NoRight(VISITOR)),
        }
    }

    /// Sends a peer away, with all whom it has invited.
    ///
    /// # Errors
    /// If this peer has no right to, or cannot remember it.
    pub fn send_away(&self, of: PeerKey) -> Result<Revocation, DoorError> {
        let mut book = self.book();
        let pass = book.own.clone().ok_or(DoorError::NotInvited(Refusal::None))?;
        let of_mine = match book.admission.pass(of) {
            Some(known) => pass.rank() == FOUNDER_RANK || known.0.iter().any(|above| above.to == self.identity.key()),
            // It may be known to others.
            None => true,
        };
        if !of_mine {
            return Err(DoorError::NotYours { of, reason: Refusal::NoRight(self.identity.key()) });
        }
        let mut revocation = Revocation { pass, of, at_s: now_s(), signature: Vec::new() };
        let signed = revocation.signed_bytes(book.admission.run(), self.identity.key());
        revocation.signature = self.identity.sign(&signed).to_vec();
        let mut tried = book.admission.clone();
        tried.revoke(revocation.clone()).map_err(|reason| DoorError::NotYours { of, reason })?;
        self.keep(&tried, &book.used)?;
        book.admission = tried;
        Ok(revocation)
    }

    /// Takes a one-time invitation back that this peer has made; whoever has used it is sent away.
    ///
    /// # Errors
    /// If it is another's, or that cannot be remembered.
    pub fn take_back(&self, one: &OneTime) -> Result<Option<Revocation>, DoorError> {
        let used = {
            let mut book = self.book();
            if one.by != self.identity.key() {
                return Err(DoorError::NotYours { of: one.by, reason: Refusal::NotSigned(one.by) });
            }
            let used = book.used.iter().find(|used| used.secret == one.secret).copied();
            if used.is_none() {
                self.note_used(&mut book, one, None)?;
            }
            used
        };
        used.and_then(|used| used.by).map(|by| self.send_away(by)).transpose()
    }
}

fn not_invited(reason: &str) -> Doorway {
    Doorway::NotInvited(format!("{reason}; whoever takes part and may invite can make one (pathswarm invite)"))
}

/// How long from now, in words of the command line: nothing is for ever.
pub fn days(days: Option<u32>) -> u64 {
    days.map_or(FOR_EVER_S, |days| u64::from(days) * 24 * 60 * 60)
}
