//! What peers say to each other and write down keeps the bytes that release 0.1.0 gave it: peers of two releases train in one run,
//! and read each other's folders.

#[path = "../../fuzz/seeds/messages.rs"]
mod messages;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pathswarm::access::amendment::SignedAmendment;
use pathswarm::access::authentication::{AccessList, AccessNotice, AuthenticationRequest, AuthenticationResponse};
use pathswarm::access::invitation::InvitationToken;
use pathswarm::protocol::wire::contribution_list::ContributionList;
use pathswarm::protocol::wire::encoding::{Framed, decode, encode};
use pathswarm::protocol::{Message, Record, Request, Response, Update};

/// Every kind of frame with every kind of content, as fuzzing begins with them.
#[derive(Default)]
struct Seeds(Vec<Vec<u8>>);

impl Seeds {
    fn add(&mut self, target: &str, bytes: impl Into<Vec<u8>>) {
        // Whole conversations consist of the others.
        if target != "node" {
            self.0.push(bytes.into());
        }
    }
}

fn frames() -> Vec<Vec<u8>> {
    let mut seeds = Seeds::default();
    messages::add(&mut seeds);
    seeds.0
}

/// Each frame behind its length, compressed.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core/frames/0.1.0.zst")
}

fn read(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut left, mut found) = (bytes, Vec::new());
    while let Some((length, after)) = left.split_first_chunk() {
        let (frame, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        found.push(frame.to_vec());
        left = after;
    }
    found
}

/// What comes of a frame that is read and written again.
fn again(frame: &[u8]) -> Vec<u8> {
    fn of<T: Framed>(frame: &[u8]) -> Vec<u8> {
        encode(&decode::<T>(frame).unwrap_or_else(|error| panic!("{error}: {frame:?}"))).unwrap()
    }
    match frame[6] {
        1 => of::<Message>(frame),
        2 => of::<Request>(frame),
        3 => of::<Response>(frame),
        4 => of::<Update>(frame),
        5 => of::<Record>(frame),
        6 => of::<InvitationToken>(frame),
        7 => of::<AuthenticationRequest>(frame),
        8 => of::<AuthenticationResponse>(frame),
        9 => of::<AccessNotice>(frame),
        10 => of::<AccessList>(frame),
        11 => of::<ContributionList>(frame),
        12 => of::<SignedAmendment>(frame),
        kind => panic!("a frame of kind {kind}"),
    }
}

#[test]
fn every_message_and_record_has_the_bytes_of_release_0_1_0() {
    let kept = read(&zstd::decode_all(std::fs::File::open(fixture()).unwrap()).unwrap());
    let now = frames();
    // New kinds come behind those that are kept.
    for (number, frame) in kept.iter().enumerate() {
        assert_eq!(again(frame), *frame, "frame {number} is read as something else");
        assert!(now.contains(frame), "frame {number} is written in another way: {frame:?}");
    }
    let kinds: BTreeSet<u8> = kept.iter().map(|frame| frame[6]).collect();
    assert_eq!((kinds.len(), kinds.last()), (12, Some(&12)), "{kinds:?}");
}

#[test]
#[ignore = "writes the frames of this release, if the fixture is not there"]
fn the_frames_of_a_release_are_kept() {
    let all: Vec<u8> =
        frames().iter().flat_map(|frame| [&(frame.len() as u32).to_le_bytes()[..], frame].concat()).collect();
    let mut file = std::fs::File::create_new(fixture()).unwrap();
    std::io::Write::write_all(&mut file, &zstd::encode_all(&all[..], 19).unwrap()).unwrap();
}
