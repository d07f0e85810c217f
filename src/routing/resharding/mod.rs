//! Sharing out the text anew while a swarm trains (DiPaCo, section 2.4.2): all of it arithmetic, the same on every peer.
//!
//! Each path [`scores`] the documents of a slice that nobody trains on, which makes [`labels`]; the [`atlas`] has the
//! features of all documents and says in which first shard they lie; from both follows the next [`state`] of the router,
//! and from that every shard.

pub mod atlas;
pub mod labels;
pub mod scores;
pub mod state;

pub use atlas::{Atlas, AtlasError, Catalogue, Place};
pub use labels::labels;
pub use scores::{PathScores, ScoresError};
pub use state::{NotShared, RouterState, StateError};
