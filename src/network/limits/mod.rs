//! Every limit of the network, with its arithmetic. Nothing that a peer sends is stored, queued or waited for without
//! one.

mod blobs;
mod relays;

use std::time::Duration;

pub use self::blobs::*;
pub use self::relays::*;

use crate::protocol::limits::MAX_GOSSIP_BYTES;

/// The largest gossip message: 5 KiB. Heartbeats, offers and most updates are some hundred bytes; larger data travels
/// as blobs.
pub const GOSSIP_BYTES: usize = MAX_GOSSIP_BYTES;

/// The largest gossip frame: 16 KiB above the payload. The decoder compares its whole read buffer with this, and reads
/// 8 KiB at a time, so a frame may be at most 21 - 8 = 13 KiB; the next two bounds keep our own frames below that.
pub const GOSSIP_FRAME_BYTES: usize = GOSSIP_BYTES + 16 * 1024;

/// Topics that a peer may subscribe to. A path has tens of modules. On connecting, all subscriptions travel in one
/// frame: 120 x 97 bytes (a topic of at most 91, and its protobuf tags) = 11.4 KiB. libp2p's own default is 100.
pub const TOPICS_PER_PEER: usize = 120;

/// Message ids in one `IHAVE` or `IWANT`: 300 x 34 bytes (BLAKE3 and its tags) = 10 KiB.
pub const GOSSIP_IDS_PER_FRAME: usize = 300;

/// Gossip frames waiting for one slow peer: 256 x 5.4 KiB = 1.4 MiB a peer, 346 MiB if all 256 connections stall.
/// libp2p drops further frames, and we count them.
pub const GOSSIP_QUEUE_PER_PEER: usize = 256;

/// Gossip messages waiting for the application: 512 x 5 KiB = 2.5 MiB. Further ones are dropped and counted.
pub const GOSSIP_EVENTS: usize = 512;

/// The largest request or response. It is held in memory as a whole, so bulk data travels as blobs.
pub const CONTROL_BYTES: usize = 256 * 1024;

/// From sending a request to its complete response.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

/// Own pending requests to one peer; further ones fail with `RequestError::Busy`.
pub const REQUESTS_PER_PEER: usize = 8;

/// Requests of one peer that wait for the application's response, so that one peer cannot block the others.
pub const UNANSWERED_REQUESTS_PER_PEER: usize = 8;

/// Pending requests on one connection, both ways: 8 + 8 = 16, of 256 KiB = 4 MiB; with 256 connections at worst 1 GiB,
/// and only if all peers really send it: buffers grow with the bytes that arrive, not with announced sizes.
pub const CONTROL_STREAMS_PER_CONNECTION: usize = REQUESTS_PER_PEER + UNANSWERED_REQUESTS_PER_PEER;

/// Requests of all peers that wait for the application's response: 128 x 256 KiB = 32 MiB. Further ones are refused at
/// once, and counted.
pub const UNANSWERED_REQUESTS: usize = 128;

/// Of these, requests that only members may have waiting: others take up half at most, however many keys they have.
pub const UNANSWERED_FOR_MEMBERS: usize = UNANSWERED_REQUESTS / 2;

/// Own requests, fetches and lookups whose result the application has not yet taken. Each has a reserved slot in the
/// queue of results, so no result is ever lost; the next is refused with `NotSent::Busy`. Bodies that wait for a
/// connection: 256 x 256 KiB = 64 MiB.
pub const RESULTS: usize = 256;

/// Own authentication requests whose result the application has not yet taken, apart from [`RESULTS`]: one to each
/// connected peer. The requests have at most 5 KiB, 1.3 MiB in all; the answers count like other results.
pub const INTRODUCTIONS: usize = CONNECTIONS as usize;

/// Commands waiting for the network's task. It handles one in microseconds; a full mailbox is `NotSent::Busy`.
pub const COMMANDS: usize = 1024;

/// Changes of connections and addresses waiting for the application. Further changes are merged, never lost.
pub const CHANGES: usize = 64;

/// Connections in all, with those through relays. A peer needs the members of its own modules: tens, however large the
/// swarm is.
pub const CONNECTIONS: u32 = 256;

/// Incoming connections: 64 are left that only this peer can dial. When all are taken, a further one takes the place of
/// one with a worse claim.
pub const INCOMING_CONNECTIONS: u32 = 192;

/// Incoming connections through relays: half of all. Who is behind them is seen by the relay alone, which counts keys that
/// cost nothing for this peer.
pub const RELAYED_INCOMING: usize = INCOMING_CONNECTIONS as usize / 2;

/// Incoming connections through one relay, so that those through another find places.
pub const RELAYED_INCOMING_PER_RELAY: usize = RELAYED_INCOMING / RELAYS_AT_ONCE;

/// To one peer: TCP and QUIC, if both sides dial at the same time; or a relayed one, a direct one that replaces it, and
/// the tests of a relay ([`PROBES_AT_ONCE`]).
pub const CONNECTIONS_PER_PEER: u32 = 4;

/// Connections that had to make room for others and are not closed yet, which a peer that reads nothing can delay. Then
/// no further one has to: 512 in all at worst.
pub const CLOSING_CONNECTIONS: usize = CONNECTIONS as usize;

/// Pending handshakes of connections that this peer dials.
pub const PENDING_CONNECTIONS: u32 = 64;

/// Pending handshakes of incoming connections, of a peer or a relay: 16 addresses, each with its share, and a handshake
/// takes at most [`CONNECT_TIMEOUT`].
pub const PENDING_INCOMING: u32 = 256;

/// Streams in negotiation on one connection.
pub const NEGOTIATING_STREAMS: usize = 64;

/// Time-out of an unused connection. libp2p's 10 s would close most connections between two phases: gossip keeps alive
/// only the peers of its mesh (8 to 16 a module), and pings do not count. Ping detects dead connections in 25 s; this
/// time-out closes those that are no longer needed, such as after a query of Kademlia. A member beyond the mesh without
/// traffic for 5 minutes is disconnected too, and connected again when it is needed or its next heartbeat is passed on
/// to `dial_peer`.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(5 * 60);

/// Time between two pings, and the time-out of each. The first failure closes the connection.
pub const PING_INTERVAL: Duration = Duration::from_secs(10);
/// See [`PING_INTERVAL`].
pub const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Time-out of one attempt to connect, with name lookup and handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time-out from a connection to the other peer's identification.
pub const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// Addresses kept for one peer, from one source.
pub const ADDRESSES_PER_PEER: usize = 16;

/// Peers that were connected on the LAN or on this machine, and may still name addresses there: 1,024 of 60 bytes.
pub const NEIGHBOURS_REMEMBERED: usize = 1_024;

/// Addresses that one peer may have dialled in a second, and at once. A peer has at most eight, which change when a
/// network or a relay comes or goes.
pub const NAMED_PER_SECOND: u32 = 1;
/// See [`NAMED_PER_SECOND`].
pub const NAMED_BURST: u32 = 32;

/// The same for all peers together: a directory names 64 peers with eight addresses each.
pub const ALL_NAMED_PER_SECOND: u32 = 32;
/// See [`ALL_NAMED_PER_SECOND`].
pub const ALL_NAMED_BURST: u32 = 1_024;

/// Peers and relays dialled by our own wish: 16 fewer than may be pending, which are left to Kademlia's lookups. If all
/// are taken, a peer that others have named, and that is no member, gives way to what this peer wants; and what it wants
/// of others gives way to members and the user.
pub const DIALLED_PEERS: usize = PENDING_CONNECTIONS as usize - 16;

/// Callers of `dial` that wait for its outcome.
pub const DIALS: usize = 64;

/// Time-out for an address to listen on.
pub const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Provider records of others that this peer keeps: 4096 x (8 addresses x 176 bytes + a key of 32) = 5.6 MiB. The
/// oldest one is dropped for a new one; a peer that is still a member announces itself again soon. One peer may have
/// [`TOPICS_PER_PEER`] of them.
pub const PROVIDER_RECORDS: usize = 4096;

/// Records for one module: Kademlia's replication.
pub const PROVIDERS_PER_KEY: usize = 20;

/// Addresses of one peer that Kademlia passes on, and the longest of them: two direct transports in each address
/// family, and [`RELAYED_ADDRESSES`].
pub const KAD_ADDRESSES: usize = 4 + RELAYED_ADDRESSES;
/// See [`KAD_ADDRESSES`]: a name of 63 letters, a port, a transport and a peer take 120 bytes, a circuit and the peer
/// at its end 43 more.
pub const KAD_ADDRESS_BYTES: usize = 176;

/// The largest Kademlia message: 20 close peers and 20 providers with 8 addresses of 176 bytes each are 55 KiB, and
/// each peer's id and framing 2 KiB more.
pub const KAD_FRAME_BYTES: usize = 64 * 1024;

/// Providers collected by one lookup.
pub const PROVIDERS_PER_LOOKUP: usize = 32;

/// Time-out of one lookup.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// Known relays, from the machine's profile and from connections. 16 x 4 addresses of 176 bytes.
pub const RELAYS_KNOWN: usize = 16;

/// Addresses of each relay.
pub const ADDRESSES_PER_RELAY: usize = 4;

/// Relays on which an unreachable peer holds reservations: when one fails, others still connect through the second.
pub const RELAYS_AT_ONCE: usize = 2;

/// Relayed addresses that a peer tells others: QUIC and TCP on each relay.
pub const RELAYED_ADDRESSES: usize = 2 * RELAYS_AT_ONCE;

/// First pause before a relay is asked again after it refused or lost a reservation. Each further one is twice as long.
/// Up to as much again is added, depending on the peer's key, so that peers do not all return at the same moment.
pub const RELAY_PAUSE: Duration = Duration::from_secs(1);

/// The longest such pause, before the addition.
pub const RELAY_LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// Time for which a fetch with only a relayed connection waits for hole punching: three attempts of at most
/// [`CONNECT_TIMEOUT`] each, counted from the relayed connection.
pub const PUNCHING_WAIT: Duration = Duration::from_secs(30);

/// Time after a failed wait in which fetches do not wait for that peer.
pub const PUNCHING_PAUSE: Duration = Duration::from_secs(60);

/// Fetches that wait for a direct connection: at most [`RESULTS`].
pub const FETCHES_WAITING: usize = RESULTS;

/// A relayed connection is closed this long after a direct one to the same peer was made, when the other side has
/// noticed the direct one, too.
pub const DETOUR_LASTS: Duration = Duration::from_secs(3);

/// Own addresses that a relay is asked to test at once (AutoNAT); it connects to us for each.
pub const PROBES_AT_ONCE: usize = 1;

/// Time between two tests.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Failed connections that are remembered as text: 16 x 16 addresses of 200 bytes = 51 KiB.
pub const FAILURES: usize = 16;

/// Observed addresses of this peer: 1024 x 200 bytes = 200 KiB, here and in AutoNAT, which never drops any. Beyond this
/// they are made up, and relays are not asked to test more.
pub const SEEN_ADDRESSES: usize = 1024;

/// Peers and addresses that mDNS may announce on our LAN: 1024 x 200 bytes = 200 KiB. Beyond this, mDNS is switched
/// off: it is not a LAN, or they are made up.
pub const MDNS_ADDRESSES: usize = 1024;

/// Gossip messages of one author in a second, and at once. A peer sends a heartbeat once a second on each of at most
/// 120 topics, and at once after changes. Each of its 16 paths offers one contribution to each of its modules at most
/// every 2 s, 480 if 60 levels have two experts each. Updates and hand-offs are few: 620 a second at worst, a tenth of
/// that in any swarm so far. Further messages are dropped and, if they come from the author itself, penalized.
pub const SAID_PER_SECOND: u32 = 1_024;
/// See [`SAID_PER_SECOND`].
pub const SAID_BURST: u32 = 4 * SAID_PER_SECOND;

/// Gossip messages of others that one peer may forward in a second, and at once: at most 1,024 peers are known, with a
/// heartbeat and half an offer each, if all come through one peer. Further messages are dropped without a penalty.
pub const PASSED_ON_PER_SECOND: u32 = 2_048;
/// See [`PASSED_ON_PER_SECOND`].
pub const PASSED_ON_BURST: u32 = 2 * PASSED_ON_PER_SECOND;

/// Gossip messages received and forwarded in a second, of all members together, and at most half as many again: 4,608 x
/// 5 KiB = 23 MiB. While it is short, no author gets more than its share.
pub const GOSSIP_OF_MEMBERS_PER_SECOND: u32 = 3_072;

/// The same for all others together, of whom a newcomer to an open run is one at first.
pub const GOSSIP_OF_STRANGERS_PER_SECOND: u32 = 1_024;

/// Gossip messages of others that no honest peer forwards, since it would have dropped them itself: more than both of
/// the above.
pub const FLOOD_PER_SECOND: u32 = 2 * (GOSSIP_OF_MEMBERS_PER_SECOND + GOSSIP_OF_STRANGERS_PER_SECOND);
/// See [`FLOOD_PER_SECOND`].
pub const FLOOD_BURST: u32 = 4 * FLOOD_PER_SECOND;

/// Requests of one peer in a second, and at once: a silent owner is probed once in each sweep of 250 ms, for each of at
/// most 120 modules. Further requests are not answered, and penalized.
pub const ASKED_PER_SECOND: u32 = 512;
/// See [`ASKED_PER_SECOND`].
pub const ASKED_BURST: u32 = 2 * ASKED_PER_SECOND;

/// Blob streams of one peer in a second, and at once: eight at a time, of small blobs over loopback, are some hundreds.
/// Further streams are answered "busy".
pub const BLOBS_PER_SECOND: u32 = 2_048;
/// See [`BLOBS_PER_SECOND`].
pub const BLOBS_BURST: u32 = 2 * BLOBS_PER_SECOND;

/// Peers, or addresses, whose rates are tracked, for each rate: 4,096 of some 100 bytes = 400 KiB. A peer that has been
/// quiet for some seconds is dropped.
pub const RATED_PEERS: usize = 4_096;

/// Incoming connections from one IP address: a third of all, or four of each of 16 peers in one office.
pub const CONNECTIONS_PER_IP: usize = 64;

/// Pending handshakes from one IP address: twice as many as there are peers behind one.
pub const PENDING_PER_IP: usize = 2 * PEERS_PER_IP as usize;

/// An IPv6 network of 48 bits, which a site or many customers of a provider have, may have so many times as much as one
/// of 64 bits.
pub const NETWORKS_PER_SITE: u32 = 4;

/// Connections that may come from one IP address in a second, and at once. A refused peer retries.
pub const COMING_PER_SECOND: u32 = 8;
/// See [`COMING_PER_SECOND`].
pub const COMING_BURST: u32 = 64;

/// Penalty points at which a peer is banned. One point expires each second.
pub const BAN_POINTS: u32 = 100;

/// The first ban, in seconds. Each further one is twice as long.
pub const BAN_S: u64 = 60;

/// The longest ban.
pub const BAN_MOST_S: u64 = 24 * 60 * 60;

/// Time after a ban from which the next one counts as the first.
pub const BANS_FORGOTTEN_S: u64 = 7 * 24 * 60 * 60;

/// Peers that have a score: 4,096 of some 200 bytes = 800 KiB.
pub const SCORED_PEERS: usize = 4_096;
