//! Access control for a run by invitation: tokens, credentials and the access list.

pub mod access_control;
#[cfg(test)]
mod access_control_tests;
pub mod access_files;
pub(super) mod blob_access;
pub(super) mod claims;
pub mod invitation_token;
pub(super) mod known_members;
pub(super) mod signatures;
