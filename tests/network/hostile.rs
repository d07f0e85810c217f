//! Peers that mean harm: they are kept out, and the others notice nothing.

use futures::AsyncReadExt;
use pathswarm::names::PeerKey;
use pathswarm::network::{Ban, FetchError, NetworkEvent, NetworkHandle, Offence, Published, limits};
use pathswarm::protocol::Message;
use pathswarm::protocol::wire::encoding;

use crate::peers::{MODULE, Peer, QUIC, TCP, join};
use crate::unmannered::{BLOBS, CONTROL, DEADLINE, Rude};

async fn banned(peer: &NetworkHandle, who: PeerKey) -> Ban {
    let mut bans = peer.watch_bans();
    let all = bans.wait_for(|bans| bans.iter().any(|ban| ban.peer == who));
    let all = tokio::time::timeout(DEADLINE, all).await.expect("nobody is banned").unwrap();
    all.iter().find(|ban| ban.peer == who).unwrap().clone()
}

async fn gone(peer: &mut Peer, who: PeerKey) {
    peer.wait_for("the end of a connection", |event| match event {
        NetworkEvent::Disconnected(key) if *key == who => Some(()),
        _ => None,
    })
    .await;
}

/// As a peer does, for ever.
async fn penalizes_for_ever(peer: &mut Peer) {
    loop {
        let (_, author, bytes) = peer.hear().await;
        assert!(encoding::decode::<Message>(&bytes).is_err());
        peer.handle.penalize(author, Offence::Unreadable).unwrap();
    }
}

async fn says(peer: &Peer, bytes: &[u8]) {
    assert_eq!(peer.handle.publish(MODULE, bytes.to_vec()).await, Ok(Published::Sent));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_rubbish_is_banned_and_who_passed_it_on_is_not() {
    // The hostile one knows the others only through the one in the middle.
    let mut peers = Vec::new();
    for _ in 0..4 {
        peers.push(Peer::on(&[QUIC]).await);
    }
    let [mut victim, middle, hostile, honest]: [Peer; 4] = peers.try_into().unwrap_or_else(|_| panic!("four"));
    for peer in [&victim, &middle, &hostile, &honest] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    let (mut middle, mut hostile, mut honest) = (middle, hostile, honest);
    for other in [&victim, &hostile, &honest] {
        join(other, &middle).await;
        middle.wait_for_member(MODULE, other.key()).await;
    }
    hostile.wait_for_member(MODULE, middle.key()).await;
    honest.wait_for_member(MODULE, middle.key()).await;
    victim.wait_for_member(MODULE, middle.key()).await;
    for number in 0..20_u32 {
        says(&hostile, &number.to_le_bytes()).await;
    }
    let handle = victim.handle.clone();
    let ban = tokio::select! {
        ban = banned(&handle, hostile.key()) => ban,
        () = penalizes_for_ever(&mut victim) => unreachable!("it goes on for ever"),
    };
    assert_eq!((ban.times, ban.reason.as_str()), (1, "it sent messages that cannot be decoded"));
    assert_eq!(victim.handle.bans().len(), 1, "nobody else is");
    assert!(victim.handle.connections().await.unwrap().contains(&middle.key()));
    says(&honest, b"from somebody else").await;
    while victim.hear().await.2 != b"from somebody else" {}
    // It is kept out where it is known; its own side of the connection may stand before it is told.
    let address = victim.addresses().await.remove(0);
    if hostile.handle.dial(address).await.is_ok() {
        let victim = victim.key();
        let shut_out = async { while hostile.handle.connections().await.unwrap().contains(&victim) {} };
        tokio::time::timeout(DEADLINE, shut_out).await.expect("it is let in");
    }
    assert!(!victim.handle.connections().await.unwrap().contains(&hostile.key()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_that_nobody_reads_is_dropped_and_not_kept() {
    let (mut victim, mut hostile) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    for peer in [&victim, &hostile] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    join(&hostile, &victim).await;
    hostile.wait_for_member(MODULE, victim.key()).await;
    // Nothing is taken out of the victim's queue: what is too much is counted, and what comes by other ways still comes.
    let flood = async {
        for number in 0_u32.. {
            // What the victim is too slow for is dropped here already.
            let _ = hostile.handle.publish(MODULE, number.to_le_bytes().to_vec()).await;
            if victim.handle.traffic().gossip_dropped > 0 {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, flood).await.expect("everything was kept");
    victim.handle.request(1, hostile.key(), vec![], b"?".to_vec()).unwrap();
    let token = hostile
        .wait_for("a request", |event| match event {
            NetworkEvent::Request { token, .. } => Some(*token),
            _ => None,
        })
        .await;
    hostile.handle.respond(token, b"!".to_vec()).unwrap();
    victim
        .wait_for("an answer", |event| match event {
            NetworkEvent::Response { id: 1, result, .. } => Some(result.clone().unwrap()),
            _ => None,
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_say_a_byte_and_no_more_are_ended_and_keep_nobody_out() {
    let (server, mut honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let blob = server.blobs.put(b"a small blob");
    let mut rude = Rude::at(server.addresses().await.remove(0)).await;
    let mut slow = Vec::new();
    for protocol in [BLOBS; limits::SERVINGS_PER_PEER].into_iter().chain([CONTROL]) {
        slow.push(rude.keeps_asking(protocol, &[7]).await);
    }
    honest.handle.fetch(1, blob, vec![(server.key(), server.addresses().await)]).unwrap();
    let fetched = honest
        .wait_for("a blob", |event| match event {
            NetworkEvent::Fetched { id: 1, result, .. } => Some(result.clone()),
            _ => None,
        })
        .await;
    assert_eq!(fetched, Ok(()));
    for mut stream in slow {
        // Whether it is closed or reset, it is over.
        let mut nothing = [0];
        let over = tokio::time::timeout(DEADLINE, stream.read(&mut nothing)).await.expect("a stream is kept for ever");
        assert!(!matches!(over, Ok(1..)), "{over:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ban_of_an_earlier_start_keeps_out_and_ends() {
    let (mut victim, other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    join(&other, &victim).await;
    victim
        .wait_for("a connection", |event| match event {
            NetworkEvent::Connected(key) if *key == other.key() => Some(()),
            _ => None,
        })
        .await;
    let now_s = pathswarm::network::now_s();
    let ban = |until_s| Ban { peer: other.key(), until_s, times: 3, reason: "it lied".to_owned() };
    victim.handle.restore_bans(vec![ban(now_s + 3_600)]).unwrap();
    gone(&mut victim, other.key()).await;
    let address = victim.addresses().await.remove(0);
    // Until it has noticed that the old connection is closed, it has one.
    let refused = async { while other.handle.dial(address.clone()).await.is_ok() {} };
    tokio::time::timeout(DEADLINE, refused).await.expect("it is let in");
    let blob = other.blobs.put(b"not for them");
    victim.handle.fetch(1, blob, vec![(other.key(), other.addresses().await)]).unwrap();
    let fetched = victim
        .wait_for("a blob", |event| match event {
            NetworkEvent::Fetched { id: 1, result, .. } => Some(result.clone()),
            _ => None,
        })
        .await;
    assert!(matches!(fetched, Err(FetchError::Unreachable(_))), "{fetched:?}");
    // Its time is over: from the next look on it may come.
    victim.handle.restore_bans(vec![ban(now_s)]).unwrap();
    let comes = async { while other.handle.dial(address.clone()).await.is_err() {} };
    tokio::time::timeout(DEADLINE, comes).await.expect("it is kept out for ever");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_the_next_sixty_heartbeats_of_another_first_does_not_silence_it() {
    let (mut listener, mut victim, mut hostile) =
        (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    for peer in [&listener, &victim, &hostile] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    for peer in [&mut hostile, &mut victim] {
        join(peer, &listener).await;
        peer.wait_for_member(MODULE, listener.key()).await;
        listener.wait_for_member(MODULE, peer.key()).await;
    }
    let heartbeat = |number: u32| format!("heartbeat {number}").into_bytes();
    for number in 0..60 {
        says(&hostile, &heartbeat(number)).await;
    }
    for _ in 0..60 {
        assert_eq!(listener.hear().await.1, hostile.key());
    }
    for number in 0..60 {
        says(&victim, &heartbeat(number)).await;
    }
    says(&victim, b"and another one").await;
    let mut heard = 0;
    loop {
        match listener.hear().await {
            (_, author, bytes) if author == victim.key() && bytes == b"and another one" => break,
            (_, author, _) => heard += usize::from(author == victim.key()),
        }
    }
    assert_eq!(heard, 60, "of 60 heartbeats of the victim");
}
