//! Gossip between members of a module.

use pathswarm::names::{ModuleId, RunId};
use pathswarm::network::{Identity, NetworkEvent, PublishError, Published, TopicError, limits};

use crate::peers::{MODULE, Peer, QUIC, TCP, join};

#[tokio::test]
async fn two_members_hear_each_other() {
    let (mut one, mut other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    join(&one, &other).await;
    one.handle.subscribe(MODULE).await.unwrap();
    other.handle.subscribe(MODULE).await.unwrap();
    one.wait_for_member(MODULE, other.key()).await;
    other.wait_for_member(MODULE, one.key()).await;
    assert_eq!(one.handle.publish(MODULE, b"beat".to_vec()).await, Ok(Published::Sent));
    assert_eq!(other.hear().await, (MODULE, one.key(), b"beat".to_vec()));
    assert_eq!(other.handle.publish(MODULE, b"offer".to_vec()).await, Ok(Published::Sent));
    assert_eq!(one.hear().await, (MODULE, other.key(), b"offer".to_vec()));
    assert_eq!((one.handle.traffic().gossip_sent, one.handle.traffic().gossip_received), (4, 5));
}

#[tokio::test]
async fn that_nobody_listens_is_an_outcome_and_the_message_can_be_sent_later() {
    let (mut one, mut other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    one.handle.subscribe(MODULE).await.unwrap();
    assert_eq!(one.handle.publish(MODULE, b"beat".to_vec()).await, Ok(Published::NobodyListens));
    other.handle.subscribe(MODULE).await.unwrap();
    join(&one, &other).await;
    one.wait_for_member(MODULE, other.key()).await;
    assert_eq!(one.handle.publish(MODULE, b"beat".to_vec()).await, Ok(Published::Sent));
    assert_eq!(one.handle.publish(MODULE, b"beat".to_vec()).await, Ok(Published::Sent));
    for _ in 0..2 {
        assert_eq!(other.hear().await.2, b"beat", "each time that it is said");
    }
}

#[tokio::test]
async fn one_that_comes_back_before_its_old_connection_is_found_dead_learns_who_listens_and_is_heard() {
    let identity = Identity::generate();
    let (mut one, mut before) = (Peer::on(&[QUIC]).await, Peer::with_identity(identity.clone(), &[QUIC]).await);
    one.handle.subscribe(MODULE).await.unwrap();
    before.handle.subscribe(MODULE).await.unwrap();
    join(&before, &one).await;
    before.wait_for_member(MODULE, one.key()).await;
    // Nobody tells `one` that the process before is gone.
    let mut again = Peer::with_identity(identity, &[QUIC]).await;
    again.handle.subscribe(MODULE).await.unwrap();
    join(&again, &one).await;
    again.wait_for_member(MODULE, one.key()).await;
    again.handle.publish(MODULE, b"I am back".to_vec()).await.unwrap();
    assert_eq!(one.hear().await, (MODULE, again.key(), b"I am back".to_vec()));
    one.handle.publish(MODULE, b"welcome".to_vec()).await.unwrap();
    assert_eq!(again.hear().await.2, b"welcome");
    drop(before);
}

#[tokio::test]
async fn the_longest_message_passes_and_one_byte_more_is_refused_here() {
    let (mut one, mut other) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    one.handle.subscribe(MODULE).await.unwrap();
    other.handle.subscribe(MODULE).await.unwrap();
    join(&one, &other).await;
    one.wait_for_member(MODULE, other.key()).await;
    let bytes = limits::GOSSIP_BYTES + 1;
    let refused = one.handle.publish(MODULE, vec![1; bytes]).await;
    assert_eq!(refused, Err(PublishError::TooLarge { module: MODULE, bytes }));
    assert_eq!(one.handle.publish(MODULE, vec![1; bytes - 1]).await, Ok(Published::Sent));
    assert_eq!(other.hear().await.2.len(), limits::GOSSIP_BYTES);
}

#[tokio::test]
async fn a_message_reaches_members_that_its_author_is_not_connected_to() {
    let (mut one, mut middle, mut far) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    for peer in [&one, &middle, &far] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    join(&one, &middle).await;
    join(&far, &middle).await;
    one.wait_for_member(MODULE, middle.key()).await;
    middle.wait_for_member(MODULE, far.key()).await;
    one.handle.publish(MODULE, b"update".to_vec()).await.unwrap();
    assert_eq!(far.hear().await, (MODULE, one.key(), b"update".to_vec()), "signed by its author, passed on by another");
}

#[tokio::test]
async fn eight_members_of_a_module_all_hear_everything() {
    let mut peers = Vec::new();
    for _ in 0..8 {
        let peer = Peer::on(&[QUIC]).await;
        peer.handle.subscribe(MODULE).await.unwrap();
        for earlier in &peers {
            join(&peer, earlier).await;
        }
        peers.push(peer);
    }
    let keys: Vec<_> = peers.iter().map(Peer::key).collect();
    for peer in &mut peers {
        for key in &keys {
            if *key != peer.key() {
                peer.wait_for_member(MODULE, *key).await;
            }
        }
    }
    for peer in &peers {
        assert_eq!(peer.handle.publish(MODULE, peer.key().0.to_vec()).await, Ok(Published::Sent));
    }
    for peer in &mut peers {
        let mut heard = Vec::new();
        for _ in 1..keys.len() {
            let (_, author, bytes) = peer.hear().await;
            assert_eq!(author.0.to_vec(), bytes);
            heard.push(author);
        }
        heard.push(peer.key());
        heard.sort();
        let mut keys = keys.clone();
        keys.sort();
        assert_eq!(heard, keys);
    }
}

#[tokio::test]
async fn only_subscribed_modules_of_the_same_run_are_heard() {
    let (mut one, mut other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    let elsewhere = ModuleId { level: 0, expert: 0 };
    join(&one, &other).await;
    for module in [MODULE, elsewhere] {
        one.handle.subscribe(module).await.unwrap();
        other.handle.subscribe(module).await.unwrap();
        one.wait_for_member(module, other.key()).await;
    }
    other.handle.unsubscribe(elsewhere).await.unwrap();
    one.handle.publish(elsewhere, b"unheard".to_vec()).await.unwrap();
    one.handle.publish(MODULE, b"heard".to_vec()).await.unwrap();
    assert_eq!(other.hear().await.2, b"heard");

    other.handle.join_run(RunId([7; 32])).await.unwrap();
    other.handle.subscribe(MODULE).await.unwrap();
    other.handle.join_run(RunId([7; 32])).await.unwrap();
    one.handle.publish(MODULE, b"of the first run".to_vec()).await.unwrap();
    one.handle.join_run(RunId([7; 32])).await.unwrap();
    one.handle.subscribe(MODULE).await.unwrap();
    one.wait_for_member(MODULE, other.key()).await;
    one.handle.publish(MODULE, b"of the second run".to_vec()).await.unwrap();
    assert_eq!(other.hear().await.2, b"of the second run");
}

#[tokio::test]
async fn as_many_modules_as_are_allowed_reach_a_new_neighbour_at_once() {
    let (mut one, other) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let module = |expert| ModuleId { level: u16::MAX, expert: u32::MAX - expert };
    let allowed = limits::TOPICS_PER_PEER as u32;
    for expert in 0..allowed {
        one.handle.subscribe(module(expert)).await.unwrap();
        other.handle.subscribe(module(expert)).await.unwrap();
    }
    assert_eq!(one.handle.subscribe(module(allowed)).await, Err(TopicError::TooMany(module(allowed))));
    join(&one, &other).await;
    for expert in 0..allowed {
        one.wait_for_member(module(expert), other.key()).await;
    }
}

/// Two machines with one key.
#[tokio::test]
async fn a_third_peer_hears_one_copy_by_gossip_and_the_other_by_its_question() {
    let identity = Identity::generate();
    let mut third = Peer::on(&[QUIC]).await;
    let mut one = Peer::with_identity(identity.clone(), &[QUIC]).await;
    let copy = Peer::with_identity(identity, &[QUIC]).await;
    for peer in [&third, &one, &copy] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    join(&one, &third).await;
    one.wait_for_member(MODULE, third.key()).await;
    one.handle.publish(MODULE, b"nonce 1".to_vec()).await.unwrap();
    assert_eq!(third.hear().await, (MODULE, one.key(), b"nonce 1".to_vec()));

    join(&copy, &third).await;
    let addresses = third.addresses().await;
    copy.handle.request(7, third.key(), addresses, b"nonce 2".to_vec()).unwrap();
    let asked = third.wait_for("a question", |event| match event {
        NetworkEvent::Request { from, bytes, .. } => Some((*from, bytes.clone())),
        _ => None,
    });
    assert_eq!(asked.await, (one.key(), b"nonce 2".to_vec()));
    one.handle.publish(MODULE, b"nonce 1 again".to_vec()).await.unwrap();
    assert_eq!(third.hear().await.2, b"nonce 1 again");
}
