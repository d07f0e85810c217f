//! Every limit of a relay, with its arithmetic.

use std::time::Duration;

use crate::network::limits::{PENDING_INCOMING, PENDING_PER_IP, RELAYED_INCOMING_PER_RELAY};

/// Peers that hold a reservation on a relay. Each is a connection: 512 of some 50 KiB = 25 MiB.
pub const RESERVATIONS: usize = 512;

/// Reservations of one peer: it holds one, and asks for the next before it notices that a connection has died.
pub const RESERVATIONS_PER_PEER: usize = 2;

/// Duration of a reservation. libp2p renews it in time.
pub const RESERVATION_LASTS: Duration = Duration::from_secs(60 * 60);

/// Circuits through a relay at once: 512 x 2 x 8 KiB of buffers = 8 MiB.
pub const CIRCUITS: usize = 512;

/// Circuits requested by one peer, to members of its modules that it cannot reach otherwise.
pub const CIRCUITS_PER_PEER: usize = 32;

/// Circuits to one peer through a relay, of which peers behind one IP address may have [`PEERS_PER_IP`]: as many as this
/// peer accepts through one relay.
pub const CIRCUITS_TO_PEER: usize = RELAYED_INCOMING_PER_RELAY;

/// Bytes through one circuit, for gossip and control, both ways together: 20 modules with 500 bytes a second of
/// heartbeats, offers and updates each, in three copies, are 30 KB/s, so 54 MB in half an hour. Blobs never use
/// circuits, and this bounds any misuse.
pub const CIRCUIT_BYTES: u64 = 64 << 20;

/// Duration of a circuit, after which peers make another one. If hole punching works, it lasts seconds.
pub const CIRCUIT_LASTS: Duration = Duration::from_secs(30 * 60);

/// Circuits that one peer may request in a row; then one every [`CIRCUIT_EVERY`].
pub const CIRCUITS_IN_A_ROW: u32 = 120;
/// See [`CIRCUITS_IN_A_ROW`].
pub const CIRCUIT_EVERY: Duration = Duration::from_secs(5);

/// Reservations that one peer may request in a row; then one every [`RESERVATION_EVERY`].
pub const RESERVATIONS_IN_A_ROW: u32 = 30;
/// See [`RESERVATIONS_IN_A_ROW`].
pub const RESERVATION_EVERY: Duration = Duration::from_secs(30);

/// All peers behind one IP address may request this many times as much as one peer: a household, or an office.
pub const PEERS_PER_IP: u32 = 8;

/// Connections of a relay in all: its reservations, as many for circuits, and some for lookups.
pub const RELAY_CONNECTIONS: u32 = 2 * RESERVATIONS as u32 + 256;

/// Pending handshakes of a relay.
pub const RELAY_PENDING: u32 = PENDING_INCOMING;

/// Pending handshakes of a relay with one IP address.
pub const RELAY_PENDING_PER_IP: usize = PENDING_PER_IP;

/// Bytes through the circuits that are requested from one IP address in an hour, where each circuit counts with all that
/// it may carry: 8 peers that request 32 circuits of 64 MiB each. An address holds an eighth of [`CIRCUITS`] at once, and
/// renews them in half an hour, which is half of this. Most circuits carry far less, and end with hole punching.
pub const HOURLY_BYTES_PER_IP: u64 = PEERS_PER_IP as u64 * CIRCUITS_PER_PEER as u64 * CIRCUIT_BYTES;

/// Silence after which a relay that listens on all interfaces has reported all of them.
pub const INTERFACES_WITHIN: Duration = Duration::from_millis(200);

/// Time after which a relay closes a connection without a reservation or a circuit.
pub const RELAY_IDLE: Duration = Duration::from_secs(60);
