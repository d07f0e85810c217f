//! Blobs fetched from other peers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pathswarm::names::{BlobRef, PeerKey};
use pathswarm::network::{Bandwidth, BlobSink, FetchError, Identity, NetworkConfig, Standing, limits};
use pathswarm::pieces::{PIECE_BYTES, PieceTree, value_of};

use crate::peers::{Peer, QUIC, TCP, join};

/// Bytes without a pattern that a mistake in the order of pieces could hide in.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().update(b"noise").finalize_xof().fill(&mut noise);
    noise
}

fn pieces(contents: &[u8]) -> Vec<&[u8]> {
    contents.chunks(PIECE_BYTES as usize).collect()
}

/// Puts some pieces of a blob where they would be if the rest were still on its way. It is as long as this is kept.
pub fn half_way(peer: &Peer, contents: &[u8], here: impl Fn(usize) -> bool) -> Box<dyn BlobSink> {
    let values = pieces(contents).into_iter().zip(0..).map(|(piece, index)| value_of(index, piece)).collect();
    let tree = Arc::new(PieceTree::of_values(BlobRef::of(contents), values).unwrap());
    let sink = peer.blobs.receive(tree.blob());
    sink.begin(&tree).unwrap();
    for (index, piece) in pieces(contents).into_iter().enumerate().filter(|(index, _)| here(*index)) {
        sink.write(index as u32, piece).unwrap();
    }
    sink
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "how long it took is shown")]
async fn twenty_megabytes_arrive_and_verify_over_each_transport() {
    for transport in [QUIC, TCP] {
        let (mut one, other) = (Peer::on(&[transport]).await, Peer::on(&[transport]).await);
        let bytes = noise(20_000_001);
        let blob = other.blobs.put(&bytes);
        let began = Instant::now();
        let (donors, result) = one.fetch(1, blob, &[&other]).await;
        assert_eq!(result, Ok(()));
        println!("{transport}: {} bytes in {:.2?}", blob.bytes, began.elapsed());
        assert!(one.blobs.get(blob).unwrap() == bytes);
        // What all pieces hash to comes first.
        let sent = blob.bytes + 32 * pieces(&bytes).len() as u64;
        assert_eq!((donors[0].peer, donors[0].bytes, donors[0].failed.clone()), (other.key(), sent, None));
        assert_eq!((one.handle.traffic().blobs_received, other.handle.traffic().blobs_sent), (sent, sent));
    }
}

#[tokio::test]
async fn an_empty_blob_is_a_blob() {
    let (mut one, other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let blob = other.blobs.put(b"");
    assert_eq!(one.fetch(1, blob, &[&other]).await.1, Ok(()));
    assert_eq!(one.blobs.list(), [blob]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_blobs_at_once_all_arrive() {
    let (mut one, other) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    join(&one, &other).await;
    let blobs: Vec<BlobRef> = (0..40).map(|index| other.blobs.put(&noise(300_000 + index))).collect();
    for (id, blob) in blobs.iter().enumerate() {
        one.handle.fetch(id as u64, *blob, vec![(other.key(), vec![])]).unwrap();
    }
    for (id, blob) in blobs.iter().enumerate() {
        assert_eq!(one.fetched(id as u64).await.1, Ok(()));
        assert!(one.blobs.get(*blob).is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_give_a_blob_at_the_same_time() {
    let mut one = Peer::on(&[QUIC]).await;
    // So slow that none can give all of it before another has begun.
    let mut donors = Vec::new();
    for listen in [QUIC, TCP, QUIC] {
        donors.push(capped(listen, 2_000_000, 0).await);
    }
    let bytes = noise(40_000_000);
    let blob = BlobRef::of(&bytes);
    for donor in &donors {
        donor.blobs.put(&bytes);
        join(&one, donor).await;
    }
    let (gave, result) = one.fetch(1, blob, &donors.iter().collect::<Vec<_>>()).await;
    assert_eq!(result, Ok(()));
    assert!(one.blobs.get(blob).unwrap() == bytes);
    assert!(gave.iter().all(|donor| donor.bytes > PIECE_BYTES), "{gave:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_are_half_way_serve_what_they_have() {
    let (mut one, even, odd) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let bytes = noise(5_000_000);
    let _even = half_way(&even, &bytes, |index| index % 2 == 0);
    let _odd = half_way(&odd, &bytes, |index| index % 2 == 1);
    let (gave, result) = one.fetch(1, BlobRef::of(&bytes), &[&even, &odd]).await;
    assert_eq!(result, Ok(()), "{gave:?}");
    assert!(one.blobs.get(BlobRef::of(&bytes)).unwrap() == bytes);
    assert!(gave.iter().all(|donor| donor.bytes > PIECE_BYTES), "{gave:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_peers_passes_a_blob_on_while_it_comes() {
    let (mut last, mut middle, first) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let bytes = noise(20_000_000);
    let blob = first.blobs.put(&bytes);
    // It knows one who has nothing, and one who fetches it now.
    let empty = Peer::on(&[QUIC]).await;
    let sources = [&first];
    let (there, here) = tokio::join!(middle.fetch(1, blob, &sources), async {
        let waits = half_way(&empty, &bytes, |index| index == 0);
        let result = last.fetch(1, blob, &[&empty, &first]).await;
        drop(waits);
        result
    });
    assert_eq!((there.1, here.1), (Ok(()), Ok(())));
    assert!(last.blobs.get(blob).is_some() && middle.blobs.get(blob).is_some());
}

#[tokio::test]
async fn a_peer_that_serves_wrong_bytes_is_named_and_nothing_of_them_is_kept() {
    let (mut one, byzantine) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    for (id, size) in [(1, 200_000), (2, 1_000_000)] {
        let bytes = noise(size);
        let blob = BlobRef::of(&bytes);
        // It hashes to something else, which it does not know: its disk lies, or it does.
        let _sink = half_way_wrong(&byzantine, &bytes);
        let (gave, result) = one.fetch(id, blob, &[&byzantine]).await;
        assert_eq!(result, Err(FetchError::WrongHash { from: byzantine.key() }), "{gave:?}");
        assert!(one.blobs.list().is_empty() && one.blobs.get(blob).is_none());
    }
}

/// All pieces, one of which is wrong.
fn half_way_wrong(peer: &Peer, contents: &[u8]) -> Box<dyn BlobSink> {
    let blob = BlobRef::of(contents);
    let sink = match contents.len() as u64 > PIECE_BYTES {
        true => half_way(peer, contents, |index| index > 0),
        false => {
            let sink = peer.blobs.receive(blob);
            sink.begin(&Arc::new(PieceTree::single(blob).unwrap())).unwrap();
            sink
        }
    };
    let mut wrong = pieces(contents)[0].to_vec();
    wrong[7] ^= 1;
    sink.write(0, &wrong).unwrap();
    sink
}

#[tokio::test(flavor = "multi_thread")]
async fn a_byzantine_peer_among_donors_is_named_and_the_blob_is_right() {
    let (mut one, byzantine, honest) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    // Every piece that it has is wrong, so that whichever it gives shows it.
    let bytes = noise(20_000_000);
    let wrong_pieces = half_way(&byzantine, &bytes, |_| false);
    for (index, piece) in pieces(&bytes).into_iter().enumerate() {
        let wrong: Vec<u8> = piece.iter().map(|byte| !byte).collect();
        wrong_pieces.write(index as u32, &wrong).unwrap();
    }
    // As long as the honest one has only a half, the byzantine one is asked for the other.
    let half = half_way(&honest, &bytes, |index| index % 2 == 0);
    let blob = BlobRef::of(&bytes);
    let (gave, result) = one.fetch(1, blob, &[&byzantine, &honest]).await;
    assert_eq!(result, Err(FetchError::WrongHash { from: byzantine.key() }), "{gave:?}");
    assert_eq!(gave[0].failed, Some(FetchError::WrongHash { from: byzantine.key() }));
    drop(half);
    honest.blobs.put(&bytes);
    let (gave, result) = one.fetch(2, blob, &[&byzantine, &honest]).await;
    assert_eq!(result, Ok(()), "{gave:?}");
    assert!(one.blobs.get(blob).unwrap() == bytes);
    assert_eq!((gave[1].peer, gave[1].failed.clone()), (honest.key(), None));
}

#[tokio::test]
async fn a_blob_of_another_size_is_not_there_and_one_beyond_all_bounds_is_not_asked_for() {
    let (mut one, other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let blob = other.blobs.put(&noise(1000));
    for (id, bytes) in [(1, 1001), (2, 999)] {
        let (_, result) = one.fetch(id, BlobRef { bytes, ..blob }, &[&other]).await;
        assert_eq!(result, Err(FetchError::NotHere { from: other.key() }));
    }
    let bytes = 1_000_000_000 * PIECE_BYTES;
    assert_eq!(one.fetch(3, BlobRef { bytes, ..blob }, &[&other]).await.1, Err(FetchError::TooLarge { bytes }));
    assert_eq!((one.handle.traffic().blobs_received, one.blobs.used_bytes()), (0, 0));
}

#[tokio::test]
async fn a_blob_that_is_not_there_and_a_peer_that_is_not_there_are_told_apart() {
    let (mut one, other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let blob = BlobRef::of(b"nobody has this");
    assert_eq!(one.fetch(1, blob, &[&other]).await.1, Err(FetchError::NotHere { from: other.key() }));
    one.handle.fetch(2, blob, vec![(PeerKey([1; 32]), vec![])]).unwrap();
    assert!(matches!(one.fetched(2).await.1, Err(FetchError::Unreachable(_))));
    assert_eq!(one.fetch(3, blob, &[]).await.1, Err(FetchError::Nobody));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_before_a_donor_died_is_not_fetched_again() {
    let (mut one, other, third) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let from = other.key();
    let bytes = noise(100_000_000);
    let blob = other.blobs.put(&bytes);
    third.blobs.put(&bytes);
    one.handle.fetch(1, blob, vec![(from, other.addresses().await)]).unwrap();
    one.wait_for_bytes(10 * PIECE_BYTES).await;
    other.wait_for_end().await;
    match one.fetched(1).await.1 {
        Err(FetchError::Broken { from: named, .. } | FetchError::Stalled { from: named, .. }) => {
            assert_eq!(named, from)
        }
        otherwise => panic!("{otherwise:?}"),
    }
    assert_eq!(one.blobs.list(), []);
    let (gave, result) = one.fetch(2, blob, &[&third]).await;
    assert_eq!(result, Ok(()));
    assert!(gave[0].bytes <= blob.bytes - 5 * PIECE_BYTES, "{gave:?}");
    assert!(one.blobs.get(blob).unwrap() == bytes);
}

/// A peer that sends and receives so many bytes a second.
async fn capped(listen: &str, upload_bytes_per_s: u64, download_bytes_per_s: u64) -> Peer {
    let bandwidth = Bandwidth { upload_bytes_per_s, download_bytes_per_s };
    let listen = vec![listen.parse().unwrap()];
    Peer::with(NetworkConfig { listen, bandwidth, ..NetworkConfig::visitor(Identity::generate()) }).await
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "a second is a second")]
async fn a_peer_stays_under_its_caps() {
    const CAP: u64 = 4_000_000;
    let free = Peer::on(&[QUIC]).await;
    let mut also_free = Peer::on(&[QUIC]).await;
    let (gives, mut takes) = (capped(QUIC, CAP, 0).await, capped(QUIC, 0, CAP).await);
    let bytes = noise(6_000_000);
    let blob = free.blobs.put(&bytes);
    gives.blobs.put(&bytes);
    // A quarter of a second's worth is there from the beginning, and the last slice is waited for afterwards.
    let waited_for = blob.bytes - CAP / 4 - limits::BLOB_SLICE_BYTES as u64;
    let least = Duration::from_secs_f64(waited_for as f64 / CAP as f64);
    let began = Instant::now();
    assert_eq!(also_free.fetch(1, blob, &[&gives]).await.1, Ok(()));
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    let began = Instant::now();
    assert_eq!(takes.fetch(1, blob, &[&free]).await.1, Ok(()));
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_forwards_blobs_between_two_that_cannot_reach_each_other() {
    let (between, regards) = Peer::regarding(&[TCP], false).await;
    // Neither listens.
    let (donor, mut other) = (Peer::on(&[]).await, Peer::on(&[]).await);
    join(&donor, &between).await;
    join(&other, &between).await;
    let bytes = noise(3_000_000);
    let blob = donor.blobs.put(&bytes);
    let holders = || vec![(donor.key(), vec![])];
    other.handle.fetch(1, blob, holders()).unwrap();
    let (_, refused) = other.fetched(1).await;
    assert!(matches!(refused, Err(FetchError::Unreachable(_))), "nobody forwards from a stranger: {refused:?}");

    regards.set(donor.key(), Standing::Member);
    other.handle.fetch(2, blob, holders()).unwrap();
    let (donors, fetched) = other.fetched(2).await;
    assert_eq!(fetched, Ok(()));
    assert!(donors[0].bytes >= bytes.len() as u64 && donors[0].peer == donor.key(), "{donors:?}");
    assert!(other.blobs.get(blob) == Some(bytes));
    assert!(between.handle.traffic().blobs_forwarded >= 3_000_000);
    assert!(between.blobs.list().is_empty(), "it keeps nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_by_invitation_forwards_for_nobody_that_is_not_admitted() {
    let (between, regards) = Peer::regarding(&[TCP], true).await;
    let (donor, mut other) = (Peer::on(&[]).await, Peer::on(&[]).await);
    join(&donor, &between).await;
    join(&other, &between).await;
    regards.set(donor.key(), Standing::Member);
    let blob = donor.blobs.put(&noise(3_000_000));
    other.handle.fetch(1, blob, vec![(donor.key(), vec![])]).unwrap();
    assert!(other.fetched(1).await.1.is_err());
    assert_eq!(between.handle.traffic().blobs_forwarded, 0);
}
