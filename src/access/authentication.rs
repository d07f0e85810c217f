//! The messages by which peers show credentials, and the access list that a peer stores.

use serde::{Deserialize, Serialize};

use super::invitation::{Credential, OneTimeInvitation, Revocation};
use crate::names::PeerKey;
use crate::protocol::limits::{MAX_CONTROL_BYTES, MAX_GOSSIP_BYTES};
use crate::protocol::wire::encoding::framed;

/// The first request on a connection, in a run by invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthenticationRequest {
    /// The sender's credential.
    Present(Credential),
    /// A one-time invitation that the receiver made.
    Redeem(OneTimeInvitation),
}

/// The response to an [`AuthenticationRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthenticationResponse {
    /// The sender is admitted.
    Accepted {
        /// The credential made of a redeemed one-time invitation.
        credential: Option<Credential>,
        /// All revocations that the receiver knows.
        revocations: Vec<Revocation>,
    },
    /// The sender is not admitted. The reason is for people. Any request may be answered with it.
    NotInvited(String),
}

/// A message about access on a module's topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessNotice {
    /// Its author's credential.
    Present {
        credential: Credential,
        /// Differs in each message.
        sequence: u64,
    },
    /// A peer was revoked. Says nothing about the author.
    Revoked(Revocation),
}

/// What a peer stores about access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessList {
    /// One-time invitations that this peer made and that are used, until they would have expired.
    pub redeemed: Vec<RedeemedInvitation>,
    /// Revoked peers.
    pub revocations: Vec<Revocation>,
}

/// A one-time invitation that was redeemed, or revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedeemedInvitation {
    pub secret: [u8; 16],
    /// The peer that redeemed it; none if it was revoked.
    pub by: Option<PeerKey>,
    /// Time of redemption. The same peer gets the same invitation again, which is void if it was revoked since.
    pub at_s: u64,
    /// When it expires.
    pub use_until_s: u64,
}

framed! {
    AuthenticationRequest = 7, MAX_GOSSIP_BYTES;
    AuthenticationResponse = 8, MAX_CONTROL_BYTES;
    AccessNotice = 9, MAX_GOSSIP_BYTES;
    AccessList = 10, MAX_CONTROL_BYTES;
}
