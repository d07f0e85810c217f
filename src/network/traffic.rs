//! How many payload bytes have gone each way, by kind.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libp2p::metrics::Registry;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From this peer.
    Up,
    /// To it.
    Down,
}

/// Payload bytes since the start, as this layer hands them to libp2p and gets them from it. Not in it: encryption,
/// framing, identify, ping, Kademlia, and gossip's copies: a message counts once when published, however many mesh
/// peers it goes to, once when it first arrives, and not when it is passed on. Blob bytes count as they move, so a
/// transfer that breaks off counts for what it moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Published to modules.
    pub gossip_sent: u64,
    /// Heard on modules.
    pub gossip_received: u64,
    /// Requests sent and responses given.
    pub control_sent: u64,
    /// Requests heard and responses got.
    pub control_received: u64,
    /// Served to others.
    pub blobs_sent: u64,
    /// Fetched from others.
    pub blobs_received: u64,
    /// Gossip messages dropped because the application was slow to take them.
    pub gossip_dropped: u64,
}

/// The same, while it is being counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub gossip_sent: Counter,
    pub gossip_received: Counter,
    pub control_sent: Counter,
    pub control_received: Counter,
    pub blobs_sent: Counter,
    pub blobs_received: Counter,
    pub gossip_dropped: Counter,
}

/// One number that several tasks add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: usize) {
        self.0.fetch_add(amount as u64, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Counters {
    /// Bytes of gossip, questions and answers.
    pub(crate) fn messages(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Up => self.gossip_sent.get() + self.control_sent.get(),
            Direction::Down => self.gossip_received.get() + self.control_received.get(),
        }
    }

    pub(crate) fn read(&self) -> Traffic {
        Traffic {
            gossip_sent: self.gossip_sent.get(),
            gossip_received: self.gossip_received.get(),
            control_sent: self.control_sent.get(),
            control_received: self.control_received.get(),
            blobs_sent: self.blobs_sent.get(),
            blobs_received: self.blobs_received.get(),
            gossip_dropped: self.gossip_dropped.get(),
        }
    }
}

/// Bytes in and out of all connections whose transport counts into this registry. libp2p counts for Prometheus, so they
/// are read from the text that Prometheus would get.
pub(crate) fn bytes_of_connections(metrics: &Registry) -> (u64, u64) {
    let mut text = String::new();
    // Into a string nothing fails.
    let _ = prometheus_client::encoding::text::encode(&mut text, metrics);
    let of = |direction: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(direction));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    };
    (of("Inbound"), of("Outbound"))
}
