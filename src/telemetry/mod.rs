//! What one process knows of its run, kept for whoever looks: the web console, Prometheus, and `metrics.jsonl`.
//!
//! There is one stream. A peer's events go in through a [`Feed`], and its status through a task that asks the peer
//! (`sampler`). Peers of other processes are followed by their statuses alone (`follow`). `state` keeps the newest
//! status, curves (`curves`), what each peer did when (`spans`) and a log of events, all bounded. `hub` is its handle.
//! Viewers get the whole state once (`view`) and then what has changed, as one frame a second. A viewer that reads too
//! slowly loses frames and gets the whole state again: nothing here waits for a viewer. [`metrics`] writes the same state
//! for Prometheus, `recorder` into the run's folder, `tensorboard` for TensorBoard. [`overview`] is the same state as
//! values, for screens. [`words`] says in words what is waited for. `systemd` tells a service manager that peers answer.

mod curves;
mod feed;
mod follow;
mod hub;
mod latencies;
pub mod metrics;
pub mod overview;
mod recorder;
mod run;
mod sampler;
mod services;
mod spans;
mod state;
mod systemd;
mod tensorboard;
#[cfg(test)]
mod tests;
mod view;
pub mod words;

pub use feed::Feed;
pub use follow::Follower;
pub use hub::{Subscription, Telemetry};
pub use run::RunOutline;
pub use sampler::{ASKED_PER_TICK, Sampler};
pub use services::Fact;
pub use tensorboard::Writing;

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "an edge: people compare what they see with their clock")]
fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
