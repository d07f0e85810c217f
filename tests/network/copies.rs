//! Two machines with one key: what a third peer hears of them.

use pathswarm::network::{Identity, NetworkEvent};

use crate::peers::{MODULE, Peer, QUIC, join};

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
