//! Which document goes to which path.
//!
//! A document's first tokens choose its path, by k-means on features of the dense ancestor, on all of them or on each
//! half, or, as a control, by hash. The ancestor that gives the features is frozen with the router and named in it by hash: a model that goes on
//! training would route documents elsewhere than where they were trained. The [`ShardIndex`] writes down where every
//! training document went, so that nobody has to take a peer's word for the size of its shard.

pub mod clusters;
pub mod features;
pub mod kmeans;
pub mod router;
#[cfg(feature = "learning")]
pub mod shards;

pub use features::{FeaturesError, features_of};
pub use kmeans::{Clustering, KmeansError, kmeans};
pub use router::{Router, RouterError};
#[cfg(feature = "learning")]
pub use shards::{DocumentKey, Shard, ShardError, ShardIndex};
