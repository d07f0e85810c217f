//! The state as text for Prometheus: OpenMetrics, or what scrapers read that do not know it (`format`).
//!
//! Names, units and help are those of <https://prometheus.io/docs/practices/naming/>: `pathswarm_`, the thing, its unit in
//! plural, and `_total` where it only grows. Every metric of a peer has the label `peer`, its short name in this process.

pub mod format;
#[cfg(test)]
mod lint;

use std::fmt::Error;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::peer::PeerStatus;
use crate::peer::status::{OuterStepStatus, Reachability};
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::format::{Format, to_text};
use crate::telemetry::services::Fact;
use crate::telemetry::state::{Seen, State};

#[derive(Clone, Copy, Debug)]
enum Direction {
    #[allow(non_camel_case_types, reason = "the label's value is the name of the variant")]
    sent,
    #[allow(non_camel_case_types, reason = "the label's value is the name of the variant")]
    received,
    #[allow(non_camel_case_types, reason = "the label's value is the name of the variant")]
    forwarded,
}

/// Labels of a metric of a peer.
type Labels = Vec<(&'static str, String)>;

/// The metrics of all peers, by name.
struct Table<'a> {
    registry: &'a mut Registry,
    peers: Vec<(&'a String, &'a Seen, &'a PeerStatus)>,
}

/// One peer of a table.
type Row<'a> = (&'a Seen, &'a PeerStatus);

impl Table<'_> {
    /// A number of each peer, which may go down.
    fn gauge(&mut self, name: &str, help: &str, unit: Option<Unit>, value: impl Fn(Row) -> Option<f64>) {
        self.gauges(name, help, unit, |row| value(row).map(|value| (Labels::new(), value)).into_iter().collect());
    }

    /// Numbers of each peer, by further labels.
    fn gauges(&mut self, name: &str, help: &str, unit: Option<Unit>, values: impl Fn(Row) -> Vec<(Labels, f64)>) {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (peer, seen, status) in &self.peers {
            for (labels, value) in values((seen, status)) {
                family.get_or_create(&with_peer(peer, labels)).set(value);
            }
        }
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, family),
            None => self.registry.register(name, help, family),
        }
    }

    /// A number of each peer, which only grows.
    fn counter(&mut self, name: &str, help: &str, unit: Option<Unit>, value: impl Fn(Row) -> f64) {
        self.counters(name, help, unit, |row| vec![(Labels::new(), value(row))]);
    }

    fn counters(&mut self, name: &str, help: &str, unit: Option<Unit>, values: impl Fn(Row) -> Vec<(Labels, f64)>) {
        let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
        for (peer, seen, status) in &self.peers {
            for (labels, value) in values((seen, status)) {
                family.get_or_create(&with_peer(peer, labels)).inc_by(value);
            }
        }
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, family),
            None => self.registry.register(name, help, family),
        }
    }
}

fn with_peer(peer: &str, mut labels: Labels) -> Labels {
    labels.insert(0, ("peer", peer.to_owned()));
    labels
}

fn training(table: &mut Table) {
    table.gauge("training_loss_nats_per_token", "Training loss of the last reported step", None, |(_, it)| {
        it.activity.loss
    });
    table.gauge("tokens_per_second", "Tokens trained on in a second of inner steps", None, |(_, it)| {
        it.activity.tokens_per_s
    });
    table.counter("tokens_trained", "Tokens trained on", None, |(_, it)| it.activity.tokens as f64);
    table.counter("training", "Time of inner steps", Some(Unit::Seconds), |(_, it)| it.activity.trained_s);
    table.counters("waiting", "Time that the peer waited, by what for", Some(Unit::Seconds), |(seen, _)| {
        seen.waited_s.iter().map(|(kind, seconds)| (vec![("reason", kind.clone())], *seconds)).collect()
    });
    table.counter("phases_trained", "Phases trained", None, |(_, it)| it.phases_trained as f64);
    table.gauge("run_phases", "Phases of the run", None, |(_, it)| Some(it.node.phases as f64));
    table.gauge("done", "1 if every path here is done, else 0", None, |(_, it)| Some(f64::from(it.node.done)));
    table.gauge("is_waiting", "1 if nothing trains here because something is waited for, else 0", None, |(_, it)| {
        Some(f64::from(it.node.waits_for.is_some() && !it.node.done))
    });
    table.gauges("path_phase", "Phase of a path held here", None, |(_, it)| {
        let labels = |path: &crate::protocol::status::PathStatus| {
            vec![("path", path.path.to_string()), ("trainer", path.trainer.to_string())]
        };
        it.node.paths.iter().filter_map(|path| Some((labels(path), path.phase? as f64))).collect()
    });
    table.gauges("held_out_bpb", "Newest known score of a path on held-out text, in bits per byte", None, |(_, it)| {
        let score = |score: &crate::protocol::status::ScoreStatus| {
            (vec![("path", score.path.to_string())], f64::from(score.millibits_per_byte) / 1e3)
        };
        it.node.scores.iter().map(score).collect()
    });
}

fn modules(table: &mut Table) {
    let module = |of: fn(&crate::protocol::status::ModuleStatus) -> Option<f64>| {
        move |(_, it): Row| {
            let value = |module: &_| {
                let module: &crate::protocol::status::ModuleStatus = module;
                Some((vec![("module", module.module.clone())], of(module)?))
            };
            it.node.modules.iter().filter_map(value).collect()
        }
    };
    table.gauges(
        "module_version",
        "Version of a module here",
        None,
        module(|it| it.version.map(|version| version as f64)),
    );
    table.gauges("module_members", "Living members of a module", None, module(|it| Some(it.members as f64)));
    table.gauges(
        "module_owned",
        "1 if this peer owns the module, else 0",
        None,
        module(|it| Some(f64::from(it.owned_here))),
    );
    table.gauges(
        "module_unowned",
        "1 if the module has no owner, else 0",
        None,
        module(|it| Some(f64::from(it.owner.is_none()))),
    );
    table.gauges(
        "module_unreplicated",
        "1 if no other living peer has the module, else 0",
        None,
        module(|it| Some(f64::from(it.no_replica))),
    );
    table.gauges(
        "module_staleness_versions",
        "Versions that recent contributions were late, on average",
        None,
        module(|it| Some(it.staleness_mean)),
    );
    table.counters(
        "contribution_weight_lost",
        "Weight of contributions that came too late",
        None,
        module(|it| Some(it.weight_lost as f64)),
    );
    table.gauges("module_differs", "Members whose state of the same version differs", None, |(_, it)| {
        let count = |module: &crate::protocol::status::ModuleStatus| {
            it.node.members.values().filter(|member| member.differs.contains(&module.module)).count() as f64
        };
        it.node.modules.iter().map(|module| (vec![("module", module.module.clone())], count(module))).collect()
    });
}

/// Of updates that the peer computes as owner.
fn outer_steps(table: &mut Table) {
    let norm = |module: &str, of: &str| vec![("module", module.to_owned()), ("of", of.to_owned())];
    let help = "Norm of the outer gradients in the newest update: mean of the contributions, and of their average";
    table.gauges("outer_gradient_norm", help, None, |(_, it)| {
        let two = |(module, step): (&String, &OuterStepStatus)| {
            [(norm(module, "contributions"), step.norms.mean_norm), (norm(module, "average"), step.norms.average_norm)]
        };
        it.outer_steps.iter().flat_map(two).collect()
    });
    let help = "Mean cosine between two contributions of the newest update, from -1 to 1";
    table.gauges("outer_gradient_agreement", help, None, |(_, it)| {
        let one = |(module, step): (&String, &OuterStepStatus)| {
            Some((vec![("module", module.clone())], step.norms.agreement?))
        };
        it.outer_steps.iter().filter_map(one).collect()
    });
    table.gauges("outer_gradient_contributions", "Contributions in the newest update", None, |(_, it)| {
        let one = |(module, step): (&String, &OuterStepStatus)| {
            (vec![("module", module.clone())], step.norms.contributions as f64)
        };
        it.outer_steps.iter().map(one).collect()
    });
}

fn network(table: &mut Table) {
    table.gauge("members", "Other living peers known", None, |(_, it)| Some(it.node.peers.len() as f64));
    table.gauge("connections", "Connected peers", None, |(_, it)| Some(it.activity.connections as f64));
    table.gauges("reachability", "1 for how peers outside reach this one, else 0", None, |(_, it)| {
        let one = |state: Reachability| {
            (vec![("state", state.name().to_owned())], f64::from(it.activity.reachability == state))
        };
        [Reachability::Public, Reachability::Private, Reachability::Unknown].map(one).into()
    });
    let help = "Median of the last pings of connected peers";
    table.gauge("median_round_trip", help, Some(Unit::Seconds), |(_, it)| {
        it.activity.median_round_trip_ms().map(|median| median / 1e3)
    });
    table.gauge("relayed_peers", "Connected peers that are reached through relays only", None, |(_, it)| {
        Some(it.activity.relayed.len() as f64)
    });
    table.gauge("banned_peers", "Peers banned now", None, |(_, it)| Some(it.bans.len() as f64));
    table.gauge("quarantined_peers", "Peers quarantined now", None, |(_, it)| {
        Some(it.node.peer_scores.iter().filter(|score| score.quarantined).count() as f64)
    });
    let direction = |direction: Direction| ("direction", format!("{direction:?}"));
    table.counters("blob", "Payload of contributions, averages, states and text", Some(Unit::Bytes), |(_, it)| {
        let traffic = &it.traffic;
        vec![
            (vec![direction(Direction::sent)], traffic.blob_bytes_sent as f64),
            (vec![direction(Direction::received)], traffic.blob_bytes_received as f64),
            (vec![direction(Direction::forwarded)], traffic.blob_bytes_forwarded as f64),
        ]
    });
    table.counters("message", "Payload of heartbeats, offers, updates and requests", Some(Unit::Bytes), |(_, it)| {
        vec![
            (vec![direction(Direction::sent)], it.traffic.message_bytes_sent as f64),
            (vec![direction(Direction::received)], it.traffic.message_bytes_received as f64),
        ]
    });
    table.counters("sync", "Compressed outer gradients and averages of others", Some(Unit::Bytes), |(_, it)| {
        let kind = |kind: &str| vec![("kind", kind.to_owned())];
        vec![
            (kind("contribution"), it.synced.contribution_bytes as f64),
            (kind("average"), it.synced.average_bytes as f64),
        ]
    });
    table.counters("sync_parameters", "Parameters for which these were", None, |(_, it)| {
        let kind = |kind: &str| vec![("kind", kind.to_owned())];
        vec![
            (kind("contribution"), it.synced.contribution_parameters as f64),
            (kind("average"), it.synced.average_parameters as f64),
        ]
    });
    table.counter("messages_dropped", "Gossip dropped because this peer was slow", None, |(_, it)| {
        it.activity.messages_dropped as f64
    });
    table.counter("updates_audited", "Updates of others that were computed again here", None, |(_, it)| {
        it.node.audited as f64
    });
}

fn machine(table: &mut Table) {
    table.gauge("uptime", "Time since the start of the peer", Some(Unit::Seconds), |(_, it)| {
        Some(it.activity.uptime_s as f64)
    });
    table.gauge("store", "Blobs in the store", Some(Unit::Bytes), |(_, it)| Some(it.activity.disk_bytes as f64));
    table.gauge("resident_memory", "Memory of the process of the peer", Some(Unit::Bytes), |(_, it)| {
        it.activity.resident_bytes.map(|bytes| bytes as f64)
    });
    let help = "Tensors of the process on the CUDA devices of the peer";
    table.gauge("device_memory", help, Some(Unit::Bytes), |(_, it)| {
        it.activity.device_memory_bytes.map(|bytes| bytes as f64)
    });
    let queue = |value: fn(&crate::peer::status::QueueStatus) -> usize| {
        move |(_, it): Row| {
            let one = |queue: &_| {
                let queue: &crate::peer::status::QueueStatus = queue;
                (vec![("queue", queue.name.replace(' ', "_"))], value(queue) as f64)
            };
            it.activity.queues.iter().map(one).collect()
        }
    };
    table.gauges("queue_length", "Entries of a table that other peers can make grow", None, queue(|it| it.length));
    table.gauges("queue_limit", "The most entries that the table may have", None, queue(|it| it.limit));
    table.gauge("disk_refuses", "1 if the disk takes no writes, else 0", None, |(_, it)| {
        use crate::protocol::status::waiting::Waiting;
        Some(f64::from(matches!(it.node.waits_for, Some(Waiting::Disk { .. }))))
    });
    table.gauges("build_info", "1, with the version of the program and the run", None, |(_, it)| {
        let labels =
            vec![("version", it.activity.program.clone()), ("run", it.name.clone()), ("key", it.node.peer.clone())];
        vec![(labels, 1.0)]
    });
}

/// A number of a service of this process.
fn register(registry: &mut Registry, Fact { name, help, grows, is_bytes, value }: Fact) {
    let unit = is_bytes.then_some(Unit::Bytes);
    let gauge = Gauge::<f64, AtomicU64>::default();
    gauge.set(value);
    match (grows, unit) {
        (true, Some(unit)) => registry.register_with_unit(name, help, unit, ConstCounter::new(value)),
        (true, None) => registry.register(name, help, ConstCounter::new(value)),
        (false, Some(unit)) => registry.register_with_unit(name, help, unit, gauge),
        (false, None) => registry.register(name, help, gauge),
    }
}

impl State {
    fn open_metrics(&self, now_ms: u64) -> Result<String, Error> {
        let mut registry = Registry::with_prefix("pathswarm");
        let peers = self.peers.iter().filter_map(|(peer, seen)| Some((peer, seen, seen.status.as_ref()?))).collect();
        let mut table = Table { registry: &mut registry, peers };
        training(&mut table);
        modules(&mut table);
        outer_steps(&mut table);
        network(&mut table);
        machine(&mut table);
        table.gauge("status_age", "Time since the peer last answered", Some(Unit::Seconds), |(seen, _)| {
            Some(now_ms.saturating_sub(seen.answered_ms) as f64 / 1e3)
        });
        self.latencies.register(&mut registry);
        self.services.values().flatten().for_each(|fact| register(&mut registry, *fact));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Telemetry {
    /// The metrics of all peers. They are at most some seconds old: `pathswarm_status_age_seconds` says how much.
    ///
    /// # Errors
    /// None: writing to a string does not fail.
    pub fn metrics(&self, format: Format) -> Result<String, Error> {
        let text = self.state().open_metrics(crate::telemetry::now_ms())?;
        Ok(if format == Format::Text { to_text(&text) } else { text })
    }
}
