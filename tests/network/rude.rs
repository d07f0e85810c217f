//! Blobs among peers without manners.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, PeerId, StreamProtocol, Swarm, SwarmBuilder, identify, noise, tcp, yamux};
use pathswarm::names::{BlobRef, PeerKey};
use pathswarm::network::{FetchError, limits};
use pathswarm::pieces::PIECE_BYTES;
use tokio::sync::Notify;

use crate::blobs::{half_way, noise as bytes_of_noise};
use crate::peers::{Peer, TCP};

const BLOB: StreamProtocol = StreamProtocol::new("/pathswarm/blob/2");

/// Just enough to ask for blobs without the manners of a real peer.
#[derive(libp2p::swarm::NetworkBehaviour)]
#[behaviour(prelude = "libp2p::swarm::derive_prelude")]
struct Greedy {
    identify: identify::Behaviour,
    streams: libp2p_stream::Behaviour,
}

fn rude() -> Swarm<Greedy> {
    SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
        .unwrap()
        .with_behaviour(|key| Greedy {
            identify: identify::Behaviour::new(identify::Config::new("greedy".to_owned(), key.public())),
            streams: libp2p_stream::Behaviour::new(),
        })
        .unwrap()
        .build()
}

/// How an asker names a blob.
fn named(blob: BlobRef) -> Vec<u8> {
    [&blob.hash.0[..], &blob.bytes.to_le_bytes()].concat()
}

/// A donor that answers the first words of each stream, and then what it is asked in its own way.
pub struct Rude {
    pub key: PeerKey,
    pub address: Multiaddr,
    /// Told each time that it is asked for something.
    pub asked: Arc<Notify>,
    _running: tokio::task::JoinHandle<()>,
    _serving: tokio::task::JoinHandle<()>,
}

async fn donor(greeting: &'static [u8], answer: fn(u32) -> Vec<u8>) -> Rude {
    donor_at_pace(greeting, answer, (usize::MAX, Duration::from_millis(1))).await
}

/// The same, with so many bytes of each answer at a time, and this pause between them.
pub async fn donor_at_pace(
    greeting: &'static [u8],
    answer: fn(u32) -> Vec<u8>,
    (bytes, pause): (usize, Duration),
) -> Rude {
    let asked = Arc::new(Notify::new());
    let told = asked.clone();
    let mut swarm = rude();
    let mut control = swarm.behaviour().streams.new_control();
    let control_protocol = control.accept(StreamProtocol::new("/pathswarm/control/1")).unwrap();
    let mut blobs = control.accept(BLOB).unwrap();
    let key = key_of(swarm.local_peer_id());
    swarm.listen_on(TCP.parse().unwrap()).unwrap();
    let address = loop {
        if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
            break address;
        }
    };
    let running = tokio::spawn(async move {
        let _kept = control_protocol;
        while swarm.next().await.is_some() {}
    });
    let serving = tokio::spawn(async move {
        let mut streams = Vec::new();
        while let Some((_, mut stream)) = blobs.next().await {
            let told = told.clone();
            streams.push(tokio::spawn(async move {
                let mut first = [0; 40];
                stream.read_exact(&mut first).await?;
                stream.write_all(greeting).await?;
                stream.flush().await?;
                let mut asked = [0; 4];
                while stream.read_exact(&mut asked).await.is_ok() {
                    told.notify_one();
                    let mut pace = tokio::time::interval(pause);
                    for part in answer(u32::from_le_bytes(asked)).chunks(bytes) {
                        stream.write_all(part).await?;
                        stream.flush().await?;
                        pace.tick().await;
                    }
                }
                io::Result::Ok(())
            }));
        }
    });
    Rude { key, address, asked, _running: running, _serving: serving }
}

fn key_of(peer: &PeerId) -> PeerKey {
    // The last 32 of its 38 bytes.
    let bytes = peer.to_bytes();
    PeerKey(bytes[bytes.len() - 32..].try_into().unwrap())
}

async fn from_both(one: &mut Peer, rude: &Rude, honest: &Peer, blob: BlobRef) -> Option<FetchError> {
    let holders = vec![(rude.key, vec![rude.address.clone()]), (honest.key(), honest.addresses().await)];
    one.handle.fetch(1, blob, holders).unwrap();
    let (gave, result) = one.fetched(1).await;
    assert_eq!(result, Ok(()), "{gave:?}");
    assert!(one.blobs.get(blob).is_some());
    assert!(gave[1].bytes >= blob.bytes, "all of it is the honest one's: {gave:?}");
    gave[0].failed.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_promises_and_stalls_keeps_nobody_waiting_for_its_pieces() {
    let (mut one, honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let blob = honest.blobs.put(&bytes_of_noise(5_000_000));
    let stalls = donor(&[0], |_| Vec::new()).await;
    // It had no time to fall silent for long: another was asked for what it had promised.
    from_both(&mut one, &stalls, &honest, blob).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_makes_up_what_pieces_hash_to_is_named() {
    let (mut one, honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let blob = honest.blobs.put(&bytes_of_noise(5_000_000));
    assert_eq!(blob.bytes.div_ceil(PIECE_BYTES), 20);
    let byzantine = donor(&[0], |_| vec![0; 1 + 32 * 20]).await;
    one.handle.fetch(7, blob, vec![(byzantine.key, vec![byzantine.address.clone()])]).unwrap();
    assert_eq!(one.fetched(7).await.1, Err(FetchError::WrongHash { from: byzantine.key }));
    from_both(&mut one, &byzantine, &honest, blob).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_talks_nonsense_is_left() {
    let (mut one, honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let blob = honest.blobs.put(&bytes_of_noise(5_000_000));
    type Rudeness = (&'static [u8], fn(u32) -> Vec<u8>);
    let nonsense: [Rudeness; 3] = [(&[9], |_| Vec::new()), (&[0], |_| vec![9]), (&[3], |_| vec![1])];
    for (id, (greeting, answer)) in (10..).zip(nonsense) {
        let rude = donor(greeting, answer).await;
        one.handle.fetch(id, blob, vec![(rude.key, vec![rude.address.clone()])]).unwrap();
        match one.fetched(id).await.1 {
            Err(FetchError::Broken { from, reason, .. }) => {
                assert!(from == rude.key && reason.contains("unknown status"))
            }
            Err(FetchError::NotHere { from }) => assert_eq!(from, rude.key),
            otherwise => panic!("{otherwise:?}"),
        }
    }
    assert_eq!(one.fetch(1, blob, &[&honest]).await.1, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_never_has_what_it_promises_is_not_asked_for_ever() {
    let (mut one, honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let bytes = bytes_of_noise(5_000_000);
    let blob = honest.blobs.put(&bytes);
    // What all pieces hash to is known from a fetch before.
    drop(half_way(&one, &bytes, |index| index == 3));
    let promises = donor(&[3], |asked| if asked == u32::MAX { vec![0, 255, 255, 255] } else { vec![1] }).await;
    one.handle.fetch(5, blob, vec![(promises.key, vec![promises.address.clone()])]).unwrap();
    assert_eq!(one.fetched(5).await.1, Err(FetchError::NotHere { from: promises.key }));
    assert_eq!(one.fetch(6, blob, &[&honest]).await.1, Ok(()));
}

#[tokio::test]
async fn an_asker_that_asks_for_what_cannot_be_is_hung_up_on() {
    let server = Peer::on(&[TCP]).await;
    let blob = server.blobs.put(&bytes_of_noise(1000));
    let address = server.addresses().await.remove(0);
    let mut asker = rude();
    let mut control = asker.behaviour().streams.new_control();
    let _incoming = control.accept(StreamProtocol::new("/pathswarm/control/1")).unwrap();
    asker.dial(address).unwrap();
    let peer = loop {
        if let SwarmEvent::ConnectionEstablished { peer_id, .. } = asker.select_next_some().await {
            break peer_id;
        }
    };
    let running = tokio::spawn(async move { while asker.next().await.is_some() {} });
    for (blob, ask, answer) in [
        // A blob of a billion pieces is not here.
        (BlobRef { bytes: 1_000_000_000 * PIECE_BYTES, ..blob }, 0u32, &[1][..]),
        (blob, 1, &[0]),
        (blob, u32::MAX - 2, &[0]),
    ] {
        let mut stream = control.open_stream(peer, BLOB).await.unwrap();
        stream.write_all(&named(blob)).await.unwrap();
        stream.flush().await.unwrap();
        let mut status = [7];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(status, answer);
        // It may have hung up already.
        let _ = stream.write_all(&ask.to_le_bytes()).await;
        let _ = stream.flush().await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty());
    }
    running.abort();
}

#[tokio::test]
async fn a_peer_that_takes_its_places_and_reads_nothing_hears_busy_and_others_are_served() {
    let (server, mut honest) = (Peer::on(&[TCP]).await, Peer::on(&[TCP]).await);
    let large = server.blobs.put(&bytes_of_noise(50_000_000));
    let small = server.blobs.put(&bytes_of_noise(1000));
    let address = server.addresses().await.remove(0);
    let mut greedy = rude();
    let mut control = greedy.behaviour().streams.new_control();
    // It claims to speak our version.
    let _incoming = control.accept(StreamProtocol::new("/pathswarm/control/1")).unwrap();
    greedy.dial(address).unwrap();
    let peer = loop {
        if let SwarmEvent::ConnectionEstablished { peer_id, .. } = greedy.select_next_some().await {
            break peer_id;
        }
    };
    let running = tokio::spawn(async move { while greedy.next().await.is_some() {} });
    let mut streams = Vec::new();
    let mut first_bytes = Vec::new();
    for _ in 0..=limits::SERVINGS_PER_PEER {
        let mut stream = control.open_stream(peer, BLOB).await.unwrap();
        stream.write_all(&named(large)).await.unwrap();
        stream.flush().await.unwrap();
        let mut status = [0];
        stream.read_exact(&mut status).await.unwrap();
        first_bytes.push(status[0]);
        streams.push(stream);
    }
    let mut expected = vec![0; limits::SERVINGS_PER_PEER];
    expected.push(2);
    assert_eq!(first_bytes, expected);
    assert_eq!(honest.fetch(1, small, &[&server]).await.1, Ok(()));
    running.abort();
}
