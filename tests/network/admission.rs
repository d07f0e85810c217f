//! Runs by invitation: who is not admitted hears nothing, and nothing of it is heard.

use std::sync::Arc;

use pathswarm::network::{NetworkEvent, Standing};

use crate::peers::{MODULE, Peer, TCP, join};
use crate::regards::Regards;

/// Peers of a run by invitation, all of which admit each other.
async fn invited<const N: usize>() -> [(Peer, Arc<Regards>); N] {
    let mut peers = Vec::new();
    for _ in 0..N {
        peers.push(Peer::regarding(&[TCP], true).await);
    }
    for (one, _) in &peers {
        peers.iter().for_each(|(_, regards)| regards.set(one.key(), Standing::Member));
    }
    peers.try_into().unwrap_or_else(|_| panic!("as many as were begun"))
}

/// Connects two, which then gossip as their applications would have told them.
async fn meet(one: &mut Peer, other: &mut Peer) {
    join(one, other).await;
    other.wait_for_connection(one.key()).await;
    one.handle.gossip_with(vec![other.key()]).unwrap();
    other.handle.gossip_with(vec![one.key()]).unwrap();
    one.wait_for_member(MODULE, other.key()).await;
    other.wait_for_member(MODULE, one.key()).await;
}

/// Everything that `from` has sent to `to` before has arrived there when this returns.
async fn round_trip(from: &mut Peer, to: &mut Peer) {
    from.handle.request(9, to.key(), vec![], b"?".to_vec()).unwrap();
    let token = to
        .wait_for("a request", |event| match event {
            NetworkEvent::Request { token, .. } => Some(*token),
            _ => None,
        })
        .await;
    to.handle.respond(token, b"!".to_vec()).unwrap();
    from.wait_for("a response", |event| match event {
        NetworkEvent::Response { id: 9, result, .. } => Some(result.clone().unwrap()),
        _ => None,
    })
    .await;
}

fn heard(peer: &Peer, of: &Peer) -> bool {
    peer.has_seen(|event| matches!(event, NetworkEvent::Gossip { author, .. } if *author == of.key()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uninvited_stranger_hears_nothing_and_nothing_that_it_says_is_heard_or_forwarded() {
    let [(mut one, _), (mut middle, _), (mut other, _)] = invited().await;
    let mut stranger = Peer::on(&[TCP]).await;
    stranger.handle.subscribe(MODULE).await.unwrap();
    join(&stranger, &middle).await;
    for peer in [&one, &middle, &other] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    // It is told of the topic by a member that did not know better.
    stranger.wait_for_member(MODULE, middle.key()).await;
    meet(&mut one, &mut middle).await;
    meet(&mut other, &mut middle).await;
    for number in 0..20_u32 {
        let _ = stranger.handle.publish(MODULE, number.to_le_bytes().to_vec()).await;
    }
    round_trip(&mut stranger, &mut middle).await;
    one.handle.publish(MODULE, b"among members".to_vec()).await.unwrap();
    assert_eq!(other.hear().await.2, b"among members", "only that is forwarded");
    assert_eq!(middle.hear().await.2, b"among members");
    round_trip(&mut stranger, &mut middle).await;
    assert!(!heard(&middle, &stranger) && !heard(&other, &stranger));
    assert_eq!(stranger.handle.traffic().gossip_received, 0, "a stranger heard what members say");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_peer_says_that_is_not_admitted_here_is_not_forwarded_until_it_is() {
    let [(mut author, _), (mut near, _), (mut between, regards), (mut far, _)] = invited().await;
    for peer in [&author, &near, &between, &far] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    regards.set(author.key(), Standing::NotAdmitted);
    meet(&mut author, &mut near).await;
    meet(&mut near, &mut between).await;
    meet(&mut between, &mut far).await;
    author.handle.publish(MODULE, b"not yet".to_vec()).await.unwrap();
    assert_eq!(near.hear().await.2, b"not yet");
    round_trip(&mut near, &mut between).await;
    regards.set(author.key(), Standing::Member);
    author.handle.publish(MODULE, b"now".to_vec()).await.unwrap();
    assert_eq!(between.hear().await.2, b"now");
    assert_eq!(far.hear().await.2, b"now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_may_fetch_but_is_not_heard() {
    let [(one, _), (mut host, regards)] = invited().await;
    let (mut visitor, _) = Peer::regarding(&[TCP], false).await;
    regards.set(visitor.key(), Standing::Visitor);
    let blob = host.blobs.put(b"an update");
    assert_eq!(visitor.fetch(1, blob, &[&host]).await.1, Ok(()));
    visitor.handle.subscribe(MODULE).await.unwrap();
    host.handle.subscribe(MODULE).await.unwrap();
    visitor.wait_for_member(MODULE, host.key()).await;
    let _ = visitor.handle.publish(MODULE, b"hear me".to_vec()).await;
    round_trip(&mut visitor, &mut host).await;
    assert!(!heard(&host, &visitor));
    drop(one);
}
