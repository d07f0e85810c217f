//! What one process knows of its run, kept for whoever looks: the web console, Prometheus, and `metrics.jsonl`.
//!
//! There is one stream. A peer's events go in through a [`Feed`], and its status through a task that asks the peer
//! (`sampler`). `state` keeps the newest status, curves (`series`), what each peer did when (`spans`) and a log of
//! events, all bounded. `hub` is its handle. Viewers get the whole state once (`view`) and then what has changed, as one frame a second. A
//! viewer that reads too slowly loses frames and gets the whole state again: nothing here waits for a viewer.
//! [`metrics`] writes the same state for Prometheus, `recorder` into the run's folder. [`words`] says in words what is
//! waited for.

mod feed;
mod hub;
mod latencies;
mod losses;
pub mod metrics;
mod recorder;
mod run;
mod sampler;
mod series;
mod spans;
mod state;
#[cfg(test)]
mod tests;
mod view;
pub mod words;

pub use feed::Feed;
pub use hub::{Subscription, Telemetry};
pub use run::RunOutline;
pub use sampler::{ASKED_PER_TICK, Sampler};

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "an edge: people compare what they see with their clock")]
fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
