//! Admission to a run by invitation: checks credentials and revocations.
//!
//! Every credential proves itself, and a revocation counts independently of other state. So members with the same
//! revocations and the same time agree, in any order of arrival. The caller supplies time and signature checks.

use std::collections::BTreeMap;

use super::invitation::{Credential, Invitation, Revocation, VISITOR};
use crate::access::limits::{
    CLOCKS_DIFFER_S, CREATOR_RANK, MAX_ADMITTED, MAX_ADMITTED_BY_ONE, MAX_CREATORS_REVOCATIONS, MAX_INVITED_BY_ONE,
    MAX_REVOCATIONS, MAX_REVOCATIONS_OF_ONE, MAX_VISITORS_OF_ONE,
};
use crate::names::{PeerKey, RunId};

/// Whether a peer signed these bytes.
pub type Verify = fn(PeerKey, &[u8], &[u8]) -> bool;

/// Why a credential is refused. For people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this run is by invitation, and this peer has shown none")]
    None,
    #[error("the invitation is for peer {}", .0.short())]
    NotYours(PeerKey),
    #[error("{} was not allowed to give this invitation", .0.short())]
    NoRight(PeerKey),
    #[error("the chain of invitations contains a cycle")]
    Circle,
    #[error("the invitation is not signed by {}", .0.short())]
    NotSigned(PeerKey),
    #[error("the invitation is dated {0} s in the future: check both clocks")]
    TooEarly(u64),
    #[error("the invitation has expired")]
    Ended,
    #[error("the invitation was revoked by {}", .0.short())]
    Revoked(PeerKey),
    #[error("{} has invited more peers than the access list holds for it", .0.short())]
    TooMany(PeerKey),
    #[error("the access list is full")]
    Full,
}

impl Refusal {
    /// Whether no honest peer presents such a credential: it is forged, or belongs to another peer.
    pub fn is_forged(&self) -> bool {
        matches!(self, Self::NotYours(_) | Self::NoRight(_) | Self::Circle | Self::NotSigned(_))
    }
}

/// Known credentials and revocations.
#[derive(Clone, Debug)]
pub struct Admission {
    run: RunId,
    creator: PeerKey,
    verify: Verify,
    /// Checked, except for time and revocations, which are checked again each time.
    credentials: BTreeMap<PeerKey, Credential>,
    /// The latest, by signer and revoked peer.
    revocations: BTreeMap<(PeerKey, PeerKey), Revocation>,
}

impl Admission {
    /// For invitations that name `run` and begin with this creator's.
    pub fn new(run: RunId, creator: PeerKey, verify: Verify) -> Self {
        Self { run, creator, verify, credentials: BTreeMap::new(), revocations: BTreeMap::new() }
    }

    /// The run that invitations name.
    pub fn run(&self) -> RunId {
        self.run
    }

    pub fn creator(&self) -> PeerKey {
        self.creator
    }

    /// Number of stored credentials.
    pub fn known(&self) -> usize {
        self.credentials.len()
    }

    /// The rank of a peer; `None` if it is not invited.
    pub fn rank(&self, peer: PeerKey, now_s: u64) -> Option<u8> {
        if peer == self.creator {
            return Some(CREATOR_RANK);
        }
        let credential = self.credentials.get(&peer)?;
        self.still_good(credential, now_s).is_ok().then(|| credential.rank())
    }

    /// The credential that a peer has presented.
    pub fn credential(&self, peer: PeerKey) -> Option<&Credential> {
        self.credentials.get(&peer)
    }

    /// Stores a peer's credential if it is valid. Returns whether it differs from the stored one.
    pub fn present(&mut self, peer: PeerKey, credential: Credential, now_s: u64) -> Result<bool, Refusal> {
        if peer == self.creator {
            return Ok(false);
        }
        if self.credentials.get(&peer) == Some(&credential) {
            return self.still_good(&credential, now_s).map(|()| false);
        }
        if credential.holder(self.creator) != peer {
            return Err(if credential.0.is_empty() {
                Refusal::None
            } else {
                Refusal::NotYours(credential.holder(self.creator))
            });
        }
        self.check(&credential, now_s)?;
        self.make_room(peer, &credential, now_s)?;
        self.credentials.insert(peer, credential);
        Ok(true)
    }

    /// Whether a credential is valid now, for any bearer.
    pub fn check(&self, credential: &Credential, now_s: u64) -> Result<(), Refusal> {
        self.shape(credential)?;
        self.still_good(credential, now_s)?;
        self.signed(credential)
    }

    /// Ranks must fall, and no peer may occur twice. Cheap, so it comes first.
    fn shape(&self, credential: &Credential) -> Result<(), Refusal> {
        let (mut by, mut rank) = (self.creator, CREATOR_RANK);
        for (at, invitation) in credential.0.iter().enumerate() {
            if invitation.rank >= rank {
                return Err(Refusal::NoRight(by));
            }
            if invitation.to == self.creator || credential.0[..at].iter().any(|before| before.to == invitation.to) {
                return Err(Refusal::Circle);
            }
            (by, rank) = (invitation.to, invitation.rank);
        }
        Ok(())
    }

    fn signed(&self, credential: &Credential) -> Result<(), Refusal> {
        let mut by = self.creator;
        for invitation in &credential.0 {
            if !(self.verify)(by, &invitation.signed_bytes(self.run, by), &invitation.signature) {
                return Err(Refusal::NotSigned(by));
            }
            by = invitation.to;
        }
        Ok(())
    }

    fn still_good(&self, credential: &Credential, now_s: u64) -> Result<(), Refusal> {
        let mut above = vec![self.creator];
        for invitation in &credential.0 {
            let ahead = invitation.issued_s.saturating_sub(now_s);
            if ahead > CLOCKS_DIFFER_S {
                return Err(Refusal::TooEarly(ahead));
            }
            if invitation.until_s <= now_s {
                return Err(Refusal::Ended);
            }
            if let Some(by) = above.iter().find(|by| self.is_void(invitation, **by)) {
                return Err(Refusal::Revoked(*by));
            }
            above.push(invitation.to);
        }
        Ok(())
    }

    fn is_void(&self, invitation: &Invitation, by: PeerKey) -> bool {
        let revocation = self.revocations.get(&(by, invitation.to));
        revocation.is_some_and(|revocation| invitation.issued_s <= revocation.at_s)
    }

    /// Makes space without dropping another inviter's guests. Credentials that are no longer valid are dropped first,
    /// but searched only if space is needed, since an attacker may send many.
    fn make_room(&mut self, peer: PeerKey, credential: &Credential, now_s: u64) -> Result<(), Refusal> {
        let known = self.credentials.remove(&peer);
        if self.has_no_room_for(credential).is_some() {
            let over: Vec<PeerKey> = self
                .credentials
                .iter()
                .filter(|(_, other)| self.still_good(other, now_s).is_err())
                .map(|(at, _)| *at)
                .collect();
            over.iter().for_each(|over| drop(self.credentials.remove(over)));
        }
        if credential.rank() == VISITOR {
            self.make_room_for_visitor(inviter(credential, self.creator));
        }
        match self.has_no_room_for(credential) {
            None => Ok(()),
            Some(refusal) => {
                self.credentials.extend(known.map(|known| (peer, known)));
                Err(refusal)
            }
        }
    }

    fn has_no_room_for(&self, credential: &Credential) -> Option<Refusal> {
        let by = inviter(credential, self.creator);
        let full = (self.credentials.len() >= MAX_ADMITTED).then_some(Refusal::Full);
        let Some(first) = credential.0.first().map(|first| first.to).filter(|_| by != self.creator) else {
            return full;
        };
        let below = self.credentials.values().filter(|other| other.0.first().is_some_and(|other| other.to == first));
        let (mut all, mut own) = (0, 0);
        for other in below {
            all += 1;
            own += usize::from(other.rank() != VISITOR && inviter(other, self.creator) == by);
        }
        let too_many = all >= MAX_ADMITTED_BY_ONE || (credential.rank() != VISITOR && own >= MAX_INVITED_BY_ONE);
        if too_many { Some(Refusal::TooMany(by)) } else { full }
    }

    /// If one peer has its limit of visitors, the one that ends first is dropped.
    fn make_room_for_visitor(&mut self, by: PeerKey) {
        let of_the_same = |other: &Credential| other.rank() == VISITOR && inviter(other, self.creator) == by;
        let visitors: Vec<(u64, PeerKey)> = self
            .credentials
            .iter()
            .filter(|(_, other)| of_the_same(other))
            .map(|(visitor, other)| (other.until_s(), *visitor))
            .collect();
        if visitors.len() >= MAX_VISITORS_OF_ONE {
            visitors.iter().min().iter().for_each(|(_, visitor)| drop(self.credentials.remove(visitor)));
        }
    }

    /// Stores a revocation if its signer was allowed to sign it. Returns whether it is new.
    pub fn revoke(&mut self, revocation: Revocation) -> Result<bool, Refusal> {
        let by = revocation.credential.holder(self.creator);
        let name = (by, revocation.of);
        if self.revocations.get(&name).is_some_and(|known| known.at_s >= revocation.at_s) {
            return Ok(false);
        }
        self.shape(&revocation.credential)?;
        self.signed(&revocation.credential)?;
        if revocation.of == self.creator || revocation.credential.0.iter().any(|above| above.to == revocation.of) {
            return Err(Refusal::NoRight(by));
        }
        if !(self.verify)(by, &revocation.signed_bytes(self.run, by), &revocation.signature) {
            return Err(Refusal::NotSigned(by));
        }
        if !self.revocations.contains_key(&name) && !self.has_room_for(&revocation.credential) {
            return Err(Refusal::Full);
        }
        self.revocations.insert(name, revocation);
        Ok(true)
    }

    /// Revocations are never dropped. The creator has its own limit, and so has each peer that it invited, with all
    /// below it.
    fn has_room_for(&self, credential: &Credential) -> bool {
        let first = |credential: &Credential| credential.0.first().map(|first| first.to);
        let (by_creator, others): (Vec<_>, Vec<_>) =
            self.revocations.values().map(|known| first(&known.credential)).partition(Option::is_none);
        match first(credential) {
            None => by_creator.len() < MAX_CREATORS_REVOCATIONS,
            this => {
                let of_this = others.iter().filter(|other| **other == this).count();
                others.len() < MAX_REVOCATIONS && of_this < MAX_REVOCATIONS_OF_ONE
            }
        }
    }

    /// All known revocations.
    pub fn revocations(&self) -> impl Iterator<Item = &Revocation> {
        self.revocations.values()
    }
}

/// The peer that invited the holder.
fn inviter(credential: &Credential, creator: PeerKey) -> PeerKey {
    credential.0.iter().rev().nth(1).map_or(creator, |before| before.to)
}
