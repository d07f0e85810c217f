//! Members of a module found through Kademlia.

use pathswarm::names::ModuleId;
use pathswarm::network::{NetworkEvent, Provider};

use crate::peers::{MODULE, Peer, QUIC, join};

async fn found(peer: &mut Peer, wanted: u64) -> Vec<Provider> {
    peer.wait_for("providers", |event| match event {
        NetworkEvent::Providers { id, providers, .. } if *id == wanted => Some(providers.clone()),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_newcomer_finds_a_member_through_a_third_peer() {
    let (member, third, mut newcomer) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    join(&member, &third).await;
    member.handle.provide(MODULE).await.unwrap();
    join(&newcomer, &third).await;
    newcomer.handle.find_providers(1, MODULE).unwrap();
    let providers = found(&mut newcomer, 1).await;
    assert_eq!(providers.len(), 1);
    assert_eq!(providers[0].peer, member.key());
    assert_eq!(providers[0].addresses, member.addresses().await);
    newcomer.handle.dial_peer(providers[0].peer, providers[0].addresses.clone()).unwrap();
    newcomer
        .wait_for("a connection to the member", |event| match event {
            NetworkEvent::Connected(peer) if *peer == member.key() => Some(()),
            _ => None,
        })
        .await;
}

#[tokio::test]
async fn a_member_that_announced_itself_before_it_knew_anybody_is_found() {
    let (member, third, mut newcomer) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    member.handle.provide(MODULE).await.unwrap();
    join(&third, &member).await;
    join(&newcomer, &third).await;
    newcomer.handle.find_providers(1, MODULE).unwrap();
    assert_eq!(found(&mut newcomer, 1).await.first().map(|provider| provider.peer), Some(member.key()));
}

#[tokio::test]
async fn a_module_without_members_is_an_answer_too() {
    let (one, mut other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    join(&one, &other).await;
    other.handle.provide(MODULE).await.unwrap();
    other.handle.find_providers(1, ModuleId { level: 9, expert: 9 }).unwrap();
    assert_eq!(found(&mut other, 1).await, []);
    other.handle.find_providers(2, MODULE).unwrap();
    assert_eq!(found(&mut other, 2).await, [], "a peer does not find itself");
}
