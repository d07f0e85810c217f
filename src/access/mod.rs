//! Who may take part in a run by invitation, and what the creator of a run may change in it: pure rules, without a clock, a
//! disk or a network.
//!
//! [`invitation`] has the signed documents: the run's creator invites a peer, that peer invites the next, and the list of
//! these invitations is a peer's [`Credential`](invitation::Credential). [`authentication`] has the messages by which a
//! peer shows its credential, and what a peer stores about access. [`admission`] checks credentials and revocations.
//! [`limits`] bounds all of them. [`amendment`] is what a creator signs to give a run more phases.
//!
//! Times are seconds since 1970, by the clock of the peer that signs. The caller supplies the time and checks signatures.

pub mod admission;
pub mod amendment;
pub mod authentication;
pub mod invitation;
pub mod limits;
#[cfg(test)]
mod tests;
