//! Every bound of the network, with its arithmetic. Nothing that a peer sends is kept, queued or waited for without one.

use std::time::Duration;

/// The largest gossip message. Heartbeats, offers and updates are some hundred bytes; what is larger travels as a blob.
pub const GOSSIP_BYTES: usize = 4 * 1024;

/// The largest gossip frame: 16 KiB above the payload. The decoder compares its whole read buffer with this, and reads
/// 8 KiB at a time, so a frame may be at most 20 - 8 = 12 KiB; the next two bounds keep our own frames below that.
pub const GOSSIP_FRAME_BYTES: usize = GOSSIP_BYTES + 16 * 1024;

/// Topics that a peer may subscribe to. A path has tens of modules. On connecting, all subscriptions travel in one
/// frame: 120 x 97 bytes (a topic of at most 91, and its protobuf tags) = 11.4 KiB. libp2p's own default is 100.
pub const TOPICS_PER_PEER: usize = 120;

/// Message ids in one `IHAVE` or `IWANT`: 300 x 34 bytes (BLAKE3 and its tags) = 10 KiB.
pub const GOSSIP_IDS_PER_FRAME: usize = 300;

/// Gossip frames waiting for one slow peer: 256 x 4.4 KiB = 1.1 MiB a peer, 282 MiB if all 256 connections stall.
/// What does not fit is dropped by libp2p, and counted here.
pub const GOSSIP_QUEUE_PER_PEER: usize = 256;

/// Gossip messages waiting for the application: 512 x 4 KiB = 2 MiB. What does not fit is dropped and counted.
pub const GOSSIP_EVENTS: usize = 512;

/// The largest request or response: it is held in memory as a whole, so bulk goes as a blob.
pub const CONTROL_BYTES: usize = 256 * 1024;

/// From sending a request to its whole response.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests of our own under way to one peer; further ones fail with `RequestError::Busy`.
pub const REQUESTS_PER_PEER: usize = 8;

/// Requests of one peer that wait for the application's response, so that one peer cannot keep the rest out.
pub const UNANSWERED_REQUESTS_PER_PEER: usize = 8;

/// Requests under way on one connection, both ways: 8 + 8 = 16, of 256 KiB = 4 MiB; with 256 connections 1 GiB at the
/// very worst, and then only if all of them really send it: buffers grow with what arrives, not with what is announced.
pub const CONTROL_STREAMS_PER_CONNECTION: usize = REQUESTS_PER_PEER + UNANSWERED_REQUESTS_PER_PEER;

/// Requests of all peers that wait for the application's response: 128 x 256 KiB = 32 MiB.
/// Further ones are turned away at once, and counted.
pub const UNANSWERED_REQUESTS: usize = 128;

/// Requests, fetches and lookups of our own whose result the application has not yet taken. Each keeps its place in
/// the queue of results from the start, so no result is ever lost; the next is refused with `NotSent::Busy`.
/// Bodies that wait for a connection: 256 x 256 KiB = 64 MiB.
pub const RESULTS: usize = 256;

/// Commands waiting for the network's task. It takes one in microseconds; a full mailbox is `NotSent::Busy`.
pub const COMMANDS: usize = 1024;

/// Changes of connections and addresses waiting for the application. What is not yet told is merged, never lost.
pub const CHANGES: usize = 64;

/// Connections in all, those through relays included. A peer needs the members of its own modules: tens, however
/// large the swarm is.
pub const CONNECTIONS: u32 = 256;

/// Of those, made by others: any number from outside leaves 64 that only we can make.
pub const INCOMING_CONNECTIONS: u32 = 192;

/// To one peer: TCP and QUIC, if both sides dial at the same time; or one through a relay, a direct one that takes its
/// place, and a relay's own of [`PROBES_AT_ONCE`].
pub const CONNECTIONS_PER_PEER: u32 = 4;

/// Handshakes under way, each way.
pub const PENDING_CONNECTIONS: u32 = 64;

/// Streams that are being negotiated on one connection.
pub const NEGOTIATING_STREAMS: usize = 64;

/// An unused connection is kept this long. libp2p's 10 s would close most connections between two phases: gossip keeps
/// alive only the peers of its mesh (8 to 16 a module), and pings do not count. What is dead is found by ping in 25 s;
/// this lets go of passers-by, such as those that Kademlia asked something. A member beyond the mesh that nobody asks
/// anything for 5 minutes is let go too, and connected again when it is needed or its next heartbeat is passed on to
/// `dial_peer`.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(5 * 60);

/// Between two pings, and how long each may take. The first that fails closes its connection.
pub const PING_INTERVAL: Duration = Duration::from_secs(10);
/// See [`PING_INTERVAL`].
pub const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// For one attempt to connect, name lookup and handshake included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// From a connection to the other peer's identification.
pub const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// Addresses kept for one peer, from one source.
pub const ADDRESSES_PER_PEER: usize = 16;

/// Peers that are being dialled at our own wish: 16 fewer than may be pending, which Kademlia's lookups use.
pub const DIALLED_PEERS: usize = PENDING_CONNECTIONS as usize - 16;

/// Callers of `dial` that wait for its outcome.
pub const DIALS: usize = 64;

/// For an address to listen on to be up.
pub const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a blob that are read or written at a time, and waited for. Under a cap they may be fewer.
pub const BLOB_SLICE_BYTES: usize = 64 * 1024;

/// Silence on a blob's stream that ends the transfer. There is no limit to the whole: a blob may be large.
pub const BLOB_IDLE: Duration = Duration::from_secs(10);

/// For one slice: 64 KiB in 30 s is 2 KiB/s, so no peer holds a permit by sending a byte now and then.
pub const BLOB_SLICE_TIMEOUT: Duration = Duration::from_secs(30);

/// To open a stream for a blob.
pub const BLOB_OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Blobs fetched at once. Each donor holds two pieces of 256 KiB: 8 x 16 x 512 KiB = 64 MiB if all have grown to
/// [`DONORS`]. More wait their turn.
pub const FETCHES: usize = 8;

/// Peers that may give a blob, of those that the application names.
pub const DONORS: usize = 16;

/// Of those, so many give at the same time at first, but no more than there are pieces.
pub const DONORS_AT_ONCE: usize = 6;

/// As long as a blob is not whole, one more is asked after each such time.
pub const DONORS_GROW: Duration = Duration::from_secs(2);

/// A donor that has nothing, nothing new or no time is asked again after this, as long as others give.
pub const DONOR_RESTS: Duration = Duration::from_millis(300);

/// A donor that has nothing new keeps its stream for so long: less than [`BLOB_IDLE`], after which it would hang up.
pub const DONOR_WAITS: Duration = Duration::from_secs(5);

/// Pieces that a donor is asked for at a time, at first.
pub const PIECES_ASKED_AT_FIRST: usize = 2;

/// And at most: 40 x 256 KiB = 10 MiB, what QUIC has under way on one stream.
pub const PIECES_ASKED: usize = 40;

/// A donor that has so often not had what it said to have has nothing.
pub const PIECES_LACKED: u32 = 8;

/// After so long without a new piece a fetch has failed, whatever its donors do: at 2 KiB/s a piece takes 128 s.
pub const FETCH_STUCK: Duration = Duration::from_secs(150);

/// One more is asked for at a time if a piece comes within this, one less if it takes twice as long.
pub const PIECE_LATENESS: Duration = Duration::from_millis(500);

/// After this a piece is asked of a second donor that has nothing else to do.
pub const PIECE_IS_LATE: Duration = Duration::from_secs(1);

/// Blobs served at once, one piece of each in memory: 32 x 256 KiB = 8 MiB. More wait for [`SERVING_WAIT`].
pub const SERVINGS: usize = 32;

/// Of those, to a single peer.
pub const SERVINGS_PER_PEER: usize = 8;

/// Streams accepted that are served or wait for it; further ones are dropped.
pub const SERVINGS_AND_WAITING: usize = 128;

/// After this wait the asker hears "busy". Less than [`BLOB_IDLE`], so that it hears it.
pub const SERVING_WAIT: Duration = Duration::from_secs(5);

/// Provider records of others that this peer keeps: 4096 x (8 addresses x 176 bytes + a key of 32) = 5.6 MiB. The one
/// that was announced longest ago makes room for a new one; a peer that is still a member announces itself again
/// soon. One peer may have [`TOPICS_PER_PEER`] of them.
pub const PROVIDER_RECORDS: usize = 4096;

/// Records for one module: Kademlia's replication.
pub const PROVIDERS_PER_KEY: usize = 20;

/// Addresses of one peer that are passed on by Kademlia, and the longest of them: two ways of dialling it directly in
/// each family, and [`RELAYED_ADDRESSES`].
pub const KAD_ADDRESSES: usize = 4 + RELAYED_ADDRESSES;
/// See [`KAD_ADDRESSES`]: a name of 63 letters, a port, a transport and a peer take 120 bytes, a circuit and the peer at
/// its end 43 more.
pub const KAD_ADDRESS_BYTES: usize = 176;

/// The largest Kademlia message: 20 close peers and 20 providers with 8 addresses of 176 bytes each are 55 KiB, and each
/// peer's name and framing 2 KiB more.
pub const KAD_FRAME_BYTES: usize = 64 * 1024;

/// Providers gathered for one lookup.
pub const PROVIDERS_PER_LOOKUP: usize = 32;

/// For one lookup.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// Relays that a peer knows of: those of its machine's profile, and those that it has met. 16 x 4 addresses of 176 bytes.
pub const RELAYS_KNOWN: usize = 16;

/// Of each, so many addresses.
pub const ADDRESSES_PER_RELAY: usize = 4;

/// Relays on which a peer that cannot be reached holds a reservation at once: when one goes, others still come by the second.
pub const RELAYS_AT_ONCE: usize = 2;

/// Addresses through relays that a peer tells others: QUIC and TCP on each relay.
pub const RELAYED_ADDRESSES: usize = 2 * RELAYS_AT_ONCE;

/// After a reservation on a relay was refused or lost, the first wait before that relay is asked again; each further one is
/// twice as long. Up to as much again is added, by the peer's name: not all come back in the same moment.
pub const RELAY_PAUSE: Duration = Duration::from_secs(1);

/// The longest such wait, before what is added.
pub const RELAY_LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// How long a fetch that needs a direct connection, and has one through a relay, waits for a hole to be punched: three
/// attempts that take as long as [`CONNECT_TIMEOUT`] each in the worst case, counted from the relayed connection.
pub const PUNCHING_WAIT: Duration = Duration::from_secs(30);

/// After such a wait in vain, fetches do not wait for that peer for so long.
pub const PUNCHING_PAUSE: Duration = Duration::from_secs(60);

/// Fetches that wait for a direct connection: no more than there are [`RESULTS`].
pub const FETCHES_WAITING: usize = RESULTS;

/// A relayed connection is closed this long after a direct one to the same peer was made: the other side has noticed the
/// direct one by then, and is not without any in between.
pub const DETOUR_LASTS: Duration = Duration::from_secs(3);

/// Addresses of our own that a relay is asked to try at once (AutoNAT): it connects to us for each.
pub const PROBES_AT_ONCE: usize = 1;

/// Between two of them.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Failures to connect that are remembered in words: 16 x 16 addresses of 200 bytes = 51 KiB.
pub const FAILURES: usize = 16;

/// Addresses at which others say that they see us: 1024 x 200 bytes = 200 KiB, here and in AutoNAT, which forgets none.
/// Where there are more, they are made up, and no relay is asked to try any further.
pub const SEEN_ADDRESSES: usize = 1024;

/// Peers and addresses that mDNS may have announced on our LAN: 1024 x 200 bytes = 200 KiB. Where there are more, mDNS
/// is switched off: this is no LAN, or they are made up.
pub const MDNS_ADDRESSES: usize = 1024;

/// Peers that hold a reservation on a relay. Each is a connection: 512 of some 50 KiB = 25 MiB.
pub const RESERVATIONS: usize = 512;

/// Of those, for one peer: it has one, and asks for the next before it notices that a connection has died.
pub const RESERVATIONS_PER_PEER: usize = 2;

/// A reservation lasts this long unless it is renewed, which libp2p does in time.
pub const RESERVATION_LASTS: Duration = Duration::from_secs(60 * 60);

/// Circuits through a relay at once: 512 x 2 x 8 KiB of buffers = 8 MiB.
pub const CIRCUITS: usize = 512;

/// Of those, asked for by one peer: members of its modules that cannot be reached otherwise.
pub const CIRCUITS_PER_PEER: usize = 32;

/// A circuit carries gossip and control, both ways together: 20 modules whose beats, offers and updates are 500 bytes a
/// second each, three copies of each, are 30 KB/s, so 54 MB in half an hour. Blobs never go over one, and whoever
/// tries to send other things gets no further than this.
pub const CIRCUIT_BYTES: u64 = 64 << 20;

/// A circuit ends after this long, and the peers make another one. Between two that can punch a hole it lasts seconds.
pub const CIRCUIT_LASTS: Duration = Duration::from_secs(30 * 60);

/// Circuits that one peer may ask for in a row; after that one every [`CIRCUIT_EVERY`].
pub const CIRCUITS_IN_A_ROW: u32 = 120;
/// See [`CIRCUITS_IN_A_ROW`].
pub const CIRCUIT_EVERY: Duration = Duration::from_secs(5);

/// Reservations that one peer may ask for in a row; after that one every [`RESERVATION_EVERY`].
pub const RESERVATIONS_IN_A_ROW: u32 = 30;
/// See [`RESERVATIONS_IN_A_ROW`].
pub const RESERVATION_EVERY: Duration = Duration::from_secs(30);

/// All that lives behind one address of the internet may ask a relay for so many times as much as one peer: a household,
/// or an office.
pub const PEERS_PER_IP: u32 = 8;

/// Connections that a relay has in all: its reservations, as many that come for a circuit, and some that only ask
/// for members.
pub const RELAY_CONNECTIONS: u32 = 2 * RESERVATIONS as u32 + 256;

/// After this long without another, a relay that listens on all interfaces has told of all.
pub const INTERFACES_WITHIN: Duration = Duration::from_millis(200);

/// A relay closes the connection of a peer without a reservation or a circuit after this long.
pub const RELAY_IDLE: Duration = Duration::from_secs(60);

/// Gossip that one author may say in a second, and at once. A peer sends a heartbeat once a second on each of at
/// most 120 topics, and at once where something has changed; each of its 16 paths offers one contribution to each of
/// its modules every 2 s at the most, 480 where 60 levels have two experts each; updates and passes are few: 620 a
/// second at the very worst, a tenth of that in any swarm so far. What is above is dropped and, if it comes from the
/// author itself, held against it.
pub const SAID_PER_SECOND: u32 = 1_024;
/// See [`SAID_PER_SECOND`].
pub const SAID_BURST: u32 = 4 * SAID_PER_SECOND;

/// Gossip of others that one peer may pass on in a second, and at once: 1,024 peers are known at the most, with a
/// heartbeat and half an offer each, if all of it comes through one. What is above is dropped, and no peer is penalized.
pub const PASSED_ON_PER_SECOND: u32 = 2_048;
/// See [`PASSED_ON_PER_SECOND`].
pub const PASSED_ON_BURST: u32 = 2 * PASSED_ON_PER_SECOND;

/// Gossip that is heard and passed on in a second, and at once, of all peers together: 4,096 x 4 KiB = 16 MiB. So no peer
/// passes on more than this, whatever is sent to it.
pub const GOSSIP_PER_SECOND: u32 = 2 * PASSED_ON_PER_SECOND;
/// See [`GOSSIP_PER_SECOND`].
pub const GOSSIP_BURST: u32 = 2 * GOSSIP_PER_SECOND;

/// Gossip of others that no peer passes on, since it would have dropped it itself: twice the bound above.
pub const FLOOD_PER_SECOND: u32 = 2 * GOSSIP_PER_SECOND;
/// See [`FLOOD_PER_SECOND`].
pub const FLOOD_BURST: u32 = 2 * GOSSIP_BURST;

/// Requests of one peer in a second, and at once: an owner that falls silent is asked once in each sweep of 250 ms, for each
/// of at most 120 modules. What is above is not answered, and held against it.
pub const ASKED_PER_SECOND: u32 = 512;
/// See [`ASKED_PER_SECOND`].
pub const ASKED_BURST: u32 = 2 * ASKED_PER_SECOND;

/// Streams for blobs of one peer in a second, and at once: eight at a time, of small blobs over loopback, are some hundreds.
/// A peer that opens more hears "busy".
pub const BLOBS_PER_SECOND: u32 = 2_048;
/// See [`BLOBS_PER_SECOND`].
pub const BLOBS_BURST: u32 = 2 * BLOBS_PER_SECOND;

/// Peers, or addresses, whose rates are remembered, for each rate: 4,096 of some 100 bytes = 400 KiB. A peer that
/// has been quiet for some seconds is forgotten.
pub const RATED_PEERS: usize = 4_096;

/// Connections that others make from one address of the internet: a third of all, four of each of 16 peers in one office.
pub const CONNECTIONS_PER_IP: usize = 64;

/// Handshakes under way from one address: half of all.
pub const PENDING_PER_IP: usize = PENDING_CONNECTIONS as usize / 2;

/// Connections that may come from one address in a second, and at once. A refused peer tries again later.
pub const COMING_PER_SECOND: u32 = 8;
/// See [`COMING_PER_SECOND`].
pub const COMING_BURST: u32 = 64;

/// Points from which on a peer is banned. One is forgotten each second.
pub const BAN_POINTS: u32 = 100;

/// The first ban, in seconds; each further one is twice as long.
pub const BAN_S: u64 = 60;

/// The longest ban.
pub const BAN_MOST_S: u64 = 24 * 60 * 60;

/// So long after a ban, the next is a first one again.
pub const BANS_FORGOTTEN_S: u64 = 7 * 24 * 60 * 60;

/// Peers that have a score: 4,096 of some 200 bytes = 800 KiB.
pub const SCORED_PEERS: usize = 4_096;
