//! Bounds of credentials, invitations and revocations.

/// The rank of the run's creator. Each invitation has a lower rank than its signer, down to 0, which may only send
/// requests: no credential has more than five invitations.
pub const CREATOR_RANK: u8 = 5;

/// An invitation may seem to come from the future by this much, because clocks differ.
pub const CLOCKS_DIFFER_S: u64 = 600;

/// Credentials that a member stores: 4,096 of at most 0.7 kB are 3 MB. A member meets the peers of its own modules, tens or
/// hundreds.
pub const MAX_ADMITTED: usize = 4_096;

/// Of these, peers invited by one peer that the creator has invited, and by all below it. A peer that invites without end
/// takes no space from the guests of others.
pub const MAX_ADMITTED_BY_ONE: usize = 1_024;

/// Of these, peers invited by any single one of them.
pub const MAX_INVITED_BY_ONE: usize = 256;

/// Visitors in the name of one peer: its own commands. The one that ends first is replaced.
pub const MAX_VISITORS_OF_ONE: usize = 8;

/// Revocations by the creator, of 120 bytes: 61 kB. Revocations are stored as long as the run lasts, and all of them go
/// into one response and one file, which these bounds keep below 256 KiB.
pub const MAX_CREATORS_REVOCATIONS: usize = 512;

/// Revocations by all other peers, of at most 604 bytes: 155 kB.
pub const MAX_REVOCATIONS: usize = 256;

/// Of these, revocations by one peer that the creator has invited, and by all below it.
pub const MAX_REVOCATIONS_OF_ONE: usize = 32;

/// One-time invitations that are redeemed and have not expired, each of 65 bytes: 33 kB.
pub const MAX_REDEEMED: usize = 512;
