//! What a process in a namespace does: this very program, started again with a part to play.

use std::env::var;
use std::net::{SocketAddr, TcpListener};

use pathswarm::names::{BlobRef, PeerKey};
use pathswarm::network::{
    Identity, Multiaddr, NetworkConfig, NetworkEvent, Relay, RelayBounds, RelayConfig, RequestToken, is_relayed,
    with_peer,
};

use crate::peers::{MODULE, Peer};

/// What those who listen look for.
pub const SAID: &str = "said> ";

const BLOB_BYTES: usize = 3_000_000;

fn say(what: &str, value: impl std::fmt::Display) {
    println!("{SAID}{what}: {value}");
}

fn setting(name: &str) -> Option<String> {
    var(format!("PATHSWARM_NAT_{name}")).ok()
}

fn addresses(name: &str) -> Vec<Multiaddr> {
    let texts = setting(name).unwrap_or_default();
    texts.split_whitespace().map(|text| text.parse().unwrap()).collect()
}

/// Not a test: the parts that the tests beside it give to others.
#[tokio::test]
async fn plays_its_part() {
    match setting("PART").as_deref() {
        Some("relay") => relay().await,
        Some("host") => host().await,
        Some("guest") => guest().await,
        Some("resident") => resident().await,
        Some("seeker") => seeker().await,
        _ => {}
    }
}

/// Where to listen: by QUIC and TCP, on one port.
fn listen() -> Vec<Multiaddr> {
    let ip = setting("LISTEN").unwrap_or("0.0.0.0".to_owned());
    let port = setting("PORT").unwrap_or("4001".to_owned());
    let texts = [format!("/ip4/{ip}/udp/{port}/quic-v1"), format!("/ip4/{ip}/tcp/{port}")];
    texts.map(|text| text.parse().unwrap()).to_vec()
}

async fn relay() {
    let config = RelayConfig {
        identity: Identity::generate(),
        listen: listen(),
        announce: Vec::new(),
        allow: None,
        bounds: RelayBounds::default(),
    };
    let relay = Relay::start(config).await.unwrap();
    say("address", &relay.addresses()[0]);
    relay.wait_until(|counts| counts.circuits_ever > 0 && counts.circuits == 0).await;
    say("circuit gone, bytes", relay.counts().bytes_in);
    std::future::pending().await
}

/// Bytes that are known on both sides.
fn bytes() -> Vec<u8> {
    (0..BLOB_BYTES).map(|at| ((at * at) >> 7) as u8).collect()
}

async fn begin() -> Peer {
    let (relays, announce) = (addresses("RELAYS"), addresses("ANNOUNCE"));
    let mdns = setting("MDNS").is_some();
    let visitor = NetworkConfig::visitor(Identity::generate());
    let config = NetworkConfig { listen: listen(), relays, announce, mdns, ..visitor };
    let peer = Peer::with(config).await;
    peer.handle.subscribe(MODULE).await.unwrap();
    peer
}

/// What a host does something about.
enum Heard {
    Question(RequestToken, Vec<u8>),
    Gossip,
    Here(Multiaddr),
    NotHere(Multiaddr),
    Other,
}

/// Has the blob, answers questions with themselves, and gossips when it hears gossip.
async fn host() {
    let mut peer = begin().await;
    let blob = peer.blobs.put(&bytes());
    assert_eq!(blob, BlobRef::of(&bytes()));
    peer.handle.provide(MODULE).await.unwrap();
    for address in peer.addresses().await {
        say(if is_relayed(&address) { "address" } else { "direct address" }, address);
    }
    for address in addresses("ADDRESSES") {
        peer.handle.dial(address).await.unwrap();
        say("joined", "yes");
    }
    loop {
        let heard = peer.wait_for("anything", |event| {
            Some(match event {
                NetworkEvent::Request { token, bytes, .. } => Heard::Question(*token, bytes.clone()),
                NetworkEvent::Gossip { .. } => Heard::Gossip,
                NetworkEvent::Listening(address) => Heard::Here(address.clone()),
                NetworkEvent::NotListening(address) => Heard::NotHere(address.clone()),
                _ => Heard::Other,
            })
        });
        match heard.await {
            Heard::Question(token, bytes) => peer.handle.respond(token, bytes).unwrap(),
            Heard::Gossip => drop(peer.handle.publish(MODULE, b"from the host".to_vec()).await),
            Heard::NotHere(address) => say("lost", address),
            Heard::Here(address) if is_relayed(&address) => say("address", address),
            Heard::Here(address) => {
                let outlook = peer.handle.outlook().await.unwrap().join("; ");
                if outlook.contains("others reach this peer from outside") {
                    say("reached at", address);
                }
            }
            Heard::Other => {}
        }
        say("outlook", peer.handle.outlook().await.unwrap().join("; "));
    }
}

async fn ask(peer: &mut Peer, id: u64, host: PeerKey, addresses: Vec<Multiaddr>) -> String {
    peer.handle.request(id, host, addresses, b"hello".to_vec()).unwrap();
    let answer = peer
        .wait_for("an answer", |event| match event {
            NetworkEvent::Response { id: answered, result, .. } if *answered == id => Some(result.clone()),
            _ => None,
        })
        .await;
    answer.map_or_else(|error| error.to_string(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Asks, fetches and gossips; asks again when the connection has ended.
async fn guest() {
    let mut peer = begin().await;
    let addresses = addresses("ADDRESSES");
    let host = peer.handle.dial(addresses[0].clone()).await.unwrap();
    say("asked", ask(&mut peer, 1, host, Vec::new()).await);
    peer.handle.fetch(2, BlobRef::of(&bytes()), vec![(host, Vec::new())]).unwrap();
    let fetched = peer
        .wait_for("what became of a fetch", |event| match event {
            NetworkEvent::Fetched { result, .. } => Some(result.clone()),
            _ => None,
        })
        .await;
    match fetched {
        Ok(()) => say("fetched", format!("{BLOB_BYTES} bytes")),
        Err(error) => say("not fetched", error),
    }
    peer.wait_for_member(MODULE, host).await;
    peer.handle.publish(MODULE, b"from the guest".to_vec()).await.unwrap();
    say("heard", String::from_utf8(peer.hear().await.2).unwrap());
    peer.wait_for("the end of the connection", |event| match event {
        NetworkEvent::Disconnected(gone) if *gone == host => Some(()),
        _ => None,
    })
    .await;
    say("asked again", ask(&mut peer, 3, host, addresses).await);
}

/// Has a door in its house that is none of the network's, and says whether anybody knocked there.
async fn resident() {
    let door: Multiaddr = setting("DOOR").unwrap().parse().unwrap();
    let socket: SocketAddr = setting("DOOR_SOCKET").unwrap().parse().unwrap();
    let listener = TcpListener::bind(socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut peer = begin().await;
    let address = addresses("ADDRESSES").remove(0);
    let host = peer.handle.dial(address.clone()).await.unwrap();
    say("asked", ask(&mut peer, 1, host, Vec::new()).await);
    peer.handle.disconnect(host).unwrap();
    peer.wait_for("the end of the connection", |event| match event {
        NetworkEvent::Disconnected(gone) if *gone == host => Some(()),
        _ => None,
    })
    .await;
    // All that is known of the host is dialled now, and what it names is known.
    say("asked again", ask(&mut peer, 2, host, vec![address]).await);
    say("knocked for the host", listener.accept().is_ok());
    let dialled = peer.handle.dial(with_peer(&door, Identity::generate().key())).await;
    say("dialled by the user", dialled.is_ok());
    say("knocked for the user", listener.accept().is_ok());
}

/// Knows a relay, and looks for members of the module until there is one.
async fn seeker() {
    let mut peer = begin().await;
    peer.handle.dial(addresses("ADDRESSES")[0].clone()).await.unwrap();
    for lookup in 1.. {
        peer.handle.find_providers(lookup, MODULE).unwrap();
        let found = peer
            .wait_for("providers", |event| match event {
                NetworkEvent::Providers { id, providers, .. } if *id == lookup => Some(providers.clone()),
                _ => None,
            })
            .await;
        for provider in found {
            let answer = ask(&mut peer, 1_000 + lookup, provider.peer, provider.addresses.clone()).await;
            if answer == "hello" {
                let places: Vec<String> = provider.addresses.iter().map(ToString::to_string).collect();
                say("found", places.join(" "));
                say("asked", answer);
                return;
            }
        }
    }
}
