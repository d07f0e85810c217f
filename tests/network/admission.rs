//! Runs by invitation: who is not admitted hears nothing, and nothing of it is heard.

use std::sync::Arc;

use pathswarm::names::{ModuleId, PeerKey};
use pathswarm::network::{Published, Standing};

use crate::peers::{MODULE, Peer, TCP, join};
use crate::regards::Regards;
use crate::unmannered::DEADLINE;

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

/// Messages of a peer that is not heard: more than it sends otherwise on the same stream meanwhile.
const UNHEARD: usize = 40;

/// Lets a peer say a lot to one with these regards. It has arrived there, and was judged, when this returns.
async fn speaks(peer: &Peer, to: &Regards) {
    let before = to.times_asked(peer.key());
    for number in 0..UNHEARD {
        let said = peer.handle.publish(MODULE, number.to_le_bytes().to_vec()).await;
        assert_eq!(said, Ok(Published::Sent));
    }
    to.wait_until_asked(peer.key(), before + UNHEARD).await;
}

/// What `from` has sent or forwarded to `to` on topics has arrived there when this returns. Subscriptions travel on the
/// same stream; the first may overtake what is forwarded, the second is sent after it.
async fn catches_up(to: &mut Peer, from: &Peer) {
    for expert in [7, 8] {
        let module = ModuleId { level: 9, expert };
        to.handle.subscribe(module).await.unwrap();
        from.handle.subscribe(module).await.unwrap();
        to.wait_for_member(module, from.key()).await;
    }
}

/// Until a peer has dropped so many messages.
async fn drops(peer: &Peer, messages: u64) {
    let dropping = async {
        while peer.handle.traffic().gossip_dropped < messages {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, dropping).await.expect("nothing was dropped");
}

/// The next message that a peer hears, and its author.
async fn next(peer: &mut Peer) -> (PeerKey, Vec<u8>) {
    let (_, author, bytes) = peer.hear().await;
    (author, bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uninvited_stranger_hears_nothing_and_nothing_that_it_says_is_heard_or_forwarded() {
    let [(mut one, _), (mut middle, regards), (mut other, _)] = invited().await;
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
    speaks(&stranger, &regards).await;
    one.handle.publish(MODULE, b"among members".to_vec()).await.unwrap();
    // What is heard or forwarded comes in the order in which it was.
    let among_members = (one.key(), b"among members".to_vec());
    assert_eq!(next(&mut middle).await, among_members, "only that is heard");
    assert_eq!(next(&mut other).await, among_members, "only that is forwarded");
    catches_up(&mut stranger, &middle).await;
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
    drops(&between, 1).await;
    regards.set(author.key(), Standing::Member);
    author.handle.publish(MODULE, b"now".to_vec()).await.unwrap();
    assert_eq!(between.hear().await.2, b"now");
    assert_eq!(far.hear().await.2, b"now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_may_fetch_but_is_not_heard() {
    let [(mut one, _), (mut host, regards)] = invited().await;
    let (mut visitor, _) = Peer::regarding(&[TCP], false).await;
    regards.set(visitor.key(), Standing::Visitor);
    let blob = host.blobs.put(b"an update");
    assert_eq!(visitor.fetch(1, blob, &[&host]).await.1, Ok(()));
    for peer in [&visitor, &host, &one] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    visitor.wait_for_member(MODULE, host.key()).await;
    meet(&mut one, &mut host).await;
    speaks(&visitor, &regards).await;
    one.handle.publish(MODULE, b"among members".to_vec()).await.unwrap();
    assert_eq!(next(&mut host).await, (one.key(), b"among members".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_peer_subscribes_to_before_it_is_admitted_is_known_as_soon_as_it_is() {
    let (mut one, regards) = Peer::regarding(&[TCP], true).await;
    let (mut other, others) = Peer::regarding(&[TCP], true).await;
    // Those of a deep grid.
    let modules: Vec<ModuleId> = (0..24).map(|expert| ModuleId { level: 3, expert }).collect();
    for module in &modules {
        one.handle.subscribe(*module).await.unwrap();
    }
    join(&one, &other).await;
    other.wait_for_connection(one.key()).await;
    others.set(one.key(), Standing::Member);
    other.handle.gossip_with(vec![one.key()]).unwrap();
    let before = regards.times_asked(other.key());
    for module in &modules {
        other.handle.subscribe(*module).await.unwrap();
    }
    regards.wait_until_asked(other.key(), before + modules.len()).await;
    regards.set(other.key(), Standing::Member);
    one.handle.gossip_with(vec![other.key()]).unwrap();
    for module in modules {
        one.wait_for_member(module, other.key()).await;
    }
}
