//! Peers that nobody reaches are reached through relays: for what is small, and until there is a direct way.

use std::time::Duration;

use pathswarm::network::limits::PEERS_PER_IP;
use pathswarm::network::{
    FetchError, Identity, Multiaddr, NetworkConfig, NetworkEvent, Provider, Relay, RelayBounds, RelayConfig,
    RequestError, StartError, is_relayed, start, with_peer,
};
use pathswarm::protocol::wire::encoding;
use pathswarm::protocol::{Request, Response};

use crate::peers::{MODULE, Peer, QUIC, TCP};

async fn relay_with(bounds: RelayBounds) -> Relay {
    let listen = vec![QUIC.parse().unwrap(), TCP.parse().unwrap()];
    Relay::start(RelayConfig { identity: Identity::generate(), listen, announce: Vec::new(), allow: None, bounds })
        .await
        .unwrap()
}

async fn relay() -> Relay {
    relay_with(RelayBounds::default()).await
}

/// What its line tells others to use.
fn first(relay: &Relay) -> Multiaddr {
    relay.addresses()[0].clone()
}

/// The addresses of a peer that lead through this relay.
async fn through(relay: &Relay, peer: &Peer) -> Vec<Multiaddr> {
    let name = relay.addresses()[0].iter().last().unwrap();
    let mut addresses = peer.addresses().await;
    addresses.retain(|address| is_relayed(address) && address.iter().any(|part| part == name));
    addresses
}

async fn response(peer: &mut Peer, wanted: u64) -> Result<Vec<u8>, RequestError> {
    peer.wait_for("a response", |event| match event {
        NetworkEvent::Response { id, result, .. } if *id == wanted => Some(result.clone()),
        _ => None,
    })
    .await
}

/// Answers the next request with the same bytes.
async fn echo(peer: &mut Peer) {
    let (token, bytes) = peer
        .wait_for("a request", |event| match event {
            NetworkEvent::Request { token, bytes, .. } => Some((*token, bytes.clone())),
            _ => None,
        })
        .await;
    peer.handle.respond(token, bytes).unwrap();
}

#[tokio::test]
async fn a_peer_that_listens_nowhere_is_asked_and_heard_through_a_relay_and_its_blobs_are_refused_there() {
    let relay = relay().await;
    let mut hidden = Peer::behind(&[first(&relay)]).await;
    let mut other = Peer::on(&[]).await;
    let address = through(&relay, &hidden).await.remove(0);
    assert_eq!(other.handle.dial(address).await, Ok(hidden.key()));

    other.handle.request(1, hidden.key(), Vec::new(), b"are you there?".to_vec()).unwrap();
    echo(&mut hidden).await;
    assert_eq!(response(&mut other, 1).await, Ok(b"are you there?".to_vec()));

    hidden.handle.subscribe(MODULE).await.unwrap();
    other.handle.subscribe(MODULE).await.unwrap();
    hidden.wait_for_member(MODULE, other.key()).await;
    other.wait_for_member(MODULE, hidden.key()).await;
    hidden.handle.publish(MODULE, b"from inside".to_vec()).await.unwrap();
    assert_eq!(other.hear().await, (MODULE, hidden.key(), b"from inside".to_vec()));
    other.handle.publish(MODULE, b"from outside".to_vec()).await.unwrap();
    assert_eq!(hidden.hear().await, (MODULE, other.key(), b"from outside".to_vec()));

    let blob = hidden.blobs.put(&[7; 1000]);
    other.handle.fetch(2, blob, vec![(hidden.key(), Vec::new())]).unwrap();
    let error = other.fetched(2).await.1.unwrap_err();
    assert_eq!(error, FetchError::OnlyRelayed { from: hidden.key() });
    assert!(error.to_string().contains("only through a relay, which carries no blobs"), "{error}");
    let blob = other.blobs.put(&[8; 1000]);
    hidden.handle.fetch(3, blob, vec![(other.key(), Vec::new())]).unwrap();
    assert_eq!(hidden.fetched(3).await.1, Err(FetchError::OnlyRelayed { from: other.key() }));
    assert_eq!((hidden.blobs.used_bytes(), other.blobs.used_bytes()), (1000, 1000), "no byte of it has come");
    assert_eq!(relay.counts().circuits, 1);
}

#[tokio::test]
async fn when_a_relay_stops_others_come_through_another() {
    let relays = [relay().await, relay().await, relay().await];
    let mut hidden = Peer::behind(&relays.each_ref().map(first)).await;
    loop {
        let taken = async |relay: &Relay| !through(relay, &hidden).await.is_empty();
        let standing = [taken(&relays[0]).await, taken(&relays[1]).await, taken(&relays[2]).await];
        if standing.iter().filter(|taken| **taken).count() == 2 {
            break;
        }
        hidden
            .wait_for("a second place", |event| match event {
                NetworkEvent::Listening(address) if is_relayed(address) => Some(()),
                _ => None,
            })
            .await;
    }
    let (mut taken, mut free) = (Vec::new(), Vec::new());
    for relay in relays {
        let place = through(&relay, &hidden).await;
        if place.is_empty() { free.push(relay) } else { taken.push(relay) }
    }
    assert_eq!((taken.len(), free.len()), (2, 1), "it holds two places");

    let gone = through(&taken[0], &hidden).await.remove(0);
    drop(taken.remove(0));
    hidden
        .wait_for("the end of a place", |event| match event {
            NetworkEvent::NotListening(address) if *address == gone => Some(()),
            _ => None,
        })
        .await;
    // By the one that is left at once, and by the one that was free soon.
    free[0].wait_until(|counts| counts.reservations == 1).await;
    for relay in [&taken[0], &free[0]] {
        let newcomer = Peer::on(&[]).await;
        let circuit: Multiaddr = format!("{}/p2p-circuit", first(relay)).parse().unwrap();
        let address = with_peer(&circuit, hidden.key());
        assert_eq!(newcomer.handle.dial(address).await, Ok(hidden.key()));
    }
}

#[tokio::test]
async fn after_a_direct_connection_was_made_the_one_through_the_relay_is_closed_and_blobs_are_fetched() {
    let relay = relay().await;
    let config = |identity| NetworkConfig {
        listen: vec![QUIC.parse().unwrap()],
        relays: vec![first(&relay)],
        ..NetworkConfig::visitor(identity)
    };
    let mut inside = Peer::with(config(Identity::generate())).await;
    let mut other = Peer::on(&[QUIC]).await;
    let address = through(&relay, &inside).await.remove(0);
    assert_eq!(other.handle.dial(address).await, Ok(inside.key()));
    relay.wait_until(|counts| counts.circuits_ever == 1).await;

    // Asked while there is nothing but the circuit: it waits for the direct connection.
    let blob = inside.blobs.put(&vec![7; 1_000_000]);
    other.handle.fetch(1, blob, vec![(inside.key(), Vec::new())]).unwrap();
    assert_eq!(other.fetched(1).await.1, Ok(()));
    relay.wait_until(|counts| counts.circuits == 0).await;

    let blob = other.blobs.put(&vec![8; 1_000_000]);
    inside.handle.fetch(2, blob, vec![(other.key(), Vec::new())]).unwrap();
    assert_eq!(inside.fetched(2).await.1, Ok(()));
    inside.handle.subscribe(MODULE).await.unwrap();
    other.handle.subscribe(MODULE).await.unwrap();
    other.wait_for_member(MODULE, inside.key()).await;
    other.handle.publish(MODULE, b"directly".to_vec()).await.unwrap();
    assert_eq!(inside.hear().await, (MODULE, other.key(), b"directly".to_vec()));
    assert!(!other.has_seen(|event| matches!(event, NetworkEvent::Disconnected(_))), "it was connected all the time");
    assert!(relay.counts().bytes_out < 500_000, "{:?}", relay.counts());
}

#[tokio::test]
async fn a_newcomer_finds_members_through_a_relay_that_belongs_to_no_run() {
    let relay = relay().await;
    let member = Peer::behind(&[first(&relay)]).await;
    member.handle.provide(MODULE).await.unwrap();
    let mut newcomer = Peer::on(&[]).await;
    let name = newcomer.handle.dial(first(&relay)).await.unwrap();
    assert_eq!(newcomer.handle.connections().await, Ok(vec![]), "a relay is no company");
    let mut lookup = 1;
    // Until the member's announcement has reached the relay.
    let found: Provider = loop {
        newcomer.handle.find_providers(lookup, MODULE).unwrap();
        let wanted = lookup;
        let providers = newcomer
            .wait_for("providers", |event| match event {
                NetworkEvent::Providers { id, providers, .. } if *id == wanted => Some(providers.clone()),
                _ => None,
            })
            .await;
        if let Some(provider) = providers.into_iter().next() {
            break provider;
        }
        lookup += 1;
    };
    assert_eq!(found.peer, member.key());
    newcomer.handle.dial_peer(found.peer, found.addresses).unwrap();
    newcomer
        .wait_for("a connection", |event| match event {
            NetworkEvent::Connected(peer) if *peer == member.key() => Some(()),
            _ => None,
        })
        .await;

    newcomer.handle.request(9, name, Vec::new(), encoding::encode(&Request::Manifest).unwrap()).unwrap();
    match encoding::decode::<Response>(&response(&mut newcomer, 9).await.unwrap()).unwrap() {
        Response::Refused(reason) => assert!(reason.starts_with("this is a relay"), "{reason}"),
        otherwise => panic!("{otherwise:?}"),
    }
}

#[tokio::test]
async fn a_relay_keeps_no_more_places_and_carries_no_more_circuits_than_it_says() {
    let relay = relay_with(RelayBounds { reservations: 2, circuits: 1, ..RelayBounds::default() }).await;
    let hidden = [Peer::behind(&[first(&relay)]).await, Peer::behind(&[first(&relay)]).await];
    assert_eq!(relay.counts().reservations, 2);
    let third = Peer::behind(&[first(&relay)]).await;
    relay.wait_until(|counts| counts.refused >= 1).await;
    assert_eq!(through(&relay, &third).await, []);
    let outlook = third.handle.outlook().await.unwrap();
    assert!(!outlook[0].contains("has granted a reservation"), "{outlook:?}");

    let other = Peer::on(&[]).await;
    let addresses = [through(&relay, &hidden[0]).await.remove(0), through(&relay, &hidden[1]).await.remove(0)];
    assert_eq!(other.handle.dial(addresses[0].clone()).await, Ok(hidden[0].key()));
    let error = other.handle.dial(addresses[1].clone()).await.unwrap_err();
    assert!(error.to_string().contains(&addresses[1].to_string()), "{error}");
    assert_eq!(relay.counts().circuits, 1);
}

#[tokio::test]
async fn a_circuit_ends_when_it_has_carried_what_it_may() {
    let relay = relay_with(RelayBounds { circuit_bytes: 20_000, ..RelayBounds::default() }).await;
    let mut hidden = Peer::behind(&[first(&relay)]).await;
    let mut other = Peer::on(&[]).await;
    let address = through(&relay, &hidden).await.remove(0);
    other.handle.dial(address.clone()).await.unwrap();
    other.handle.request(1, hidden.key(), Vec::new(), vec![1; 100]).unwrap();
    echo(&mut hidden).await;
    assert_eq!(response(&mut other, 1).await, Ok(vec![1; 100]));
    other.handle.request(2, hidden.key(), Vec::new(), vec![2; 100_000]).unwrap();
    assert!(response(&mut other, 2).await.is_err());
    relay.wait_until(|counts| counts.circuits == 0).await;
    // And another one is made.
    other
        .wait_for("the end of the circuit", |event| match event {
            NetworkEvent::Disconnected(peer) if *peer == hidden.key() => Some(()),
            _ => None,
        })
        .await;
    assert_eq!(other.handle.dial(address).await, Ok(hidden.key()));
}

#[tokio::test]
async fn what_is_no_relays_address_is_an_error_that_names_it() {
    let one = Peer::on(&[]).await;
    let bare: Multiaddr = "/ip4/203.0.113.7/udp/4001/quic-v1".parse().unwrap();
    let config = NetworkConfig { relays: vec![bare.clone()], ..NetworkConfig::visitor(Identity::generate()) };
    match start(config, one.blobs.access.clone()).await.map(drop) {
        Err(StartError::NotARelay(address)) => assert_eq!(address, bare),
        otherwise => panic!("{otherwise:?}"),
    }
}

#[tokio::test]
async fn a_relay_that_is_not_there_keeps_no_peer_from_starting_and_is_told_of() {
    let gone = relay().await;
    let address = first(&gone);
    drop(gone);
    let began = tokio::time::Instant::now();
    let one = Peer::behind(std::slice::from_ref(&address)).await;
    assert!(began.elapsed() < Duration::from_secs(30));
    let outlook = one.handle.outlook().await.unwrap().join("; ");
    let place = address.to_string();
    assert!(outlook.contains(place.split("/p2p/").next().unwrap()), "{outlook}");
}

/// Sockets that connect from this address of this machine and say nothing. Only Linux has all of 127/8 from the start:
/// elsewhere they do not connect from any other than 127.0.0.1, and the test shows nothing.
async fn silent_sockets(relay: &Relay, from: [u8; 4], many: usize) -> Vec<tokio::net::TcpStream> {
    let over_tcp = relay.addresses().iter().map(ToString::to_string).find(|address| address.contains("/tcp/")).unwrap();
    let port = over_tcp.split('/').nth(4).unwrap().parse::<u16>().unwrap();
    let mut sockets = Vec::new();
    for _ in 0..many {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        if socket.bind((std::net::Ipv4Addr::from(from), 0).into()).is_err() {
            println!("skipped: this machine does not have the address {from:?}");
            return sockets;
        }
        sockets.extend(socket.connect(([127, 0, 0, 1], port).into()).await.ok());
    }
    sockets
}

#[tokio::test]
async fn an_address_with_many_silent_sockets_does_not_close_a_relay_to_others() {
    let relay = relay().await;
    let sockets = silent_sockets(&relay, [127, 0, 0, 2], 100).await;
    let hidden = Peer::behind(&[first(&relay)]).await;
    assert!(!through(&relay, &hidden).await.is_empty(), "no reservation beside {} silent sockets", sockets.len());
}

#[tokio::test]
async fn all_peers_behind_one_address_get_as_many_bytes_through_a_relay_as_it_says() {
    let bounds = RelayBounds { circuit_bytes: 1_000_000, hourly_bytes_per_ip: 3_000_000, ..RelayBounds::default() };
    let relay = relay_with(bounds).await;
    let hidden = Peer::behind(&[first(&relay)]).await;
    let address = through(&relay, &hidden).await.remove(0);
    let mut connected = 0;
    let mut peers = Vec::new();
    for _ in 0..5 {
        let peer = Peer::on(&[]).await;
        connected += u32::from(peer.handle.dial(address.clone()).await.is_ok());
        peers.push(peer);
    }
    assert_eq!((connected, relay.counts().circuits_ever), (3, 3), "each counts with all that it may carry");
}

#[tokio::test]
async fn keys_of_one_address_take_some_of_the_circuits_to_a_peer_and_none_of_its_own() {
    let relay = relay_with(RelayBounds { circuits_per_peer: 2, ..RelayBounds::default() }).await;
    let hidden = Peer::behind(&[first(&relay)]).await;
    let to_hidden = through(&relay, &hidden).await.remove(0);
    let (mut peers, mut connected) = (Vec::new(), 0);
    for _ in 0..PEERS_PER_IP + 2 {
        let peer = Peer::on(&[]).await;
        connected += u32::from(peer.handle.dial(to_hidden.clone()).await.is_ok());
        peers.push(peer);
    }
    assert_eq!((connected, relay.counts().circuits), (PEERS_PER_IP, u64::from(PEERS_PER_IP)));
    // Only now, since those that have joined connect to all that they find by Kademlia.
    let friend = Peer::behind(&[first(&relay)]).await;
    let to_friend = through(&relay, &friend).await.remove(0);
    assert_eq!(hidden.handle.dial(to_friend).await, Ok(friend.key()), "there are places for its own");
}

#[tokio::test]
async fn a_relay_with_a_list_serves_those_on_it() {
    let listed = Identity::generate();
    let listen = vec![TCP.parse().unwrap()];
    let allow = Some(vec![listed.key()]);
    let config = RelayConfig {
        identity: Identity::generate(),
        listen,
        announce: Vec::new(),
        allow,
        bounds: RelayBounds::default(),
    };
    let relay = Relay::start(config).await.unwrap();
    let behind = |identity| NetworkConfig { relays: vec![first(&relay)], ..NetworkConfig::visitor(identity) };
    let stranger = Peer::with(behind(Identity::generate())).await;
    let member = Peer::with(behind(listed)).await;
    assert_eq!(through(&relay, &stranger).await, []);
    assert!(!through(&relay, &member).await.is_empty());
}
