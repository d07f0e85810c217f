//! The layers of a network: attention, feed-forward, norms, and the cache of keys and values.

pub mod adapted_linear;
pub mod attention;
pub mod block;
pub mod directional;
pub mod feed_forward;
pub mod input;
pub mod kv_cache;
pub mod linear;
pub mod norm;
pub mod packed;
pub mod rotary;
pub mod rows;
pub mod token_positions;
pub mod watch;
