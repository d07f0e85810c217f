//! Every bound and every interval of the protocol, each with its reason.

/// A member's heartbeat on each of its modules' topics. Small enough that an owner's death is seen in seconds.
pub const HEARTBEAT_MS: u64 = 1_000;

/// A member not heard for this long is taken for dead, before its arrivals has been measured. Five heartbeats: a busy machine
/// may lose some.
pub const MEMBER_LEASE_MS: u64 = 5_000;

/// So many heartbeats make a arrivals: from then on a member's lease is one and a half times its longest silence lately.
pub const HEARTBEATS_MEASURED: u64 = 8;

/// The silences of one to two times so long count.
pub const ARRIVAL_WINDOW_MS: u64 = 30_000;

/// The shortest lease: two heartbeats and a little, so that one may be lost.
pub const LEASE_LEAST_MS: u64 = 2_200;

/// An owner is asked whether it lives when it has been silent for this long, and for an eighth longer than lately.
pub const PROBE_AFTER_LEAST_MS: u64 = 1_200;

/// One that has not answered by then, or in [`TIMEOUT_FACTOR`] times what an answer takes, is dead: three sweeps, in each
/// of which it was asked, and more than a round trip around the world takes.
pub const ANSWER_MS: u64 = 3 * SWEEP_MS;

/// The longest lease.
pub const LEASE_MOST_MS: u64 = 10_000;

/// A node that was called so much later than it asked for stood still itself: it has heard nobody, and takes nobody for
/// dead.
pub const STANDSTILL_MS: u64 = 1_000;

/// A peer that has been there for so long without a new start is steady: it owns before those that come and go.
pub const STEADY_MS: u64 = 30_000;

/// A peer that has failed as an owner is not believed to be one for so long; each time again for twice as long.
pub const FAILED_OWNER_MS: u64 = 60_000;

/// So often at the most.
pub const MAX_DOUBLINGS: u32 = 6;

/// An owner does not wait for a peer whose contribution it could not fetch for so long; each time in a row for twice as long.
pub const UNFETCHABLE_MS: u64 = 20_000;

/// Modules that are replicated for one other peer at most.
pub const MAX_REPLICAS_FOR_ONE: usize = 4;

/// A path's holder that has not contributed for so many deadlines is not believed to train it.
pub const NOT_CONTRIBUTING_DEADLINES: u64 = 4;

/// A holder whose path no update has counted for so many versions does not train it. One that is slow or cut off for a
/// while comes back before that: what it has is counted up to [`VERSIONS_KEPT`].
pub const UNCOUNTED_VERSIONS: u64 = 12;

/// An owner's update is overdue this long after an owner's own deadline, which members know no worse than it does: time
/// to combine, to be heard, and to apply.
pub const OVERDUE_MS: u64 = 10_000;

/// That deadline, to one that has seen no phase from its beginning to its end, and has trained none: it might take the end
/// of a long one for a stop.
pub const UNMEASURED_DUE_MS: u64 = 30 * 60_000;

/// A path without a living holder for this long is taken up by another, if phases are short. Longer than a member's
/// lease, so that a peer that restarts at once finds its path as it left it.
pub const PATH_LEASE_MS: u64 = 15_000;

/// Where a phase takes longer than a minute, a path waits for its holder for this part of the quicker ones lately: what
/// another begins anew costs more than that.
pub const PATH_LEASE_PHASE_SHARE: u64 = 4;

/// But no longer than this: a machine that starts again is back by then.
pub const PATH_LEASE_MOST_MS: u64 = 120_000;

/// Each lower rank waits this much longer before it claims a module, so that the first claims alone.
pub const ELECTION_STAGGER_MS: u64 = 1_000;

/// A new owner listens this long, and as long as an answer takes, for heads and offers that it has not seen before it
/// closes anything. So does a peer that comes back, before it trains: its paths may be another's by now.
pub const SETTLE_MS: u64 = 1_500;

/// But no longer than this.
pub const SETTLE_MOST_MS: u64 = 5_000;

/// How often leases, gaps and stale requests are looked at.
pub const SWEEP_MS: u64 = 250;

/// An offer that no update counts yet is said again this often, or up to four times as seldom where answers take long:
/// gossip may lose a message.
pub const OFFER_REPEAT_MS: u64 = 2_000;

/// A member that sees a newer head than its own waits this long, or twice what an answer takes, for the update itself
/// before it asks.
pub const GAP_TIMEOUT_MS: u64 = 500;

/// A request without an answer is given up after this and asked of another, before any answers were measured.
pub const REQUEST_TIMEOUT_MS: u64 = 8_000;

/// From then on after [`TIMEOUT_FACTOR`] times the longest lately, but never sooner: a busy machine may pause.
pub const REQUEST_LEAST_MS: u64 = 4_000;

/// Nor later.
pub const REQUEST_MOST_MS: u64 = 30_000;

/// Patience is so many times what it took lately.
pub const TIMEOUT_FACTOR: u64 = 4;

/// So many measures count.
pub const RESPONSE_TIMES_KEPT: usize = 16;

/// So few say nothing.
pub const RESPONSE_TIMES_MEASURED: usize = 4;

/// Questions under way that are measured.
pub const MAX_ASKING: usize = 64;

/// How fast bytes come is measured by blobs of at least this size: what smaller ones take is the way, not its width.
pub const TRANSFER_LEAST_BYTES: u64 = 1 << 16;

/// Bytes are given up no sooner than this.
pub const TRANSFER_LEAST_MS: u64 = 60_000;

/// So fast they come, before any were measured: a megabit a second, a poor home uplink.
pub const UNMEASURED_BYTES_PER_S: u64 = 125_000;

/// A fetch that failed is tried again after this, from the next holder.
pub const FETCH_RETRY_MS: u64 = 500;

/// A collection's deadline is this many times as long as the quicker ones of the last phases, measured from when it opened. Before
/// anything was measured: this many times what half of the weight took, times the paths that a peer trains in turn.
pub const DEADLINE_FACTOR: u64 = 3;

/// A peer that comes back and hears no member of a module claims it only after this: on a busy machine, finding the
/// others again takes longer than a lease, and what it combined alone would be a fork.
pub const LONELY_RETURN_MS: u64 = 20_000;

/// A phase that begins so long after its modules moved on is late: the others began then.
pub const LATE_START_MS: u64 = 5_000;

/// An asynchronous owner closes at most so often in the time that the module's fastest paths take for a phase. So a path
/// that keeps pace is about so many versions late, half of the versions kept; and more would cost the members more
/// averages to fetch.
pub const CLOSES_PER_PHASE: u64 = 8;

/// A slow path of an asynchronous run makes at least this part of a phase's inner steps: less than a sixteenth is not
/// worth its transfer.
pub const LEAST_STEPS_SHARE: u64 = 16;

/// One whose pace has not been measured makes this part: even if it is eight times slower, it takes but one phase.
pub const UNMEASURED_STEPS_SHARE: u64 = 8;

/// No deadline is shorter: a phase of milliseconds must not fence out a peer for one lost packet.
pub const DEADLINE_LEAST_MS: u64 = 10_000;

/// Durations kept for the deadline.
pub const DURATIONS_KEPT: usize = 8;

/// Updates, their blobs and one's own contributions are kept for this many versions: what a member may lag behind
/// and still replay, and how late a contribution may come.
pub const VERSIONS_KEPT: u64 = 16;

/// Whole states kept per module: the head's, the one before it, which a donor may be sending, and one more: that update may
/// be proven wrong as well as the head's.
pub const STATES_KEPT: usize = 3;

/// Contributions in one update. 64 × 56 bytes are 3.5 KiB, so that an update fits a gossip message.
pub const MAX_CONTRIBUTIONS: usize = 64;

/// Contributions of one path to one version. One is the rule; each side of a split may train the same phase, and what both
/// have done counts.
pub const MAX_RIVALS: usize = 4;

/// How often an asynchronous path trains from one version when its modules do not move on: this leaves room among its
/// rivals for who trains it on the other side of a split.
pub const MAX_FROM_ONE_VERSION: usize = MAX_RIVALS / 2;

/// A term that is further ahead than this is not believed: no message can use up the numbers.
pub const MAX_TERM_JUMP: u64 = 1 << 32;

/// Audits that wait for the one in hand, and proofs that are told to others at a time.
pub const MAX_AUDITS: usize = 8;

/// Updates remembered as proven wrong, all modules together: each has cost its signer a name.
pub const MAX_INVALIDATED: usize = 64;

/// Contributions for which a peer is blamed once, however often it says them again.
pub const MAX_FAULTS_TOLD: usize = 64;

/// Who has proven something wrong tells the others for so long, and keeps the bytes: they count for themselves, and some
/// have come just now.
pub const FRAUD_PROOF_MS: u64 = 120_000;

/// So often.
pub const FRAUD_PROOF_REPEAT_MS: u64 = 5_000;

/// Whose chain has an update that was proven wrong, and who cannot go back, waits so long for somebody who can. Who can, and
/// finds after twice as long that most others have gone on with it, goes with them.
pub const INVALIDATED_MS: u64 = 60_000;

/// Fewer bytes of an outer gradient than this, and than a 64th of the most that one may have, may well be another's, too: few
/// values, or little but zeros, as where there is nothing left to learn.
pub const TELLING_BYTES: u64 = 80;

/// An outer gradient is overlong, and a fault, from so many doublings on of what most other paths come to.
pub const OVERLONG_OCTAVES: u16 = 2;

/// An owner that has taken so many further terms without an update is none. A good one takes one after a restart, where two
/// have claimed the same, or where its update could not be had.
pub const MAX_TERMS_IN_VAIN: u32 = 8;

/// Updates remembered as refused, for each module.
pub const MAX_REFUSED: usize = 16;

/// How often a blob is asked for, of all who named it with one size, before a fetch is given up.
pub const FETCH_ROUNDS: usize = 3;

/// Peers that are asked for one blob at the same time: 16 x 32 bytes.
pub const MAX_DONORS: usize = 16;

/// Contributions reproposed from a lighter chain, for all modules together.
pub const MAX_REPROPOSED: usize = 256;

/// A trainer that has given no sign for this long, and for [`SILENCE_FACTOR`] times the longest gap between two of its
/// signs, is stuck. Longer than a disk takes to write a checkpoint or a busy machine to let it run.
pub const SILENCE_LEAST_MS: u64 = 30_000;

/// How many times the longest gap between two signs of a trainer is a suspicious silence.
pub const SILENCE_FACTOR: u64 = 20;

/// A trainer that has not made its first step may load, compile and wait for a device so long.
pub const FIRST_STEP_MS: u64 = 600_000;

/// How often a trainer is restarted without getting any further.
pub const MAX_RESTARTS: u32 = 3;

/// A peer that leaves gives others so long to take its paths and count what it trained, and as much longer as its
/// trainers' bytes may take.
pub const LEAVE_MS: u64 = 10_000;

/// Who takes a path asks this often what its trainer has come to, while the holder stops it.
pub const HAND_OFF_REPEAT_MS: u64 = 500;

/// Who takes a path waits this long for word of its trainer. An inner step may have to end first.
pub const HAND_OFF_RESPONSE_MS: u64 = 30_000;

/// Leases in one heartbeat: a peer trains at most this many paths in turn.
pub const MAX_LEASES: usize = 16;

/// Rounds wait so long for a path whose text is being fetched: a shard of 100 MB at 10 Mbit/s comes within 80 s.
pub const TEXT_MS: u64 = 90_000;

/// A holder that has been the only one of a module for so long asks for a replica: a newcomer may be on its way.
pub const REPLICA_TIMEOUT_MS: u64 = 10_000;

/// Who is asked for a replica and has not joined the module by then is passed over.
pub const REPLICA_ANSWER_MS: u64 = 8_000;

/// A replica goes when two others have had the module for so long: nothing flaps.
pub const REPLICA_RELEASE_MS: u64 = 60_000;

/// Modules that one peer replicates for others.
pub const MAX_REPLICAS: usize = 32;

/// Replicas asked for in one heartbeat: 38 bytes each.
pub const MAX_WANTED: usize = 8;

/// Scores kept, the newest of each path.
pub const MAX_SCORES: usize = 256;

/// Starts remembered of one peer: the present one, the last, and those of copies.
pub const MAX_STARTS: usize = 4;

/// Peers named in one heartbeat as having started twice.
pub const MAX_COPIED: usize = 4;

/// A copied identity is named for this long after it was last noticed: copies hear but some of what is said to them.
pub const COPY_NAMED_MS: u64 = 60_000;

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// Addresses in one heartbeat.
pub const MAX_ADDRESSES: usize = 8;

/// Bytes of one address: a name of 63 letters, a port, a transport, two peers and the circuit between them take 212. All
/// of a heartbeat's are less than half of a message.
pub const MAX_ADDRESS_BYTES: usize = 224;

/// Members known, of all modules together. What is beyond is not remembered.
pub const MAX_MEMBERS: usize = 1_024;

/// Offers remembered per module: 64 paths at 4 versions. When it is full, what lies furthest from the head gives way.
pub const MAX_OFFERS: usize = 256;

/// Peers named in one answer to a newcomer.
pub const MAX_DIRECTORY: usize = 64;

/// Peers that a newcomer asks before it decides.
pub const MAX_ASKED: usize = 16;

/// Bytes of a gossip message.
pub const MAX_GOSSIP_BYTES: usize = 4_096;

/// Bytes of a request or an answer.
pub const MAX_CONTROL_BYTES: usize = 256 * 1024;

/// A full shard's weight; others in proportion. 2^14, times the grid of `ExactSum` and 2^12 contributions, fits i64.
pub const FULL_WEIGHT: u32 = 1 << 14;
