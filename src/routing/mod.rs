//! Which document goes to which path.
//!
//! A document's first tokens choose its path, by k-means on features of the dense ancestor, on all of them or on each
//! half, or, as a control, by hash; [`Logistic`] fits a rule to which path scored documents best. The ancestor that
//! gives the features is frozen with the router and named in it by hash: a model that goes on training would route
//! documents elsewhere than where they were trained. [`resharding`] fits such a rule in the middle of a run. The [`ShardIndex`] writes down where every training document went,
//! so that nobody has to take a peer's word for the size of its shard.

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
pub use kmeans::{Clustering, KmeansError, kmeans};
pub use logistic::{Logistic, LogisticError};
pub use router::{Router, RouterError};
#[cfg(feature = "learning")]
pub use shards::{DocumentKey, Shard, ShardError, ShardIndex};
pub use soft_targets::{ahead, soft_targets, stride};
pub use switch_threshold::{Place, SwitchThreshold};
