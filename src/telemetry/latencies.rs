//! How long things took, as histograms.

use std::collections::BTreeSet;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Kinds of waits that have a histogram of their own, so that no text of another peer becomes a label.
const MOST_KINDS: usize = 32;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: String,
}

/// How long things took, since the start of the process.
pub(super) struct Latencies {
    phases: Histogram,
    rounds: Histogram,
    fetches: Histogram,
    waits: Family<Reason, Histogram>,
    kinds: BTreeSet<String>,
}

/// From a tenth of a second to an hour and a half.
fn long() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 2.5, 13))
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            phases: long(),
            rounds: long(),
            fetches: Histogram::new(exponential_buckets(0.005, 2.5, 13)),
            waits: Family::new_with_constructor(long),
            kinds: BTreeSet::new(),
        }
    }
}

impl Latencies {
    /// A phase was trained, or a part of it between two waits.
    pub(super) fn phase(&self, seconds: f64) {
        self.phases.observe(seconds);
    }

    /// A module has had its next update.
    pub(super) fn round(&self, seconds: f64) {
        self.rounds.observe(seconds);
    }

    pub(super) fn fetched(&self, seconds: f64) {
        self.fetches.observe(seconds);
    }

    pub(super) fn waited(&mut self, kind: &str, seconds: f64) {
        if self.kinds.len() >= MOST_KINDS && !self.kinds.contains(kind) {
            return;
        }
        self.kinds.insert(kind.to_owned());
        self.waits.get_or_create(&Reason { reason: kind.to_owned() }).observe(seconds);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let mut seconds = |name: &str, help: &str, histogram: &Histogram| {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        };
        seconds("phase_duration", "Time of training between two waits", &self.phases);
        seconds("round_duration", "Time between two updates of a module, as applied here", &self.rounds);
        seconds("fetch_duration", "Time from the request of a blob to its last byte", &self.fetches);
        let help = "Time that a peer waited at a stretch, by what it waited for";
        registry.register_with_unit("wait_duration", help, Unit::Seconds, self.waits.clone());
    }
}
