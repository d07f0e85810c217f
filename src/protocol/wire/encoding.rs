//! The encoding of messages: a header of magic, version and kind, then bincode, little endian. Lengths are bounded, and
//! a message must be consumed whole.
//!
//! bincode is no longer maintained. No other module depends on it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::names::BlobHash;
use crate::protocol::limits::{MAX_CONTROL_BYTES, MAX_GOSSIP_BYTES};
use crate::protocol::wire::message::{Message, Request, Response, Update, UpdateHash};

/// Changes whenever the encoding or the meaning of a message does.
pub const WIRE_VERSION: u16 = 6;

const MAGIC: [u8; 4] = *b"PSW1";
const HEADER_BYTES: usize = 8;

/// A type that is sent or stored under a kind of its own.
pub trait Framed: Serialize + DeserializeOwned {
    /// Distinguishes frames.
    const KIND: u16;
    /// The most bytes that are encoded or decoded.
    const MAX_BYTES: usize;
}

/// Assigns kinds to types. Kind 5 belongs to the [journal](crate::protocol::journal), 6 to 10 to
/// [`access`](crate::access), 11 to [lists of contributions](super::contribution_list), 12 to
/// [amendments](crate::access::amendment).
macro_rules! framed {
    ($($name:ty = $kind:literal, $most:expr;)*) => {
        $(impl $crate::protocol::wire::encoding::Framed for $name {
            const KIND: u16 = $kind;
            const MAX_BYTES: usize = $most;
        })*
    };
}
pub(crate) use framed;

framed! {
    Message = 1, MAX_GOSSIP_BYTES;
    Request = 2, MAX_CONTROL_BYTES;
    Response = 3, MAX_CONTROL_BYTES;
    Update = 4, MAX_GOSSIP_BYTES;
}

/// Why encoding or decoding failed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WireError {
    /// The bytes do not begin with the magic.
    #[error("not a pathswarm message")]
    Magic,
    /// Another wire version.
    #[error("message of wire version {found}, this program speaks {WIRE_VERSION}")]
    Version {
        /// The version in the header.
        found: u16,
    },
    /// Another kind than expected.
    #[error("message of kind {found}, expected {expected}")]
    Kind {
        /// The kind in the header.
        found: u16,
        /// The expected kind.
        expected: u16,
    },
    /// Too long.
    #[error("message of {found} bytes, at most {most} are allowed")]
    Size {
        /// The length.
        found: usize,
        /// The maximum length.
        most: usize,
    },
    /// The body does not decode, or something follows it.
    #[error("broken message: {0}")]
    Body(String),
}

fn configuration() -> impl bincode::config::Config {
    bincode::config::standard().with_little_endian().with_fixed_int_encoding()
}

/// # Errors
/// If the value is longer than its kind may be.
pub fn encode<T: Framed>(value: &T) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&WIRE_VERSION.to_le_bytes());
    bytes.extend_from_slice(&T::KIND.to_le_bytes());
    let body =
        bincode::serde::encode_to_vec(value, configuration()).map_err(|error| WireError::Body(error.to_string()))?;
    bytes.extend_from_slice(&body);
    if bytes.len() > T::MAX_BYTES {
        return Err(WireError::Size { found: bytes.len(), most: T::MAX_BYTES });
    }
    Ok(bytes)
}

/// # Errors
/// If the bytes are not exactly one value of this kind and version.
pub fn decode<T: Framed>(bytes: &[u8]) -> Result<T, WireError> {
    if bytes.len() > T::MAX_BYTES {
        return Err(WireError::Size { found: bytes.len(), most: T::MAX_BYTES });
    }
    let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(WireError::Magic);
    };
    if header[..4] != MAGIC {
        return Err(WireError::Magic);
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != WIRE_VERSION {
        return Err(WireError::Version { found: version });
    }
    let kind = u16::from_le_bytes([header[6], header[7]]);
    if kind != T::KIND {
        return Err(WireError::Kind { found: kind, expected: T::KIND });
    }
    // The limit bounds what a length from the wire can make bincode allocate.
    let limited = bincode::config::standard()
        .with_little_endian()
        .with_fixed_int_encoding()
        .with_limit::<{ MAX_CONTROL_BYTES }>();
    let (value, used) =
        bincode::serde::decode_from_slice(body, limited).map_err(|error| WireError::Body(error.to_string()))?;
    if used != body.len() {
        return Err(WireError::Body(format!("{} bytes follow it", body.len() - used)));
    }
    Ok(value)
}

/// Encodes a value without a header, to compare values and never to read them back, such as a hash of events. The names
/// of types and fields are not encoded.
pub fn encode_plain(value: &impl Serialize) -> Vec<u8> {
    // Encoding fails only for a map without a length or a lock. If it failed, the comparison would be empty.
    bincode::serde::encode_to_vec(value, configuration()).unwrap_or_default()
}

/// Whether bytes begin with a header of this kind and version. What follows may be anything.
pub fn is_a<T: Framed>(bytes: &[u8]) -> bool {
    let [version, kind] = [WIRE_VERSION.to_le_bytes(), T::KIND.to_le_bytes()];
    bytes.starts_with(&[MAGIC.as_slice(), &version, &kind].concat())
}

/// The hash that identifies an update in its chain: BLAKE3 of what is signed. An update too long to encode has none.
pub fn update_hash(update: &Update) -> Option<UpdateHash> {
    encode(update).ok().map(|bytes| BlobHash::of(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobRef, ModuleId, PathId, PeerKey, Phase, Term, Version};
    use crate::protocol::limits::{
        MAX_ADDRESS_BYTES, MAX_ADDRESSES, MAX_COPIED, MAX_INLINE, MAX_LEASES, MAX_WANTED, SIGNATURE_BYTES,
    };
    use crate::protocol::wire::message::{
        Copied, Counted, Head, Heartbeat, Lease, Offer, Score, SignedUpdate, Stage, Start, Wanted,
    };

    fn offer() -> Message {
        Message::Offer(Offer {
            path: PathId(3),
            parent: Version(7),
            parent_update: BlobHash([1; 32]),
            router: 0,
            steps: 200,
            blob: BlobRef { hash: BlobHash([2; 32]), bytes: 1000 },
            sequence: 9,
        })
    }

    fn start() -> Start {
        Start { incarnation: 1, nonce: 2, signature: vec![3; SIGNATURE_BYTES] }
    }

    fn wanted() -> Wanted {
        Wanted { module: ModuleId { level: 1, expert: 2 }, helper: PeerKey([8; 32]) }
    }

    #[test]
    fn an_offer_has_these_bytes() {
        let mut golden = b"PSW1\x06\x00\x01\x00".to_vec();
        golden.extend(1u32.to_le_bytes());
        golden.extend(3u32.to_le_bytes());
        golden.extend(7u64.to_le_bytes());
        golden.extend([1; 32]);
        golden.extend(0u32.to_le_bytes());
        golden.extend(200u32.to_le_bytes());
        golden.extend([2; 32]);
        golden.extend(1000u64.to_le_bytes());
        golden.extend(9u64.to_le_bytes());
        assert_eq!(encode(&offer()).unwrap(), golden);
        assert_eq!(decode::<Message>(&golden), Ok(offer()));
    }

    #[test]
    fn a_heartbeat_has_golden_bytes() {
        let trainer = BlobRef { hash: BlobHash([6; 32]), bytes: 8 };
        let copied = vec![Copied { peer: PeerKey([4; 32]), start: start() }];
        let heartbeat = Message::Heartbeat(Heartbeat {
            start: start(),
            sequence: 9,
            head: None,
            owner: Some((Term(7), PeerKey([5; 32]))),
            claim: vec![8; 64],
            leases: vec![Lease { path: PathId(3), phase: Phase(2), stage: Stage::Leaving, trainer: Some(trainer) }],
            addresses: vec!["at".to_owned()],
            replicas: 6,
            wanted: vec![wanted()],
            copied,
            leaving: true,
            pace: 258,
        });
        let mut start = [1u64.to_le_bytes(), 2u64.to_le_bytes(), 64u64.to_le_bytes()].concat();
        start.extend([3; 64]);
        let mut golden = b"PSW1\x06\x00\x01\x00\x00\x00\x00\x00".to_vec();
        golden.extend(&start);
        golden.extend(9u64.to_le_bytes());
        golden.extend([0, 1]);
        golden.extend(7u64.to_le_bytes());
        golden.extend([5; 32]);
        golden.extend(64u64.to_le_bytes());
        golden.extend([8; 64]);
        golden.extend(1u64.to_le_bytes());
        golden.extend(3u32.to_le_bytes());
        golden.extend(2u64.to_le_bytes());
        golden.extend(5u32.to_le_bytes());
        golden.push(1);
        golden.extend([6; 32]);
        golden.extend(8u64.to_le_bytes());
        golden.extend([1u64.to_le_bytes(), 2u64.to_le_bytes()].concat());
        golden.extend(b"at");
        golden.extend(6u32.to_le_bytes());
        golden.extend(1u64.to_le_bytes());
        golden.extend([1, 0, 2, 0, 0, 0]);
        golden.extend([8; 32]);
        golden.extend(1u64.to_le_bytes());
        golden.extend([4; 32]);
        golden.extend(&start);
        golden.extend([1, 2, 1, 0, 0]);
        assert_eq!(encode(&heartbeat).unwrap(), golden);
        assert_eq!(decode::<Message>(&golden), Ok(heartbeat));
    }

    #[test]
    fn a_score_has_golden_bytes() {
        let score = Message::Score(Score { path: PathId(3), phase: Phase(7), millibits_per_byte: 1_234 });
        let mut golden = b"PSW1\x06\x00\x01\x00\x03\x00\x00\x00".to_vec();
        golden.extend(3u32.to_le_bytes());
        golden.extend(7u64.to_le_bytes());
        golden.extend(1_234u32.to_le_bytes());
        assert_eq!(encode(&score).unwrap(), golden);
        assert_eq!(decode::<Message>(&golden), Ok(score));
    }

    #[test]
    fn other_versions_kinds_and_trailing_bytes_are_refused() {
        let good = encode(&offer()).unwrap();
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            decode::<Message>(&bytes).unwrap_err()
        };
        assert_eq!(changed(0, 0), WireError::Magic);
        assert_eq!(changed(4, 9), WireError::Version { found: 9 });
        assert_eq!(changed(6, 2), WireError::Kind { found: 2, expected: 1 });
        assert!(matches!(decode::<Message>(&[good.clone(), vec![0]].concat()), Err(WireError::Body(_))));
        for length in 0..good.len() {
            assert!(decode::<Message>(&good[..length]).is_err());
        }
    }

    #[test]
    fn a_forged_length_allocates_nothing() {
        let heartbeat = Message::Heartbeat(Heartbeat {
            start: start(),
            sequence: 1,
            head: None,
            owner: None,
            claim: vec![],
            leases: vec![],
            addresses: vec![],
            replicas: 0,
            wanted: vec![],
            copied: vec![],
            leaving: false,
            pace: 0,
        });
        let mut bytes = encode(&heartbeat).unwrap();
        let leases_length = bytes.len() - 4 - 1 - 8 - 8 - 8 - 4 - 8;
        bytes[leases_length..leases_length + 8].copy_from_slice(&(u64::MAX / 64).to_le_bytes());
        assert!(matches!(decode::<Message>(&bytes), Err(WireError::Body(_))));
    }

    #[test]
    fn the_largest_update_and_heartbeat_fit_in_a_gossip_message() {
        let blob = BlobRef::of(b"");
        let counted =
            |path| Counted { path: PathId(path), parent: Version(1), steps: 1, uncapped: 1, weight: 1, norm: 0, blob };
        let contributions: Vec<Counted> = (0..MAX_INLINE as u32).map(counted).collect();
        let update = Update {
            module: ModuleId { level: 0, expert: 0 },
            term: Term(1),
            owner: PeerKey([1; 32]),
            version: Version(2),
            parent: BlobHash([1; 32]),
            contributions: contributions.into(),
            norm: 0,
            average: blob,
            state: blob,
            weight: 1,
        };
        let signed = SignedUpdate { update, signature: vec![0; 64] };
        assert!(encode(&Message::Update(signed)).is_ok());
        let head = Head { version: Version(1), update: BlobHash([1; 32]), state: blob, weight: 1 };
        let heartbeat = Heartbeat {
            start: start(),
            sequence: 1,
            head: Some(head),
            owner: Some((Term(1), PeerKey([1; 32]))),
            claim: vec![0; SIGNATURE_BYTES],
            leases: vec![
                Lease { path: PathId(1), phase: Phase(1), stage: Stage::Waiting, trainer: Some(blob) };
                MAX_LEASES
            ],
            addresses: vec!["x".repeat(MAX_ADDRESS_BYTES); MAX_ADDRESSES],
            replicas: 1,
            wanted: vec![wanted(); MAX_WANTED],
            copied: vec![Copied { peer: PeerKey([1; 32]), start: start() }; MAX_COPIED],
            leaving: false,
            pace: 0,
        };
        assert!(encode(&Message::Heartbeat(heartbeat)).is_ok());
    }

    #[test]
    fn an_oversized_message_is_refused_by_sender_and_receiver() {
        let long = Response::Refused("x".repeat(MAX_CONTROL_BYTES));
        assert!(matches!(encode(&long), Err(WireError::Size { .. })));
        assert!(matches!(decode::<Message>(&vec![0; MAX_GOSSIP_BYTES + 1]), Err(WireError::Size { .. })));
    }
}
