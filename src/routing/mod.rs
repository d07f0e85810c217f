//! Which document goes to which path.
//!
//! A document's first tokens choose its path: by k-means on features of the dense ancestor (on all or on each half), or
//! by hash as a control, or by a [`Logistic`] fit of which path scored documents best. The ancestor that computes the
//! features is frozen and named by hash in the router: a model that continues training would route documents to other
//! paths than they were trained on. [`resharding`] fits such a router during a run. The [`ShardIndex`] records the path
//! of every training document, so that no peer has to trust another one about the size of its shard.

mod calibration;
pub mod clusters;
mod cross_entropy;
pub mod discriminative;
pub mod features;
pub mod kmeans;
mod lbfgs;
pub mod logistic;
pub mod resharding;
pub mod router;
#[cfg(feature = "learning")]
pub mod shards;
mod soft_targets;
mod switch_threshold;

pub use features::{FeaturesError, features_of};
pub use kmeans::{KmeansError, kmeans};
pub use logistic::{Logistic, LogisticError};
pub use router::{Router, RouterError};
#[cfg(feature = "learning")]
pub use shards::{DocumentKey, ShardError, ShardIndex};
pub use soft_targets::{ahead, soft_targets, stride};
pub use switch_threshold::{Place, SwitchThreshold};
