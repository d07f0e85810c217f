//! The signed documents of access: invitations, credentials made of them, one-time invitations, and revocations.

use serde::{Deserialize, Serialize};

use crate::access::limits::CREATOR_RANK;
use crate::names::{PeerKey, RunId};
use crate::protocol::limits::MAX_GOSSIP_BYTES;
use crate::protocol::wire::encoding::framed;

/// The expiry of an invitation that does not expire.
pub const NO_EXPIRY_S: u64 = u64::MAX;

/// The rank of a peer that may send requests and fetch blobs, but does not take part.
pub const VISITOR: u8 = 0;

/// The rank of a peer that takes part. Each rank above may also invite the ranks below it.
pub const MEMBER: u8 = 1;

/// One peer's right to take part, signed by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The invited peer.
    pub to: PeerKey,
    /// Its rank: [`VISITOR`], [`MEMBER`], or more.
    pub rank: u8,
    /// When it was signed. A revoked peer can be invited again later.
    pub issued_s: u64,
    /// When it expires.
    pub until_s: u64,
    /// The inviting peer's, over [`Invitation::signed_bytes`].
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

impl Invitation {
    pub fn signed_bytes(&self, run: RunId, by: PeerKey) -> Vec<u8> {
        let times = [self.issued_s.to_le_bytes(), self.until_s.to_le_bytes()].concat();
        [b"pathswarm invitation".as_slice(), &run.0, &by.0, &self.to.0, &[self.rank], &times].concat()
    }
}

/// A peer's proof that it may take part: the creator's invitation to one peer, that peer's to the next, and so on, to the
/// holder. The creator's own credential is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential(pub Vec<Invitation>);

impl Credential {
    /// The peer that it admits.
    pub fn holder(&self, creator: PeerKey) -> PeerKey {
        self.0.last().map_or(creator, |last| last.to)
    }

    /// The holder's rank.
    pub fn rank(&self) -> u8 {
        self.0.last().map_or(CREATOR_RANK, |last| last.rank)
    }

    /// When the first of its invitations expires.
    pub fn until_s(&self) -> u64 {
        self.0.iter().map(|invitation| invitation.until_s).min().unwrap_or(NO_EXPIRY_S)
    }

    /// This credential with one more invitation.
    pub fn and(&self, next: Invitation) -> Self {
        Self([self.0.as_slice(), &[next]].concat())
    }
}

/// An invitation for the first peer that redeems it. It is redeemed at the peer that made it, because only that peer knows
/// whether it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneTimeInvitation {
    /// The peer that made it, and redeems it.
    pub by: PeerKey,
    /// A random secret, unknown to other peers.
    pub secret: [u8; 16],
    /// The rank that it gives.
    pub rank: u8,
    /// Deadline of the redemption.
    pub use_until_s: u64,
    /// How long the resulting invitation is valid.
    pub lasts_s: u64,
    /// Its maker's, over [`OneTimeInvitation::signed_bytes`].
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

impl OneTimeInvitation {
    pub fn signed_bytes(&self, run: RunId) -> Vec<u8> {
        let times = [self.use_until_s.to_le_bytes(), self.lasts_s.to_le_bytes()].concat();
        let name = b"pathswarm one-time invitation".as_slice();
        [name, &run.0, &self.by.0, &self.secret, &[self.rank], &times].concat()
    }
}

/// What an invitation token carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grant {
    /// Bound to one peer's key.
    Credential(Credential),
    /// For the first peer that redeems it.
    OneTime(OneTimeInvitation),
}

/// An invitation as a newcomer receives it, as text or in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitationToken {
    pub run: RunId,
    /// Addresses of the peer that wrote it.
    pub addresses: Vec<String>,
    /// The right that it gives.
    pub grant: Grant,
}

/// Takes a peer's right away. Signed by the creator, or by a peer in whose name the other was invited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The signer's credential. Its expiry and revocations are not looked at here.
    pub credential: Credential,
    /// The revoked peer. All peers that it has invited are revoked with it.
    pub of: PeerKey,
    /// Invitations signed after this time are valid again.
    pub at_s: u64,
    /// Over [`Revocation::signed_bytes`].
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

impl Revocation {
    pub fn signed_bytes(&self, run: RunId, by: PeerKey) -> Vec<u8> {
        [b"pathswarm revocation".as_slice(), &run.0, &by.0, &self.of.0, &self.at_s.to_le_bytes()].concat()
    }
}

framed! {
    InvitationToken = 6, MAX_GOSSIP_BYTES;
}
