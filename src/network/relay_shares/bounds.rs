//! How much a relay gives.

use std::time::Duration;

use crate::network::limits::{
    CIRCUIT_BYTES, CIRCUIT_LASTS, CIRCUITS, CIRCUITS_PER_PEER, CONNECTIONS_PER_IP, HOURLY_BYTES_PER_IP, RESERVATIONS,
};

/// Limits of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayBounds {
    /// Reservations at once. Peers behind one IP address may have a sixteenth, but at least eight.
    pub reservations: usize,
    /// Circuits at once. Peers behind one IP address may have an eighth, but at least eight.
    pub circuits: usize,
    /// Circuits that one peer has requested.
    pub circuits_per_peer: usize,
    /// Bytes through one circuit, both ways together.
    pub circuit_bytes: u64,
    /// Duration of a circuit.
    pub circuit_lasts: Duration,
    /// Connections from one IP address.
    pub connections_per_ip: usize,
    /// Bytes through the circuits that are requested from one IP address in an hour. A circuit counts with all that it
    /// may carry.
    pub hourly_bytes_per_ip: u64,
}

impl Default for RelayBounds {
    fn default() -> Self {
        Self {
            reservations: RESERVATIONS,
            circuits: CIRCUITS,
            circuits_per_peer: CIRCUITS_PER_PEER,
            circuit_bytes: CIRCUIT_BYTES,
            circuit_lasts: CIRCUIT_LASTS,
            connections_per_ip: CONNECTIONS_PER_IP,
            hourly_bytes_per_ip: HOURLY_BYTES_PER_IP,
        }
    }
}
