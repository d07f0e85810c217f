//! Counts of payload bytes in each direction, by kind.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libp2p::metrics::Registry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From this peer.
    Up,
    /// To this peer.
    Down,
}

/// Payload bytes since the start, as exchanged with libp2p. Encryption, framing, identify, ping and Kademlia are not
/// included, nor are gossip's copies: a message counts once when published, to however many mesh peers, once when it
/// first arrives, and not when it is forwarded. Blob bytes count as they move, so an interrupted transfer counts for
/// its moved bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Published to modules.
    pub gossip_sent: u64,
    /// Received from modules.
    pub gossip_received: u64,
    /// Requests and responses sent.
    pub control_sent: u64,
    /// Requests and responses received.
    pub control_received: u64,
    /// Served to others.
    pub blobs_sent: u64,
    /// Fetched from others.
    pub blobs_received: u64,
    /// Forwarded between two others.
    pub blobs_forwarded: u64,
    /// Gossip messages dropped because the application was slow.
    pub gossip_dropped: u64,
}

/// The running counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub gossip_sent: Counter,
    pub gossip_received: Counter,
    pub control_sent: Counter,
    pub control_received: Counter,
    pub blobs_sent: Counter,
    pub blobs_received: Counter,
    pub blobs_forwarded: Counter,
    pub gossip_dropped: Counter,
}

/// A number to which several tasks add.
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
    /// Bytes of gossip, requests and responses.
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
            blobs_forwarded: self.blobs_forwarded.get(),
            gossip_dropped: self.gossip_dropped.get(),
        }
    }
}

/// Bytes in and out of all connections whose transport counts into this registry. libp2p counts for Prometheus, so they
/// are read from the text for Prometheus.
pub(crate) fn bytes_of_connections(metrics: &Registry) -> (u64, u64) {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, metrics);
    let of = |direction: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(direction));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    };
    (of("Inbound"), of("Outbound"))
}
