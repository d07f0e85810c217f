//! Limits of blobs: those that are fetched, forwarded and served.

use std::time::Duration;

/// Bytes of a blob that are read or written at a time. Fewer under a bandwidth limit.
pub const BLOB_SLICE_BYTES: usize = 64 * 1024;

/// Silence on a blob's stream that ends the transfer. The whole transfer has no time-out, since a blob may be large.
pub const BLOB_IDLE: Duration = Duration::from_secs(10);

/// Time-out of one slice: 64 KiB in 30 s is 2 KiB/s, so no peer holds a permit by sending a byte now and then.
pub const BLOB_SLICE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time-out to open a stream for a blob.
pub const BLOB_OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Blobs fetched at once. Each donor holds two pieces of 256 KiB: 8 x 16 x 512 KiB = 64 MiB if all fetches have
/// [`DONORS`]. More fetches wait.
pub const FETCHES: usize = 8;

/// Fetches beside these that bring little: as much memory again at worst.
pub const SLOW_FETCHES: usize = 8;

/// A fetch that brings less than this within [`FETCH_PROGRESS_WITHIN`] is slow, and moves to a place for slow ones if
/// others wait: 8 KiB/s, so eight together 64 KiB/s. Under a bandwidth limit, half of its share of that.
pub const FETCH_PROGRESS_BYTES: u64 = 24 * 1024;
/// See [`FETCH_PROGRESS_BYTES`].
pub const FETCH_PROGRESS_WITHIN: Duration = Duration::from_secs(3);

/// Limit of donors of a blob, out of the peers that the application names.
pub const DONORS: usize = 16;

/// Donors used at the same time at first, but no more than there are pieces.
pub const DONORS_AT_ONCE: usize = 6;

/// Interval at which one more donor is asked while a blob is incomplete.
pub const DONORS_GROW: Duration = Duration::from_secs(2);

/// Pause before a donor without new pieces, or a busy one, is asked again, while others send.
pub const DONOR_RESTS: Duration = Duration::from_millis(300);

/// Time for which a donor without new pieces keeps its stream: less than [`BLOB_IDLE`], after which it would close it.
pub const DONOR_WAITS: Duration = Duration::from_secs(5);

/// Pieces requested from a donor at a time, at first.
pub const PIECES_ASKED_AT_FIRST: usize = 2;

/// And at most: 40 x 256 KiB = 10 MiB, the window of one QUIC stream.
pub const PIECES_ASKED: usize = 40;

/// A donor that lacked this many offered pieces is dropped.
pub const PIECES_LACKED: u32 = 8;

/// Time without a new piece after which a fetch fails: at 2 KiB/s a piece takes 128 s.
pub const FETCH_STUCK: Duration = Duration::from_secs(150);

/// One more piece is requested at a time if a piece arrives within this, one less if it takes twice as long.
pub const PIECE_LATENESS: Duration = Duration::from_millis(500);

/// Time after which a piece is also requested from a second, idle donor.
pub const PIECE_IS_LATE: Duration = Duration::from_secs(1);

/// Time for which a fetch waits for a direct connection before it asks others to forward.
pub const FORWARD_AFTER: Duration = Duration::from_secs(3);

/// Time for which the peers that are asked to forward may answer.
pub const FORWARD_ANSWER: Duration = Duration::from_secs(3);

/// Peers asked to forward, at once.
pub const FORWARDERS_ASKED: usize = 4;

/// Blobs served at once, with one piece of each in memory: 32 x 256 KiB = 8 MiB. More wait for [`SERVING_WAIT`].
pub const SERVINGS: usize = 32;

/// Blobs served at once to a single peer.
pub const SERVINGS_PER_PEER: usize = 8;

/// Accepted streams that are served or wait for it; further ones are dropped.
pub const SERVINGS_AND_WAITING: usize = 128;

/// Wait after which the requester is told "busy". Less than [`BLOB_IDLE`], so that it still listens.
pub const SERVING_WAIT: Duration = Duration::from_secs(5);

/// Time for which a stream is served before it may have to make room for another peer's: so that streams that take
/// places from each other get something done. Less than [`SERVING_WAIT`].
pub const SERVING_STAYS: Duration = Duration::from_secs(2);

/// Streams for blobs that are told "busy" or "not invited" at once, beside those of [`SERVINGS_AND_WAITING`]: a few
/// bytes each.
pub const REFUSALS: usize = 128;

/// Time-out for telling so.
pub const REFUSAL_LASTS: Duration = Duration::from_secs(2);

/// Streams of one donor that may end early in a row, each without a new piece, before the donor counts as failed for
/// this fetch. The pause between them doubles from [`DONOR_RESTS`]: 9 s in all, in which a donor with more requesters
/// than places has a place again.
pub const STREAMS_CUT: u32 = 5;
