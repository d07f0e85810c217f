//! Joining a peer at an address, and what is said when that fails.

use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use pathswarm::names::{BlobRef, PeerKey};
use pathswarm::network::limits::DIALLED_PEERS;
use pathswarm::network::{
    BlobAccess, BlobSink, BlobSource, DialError, Identity, Multiaddr, NetworkConfig, NetworkEvent, PeerAccess,
    Provider, Relay, RelayBounds, RelayConfig, Scope, Standing, StartError, is_relayed, start, with_peer,
};
use pathswarm::peer::StoredBlobs;

use crate::peers::{Blobs, MODULE, Peer, QUIC, TCP, join};

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

async fn connected(peer: &mut Peer, to: &Peer) {
    peer.wait_for("a connection", |event| match event {
        NetworkEvent::Connected(peer) if *peer == to.key() => Some(()),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn both_sides_hear_of_a_connection_and_of_its_end() {
    let (mut one, mut other) = (Peer::on(&[TCP, QUIC]).await, Peer::on(&[TCP, QUIC]).await);
    assert_eq!(other.addresses().await.len(), 2);
    for address in other.addresses().await {
        assert_eq!(one.handle.dial(address).await, Ok(other.key()));
    }
    connected(&mut one, &other).await;
    connected(&mut other, &one).await;
    assert_eq!(one.handle.connections().await, Ok(vec![other.key()]));
    let gone = one.key();
    one.wait_for_end().await;
    other
        .wait_for("the end of the connection", |event| match event {
            NetworkEvent::Disconnected(peer) if *peer == gone => Some(()),
            _ => None,
        })
        .await;
    assert_eq!(other.handle.connections().await, Ok(vec![]));
}

#[tokio::test]
async fn peers_that_dial_each_other_again_and_again_are_connected() {
    let (mut one, mut other) = (Peer::on(&[TCP, QUIC]).await, Peer::on(&[TCP, QUIC]).await);
    for _ in 0..20 {
        one.handle.dial_peer(other.key(), other.addresses().await).unwrap();
        other.handle.dial_peer(one.key(), one.addresses().await).unwrap();
    }
    connected(&mut one, &other).await;
    connected(&mut other, &one).await;
}

#[tokio::test]
async fn an_address_where_another_peer_lives_is_explained() {
    let (one, other) = (Peer::on(&[QUIC, TCP]).await, Peer::on(&[QUIC, TCP]).await);
    let wanted = Identity::generate().key();
    for address in other.handle.listeners().await.unwrap() {
        let error = one.handle.dial(with_peer(&address, wanted)).await.unwrap_err();
        match &error {
            DialError::AnotherPeer { found, .. } => assert_eq!(*found, Some(other.key())),
            otherwise => panic!("{otherwise:?}"),
        }
        let words = error.to_string();
        assert!(words.contains(&other.key().to_string()) && words.contains(&address.to_string()), "{words}");
    }
}

#[tokio::test]
async fn another_peer_at_one_address_does_not_hide_the_right_one_at_the_next() {
    let (mut one, stranger, wanted) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await, Peer::on(&[TCP]).await);
    let mut addresses = stranger.handle.listeners().await.unwrap();
    addresses.extend(wanted.handle.listeners().await.unwrap());
    one.handle.dial_peer(wanted.key(), addresses).unwrap();
    connected(&mut one, &wanted).await;
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_refused() {
    let one = Peer::on(&[TCP]).await;
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address: Multiaddr = format!("/ip4/127.0.0.1/tcp/{free}").parse().unwrap();
    let error = one.handle.dial(with_peer(&address, Identity::generate().key())).await.unwrap_err();
    assert!(matches!(error, DialError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn silence_is_no_answer() {
    let one = Peer::on(&[QUIC]).await;
    let silent_udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent_tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let key = Identity::generate().key();
    let udp: Multiaddr =
        format!("/ip4/127.0.0.1/udp/{}/quic-v1", silent_udp.local_addr().unwrap().port()).parse().unwrap();
    let tcp: Multiaddr = format!("/ip4/127.0.0.1/tcp/{}", silent_tcp.local_addr().unwrap().port()).parse().unwrap();
    let dials = [udp, tcp].map(|address| one.handle.dial(with_peer(&address, key)));
    for error in futures::future::join_all(dials).await {
        match error {
            Err(DialError::NoAnswer { waited, .. }) => assert!(waited >= Duration::from_secs(1)),
            otherwise => panic!("{otherwise:?}"),
        }
    }
}

#[tokio::test]
async fn addresses_that_cannot_be_dialled_say_why() {
    let one = Peer::on(&[QUIC]).await;
    let key = Identity::generate().key();
    let bare: Multiaddr = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
    assert_eq!(one.handle.dial(bare.clone()).await, Err(DialError::NoPeer(bare)));
    let own = one.addresses().await.remove(0);
    assert_eq!(one.handle.dial(own.clone()).await, Err(DialError::Myself(own)));
    let strange = with_peer(&"/ip4/127.0.0.1/udp/1".parse().unwrap(), key);
    assert_eq!(one.handle.dial(strange.clone()).await, Err(DialError::NotSupported(strange)));
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_names_the_address() {
    let first = Peer::on(&[QUIC, TCP]).await;
    for address in first.handle.listeners().await.unwrap() {
        let config = NetworkConfig { listen: vec![address.clone()], ..NetworkConfig::visitor(Identity::generate()) };
        match start(config, first.blobs.access.clone()).await.map(drop) {
            Err(StartError::PortTaken(taken)) => assert_eq!(taken, address),
            otherwise => panic!("{otherwise:?}"),
        }
    }
}

#[tokio::test]
async fn one_port_serves_both_families() {
    if let Err(error) = UdpSocket::bind("[::1]:0") {
        println!("skipped: this machine has no IPv6: {error}");
        return;
    }
    let one = Peer::on(&[QUIC, TCP, "/ip6/::1/udp/0/quic-v1", "/ip6/::1/tcp/0"]).await;
    let listeners = one.handle.listeners().await.unwrap();
    let port = |family: &str, transport: &str| {
        let own =
            listeners.iter().map(ToString::to_string).find(|text| text.contains(family) && text.contains(transport));
        own.unwrap().split('/').nth(4).unwrap().to_owned()
    };
    assert_eq!(port("/ip4/", "/udp/"), port("/ip6/", "/udp/"));
    assert_eq!(port("/ip4/", "/tcp/"), port("/ip6/", "/tcp/"));
    let other = Peer::on(&[]).await;
    for address in one.addresses().await {
        assert_eq!(other.handle.dial(address).await, Ok(one.key()));
    }
}

#[tokio::test]
async fn a_stopped_network_frees_its_ports() {
    let first = Peer::on(&[QUIC, TCP]).await;
    let listen = first.handle.listeners().await.unwrap();
    assert_eq!(listen.len(), 2);
    first.wait_for_end().await;
    let blobs = Peer::on(&[QUIC]).await.blobs.access.clone();
    let config = NetworkConfig { listen: listen.clone(), ..NetworkConfig::visitor(Identity::generate()) };
    let (handle, _events) = start(config, blobs).await.unwrap();
    assert_eq!(handle.listeners().await, Ok(listen));
}

#[tokio::test]
async fn an_announced_address_is_part_of_what_others_are_told() {
    let announced: Multiaddr = "/dns4/peer.example.org/udp/4001/quic-v1".parse().unwrap();
    let first = Peer::on(&[QUIC]).await;
    let config = NetworkConfig {
        listen: vec![QUIC.parse().unwrap()],
        announce: vec![announced.clone()],
        ..NetworkConfig::visitor(Identity::generate())
    };
    let (handle, _events) = start(config, first.blobs.access.clone()).await.unwrap();
    assert!(handle.join_addresses().await.unwrap().contains(&with_peer(&announced, handle.me())));
}

#[tokio::test]
async fn a_peer_that_takes_no_events_still_does_as_it_is_told() {
    let (one, mut other) = (Peer::on(&[QUIC]).await, Peer::on(&[QUIC]).await);
    join(&one, &other).await;
    // `one` never takes an event, and still does as it is told.
    for _ in 0..5 {
        assert_eq!(one.handle.connections().await, Ok(vec![other.key()]));
    }
    connected(&mut other, &one).await;
}

#[tokio::test]
async fn who_is_alone_can_say_whom_it_tried_and_what_went_wrong() {
    let one = Peer::on(&[QUIC]).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = format!("/ip4/127.0.0.1/tcp/{}", gone.port());
    let key = Identity::generate().key();
    one.handle.dial_peer(key, vec![address.parse().unwrap()]).unwrap();
    let line = loop {
        let outlook = one.handle.outlook().await.unwrap();
        match outlook.into_iter().find(|line| line.contains(&address)) {
            Some(line) => break line,
            None => tokio::task::yield_now().await,
        }
    };
    assert!(line.contains("refused"), "{line}");
}

async fn may_name(peer: &mut Peer) -> Scope {
    peer.wait_for("gossip", |event| match event {
        NetworkEvent::Gossip { may_name, .. } => Some(*may_name),
        _ => None,
    })
    .await
}

async fn found(peer: &mut Peer, id: u64) -> Vec<Provider> {
    peer.handle.find_providers(id, MODULE).unwrap();
    peer.wait_for("members", |event| match event {
        NetworkEvent::Providers { id: other, providers } if *other == id => Some(providers.clone()),
        _ => None,
    })
    .await
}

/// A peer that claims to be reached at a door of this machine, behind which is somebody else.
async fn with_a_door() -> (Peer, TcpListener, Multiaddr) {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    door.set_nonblocking(true).unwrap();
    let address: Multiaddr = format!("/ip4/127.0.0.1/tcp/{}", door.local_addr().unwrap().port()).parse().unwrap();
    let config = NetworkConfig {
        listen: vec![QUIC.parse().unwrap()],
        announce: vec![address.clone()],
        ..NetworkConfig::visitor(Identity::generate())
    };
    (Peer::with(config).await, door, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_on_this_machine_may_name_its_addresses() {
    let mut one = Peer::on(&[QUIC]).await;
    let (mut other, _door, address) = with_a_door().await;
    for peer in [&one, &other] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    join(&other, &one).await;
    other.wait_for_member(MODULE, one.key()).await;
    other.handle.publish(MODULE, b"come and see me".to_vec()).await.unwrap();
    assert_eq!(may_name(&mut one).await, Scope::Loopback);
    other.handle.provide(MODULE).await.unwrap();
    let is_it = |named: &Multiaddr| named.to_string().starts_with(&address.to_string());
    // Until the announcement has reached it.
    let looking = async {
        for id in 10.. {
            if found(&mut one, id).await.iter().any(|provider| provider.addresses.iter().any(is_it)) {
                break;
            }
        }
    };
    tokio::time::timeout(DEADLINE, looking).await.expect("the address was not found");
}

/// A socket that takes connections and says nothing.
fn silent() -> (TcpListener, Multiaddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("/ip4/127.0.0.1/tcp/{}", socket.local_addr().unwrap().port());
    (socket, address.parse().unwrap())
}

/// More peers than are dialled at once, that do not exist.
const MADE_UP: usize = 2 * DIALLED_PEERS;

#[tokio::test]
async fn peers_that_are_named_and_do_not_answer_keep_the_user_from_nothing() {
    let (one, other) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let (_socket, address) = silent();
    for _ in 0..MADE_UP {
        one.handle.dial_peer(Identity::generate().key(), vec![address.clone()]).unwrap();
    }
    assert_eq!(one.handle.dial(other.addresses().await.remove(0)).await, Ok(other.key()));
}

#[tokio::test]
async fn relays_that_are_named_and_do_not_answer_keep_nobody_from_a_peer_behind_one_that_does() {
    let listen = vec![TCP.parse().unwrap()];
    let identity = Identity::generate();
    let bounds = RelayBounds::default();
    let relay =
        Relay::start(RelayConfig { identity, listen, announce: Vec::new(), allow: None, bounds }).await.unwrap();
    let hidden = Peer::behind(&[relay.addresses()[0].clone()]).await;
    let circuit = hidden.addresses().await.into_iter().find(is_relayed).unwrap();
    let one = Peer::on(&[TCP]).await;
    let (_socket, address) = silent();
    for _ in 0..MADE_UP {
        let [relay, peer] = [(); 2].map(|()| Identity::generate().key());
        let dead = format!("{}/p2p-circuit", with_peer(&address, relay)).parse().unwrap();
        one.handle.dial_peer(peer, vec![with_peer(&dead, peer)]).unwrap();
    }
    assert_eq!(one.handle.dial(circuit).await, Ok(hidden.key()));
}

/// Regards some peers as members.
struct Members(Arc<StoredBlobs>, Vec<PeerKey>);

impl PeerAccess for Members {
    fn standing(&self, peer: PeerKey) -> Standing {
        if self.1.contains(&peer) { Standing::Member } else { Standing::Stranger }
    }
}

impl BlobAccess for Members {
    fn open(&self, blob: BlobRef) -> std::io::Result<Option<Box<dyn BlobSource>>> {
        self.0.open(blob)
    }

    fn receive(&self, blob: BlobRef) -> std::io::Result<Box<dyn BlobSink>> {
        self.0.receive(blob)
    }
}

#[tokio::test]
async fn a_member_is_dialled_at_once_though_requests_to_others_wait_for_an_answer_and_those_before_who_was_named() {
    let (mut member, mut stranger) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let blobs = Blobs::new();
    let access = Arc::new(Members(blobs.access.clone(), vec![member.key()]));
    let mut one = Peer::with_access(NetworkConfig::visitor(Identity::generate()), blobs, access).await;
    let (_socket, address) = silent();
    for _ in 0..MADE_UP {
        one.handle.dial_peer(Identity::generate().key(), vec![address.clone()]).unwrap();
    }
    one.handle.request(1_000, stranger.key(), stranger.addresses().await, b"you".to_vec()).unwrap();
    one.wait_for_connection(stranger.key()).await;
    stranger.wait_for_connection(one.key()).await;
    for id in 0..MADE_UP as u64 {
        one.handle.request(id, Identity::generate().key(), vec![address.clone()], b"nobody".to_vec()).unwrap();
    }
    one.handle.dial_peer(member.key(), member.addresses().await).unwrap();
    one.wait_for_connection(member.key()).await;
    member.wait_for_connection(one.key()).await;
}
