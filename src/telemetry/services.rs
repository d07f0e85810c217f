//! What else this process does than run a peer: a relay, a server. Each tells some numbers, for the page and for Prometheus.

use serde_json::{Value, json};

/// A number that a service tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fact {
    /// Its name as a metric, without prefix, unit and `_total`.
    pub name: &'static str,
    /// What it counts, for people.
    pub help: &'static str,
    /// Whether it only grows.
    pub grows: bool,
    /// Whether it counts bytes.
    pub is_bytes: bool,
    pub value: f64,
}

impl Fact {
    /// A number that may go down.
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, grows: false, is_bytes: false, value: value as f64 }
    }

    /// A number that only grows.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { grows: true, ..Self::gauge(name, help, value) }
    }

    /// Bytes that only grow.
    pub fn bytes(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { is_bytes: true, ..Self::counter(name, help, value) }
    }

    pub(super) fn to_json(self) -> Value {
        json!({ "help": self.help, "value": self.value, "bytes": self.is_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;
    use crate::telemetry::metrics::format::Format;

    #[test]
    fn what_a_service_tells_is_on_the_page_and_among_the_metrics() {
        let telemetry = Telemetry::default();
        let bytes = Fact::bytes("relay_received", "Bytes in, of all connections", 7);
        telemetry.serves("relay", vec![Fact::gauge("relay_circuits", "Open circuits", 2), bytes]);
        let text = telemetry.metrics(Format::OpenMetrics).unwrap();
        assert!(text.contains("pathswarm_relay_circuits 2.0"), "{text}");
        assert!(text.contains("pathswarm_relay_received_bytes_total 7.0"), "{text}");
        let whole: Value = serde_json::from_str(&telemetry.subscribe().whole).unwrap();
        assert_eq!(whole["state"]["services"]["relay"][1], bytes.to_json());
    }
}
