//! Places that a few peers hold: others get theirs all the same.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::Stream;
use pathswarm::names::BlobRef;
use pathswarm::network::{NetworkEvent, limits};
use tokio::task::JoinHandle;

use crate::blobs::noise;
use crate::peers::{Peer, TCP, join};
use crate::rude::donor_at_pace;
use crate::unmannered::{BLOBS, Rude};

/// Asks which pieces are there, and reads the answer of so many bytes.
async fn asks_which(stream: &mut Stream, bytes: usize) -> std::io::Result<()> {
    stream.write_all(&u32::MAX.to_le_bytes()).await?;
    stream.flush().await?;
    stream.read_exact(&mut vec![0; bytes]).await
}

/// A peer that takes as many places as one key may have, for a blob that it does not fetch, and keeps them: from time to
/// time it asks which pieces are there. Each of these tasks lasts as long as a place.
async fn greedy(server: &Peer, blob: BlobRef) -> (Rude, Vec<JoinHandle<()>>) {
    let mut rude = Rude::at(server.addresses().await.remove(0)).await;
    let mut places = Vec::new();
    for _ in 0..limits::SERVINGS_PER_PEER {
        let mut stream = rude.keeps_asking(BLOBS, &[&blob.hash.0[..], &blob.bytes.to_le_bytes()].concat()).await;
        let mut status = [9];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(status, [0], "it is served");
        places.push(tokio::spawn(async move {
            let mut often = tokio::time::interval(limits::BLOB_IDLE / 20);
            let bytes = 1 + blob.bytes.div_ceil(pathswarm::pieces::PIECE_BYTES).div_ceil(8) as usize;
            while asks_which(&mut stream, bytes).await.is_ok() {
                often.tick().await;
            }
        }));
    }
    (rude, places)
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
    assert_eq!(honest.fetch(1, small, &[&server]).await.1, Ok(()));
    let ended = held.iter().flat_map(|(_, places)| places).filter(|place| place.is_finished()).count();
    assert!(ended <= 1, "{ended} places were given up, so nobody had to make room");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_ends_streams_for_others_is_asked_again() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let mut one = Peer::on(&[TCP]).await;
    let bytes = noise(1000);
    let cuts = |_| {
        assert!(ASKED.fetch_add(1, Ordering::SeqCst) >= 2, "the first two streams end here, as if others came first");
        [&[0][..], &noise(1000)].concat()
    };
    let donor = donor_at_pace(&[0], cuts, (usize::MAX, Duration::from_millis(1))).await;
    one.handle.fetch(1, BlobRef::of(&bytes), vec![(donor.key, vec![donor.address.clone()])]).unwrap();
    assert_eq!(one.fetched(1).await.1, Ok(()));
    assert_eq!((one.blobs.get(BlobRef::of(&bytes)), ASKED.load(Ordering::SeqCst)), (Some(bytes), 3));
}

/// Begins to fetch so many blobs, each of one piece that only one donor has, of which some bytes come now and then: it
/// takes longer than anything is waited for here.
async fn trickling(one: &Peer, blobs: usize) -> Vec<crate::rude::Rude> {
    let mut donors = Vec::new();
    for number in 0..blobs as u32 {
        let blob = BlobRef::of(&[noise(200_000), number.to_le_bytes().to_vec()].concat());
        let donor = donor_at_pace(&[0], |_| vec![0; 200_005], (200, Duration::from_millis(100))).await;
        one.handle.fetch(u64::from(number) + 100, blob, vec![(donor.key, vec![donor.address.clone()])]).unwrap();
        donors.push(donor);
    }
    donors
}

/// Whether any of those has ended.
fn any_has_ended(one: &Peer) -> bool {
    one.has_seen(|event| matches!(event, NetworkEvent::Fetched { id, .. } if *id >= 100))
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_only_trickling_donors_have_do_not_keep_others_from_being_fetched() {
    let (mut one, honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let small = honest.blobs.put(&noise(100_000));
    for donor in &trickling(&one, limits::FETCHES).await {
        donor.asked.notified().await;
    }
    assert_eq!(one.fetch(1, small, &[&honest]).await.1, Ok(()));
    assert!(!any_has_ended(&one), "it waits for blobs that trickle");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_has_to_give_its_place_up_waits_for_the_next_one() {
    let (mut one, honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let small = honest.blobs.put(&noise(100_000));
    // One more than there are places, also for slow ones.
    let donors = trickling(&one, limits::FETCHES + limits::SLOW_FETCHES + 1).await;
    for donor in &donors {
        donor.asked.notified().await;
    }
    assert_eq!(one.fetch(1, small, &[&honest]).await.1, Ok(()));
    assert!(!any_has_ended(&one), "one was ended for being slow");
}
