//! Resharding during a run (DiPaCo, section 2.4.2): pure arithmetic, equal on every peer.
//!
//! Each path [`scores`] the documents of a slice on which no path trains. The scores give [`labels`]. The [`atlas`] has
//! the features of all documents and their creating shards. From both follows the next [`state`] of the router, and
//! from that every shard.

pub mod atlas;
pub mod labels;
pub mod scores;
pub mod state;

pub use atlas::{Atlas, AtlasError, Catalogue, Place};
pub use labels::labels;
pub use scores::PathScores;
pub use state::{RouterState, StateError};
