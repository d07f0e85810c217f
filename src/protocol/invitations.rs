//! Who may take part in a run that is not open to everybody: invitations, signed, each in the name of the one before; how
//! they are shown, redeemed and taken back. What is believed of them is [`admission`](super::admission)'s to say.
//!
//! Times are seconds since 1970, by the clock of whoever made them.

use serde::{Deserialize, Serialize};

use super::limits::FOUNDER_RANK;
use crate::names::{PeerKey, RunId};

/// The end of what has none.
pub const FOR_EVER_S: u64 = u64::MAX;

/// Rank of who may ask and fetch, and take no part.
pub const VISITOR: u8 = 0;

/// Rank of who takes part. Each rank above may invite the ranks below it besides.
pub const MEMBER: u8 = 1;

/// Names one peer to all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// Whom.
    pub to: PeerKey,
    /// As what: [`VISITOR`], [`MEMBER`], or more.
    pub rank: u8,
    /// When it was made: a peer that was sent away can be invited again.
    pub issued_s: u64,
    /// When it ends.
    pub until_s: u64,
    /// By whoever invites, over [`Invitation::signed_bytes`].
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

impl Invitation {
    /// What is signed.
    pub fn signed_bytes(&self, run: RunId, by: PeerKey) -> Vec<u8> {
        let times = [self.issued_s.to_le_bytes(), self.until_s.to_le_bytes()].concat();
        [b"pathswarm invitation".as_slice(), &run.0, &by.0, &self.to.0, &[self.rank], &times].concat()
    }
}

/// What a peer shows: the founder's invitation to one, that one's to the next, and so on, to the peer itself. The
/// founder's own is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass(pub Vec<Invitation>);

impl Pass {
    /// Whose it is.
    pub fn holder(&self, founder: PeerKey) -> PeerKey {
        self.0.last().map_or(founder, |last| last.to)
    }

    /// As what it names that peer.
    pub fn rank(&self) -> u8 {
        self.0.last().map_or(FOUNDER_RANK, |last| last.rank)
    }

    /// When the first of its invitations ends.
    pub fn until_s(&self) -> u64 {
        self.0.iter().map(|invitation| invitation.until_s).min().unwrap_or(FOR_EVER_S)
    }

    /// The same pass, handed on.
    pub fn and(&self, next: Invitation) -> Self {
        Self([self.0.as_slice(), &[next]].concat())
    }
}

/// An invitation for whoever brings it first: only the peer that made it can say who that is, so it is redeemed there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneTime {
    /// Who made it, and redeems it.
    pub by: PeerKey,
    /// Drawn; nobody else knows it.
    pub secret: [u8; 16],
    /// As what it invites.
    pub rank: u8,
    /// It has to be redeemed before.
    pub use_until_s: u64,
    /// From then on it is good for so long.
    pub lasts_s: u64,
    /// By its maker, over [`OneTime::signed_bytes`].
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

impl OneTime {
    /// What is signed.
    pub fn signed_bytes(&self, run: RunId) -> Vec<u8> {
        let times = [self.use_until_s.to_le_bytes(), self.lasts_s.to_le_bytes()].concat();
        let name = b"pathswarm one-time invitation".as_slice();
        [name, &run.0, &self.by.0, &self.secret, &[self.rank], &times].concat()
    }
}

/// What a letter brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grant {
    /// Bound to one peer's key.
    Pass(Pass),
    /// For whoever comes first.
    OneTime(OneTime),
}

/// What a newcomer is given, as text or in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// To which run.
    pub run: RunId,
    /// Where whoever wrote it can be found.
    pub addresses: Vec<String>,
    /// The invitation.
    pub grant: Grant,
}

/// A peer is sent away, by the founder or by somebody in whose name it was invited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Of whoever signs; its ends and what has been taken back do not matter here.
    pub pass: Pass,
    /// Who is sent away, with all that it has invited.
    pub of: PeerKey,
    /// Invitations made after this are good again.
    pub at_s: u64,
    /// Over [`Revocation::signed_bytes`].
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

impl Revocation {
    /// What is signed.
    pub fn signed_bytes(&self, run: RunId, by: PeerKey) -> Vec<u8> {
        [b"pathswarm revocation".as_slice(), &run.0, &by.0, &self.of.0, &self.at_s.to_le_bytes()].concat()
    }
}

/// Asked of one peer, before anything else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Knock {
    /// Here is my pass.
    Present(Pass),
    /// You made this for me.
    Redeem(OneTime),
}

/// Answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doorway {
    /// Come in. Who redeemed gets a pass; everybody hears who was sent away.
    Welcome {
        /// The pass of whoever redeemed.
        pass: Option<Pass>,
        /// All that is known.
        revocations: Vec<Revocation>,
    },
    /// You are not invited, or not by now; the reason is for people. Any request may be answered with it.
    NotInvited(String),
}

/// On a module's topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// Its author's pass.
    Present {
        /// The pass.
        pass: Pass,
        /// Differs each time that it is said: gossip carries the same bytes but once in a while.
        sequence: u64,
    },
    /// Somebody is sent away; says nothing of its author.
    Revoked(Revocation),
}

/// What a peer remembers on its disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guestbook {
    /// One-time invitations that it made and that are used up, until they would have ended anyway.
    pub used: Vec<Used>,
    /// Who was sent away.
    pub revocations: Vec<Revocation>,
}

/// A one-time invitation that has been redeemed, or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Which.
    pub secret: [u8; 16],
    /// By whom; by nobody, if it was taken back.
    pub by: Option<PeerKey>,
    /// When: whoever asks again gets the same invitation, which a revocation has voided if there was one.
    pub at_s: u64,
    /// When it ends.
    pub use_until_s: u64,
}
