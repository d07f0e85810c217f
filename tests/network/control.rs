//! Questions and answers between two peers.

use pathswarm::names::PeerKey;
use pathswarm::network::{NetworkEvent, NotSent, RequestError, RequestToken, limits};

use crate::peers::{Peer, QUIC, TCP, join};

/// The first of its kind that is no point on the curve.
const NO_KEY: PeerKey = PeerKey([2; 32]);

async fn question(peer: &mut Peer) -> (PeerKey, RequestToken, Vec<u8>) {
    peer.wait_for("a request", |event| match event {
        NetworkEvent::Request { from, token, bytes } => Some((*from, *token, bytes.clone())),
        _ => None,
    })
    .await
}

async fn answer(peer: &mut Peer, to: u64) -> Result<Vec<u8>, RequestError> {
    peer.wait_for("a response", |event| match event {
        NetworkEvent::Response { id, result, .. } if *id == to => Some(result.clone()),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_request_is_answered_over_each_transport() {
    for transport in [QUIC, TCP] {
        let (mut one, mut other) = (Peer::on(&[transport]).await, Peer::on(&[transport]).await);
        let sent = vec![5; limits::CONTROL_BYTES];
        one.handle.request(7, other.key(), other.addresses().await, sent.clone()).unwrap();
        let (from, token, bytes) = question(&mut other).await;
        assert_eq!(from, one.key());
        assert!(bytes == sent);
        other.handle.respond(token, b"yes".to_vec()).unwrap();
        assert_eq!(answer(&mut one, 7).await, Ok(b"yes".to_vec()));
        assert_eq!(one.handle.traffic().control_sent, limits::CONTROL_BYTES as u64);
        assert_eq!(one.handle.traffic().control_received, 3);
    }
}

#[tokio::test]
async fn what_is_too_large_is_not_even_sent() {
    let one = Peer::on(&[QUIC]).await;
    let bytes = limits::CONTROL_BYTES + 1;
    let refused = one.handle.request(1, PeerKey([1; 32]), vec![], vec![0; bytes]);
    assert_eq!(refused, Err(NotSent::TooLarge(bytes)));
}

#[tokio::test]
async fn a_dead_peer_is_reported_with_a_reason() {
    let (mut one, dead) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let (key, addresses) = (dead.key(), dead.addresses().await);
    dead.wait_for_end().await;
    one.handle.request(1, key, addresses.clone(), b"anybody?".to_vec()).unwrap();
    match answer(&mut one, 1).await {
        Err(RequestError::Unreachable(error)) => {
            assert_eq!(error.tried, addresses);
            assert!(error.reason.contains("refused"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    one.handle.request(2, key, vec![], b"anybody?".to_vec()).unwrap();
    match answer(&mut one, 2).await {
        Err(RequestError::Unreachable(error)) => {
            assert!(error.reason.contains("no address of the peer is known"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_peer_that_dies_before_its_answer_is_reported() {
    let (mut one, mut other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    join(&one, &other).await;
    one.handle.request(1, other.key(), vec![], b"are you well?".to_vec()).unwrap();
    question(&mut other).await;
    other.wait_for_end().await;
    let result = answer(&mut one, 1).await;
    assert!(result.is_err(), "{result:?}");
}

#[tokio::test]
async fn a_peer_that_never_answers_is_given_up() {
    let (mut one, mut other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    one.handle.request(1, other.key(), other.addresses().await, b"well?".to_vec()).unwrap();
    let (_, token, _) = question(&mut other).await;
    // Both sides give up after the same time: whichever is first.
    let result = answer(&mut one, 1).await;
    assert!(matches!(result, Err(RequestError::TimedOut | RequestError::NotAnswered)), "{result:?}");
    other.handle.respond(token, b"too late".to_vec()).unwrap();
    one.handle.request(2, other.key(), vec![], b"again".to_vec()).unwrap();
    let (_, token, _) = question(&mut other).await;
    other.handle.respond(token, b"now".to_vec()).unwrap();
    assert_eq!(answer(&mut one, 2).await, Ok(b"now".to_vec()));
}

#[tokio::test]
async fn as_many_requests_as_are_allowed_are_answered_and_the_next_is_not_sent() {
    let (mut one, mut other) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    join(&one, &other).await;
    let allowed = limits::REQUESTS_PER_PEER as u64;
    for id in 0..=allowed {
        one.handle.request(id, other.key(), vec![], vec![id as u8]).unwrap();
    }
    assert_eq!(answer(&mut one, allowed).await, Err(RequestError::Busy));
    for _ in 0..allowed {
        let (_, token, bytes) = question(&mut other).await;
        other.handle.respond(token, bytes).unwrap();
    }
    for id in 0..allowed {
        assert_eq!(answer(&mut one, id).await, Ok(vec![id as u8]));
    }
}

#[tokio::test]
async fn a_key_that_is_no_key_is_an_answer_too() {
    let mut one = Peer::on(&[QUIC]).await;
    one.handle.request(1, NO_KEY, vec![], vec![]).unwrap();
    match answer(&mut one, 1).await {
        Err(RequestError::Unreachable(error)) => assert!(error.reason.contains("is not an ed25519 key"), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn results_that_nobody_takes_are_kept_and_the_next_request_is_refused() {
    let mut one = Peer::on(&[QUIC]).await;
    let limit = limits::RESULTS as u64;
    for id in 0..limit {
        one.handle.request(id, NO_KEY, vec![], vec![]).unwrap();
    }
    assert_eq!(one.handle.request(limit, NO_KEY, vec![], vec![]), Err(NotSent::Busy));
    for id in 0..limit {
        assert!(answer(&mut one, id).await.is_err());
    }
    one.handle.request(limit, NO_KEY, vec![], vec![]).unwrap();
}
