//! Places that a few peers hold: others get theirs all the same.

use std::time::Duration;

use futures::AsyncReadExt;
use libp2p::Stream;
use pathswarm::names::BlobRef;
use pathswarm::network::limits;

use crate::blobs::noise;
use crate::peers::{Peer, TCP, join};
use crate::rude::donor_at_pace;
use crate::unmannered::{BLOBS, Rude};

/// A peer that takes as many places as one key may have, for a blob that it does not read.
async fn greedy(server: &Peer, blob: BlobRef) -> (Rude, Vec<Stream>) {
    let mut rude = Rude::at(server.addresses().await.remove(0)).await;
    let mut streams = Vec::new();
    for _ in 0..limits::SERVINGS_PER_PEER {
        let mut stream = rude.keeps_asking(BLOBS, &[&blob.hash.0[..], &blob.bytes.to_le_bytes()].concat()).await;
        let mut status = [9];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(status, [0], "it is served");
        streams.push(stream);
    }
    (rude, streams)
}

#[tokio::test(flavor = "multi_thread")]
async fn four_keys_that_hold_all_places_do_not_keep_a_fifth_from_being_served_at_once() {
    let (server, mut honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let large = server.blobs.put(&noise(50_000_000));
    let small = server.blobs.put(&noise(1000));
    join(&honest, &server).await;
    let mut held = Vec::new();
    for _ in 0..limits::SERVINGS / limits::SERVINGS_PER_PEER {
        held.push(greedy(&server, large).await);
    }
    let served = tokio::time::timeout(limits::SERVING_WAIT, honest.fetch(1, small, &[&server])).await;
    assert_eq!(served.expect("it waits for a place").1, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_only_trickling_donors_have_do_not_keep_others_from_being_fetched() {
    let (mut one, honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    join(&one, &honest).await;
    let small = honest.blobs.put(&noise(100_000));
    let mut donors = Vec::new();
    for number in 0..limits::FETCHES as u32 {
        // One piece, of which some bytes come now and then.
        let blob = BlobRef::of(&[noise(200_000), number.to_le_bytes().to_vec()].concat());
        let donor = donor_at_pace(&[0], |_| vec![0; 200_005], (200, Duration::from_millis(100))).await;
        one.handle.fetch(u64::from(number) + 100, blob, vec![(donor.key, vec![donor.address.clone()])]).unwrap();
        donors.push(donor);
    }
    for donor in &donors {
        donor.asked.notified().await;
    }
    let fetched = tokio::time::timeout(3 * limits::FETCH_PROGRESS_WITHIN, one.fetch(1, small, &[&honest])).await;
    assert_eq!(fetched.expect("it waits for blobs that trickle").1, Ok(()));
}
