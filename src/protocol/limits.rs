//! Every bound and every interval of the protocol, with its reason.

/// A member sends one heartbeat on each of its modules' topics per interval. The interval is short enough that an
/// owner's death is noticed within seconds.
pub const HEARTBEAT_MS: u64 = 1_000;

/// Lease of a member before its heartbeat arrivals have been measured. A member that is silent for longer is considered
/// dead. Five heartbeats, because a busy machine may lose some.
pub const MEMBER_LEASE_MS: u64 = 5_000;

/// After so many heartbeats the arrival window is valid: the lease becomes one and a half times the longest recent
/// silence.
pub const HEARTBEATS_MEASURED: u64 = 8;

/// The arrival window covers one to two times this duration.
pub const ARRIVAL_WINDOW_MS: u64 = 30_000;

/// The shortest lease. Two heartbeats and a margin, so that one may be lost.
pub const LEASE_LEAST_MS: u64 = 2_200;

/// An owner is probed when it has been silent for this long and for an eighth longer than its recent silences.
pub const PROBE_AFTER_LEAST_MS: u64 = 1_200;

/// An owner that does not answer within this time, or within [`TIMEOUT_FACTOR`] times a usual response time, is dead.
/// The probe is repeated in each of these three sweeps, and the time exceeds a round trip around the world.
pub const ANSWER_MS: u64 = 3 * SWEEP_MS;

/// The longest lease.
pub const LEASE_MOST_MS: u64 = 10_000;

/// A node that was called so much later than it asked for was suspended itself. It has heard nobody, so it considers
/// nobody dead.
pub const STANDSTILL_MS: u64 = 1_000;

/// A peer that has been present for this long without a restart is stable. Stable peers become owner before peers that
/// come and go.
pub const STEADY_MS: u64 = 30_000;

/// A peer that failed as an owner is not accepted as one for this long. The time doubles with each failure.
pub const FAILED_OWNER_MS: u64 = 60_000;

/// The time doubles at most this many times.
pub const MAX_DOUBLINGS: u32 = 6;

/// An owner does not wait this long for a peer whose contribution it could not fetch. The time doubles with each failure in
/// a row.
pub const UNFETCHABLE_MS: u64 = 5_000;

/// A node that has fetched nothing from any peer for this long takes failures for its own connection's.
pub const OWN_LINK_MS: u64 = 60_000;

/// Replicas that one other peer may ask this node for.
pub const MAX_REPLICAS_FOR_ONE: usize = 4;

/// A holder whose contribution has not arrived after this many deadlines is not contributing.
pub const NOT_CONTRIBUTING_DEADLINES: u64 = 4;

/// A holder whose path no update has counted for so many versions is not training it. A holder that is slow or cut off
/// for a while returns earlier: its contributions are counted up to [`VERSIONS_KEPT`].
pub const UNCOUNTED_VERSIONS: u64 = 12;

/// An owner's update is overdue this long after the owner's own deadline, which members know as well as the owner. The
/// margin covers aggregation, delivery and application.
pub const OVERDUE_MS: u64 = 10_000;

/// The deadline that is assumed by a member that has seen no whole phase and trained none. It could mistake the end of
/// a long phase for a standstill.
pub const UNMEASURED_DUE_MS: u64 = 30 * 60_000;

/// A holder whose contributions to so many versions were offered, and passed over by as many updates, no longer holds
/// its path: no owner can fetch them.
pub const PASSED_OVER_VERSIONS: u64 = 2;

/// A path without a living holder for this long is taken by another peer, if phases are short. Longer than a member's
/// lease, so that a peer that restarts at once still finds its path.
pub const PATH_LEASE_MS: u64 = 15_000;

/// A further trainer of a path asks others for the trainers of all paths so long after it has taken its worker slot: peers
/// that joined at the same time are known by then.
pub const RECONSIDER_FIRST_MS: u64 = 20_000;

/// And then at this interval.
pub const RECONSIDER_MS: u64 = 600_000;

/// Where a phase takes longer than a minute, a path waits for its holder for this fraction of the faster recent phases.
/// A new holder that starts the phase again costs more.
pub const PATH_LEASE_PHASE_SHARE: u64 = 4;

/// The longest path lease. A machine that restarts is back by then.
pub const PATH_LEASE_MOST_MS: u64 = 120_000;

/// Each lower rank waits this much longer before it starts an election for a module, so that the first candidate stands
/// alone.
pub const ELECTION_STAGGER_MS: u64 = 1_000;

/// Before a new owner closes a collection, it listens this long, and as long as a response takes, for heads and offers
/// that it has not seen. A peer that returns does so before it trains, because its paths may have another holder by
/// now.
pub const SETTLE_MS: u64 = 1_500;

/// The longest of these times.
pub const SETTLE_MOST_MS: u64 = 5_000;

/// How often leases, gaps and stale requests are checked.
pub const SWEEP_MS: u64 = 250;

/// An offer that no update counts yet is published again at this interval, or up to four times as seldom where
/// responses take long. Gossip may lose a message.
pub const OFFER_REPEAT_MS: u64 = 2_000;

/// A member that sees a newer head than its own waits this long, or twice a response time, for the update itself before
/// it sends a request.
pub const GAP_TIMEOUT_MS: u64 = 500;

/// Where the members are on more than two chains and none has a majority, one needs fewer after this time.
pub const NO_MAJORITY_MS: u64 = 20_000;

/// A member whose chain has not moved for this long, while others were ahead on another, makes do with a third of the members,
/// or with more than follow it.
pub const STUCK_MS: u64 = 60_000;

/// Donors of a module whose chains are remembered.
pub const MAX_SHOWN: usize = 64;

/// An owner that most members contradict for this long names one of them as the next owner. By then it would have taken over
/// a heavier chain.
pub const OUTVOTED_OWNER_MS: u64 = NO_MAJORITY_MS + MEMBER_LEASE_MS;

/// How long a silent member's head counts for the chain that it is on, and against others.
pub const ATTESTED_MS: u64 = LEASE_MOST_MS;

/// An update is doubted if more than one in so many of its contributions was offered to nobody.
pub const MOST_UNHEARD: usize = 4;

/// A newcomer that has listened for this long has heard the members of a module.
pub const MEMBERS_HEARD_MS: u64 = 2 * HEARTBEAT_MS;

/// A member that has listened for this long has heard what was on offer before. Offers are repeated at most four times as
/// seldom as [`OFFER_REPEAT_MS`], and gossip may lose one.
pub const LISTENED_MS: u64 = 8 * OFFER_REPEAT_MS;

/// An owner whose update is doubted for this long steps down, if no majority has applied the update.
pub const DOUBT_MS: u64 = 3_000;

/// A request without a response times out after this, before any response times were measured. It then goes to another
/// peer.
pub const REQUEST_TIMEOUT_MS: u64 = 8_000;

/// Once response times are measured, the time-out is [`TIMEOUT_FACTOR`] times the longest recent one, but not shorter
/// than this: a busy machine may pause.
pub const REQUEST_LEAST_MS: u64 = 4_000;

/// The longest request time-out.
pub const REQUEST_MOST_MS: u64 = 30_000;

/// A time-out is this many times the longest recent measurement.
pub const TIMEOUT_FACTOR: u64 = 4;

/// Response times kept.
pub const RESPONSE_TIMES_KEPT: usize = 16;

/// Fewer response times than this are not used.
pub const RESPONSE_TIMES_MEASURED: usize = 4;

/// Pending requests that are measured.
pub const MAX_ASKING: usize = 64;

/// Only blobs of at least this size measure bandwidth. The time of a smaller blob is mostly latency.
pub const TRANSFER_LEAST_BYTES: u64 = 1 << 16;

/// The shortest time-out of a transfer.
pub const TRANSFER_LEAST_MS: u64 = 60_000;

/// The assumed bandwidth before any transfer was measured: one megabit per second, a poor home uplink.
pub const UNMEASURED_BYTES_PER_S: u64 = 125_000;

/// A failed fetch is tried again after this, from the next holder.
pub const FETCH_RETRY_MS: u64 = 500;

/// A collection's deadline is this many times the duration of the faster recent phases, measured from when it opened.
/// Before anything was measured, it is this many times what half of the weight took, times the number of paths that a
/// peer trains in turn.
pub const DEADLINE_FACTOR: u64 = 3;

/// A peer that returns and hears no member of a module starts an election only after this time. On a busy machine,
/// finding the others again takes longer than a lease, and an update made alone would fork the chain.
pub const LONELY_RETURN_MS: u64 = 20_000;

/// A phase that begins this long after its modules advanced is late: the others began when the modules advanced.
pub const LATE_START_MS: u64 = 5_000;

/// An asynchronous owner closes at most so often in the time that the module's fastest paths take for a phase. A path
/// that keeps pace is then about so many versions late, half of the versions kept. More closes would cost the members
/// more averages to fetch.
pub const CLOSES_PER_PHASE: u64 = 8;

/// A slow path of an asynchronous run makes at least this fraction of a phase's inner steps. Less than a sixteenth is
/// not worth its transfer.
pub const LEAST_STEPS_SHARE: u64 = 16;

/// A path whose pace has not been measured makes this fraction. Even if it is eight times slower, it takes only the
/// time of one phase.
pub const UNMEASURED_STEPS_SHARE: u64 = 8;

/// The shortest deadline. A phase of milliseconds must not exclude a peer for one lost packet.
pub const DEADLINE_LEAST_MS: u64 = 10_000;

/// Phase durations kept for the deadline.
pub const DURATIONS_KEPT: usize = 8;

/// Updates, their blobs and a peer's own contributions are kept for this many versions. A member may lag this far
/// behind and still replay, and a contribution may be this late.
pub const VERSIONS_KEPT: u64 = 16;

/// Whole states kept per module: the head's, the previous one, which may be on its way to another peer, and one more,
/// because the previous update may be proven wrong as well as the head's.
pub const STATES_KEPT: usize = 3;

/// Contributions in one update. Their list takes 68 kB.
pub const MAX_CONTRIBUTIONS: usize = 1_024;

/// Contributions that an update holds itself. 64 × 66 bytes are 4.2 kB, so that an update fits a gossip message. More
/// are a list in a blob.
pub const MAX_INLINE: usize = 64;

/// Bytes of a list of contributions: 66 for each, a header, and their number.
pub const MAX_LIST_BYTES: usize = 66 * MAX_CONTRIBUTIONS + 16;

/// Updates, and responses with updates, that wait for their lists.
pub const MAX_UNREAD: usize = 32;

/// Contributions that an owner, or an auditor, fetches at a time. More would take as many requests at once, and gain
/// nothing where each is a megabyte.
pub const MAX_FETCHING: usize = 64;

const _: () = assert!(MAX_CONTRIBUTIONS == crate::config::MOST_IN_A_ROUND as usize, "as a run's configuration says");

/// Contributions of one path to one version. One is usual. Each side of a network partition may train the same phase,
/// and both contributions count.
pub const MAX_RIVALS: usize = 4;

/// How often an asynchronous path trains from one version while its modules do not advance. This leaves room among the
/// rivals for the holder on the other side of a partition.
pub const MAX_FROM_ONE_VERSION: usize = MAX_RIVALS / 2;

/// A term further ahead than this is not accepted, so that no message can exhaust the numbers.
pub const MAX_TERM_JUMP: u64 = 1 << 32;

/// Audits that wait for the running one, and fraud proofs that are published at a time.
pub const MAX_AUDITS: usize = 8;

/// Invalidated updates remembered, over all modules. Each one has cost its signer its trust.
pub const MAX_INVALIDATED: usize = 64;

/// Invalid contributions remembered, so that a peer that repeats one is penalized once.
pub const MAX_FAULTS_TOLD: usize = 64;

/// A peer publishes a fraud proof for this long and keeps the bytes. Others verify it themselves, and some have only
/// just joined.
pub const FRAUD_PROOF_MS: u64 = 120_000;

/// How often a fraud proof is published.
pub const FRAUD_PROOF_REPEAT_MS: u64 = 5_000;

/// A peer whose chain has an invalidated update and that cannot roll back waits this long for a peer that can. A peer
/// that can roll back, but finds after twice this time that most others continue with the update, follows them.
pub const INVALIDATED_MS: u64 = 60_000;

/// An outer gradient of fewer bytes than this, or than a 64th of the allowed bytes, may well equal that of another
/// path: few values, or mostly zeros, as where nothing is left to learn.
pub const TELLING_BYTES: u64 = 80;

/// An outer gradient is overlong, and a fault, if its norm is at least so many doublings above that of most other
/// paths.
pub const OVERLONG_OCTAVES: u16 = 2;

/// An owner that has taken so many further terms without an update is not working. A good owner takes one after a
/// restart, after a contested election, or where its update could not be had.
pub const MAX_TERMS_IN_VAIN: u32 = 3;

/// Peers whose claims of terms are counted, for one module between two updates.
pub const MAX_CLAIMANTS: usize = 64;

/// Contributions of peers without the path that a collection fetches at a time.
pub const MAX_UNAWAITED: usize = 8;

/// Different contributions of one peer to one path and version that are taken in.
pub const MAX_OFFERS_OF_ONE: usize = 2;

/// Refused updates remembered per module.
pub const MAX_REFUSED: usize = 16;

/// How often a blob is requested, over all peers that named it with one size, before the fetch fails.
pub const FETCH_ROUNDS: usize = 3;

/// Peers that are asked for one blob at the same time: 16 × 32 bytes.
pub const MAX_DONORS: usize = 16;

/// Contributions re-proposed from a lighter chain, over all modules.
pub const MAX_REPROPOSED: usize = 256;

/// A trainer that has been silent for this long, and for [`SILENCE_FACTOR`] times its longest gap between two signs of
/// life, is stuck. Longer than a disk takes to write a checkpoint or a busy machine takes to schedule it.
pub const SILENCE_LEAST_MS: u64 = 30_000;

/// A silence of the trainer is suspicious at this many times its longest gap.
pub const SILENCE_FACTOR: u64 = 20;

/// Time for a trainer to load, compile and wait for a device before its first step.
pub const FIRST_STEP_MS: u64 = 600_000;

/// Trainers of one peer, each with a device: as many as it can hold paths, less the lease that tells their number.
pub const MAX_TRAINERS: usize = crate::config::MOST_DEVICES;

const _: () = assert!(MAX_TRAINERS < MAX_LEASES);

/// How often a trainer is restarted without progress.
pub const MAX_RESTARTS: u32 = 3;

/// A peer that leaves gives others this long to take its paths and count its contributions, plus the time that its
/// trainers' bytes may take.
pub const LEAVE_MS: u64 = 10_000;

/// A peer that takes a path asks at this interval for the state of its trainer, while the previous holder stops it.
pub const HAND_OFF_REPEAT_MS: u64 = 500;

/// A peer that takes a path waits this long for the state of its trainer. An inner step may have to end first.
pub const HAND_OFF_RESPONSE_MS: u64 = 30_000;

/// In a deterministic run, a round waits this long for a path that nobody can train for it any more.
pub const LOST_MS: u64 = 60_000;

/// Leases in one heartbeat: a peer trains at most this many paths in turn.
pub const MAX_LEASES: usize = 16;

/// Bytes of a signed amendment of the run: numbers, a version of the program, and a signature.
pub const MAX_AMENDMENT_BYTES: u64 = 512;

/// A peer whose amendment could not be had, or not be stored, is not asked for it again before this time.
pub const AMENDMENT_RETRY_MS: u64 = 5_000;

/// A peer that tells of an amendment that the creator has not signed is not heard about amendments for this long.
pub const FALSE_AMENDMENT_MS: u64 = 600_000;

/// A round waits this long for a path whose text is being fetched. A shard of 100 MB at 10 Mbit/s arrives within 80 s.
pub const TEXT_MS: u64 = 90_000;

/// The only holder of a module asks for a replica after this time. A newcomer may be on its way.
pub const REPLICA_TIMEOUT_MS: u64 = 10_000;

/// A peer that was asked for a replica and has not joined the module by then is passed over.
pub const REPLICA_ANSWER_MS: u64 = 8_000;

/// A replica is released when two other peers have had the module for this long. The delay prevents flapping.
pub const REPLICA_RELEASE_MS: u64 = 60_000;

/// Modules that one peer replicates for others.
pub const MAX_REPLICAS: usize = 32;

/// Replicas wanted in one heartbeat, 38 bytes each.
pub const MAX_WANTED: usize = 8;

/// Scores kept, the newest of each path.
pub const MAX_SCORES: usize = 256;

/// Starts remembered of one peer: the current one, the last one, and those of copies.
pub const MAX_STARTS: usize = 4;

/// Peers reported in one heartbeat as having started twice.
pub const MAX_COPIED: usize = 4;

/// A copied identity is reported for this long after it was last noticed, because copies hear only some of the
/// messages.
pub const COPY_NAMED_MS: u64 = 60_000;

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// Addresses in one heartbeat.
pub const MAX_ADDRESSES: usize = 8;

/// Bytes of one address. A name of 63 letters, a port, a transport, two peers and the circuit between them take 212.
/// All addresses of a heartbeat take less than half of a message.
pub const MAX_ADDRESS_BYTES: usize = 224;

/// Known members, over all modules. A further one takes the place of the least useful.
pub const MAX_MEMBERS: usize = 1_024;

/// As many members become known at once; further ones only [`ADMITTED_PER_SECOND`].
pub const ADMIT_AT_ONCE: usize = MAX_MEMBERS * 3 / 4;

/// Peers that become known in a second when more than [`ADMIT_AT_ONCE`] are. With half of all members exchanged at this
/// rate, each stays for 64 s.
pub const ADMITTED_PER_SECOND: usize = 8;

/// Peers that wait to become known: what the network lets through of strangers within [`STILL_HEARD_MS`], 1,536 messages
/// a second at most, each of another key. 4,096 of 100 bytes are 400 KiB.
pub const MAX_NEWCOMERS: usize = 4_096;

/// A peer that was heard within this time is there: two and a half heartbeats.
pub const STILL_HEARD_MS: u64 = 5 * HEARTBEAT_MS / 2;

/// A new peer that repeats its heartbeats is not forgotten for this time: twice what makes it a member to the network.
pub const NEWCOMER_STAYS_MS: u64 = 20_000;

/// Offers remembered per module of up to 64 worker slots, at 4 versions. A module of more remembers as many of each. When
/// the table is full, the offer furthest from the head is dropped.
pub const MAX_OFFERS: usize = 256;

/// The most offers that are remembered of any module.
pub const MAX_OFFERS_OF_MANY: usize = 4 * MAX_CONTRIBUTIONS;

/// Peers in one directory response.
pub const MAX_DIRECTORY: usize = 64;

/// Peers that a newcomer asks before it chooses a path.
pub const MAX_ASKED: usize = 16;

/// Bytes of a gossip message.
pub const MAX_GOSSIP_BYTES: usize = 5_120;

/// Bytes of a request or a response.
pub const MAX_CONTROL_BYTES: usize = 256 * 1024;

/// The weight of a full shard; other shards in proportion. 2^14, times the grid of `ExactSum` and 2^12 contributions,
/// fits in an i64.
pub const FULL_WEIGHT: u32 = 1 << 14;
