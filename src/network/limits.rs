//! Every bound of the network, with its arithmetic. Nothing that a peer sends is kept, queued or waited for without one.

use std::time::Duration;

/// The largest gossip message. Beats, offers and updates are some hundred bytes; what is larger travels as a blob.
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

/// Connections in all. A peer needs the members of its own modules: tens, however large the swarm is.
pub const CONNECTIONS: u32 = 256;

/// Of those, made by others: a crowd from outside leaves 64 that only we can make.
pub const INCOMING_CONNECTIONS: u32 = 192;

/// To one peer: TCP and QUIC, if both sides dial at the same time.
pub const CONNECTIONS_PER_PEER: u32 = 4;

/// Handshakes under way, each way.
pub const PENDING_CONNECTIONS: u32 = 64;

/// Streams that are being negotiated on one connection.
pub const NEGOTIATING_STREAMS: usize = 64;

/// An unused connection is kept this long. libp2p's 10 s would close most connections between two phases: gossip keeps
/// alive only the peers of its mesh (8 to 16 a module), and pings do not count. What is dead is found by ping in 25 s;
/// this lets go of passers-by, such as those that Kademlia asked something. A member beyond the mesh that nobody asks
/// anything for 5 minutes is let go too, and connected again when it is needed or its next beat is passed on to
/// `dial_peer`.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(5 * 60);

/// Between two pings, and how long each may take. The first that fails closes its connection.
pub const PING_INTERVAL: Duration = Duration::from_secs(10);
/// See [`PING_INTERVAL`].
pub const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// For one attempt to connect, name lookup and handshake included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// From a connection to knowing who the other is and what it speaks.
pub const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// Addresses kept for one peer, from one source.
pub const ADDRESSES_PER_PEER: usize = 16;

/// Peers that are being dialled at our own wish: 16 fewer than may be pending, which Kademlia's lookups use.
pub const DIALLED_PEERS: usize = PENDING_CONNECTIONS as usize - 16;

/// Callers of `dial` who wait for its outcome.
pub const DIALS: usize = 64;

/// For an address to listen on to be up.
pub const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes moved between a stream and the disk at once. A transfer holds one such piece.
pub const BLOB_PIECE_BYTES: usize = 256 * 1024;

/// Silence on a blob's stream that ends the transfer. There is no limit to the whole: a blob may be large.
pub const BLOB_IDLE: Duration = Duration::from_secs(10);

/// For one piece: 256 KiB in 120 s is 2 KiB/s, so nobody holds a place by sending a byte now and then.
pub const BLOB_PIECE_TIMEOUT: Duration = Duration::from_secs(120);

/// To open a stream for a blob.
pub const BLOB_OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Blobs fetched at once: 8 x 256 KiB = 2 MiB. More wait their turn.
pub const FETCHES: usize = 8;

/// Blobs served at once: 32 x 256 KiB = 8 MiB. More wait for [`SERVING_WAIT`].
pub const SERVINGS: usize = 32;

/// Of those, to a single peer.
pub const SERVINGS_PER_PEER: usize = 8;

/// Streams accepted that are served or wait for it; further ones are dropped.
pub const SERVINGS_AND_WAITING: usize = 128;

/// After this wait the asker hears "busy". Less than [`BLOB_IDLE`], so that it hears it.
pub const SERVING_WAIT: Duration = Duration::from_secs(5);

/// Provider records of others that this peer keeps: 4096 x (6 addresses x 128 bytes + a key of 32) = 3.2 MiB. The one
/// that was announced longest ago makes room for a new one; who is still a member announces itself again soon. One peer
/// may have [`TOPICS_PER_PEER`] of them.
pub const PROVIDER_RECORDS: usize = 4096;

/// Records for one module: Kademlia's replication.
pub const PROVIDERS_PER_KEY: usize = 20;

/// Addresses of one peer that are passed on by Kademlia, and the longest of them.
pub const KAD_ADDRESSES: usize = 6;
/// See [`KAD_ADDRESSES`]: a name of 63 letters, a port, a transport and a peer take 120.
pub const KAD_ADDRESS_BYTES: usize = 128;

/// The largest Kademlia message: 20 close peers and 20 providers with 6 addresses of 128 bytes each are 33 KiB.
pub const KAD_FRAME_BYTES: usize = 40 * 1024;

/// Providers gathered for one lookup.
pub const PROVIDERS_FOUND: usize = 32;

/// For one lookup.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);
