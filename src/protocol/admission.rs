//! Whom a member of a run by invitation listens to: whose pass holds, and who was sent away.
//!
//! Every pass proves itself, and a revocation counts whatever else is known, so members that have heard the same revocations
//! and read the same time agree, in whatever order they heard them. Time and signatures are the caller's.

use std::collections::BTreeMap;

use super::invitations::{Invitation, Pass, Revocation, VISITOR};
use super::limits::{
    CLOCKS_DIFFER_S, FOUNDER_RANK, MAX_ADMITTED, MAX_ADMITTED_BY_ONE, MAX_FOUNDERS_REVOCATIONS, MAX_INVITED_BY_ONE,
    MAX_REVOCATIONS, MAX_REVOCATIONS_OF_ONE, MAX_VISITORS_OF_ONE,
};
use crate::names::{PeerKey, RunId};

/// Whether a peer signed these bytes so.
pub type Verify = fn(PeerKey, &[u8], &[u8]) -> bool;

/// Why a pass is not taken. For people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing was shown.
    #[error("this run is by invitation, and you have shown none")]
    None,
    /// Somebody else's.
    #[error("the invitation is for peer {}", .0.short())]
    NotYours(PeerKey),
    /// Longer than ranks allow, or ranks do not fall.
    #[error("the invitation is one that {} had no right to give", .0.short())]
    NoRight(PeerKey),
    /// A peer stands in it twice.
    #[error("the invitation leads in a circle")]
    Circle,
    /// Not signed by whom it names.
    #[error("the invitation is not signed by {}", .0.short())]
    NotSigned(PeerKey),
    /// Made in the future.
    #[error("the invitation was made {0} s in the future: is a clock wrong?")]
    TooEarly(u64),
    /// Over.
    #[error("the invitation has ended")]
    Ended,
    /// Taken back.
    #[error("the invitation was taken back by {}", .0.short())]
    Revoked(PeerKey),
    /// Too many were invited.
    #[error("{} has invited more peers than are kept", .0.short())]
    TooMany(PeerKey),
    /// No room at all.
    #[error("more peers are invited than are kept")]
    Full,
}

impl Refusal {
    /// Whether no honest peer shows such a thing: it was made up, or is somebody else's.
    pub fn is_forged(&self) -> bool {
        matches!(self, Self::NotYours(_) | Self::NoRight(_) | Self::Circle | Self::NotSigned(_))
    }
}

/// What is known of who may take part.
#[derive(Clone, Debug)]
pub struct Admission {
    run: RunId,
    founder: PeerKey,
    verify: Verify,
    /// Checked, but for time and revocations, which are looked at again each time.
    passes: BTreeMap<PeerKey, Pass>,
    /// By who signed and whom it names: the latest.
    revocations: BTreeMap<(PeerKey, PeerKey), Revocation>,
}

impl Admission {
    /// Of a run whose invitations name `run`, and begin with this founder's.
    pub fn new(run: RunId, founder: PeerKey, verify: Verify) -> Self {
        Self { run, founder, verify, passes: BTreeMap::new(), revocations: BTreeMap::new() }
    }

    /// The run that invitations name.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Who invited first.
    pub fn founder(&self) -> PeerKey {
        self.founder
    }

    /// How many passes are kept.
    pub fn known(&self) -> usize {
        self.passes.len()
    }

    /// As what a peer is known: nothing if it is not invited.
    pub fn rank(&self, peer: PeerKey, now_s: u64) -> Option<u8> {
        if peer == self.founder {
            return Some(FOUNDER_RANK);
        }
        let pass = self.passes.get(&peer)?;
        self.still_good(pass, now_s).is_ok().then(|| pass.rank())
    }

    /// The pass that a peer has shown.
    pub fn pass(&self, peer: PeerKey) -> Option<&Pass> {
        self.passes.get(&peer)
    }

    /// Takes a peer's pass if it holds; whether it is another than was known.
    ///
    /// # Errors
    /// Why not.
    pub fn present(&mut self, peer: PeerKey, pass: Pass, now_s: u64) -> Result<bool, Refusal> {
        if peer == self.founder {
            return Ok(false);
        }
        if self.passes.get(&peer) == Some(&pass) {
            return self.still_good(&pass, now_s).map(|()| false);
        }
        if pass.holder(self.founder) != peer {
            return Err(if pass.0.is_empty() { Refusal::None } else { Refusal::NotYours(pass.holder(self.founder)) });
        }
        self.check(&pass, now_s)?;
        self.make_room(peer, &pass, now_s)?;
        self.passes.insert(peer, pass);
        Ok(true)
    }

    /// Whether a pass holds now, whoever shows it.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, pass: &Pass, now_s: u64) -> Result<(), Refusal> {
        self.shape(pass)?;
        self.still_good(pass, now_s)?;
        self.signed(pass)
    }

    /// Ranks fall, and nobody stands in it twice: cheap, and first.
    fn shape(&self, pass: &Pass) -> Result<(), Refusal> {
        let (mut by, mut rank) = (self.founder, FOUNDER_RANK);
        for (at, invitation) in pass.0.iter().enumerate() {
            if invitation.rank >= rank {
                return Err(Refusal::NoRight(by));
            }
            if invitation.to == self.founder || pass.0[..at].iter().any(|before| before.to == invitation.to) {
                return Err(Refusal::Circle);
            }
            (by, rank) = (invitation.to, invitation.rank);
        }
        Ok(())
    }

    fn signed(&self, pass: &Pass) -> Result<(), Refusal> {
        let mut by = self.founder;
        for invitation in &pass.0 {
            if !(self.verify)(by, &invitation.signed_bytes(self.run, by), &invitation.signature) {
                return Err(Refusal::NotSigned(by));
            }
            by = invitation.to;
        }
        Ok(())
    }

    fn still_good(&self, pass: &Pass, now_s: u64) -> Result<(), Refusal> {
        let mut above = vec![self.founder];
        for invitation in &pass.0 {
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

    /// Nobody's guests keep another's out. What nobody is let in by any more goes first, but is looked for only where there is
    /// no room: passes come quickly where somebody means harm.
    fn make_room(&mut self, peer: PeerKey, pass: &Pass, now_s: u64) -> Result<(), Refusal> {
        let known = self.passes.remove(&peer);
        if self.has_no_room_for(pass).is_some() {
            let over: Vec<PeerKey> = self
                .passes
                .iter()
                .filter(|(_, other)| self.still_good(other, now_s).is_err())
                .map(|(at, _)| *at)
                .collect();
            over.iter().for_each(|over| drop(self.passes.remove(over)));
        }
        if pass.rank() == VISITOR {
            self.make_room_for_visitor(inviter(pass, self.founder));
        }
        match self.has_no_room_for(pass) {
            None => Ok(()),
            Some(refusal) => {
                self.passes.extend(known.map(|known| (peer, known)));
                Err(refusal)
            }
        }
    }

    fn has_no_room_for(&self, pass: &Pass) -> Option<Refusal> {
        let by = inviter(pass, self.founder);
        let full = (self.passes.len() >= MAX_ADMITTED).then_some(Refusal::Full);
        let Some(first) = pass.0.first().map(|first| first.to).filter(|_| by != self.founder) else { return full };
        let below = self.passes.values().filter(|other| other.0.first().is_some_and(|other| other.to == first));
        let (mut all, mut own) = (0, 0);
        for other in below {
            all += 1;
            own += usize::from(other.rank() != VISITOR && inviter(other, self.founder) == by);
        }
        let too_many = all >= MAX_ADMITTED_BY_ONE || (pass.rank() != VISITOR && own >= MAX_INVITED_BY_ONE);
        if too_many { Some(Refusal::TooMany(by)) } else { full }
    }

    /// The first to end goes, if there are as many as one peer may have.
    fn make_room_for_visitor(&mut self, by: PeerKey) {
        let of_the_same = |other: &Pass| other.rank() == VISITOR && inviter(other, self.founder) == by;
        let visitors: Vec<(u64, PeerKey)> = self
            .passes
            .iter()
            .filter(|(_, other)| of_the_same(other))
            .map(|(visitor, other)| (other.until_s(), *visitor))
            .collect();
        if visitors.len() >= MAX_VISITORS_OF_ONE {
            visitors.iter().min().iter().for_each(|(_, visitor)| drop(self.passes.remove(visitor)));
        }
    }

    /// Takes a revocation if whoever signed it could; whether it was news.
    ///
    /// # Errors
    /// Why not.
    pub fn revoke(&mut self, revocation: Revocation) -> Result<bool, Refusal> {
        let by = revocation.pass.holder(self.founder);
        let name = (by, revocation.of);
        if self.revocations.get(&name).is_some_and(|known| known.at_s >= revocation.at_s) {
            return Ok(false);
        }
        self.shape(&revocation.pass)?;
        self.signed(&revocation.pass)?;
        if revocation.of == self.founder || revocation.pass.0.iter().any(|above| above.to == revocation.of) {
            return Err(Refusal::NoRight(by));
        }
        if !(self.verify)(by, &revocation.signed_bytes(self.run, by), &revocation.signature) {
            return Err(Refusal::NotSigned(by));
        }
        if !self.revocations.contains_key(&name) && !self.has_room_for(&revocation.pass) {
            return Err(Refusal::Full);
        }
        self.revocations.insert(name, revocation);
        Ok(true)
    }

    /// What was taken back stays so: there is no making room here. The founder has its own, and so has each whom it invited,
    /// with all below.
    fn has_room_for(&self, pass: &Pass) -> bool {
        let first = |pass: &Pass| pass.0.first().map(|first| first.to);
        let (founders, others): (Vec<_>, Vec<_>) =
            self.revocations.values().map(|known| first(&known.pass)).partition(Option::is_none);
        match first(pass) {
            None => founders.len() < MAX_FOUNDERS_REVOCATIONS,
            this => {
                let of_this = others.iter().filter(|other| **other == this).count();
                others.len() < MAX_REVOCATIONS && of_this < MAX_REVOCATIONS_OF_ONE
            }
        }
    }

    /// All that is known of who was sent away.
    pub fn revocations(&self) -> impl Iterator<Item = &Revocation> {
        self.revocations.values()
    }
}

/// Who invited the holder.
fn inviter(pass: &Pass, founder: PeerKey) -> PeerKey {
    pass.0.iter().rev().nth(1).map_or(founder, |before| before.to)
}
