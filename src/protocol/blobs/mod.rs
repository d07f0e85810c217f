//! Blobs: which are fetched, and which can go.

pub(super) mod fetch;
pub(super) mod release;
