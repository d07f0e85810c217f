//! What arrives may announce any length and unpack to any size: nothing of it is allocated before it is known to be right.
#![cfg(all(feature = "learning", feature = "network"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pathswarm::access::authentication::{AccessNotice, AuthenticationRequest, AuthenticationResponse};
use pathswarm::access::invitation::{Credential, Grant, Invitation, InvitationToken, NO_EXPIRY_S, Revocation};
use pathswarm::compress::frame;
use pathswarm::config::RunConfig;
use pathswarm::names::{BlobHash, BlobRef, ModuleId, PeerKey, RunId};
use pathswarm::peer::Manifest;
use pathswarm::protocol::limits::{MAX_CONTROL_BYTES, MAX_GOSSIP_BYTES};
use pathswarm::protocol::wire::encoding;
use pathswarm::protocol::wire::encoding::{Framed, WIRE_VERSION};
use pathswarm::protocol::{Message, Request, Response, SignedUpdate};
use pathswarm::routing::ShardIndex;
use pathswarm::text::TokenSet;

/// Counts what is allocated at a time, and the most of it.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What some work has taken at the most, beyond what there was before it.
fn most_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let done = work();
    (done, MOST.load(Relaxed) - before)
}

/// A frame of int8 whose one chunk is `chunk`.
fn framed(count: u64, chunk: &[u8]) -> Vec<u8> {
    let mut bytes = b"pswf\x01\x00\x01\x00".to_vec();
    bytes.extend(count.to_le_bytes());
    bytes.extend((130 * count.div_ceil(128)).to_le_bytes());
    let rest = [&(chunk.len() as u32).to_le_bytes()[..], chunk].concat();
    let checksum = blake3::hash(&[&bytes[..], &rest].concat());
    bytes.extend(&checksum.as_bytes()[..8]);
    bytes.extend(rest);
    bytes
}

fn unpacks_no_further_than_it_may() {
    let count = 1 << 18;
    let zeros = vec![0; 256 << 20];
    let bomb = framed(count, &zstd::bulk::compress(&zeros, 1).unwrap());
    drop(zeros);
    assert!(bomb.len() < 1 << 20, "{} bytes", bomb.len());
    let (decoded, most) = most_bytes(|| frame::decode(&bomb, count as usize));
    assert!(decoded.is_err());
    assert!(most < 8 << 20, "{most} bytes");
    // A frame as it should be is read by the same way.
    let payload = vec![0; 130 * (1 << 11)];
    let sound = framed(count, &zstd::bulk::compress(&payload, 1).unwrap());
    assert_eq!(frame::decode(&sound, count as usize).unwrap(), vec![0.0; 1 << 18]);
}

/// Every eight bytes of a frame in turn say that very much follows.
fn announces_too_much<T: Framed>(value: &T) {
    let sound = encoding::encode(value).unwrap();
    for at in 8..sound.len().saturating_sub(8) {
        for length in [u64::MAX, u64::MAX / 64, 1 << 40, 1 << 30, (T::MAX_BYTES / 2) as u64] {
            let mut bytes = sound.clone();
            bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
            let (_, most) = most_bytes(|| encoding::decode::<T>(&bytes).is_ok());
            assert!(most <= 16 * MAX_CONTROL_BYTES, "{most} bytes of {length} announced at {at}");
        }
    }
    let (refused, most) = most_bytes(|| encoding::decode::<T>(&vec![0; T::MAX_BYTES + 1]).is_err());
    assert!(refused && most <= 2 * T::MAX_BYTES);
}

fn messages_announce_what_they_like() {
    let invitation = |to| Invitation { to, rank: 1, issued_s: 1, until_s: NO_EXPIRY_S, signature: vec![0; 64] };
    let credential = Credential(vec![invitation(PeerKey([1; 32])), invitation(PeerKey([2; 32]))]);
    let revocation =
        Revocation { credential: credential.clone(), of: PeerKey([3; 32]), at_s: 1, signature: vec![0; 64] };
    announces_too_much(&AuthenticationRequest::Present(credential.clone()));
    announces_too_much(&AccessNotice::Revoked(revocation.clone()));
    announces_too_much(&AuthenticationResponse::Accepted {
        credential: Some(credential.clone()),
        revocations: vec![revocation],
    });
    let addresses = vec!["/ip4/192.0.2.1/tcp/4001".to_owned()];
    announces_too_much(&InvitationToken { run: RunId([1; 32]), addresses, grant: Grant::Credential(credential) });
    announces_too_much(&Response::Manifest(vec![7; 100]));
    announces_too_much(&Response::Directory(Vec::new()));
    announces_too_much(&Request::CatchUp { module: ModuleId { level: 0, expert: 0 }, from: None });
    let offer = pathswarm::protocol::wire::message::Offer {
        path: pathswarm::names::PathId(1),
        parent: pathswarm::names::Version(1),
        parent_update: BlobHash([1; 32]),
        router: 0,
        steps: 1,
        blob: BlobRef::of(b""),
        sequence: 1,
    };
    announces_too_much(&Message::Offer(offer));
    let update = pathswarm::protocol::Update {
        module: ModuleId { level: 0, expert: 0 },
        term: pathswarm::names::Term(1),
        owner: PeerKey([1; 32]),
        version: pathswarm::names::Version(1),
        parent: BlobHash([1; 32]),
        contributions: Vec::new().into(),
        norm: 0,
        average: BlobRef::of(b""),
        state: BlobRef::of(b""),
        weight: 1,
    };
    announces_too_much(&Message::Update(SignedUpdate { update, signature: vec![0; 64] }));
    const { assert!(MAX_GOSSIP_BYTES < MAX_CONTROL_BYTES) };
}

/// A manifest of so many experts on each of two levels, whose shard table has so many bytes.
fn manifest(experts: u64, table_bytes: u64) -> Vec<u8> {
    let run = format!(
        r#"
        name = "large"
        [model]
        blocks = 2
        width = 16
        heads = 2
        vocabulary = 300
        context = 64
        [[levels]]
        parts = ["embedding", "block.0"]
        sharing = {{ experts = {experts} }}
        [[levels]]
        parts = ["block.1", "final-norm", "head"]
        sharing = {{ experts = {experts} }}
        [training]
        batch_sequences = 2
        inner_steps = 5
        phases = 3
        ancestor_steps = 4
        learning_rate = 1e-3
        "#
    );
    let config: RunConfig = toml::from_str(&run).unwrap();
    let hash = BlobHash([1; 32]);
    let blob = serde_json::json!({ "hash": hash, "bytes": 10 });
    let table = serde_json::json!({ "hash": hash, "bytes": table_bytes });
    serde_json::to_vec(&serde_json::json!({
        "format_version": pathswarm::peer::manifest::FORMAT_VERSION,
        "wire_version": WIRE_VERSION,
        "config": config,
        "corpus": hash,
        "test_corpus": hash,
        "share_text": true,
        "tokenizer": blob,
        "router": blob,
        "shard_index": blob,
        "test_routes": blob,
        "ancestor": blob,
        "shards": { "table": table, "largest_bytes": u64::MAX },
        "genesis": [],
    }))
    .unwrap()
}

fn names_a_thousand_million_pieces() {
    // 31,623² paths; then as many as a grid may have, in a table of 10⁹; then the right table, and nothing that fits it.
    let pieces = 1_000_000_000;
    for (experts, table_bytes) in [(31_623, 12 + 128 * pieces), (1_024, 12 + 128 * pieces), (1_024, 12 + (128 << 20))] {
        let bytes = manifest(experts, table_bytes);
        let (decoded, most) = most_bytes(|| Manifest::decode(&bytes).map(drop));
        assert!(decoded.is_err());
        assert!(most < 16 << 20, "{most} bytes for {experts} experts");
    }
    // The same in a list cannot even be sent.
    let (refused, most) = most_bytes(|| encoding::decode::<Response>(&vec![b'['; MAX_CONTROL_BYTES + 1]).is_err());
    assert!(refused && most <= 2 * MAX_CONTROL_BYTES);
    let mut index = b"PSSI\x01\x00\x00\x00\x04\x00\x00\x00".to_vec();
    index.extend(1_000_000_000_u32.to_le_bytes());
    let (refused, most) = most_bytes(|| ShardIndex::decode(&index).is_err());
    assert!(refused && most < 1 << 20, "{most} bytes");
    let mut tokens = b"PSTK\x01\x00\x02\x00".to_vec();
    tokens.extend([u32::MAX.to_le_bytes(), u32::MAX.to_le_bytes()].concat());
    tokens.extend(u64::MAX.to_le_bytes());
    let (refused, most) = most_bytes(|| TokenSet::decode(&tokens, 300, 65).is_err());
    assert!(refused && most < 1 << 20, "{most} bytes");
}

/// One after the other: what is allocated meanwhile is theirs.
#[test]
fn bombs_take_no_memory() {
    unpacks_no_further_than_it_may();
    messages_announce_what_they_like();
    names_a_thousand_million_pieces();
}
