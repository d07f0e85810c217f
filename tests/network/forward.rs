//! Blobs between peers that have no direct connection, through one that has a direct connection to both.

use pathswarm::network::{FetchError, Standing};

use crate::blobs::noise;
use crate::peers::{Peer, TCP, join};

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
