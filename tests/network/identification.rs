//! What a peer says of itself when it is connected, and what becomes of it.

use futures::{AsyncWriteExt, StreamExt};
use libp2p::swarm::SwarmEvent;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::{StreamProtocol, SwarmBuilder, identify, identity, noise, ping, tcp, yamux};
use pathswarm::network::DialError;

use crate::peers::{Peer, TCP};
use crate::unmannered::{CONTROL, DEADLINE};

#[derive(libp2p::swarm::NetworkBehaviour)]
#[behaviour(prelude = "libp2p::swarm::derive_prelude")]
struct OldVersion {
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

#[tokio::test]
async fn a_peer_that_speaks_another_version_is_explained_and_let_go() {
    let mut old = SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
        .unwrap()
        .with_behaviour(|key| OldVersion {
            identify: identify::Behaviour::new(
                identify::Config::new("/pathswarm/control/0".to_owned(), key.public())
                    .with_agent_version("pathswarm/0.0.1".to_owned()),
            ),
            ping: ping::Behaviour::default(),
        })
        .unwrap()
        .build();
    old.listen_on(TCP.parse().unwrap()).unwrap();
    let address = loop {
        if let SwarmEvent::NewListenAddr { address, .. } = old.select_next_some().await {
            break address.with_p2p(*old.local_peer_id()).unwrap();
        }
    };
    let (ended, end) = tokio::sync::oneshot::channel();
    let running = tokio::spawn(async move {
        loop {
            if let SwarmEvent::ConnectionClosed { .. } = old.select_next_some().await {
                return ended.send(());
            }
        }
    });
    let one = Peer::on(&[TCP]).await;
    let error = one.handle.dial(address.clone()).await.unwrap_err();
    assert_eq!(error, DialError::AnotherVersion { address, found: "pathswarm/0.0.1".to_owned() });
    end.await.unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(one.handle.connections().await, Ok(vec![]));
}

/// An answer of identify: what [`IDENTIFY`] is asked for, as protobuf.
fn identification(key: &identity::PublicKey) -> Vec<u8> {
    let field = |number: u8, value: &[u8]| [&[number << 3 | 2, value.len() as u8], value].concat();
    let fields = [
        field(1, &key.encode_protobuf()),
        field(3, CONTROL.as_bytes()),
        field(5, b"pathswarm"),
        field(6, b"pathswarm/test"),
    ];
    let message = fields.concat();
    [&[message.len() as u8], &message[..]].concat()
}

const IDENTIFY: StreamProtocol = StreamProtocol::new("/ipfs/id/1.0.0");

/// Hole punching makes a second connection, and ends the first, at any time.
#[tokio::test]
async fn a_connection_that_breaks_before_it_is_identified_ends_no_other_to_the_same_peer() {
    let key = identity::Keypair::generate_ed25519();
    let mut twice = SwarmBuilder::with_existing_identity(key.clone())
        .with_tokio()
        .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
        .unwrap()
        .with_behaviour(|_| libp2p_stream::Behaviour::new())
        .unwrap()
        .build();
    let mut asked = twice.behaviour().new_control().accept(IDENTIFY).unwrap();
    twice.listen_on(TCP.parse().unwrap()).unwrap();
    let address = loop {
        if let SwarmEvent::NewListenAddr { address, .. } = twice.select_next_some().await {
            break address.with_p2p(*twice.local_peer_id()).unwrap();
        }
    };
    let one = Peer::on(&[TCP]).await;
    let (to, of_one) = (one.handle.clone(), one.addresses().await);
    let dialling = tokio::spawn(async move { to.dial(address).await });

    let mut streams = Vec::new();
    while streams.len() < 2 {
        tokio::select! {
            _ = twice.select_next_some() => {}
            stream = asked.next() => {
                let (peer, stream) = stream.unwrap();
                streams.push(stream);
                if streams.len() == 1 {
                    let again = DialOpts::peer_id(peer).condition(PeerCondition::Always).addresses(of_one.clone());
                    twice.dial(again.build()).unwrap();
                }
            }
        }
    }
    let mut second = streams.pop().unwrap();
    // It breaks in the midst of a message.
    streams[0].write_all(&identification(&key.public())[..20]).await.unwrap();
    streams[0].flush().await.unwrap();
    drop(streams);
    while !matches!(twice.select_next_some().await, SwarmEvent::ConnectionClosed { .. }) {}
    let running = tokio::spawn(async move { while twice.next().await.is_some() {} });
    second.write_all(&identification(&key.public())).await.unwrap();
    second.close().await.unwrap();
    let found = tokio::time::timeout(DEADLINE, dialling).await.unwrap().unwrap();
    assert_eq!(found.map(|_| ()), Ok(()));
    assert_eq!(one.handle.connections().await.unwrap().len(), 1);
    running.abort();
}
