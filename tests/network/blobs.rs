//! Blobs fetched from a peer.

use std::time::Instant;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::swarm::SwarmEvent;
use libp2p::{StreamProtocol, SwarmBuilder, identify, noise, tcp, yamux};

use pathswarm::names::{BlobHash, BlobRef, PeerKey};
use pathswarm::network::{FetchError, NetworkEvent, limits};

use crate::peers::{Peer, QUIC, TCP, join};

async fn fetched(peer: &mut Peer, wanted: u64) -> Result<(), FetchError> {
    peer.wait_for("a blob", |event| match event {
        NetworkEvent::Fetched { id, result, .. } if *id == wanted => Some(result.clone()),
        _ => None,
    })
    .await
}

/// Bytes without a pattern that a mistake in the order of pieces could hide in.
fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().update(b"noise").finalize_xof().fill(&mut noise);
    noise
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "how long it took is shown")]
async fn twenty_megabytes_arrive_and_verify_over_each_transport() {
    for transport in [QUIC, TCP] {
        let (mut one, other) = (Peer::on(&[transport]).await, Peer::on(&[transport]).await);
        let bytes = noise(20_000_001);
        let blob = other.blobs.put(&bytes);
        let began = Instant::now();
        one.handle.fetch(1, blob, other.key(), other.addresses().await).unwrap();
        assert_eq!(fetched(&mut one, 1).await, Ok(()));
        println!("{transport}: {} bytes in {:.2?}", blob.bytes, began.elapsed());
        assert!(std::fs::read(one.blobs.path(blob.hash)).unwrap() == bytes);
        assert_eq!(one.handle.traffic().blobs_received, blob.bytes);
        assert_eq!(other.handle.traffic().blobs_sent, blob.bytes);
    }
}

#[tokio::test]
async fn an_empty_blob_is_a_blob() {
    let (mut one, other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let blob = other.blobs.put(b"");
    one.handle.fetch(1, blob, other.key(), other.addresses().await).unwrap();
    assert_eq!(fetched(&mut one, 1).await, Ok(()));
    assert!(one.blobs.path(blob.hash).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_blobs_at_once_all_arrive() {
    let (mut one, other) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    join(&one, &other).await;
    let blobs: Vec<BlobRef> = (0..40).map(|index| other.blobs.put(&noise(300_000 + index))).collect();
    for (id, blob) in blobs.iter().enumerate() {
        one.handle.fetch(id as u64, *blob, other.key(), vec![]).unwrap();
    }
    for (id, blob) in blobs.iter().enumerate() {
        assert_eq!(fetched(&mut one, id as u64).await, Ok(()));
        assert_eq!(BlobHash::of(&std::fs::read(one.blobs.path(blob.hash)).unwrap()), blob.hash);
    }
}

#[tokio::test]
async fn a_peer_that_serves_wrong_bytes_is_named_and_nothing_is_kept() {
    let (mut one, liar) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let mut bytes = noise(1_000_000);
    let blob = liar.blobs.put(&bytes);
    bytes[999_999] ^= 1;
    std::fs::write(liar.blobs.path(blob.hash), &bytes).unwrap();
    one.handle.fetch(1, blob, liar.key(), liar.addresses().await).unwrap();
    assert_eq!(fetched(&mut one, 1).await, Err(FetchError::WrongHash { from: liar.key() }));
    assert_eq!(one.blobs.files(), 0);
}

#[tokio::test]
async fn a_blob_of_another_size_is_refused_before_a_byte_of_it_is_read() {
    let (mut one, liar) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let blob = liar.blobs.put(&noise(1000));
    for (id, announced) in [(1, 1001), (2, 999)] {
        std::fs::write(liar.blobs.path(blob.hash), vec![0; announced as usize]).unwrap();
        one.handle.fetch(id, blob, liar.key(), liar.addresses().await).unwrap();
        let refused = FetchError::WrongSize { from: liar.key(), announced, expected: 1000 };
        assert_eq!(fetched(&mut one, id).await, Err(refused));
    }
    assert_eq!(one.blobs.begun(), [], "no place was made for it");
    assert_eq!(one.handle.traffic().blobs_received, 0);
}

#[tokio::test]
async fn a_blob_that_is_not_there_and_a_peer_that_is_not_there_are_told_apart() {
    let (mut one, other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let blob = BlobRef::of(b"nobody has this");
    one.handle.fetch(1, blob, other.key(), other.addresses().await).unwrap();
    assert_eq!(fetched(&mut one, 1).await, Err(FetchError::NotHere { from: other.key() }));
    one.handle.fetch(2, blob, PeerKey([1; 32]), vec![]).unwrap();
    assert!(matches!(fetched(&mut one, 2).await, Err(FetchError::Unreachable(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_dies_in_the_middle_is_reported() {
    let (mut one, other) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let from = other.key();
    let blob = other.blobs.put(&noise(50_000_000));
    one.handle.fetch(1, blob, from, other.addresses().await).unwrap();
    // It has begun once there is a place for it.
    while one.blobs.begun().is_empty() {
        tokio::task::yield_now().await;
    }
    other.wait_for_end().await;
    match fetched(&mut one, 1).await {
        Err(FetchError::Broken { from: named, .. } | FetchError::Stalled { from: named, .. }) => {
            assert_eq!(named, from)
        }
        otherwise => panic!("{otherwise:?}"),
    }
    assert_eq!(one.blobs.files(), 0);
}

/// Just enough to ask for blobs without the manners of a real peer.
#[derive(libp2p::swarm::NetworkBehaviour)]
#[behaviour(prelude = "libp2p::swarm::derive_prelude")]
struct Greedy {
    identify: identify::Behaviour,
    streams: libp2p_stream::Behaviour,
}

#[tokio::test]
async fn a_peer_that_takes_its_places_and_reads_nothing_hears_busy_and_others_are_served() {
    let (server, mut honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let large = server.blobs.put(&noise(50_000_000));
    let small = server.blobs.put(&noise(1000));
    let address = server.addresses().await.remove(0);
    let mut greedy = SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
        .unwrap()
        .with_behaviour(|key| Greedy {
            identify: identify::Behaviour::new(identify::Config::new("greedy".to_owned(), key.public())),
            streams: libp2p_stream::Behaviour::new(),
        })
        .unwrap()
        .build();
    let mut control = greedy.behaviour().streams.new_control();
    // It claims to speak our version.
    let _incoming = control.accept(StreamProtocol::new("/pathswarm/control/1")).unwrap();
    greedy.dial(address).unwrap();
    let peer = loop {
        if let SwarmEvent::ConnectionEstablished { peer_id, .. } = greedy.select_next_some().await {
            break peer_id;
        }
    };
    let running = tokio::spawn(async move { while greedy.next().await.is_some() {} });
    let mut streams = Vec::new();
    let mut first_bytes = Vec::new();
    for _ in 0..=limits::SERVINGS_PER_PEER {
        let mut stream = control.open_stream(peer, StreamProtocol::new("/pathswarm/blob/1")).await.unwrap();
        stream.write_all(&large.hash.0).await.unwrap();
        stream.flush().await.unwrap();
        let mut status = [0];
        stream.read_exact(&mut status).await.unwrap();
        first_bytes.push(status[0]);
        streams.push(stream);
    }
    let mut expected = vec![0; limits::SERVINGS_PER_PEER];
    expected.push(2);
    assert_eq!(first_bytes, expected);
    honest.handle.fetch(1, small, server.key(), server.addresses().await).unwrap();
    assert_eq!(fetched(&mut honest, 1).await, Ok(()));
    running.abort();
}
