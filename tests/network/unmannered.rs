//! A peer without manners: streams of our protocols, and whatever is written into them.

use std::time::Duration;

use futures::{AsyncWriteExt, StreamExt};
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, PeerId, Stream, StreamProtocol, SwarmBuilder, identify, noise, tcp, yamux};
use libp2p_stream::{Control, IncomingStreams};
use tokio::task::JoinHandle;

/// Far more than any of this takes.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub const BLOBS: &str = "/pathswarm/blob/2";
pub const CONTROL: &str = "/pathswarm/control/1";

/// Just enough to ask without the manners of a real peer.
#[derive(libp2p::swarm::NetworkBehaviour)]
#[behaviour(prelude = "libp2p::swarm::derive_prelude")]
struct Greedy {
    identify: identify::Behaviour,
    streams: libp2p_stream::Behaviour,
}

pub struct Rude {
    control: Control,
    of: PeerId,
    running: JoinHandle<()>,
    /// It claims to speak our version.
    _incoming: IncomingStreams,
}

impl Drop for Rude {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Rude {
    /// One that is connected to the peer at this address.
    pub async fn at(address: Multiaddr) -> Self {
        let mut greedy = SwarmBuilder::with_new_identity()
            .with_tokio()
            .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
            .unwrap()
            .with_behaviour(|key| Greedy {
                identify: identify::Behaviour::new(identify::Config::new("greedy".to_owned(), key.public())),
                streams: libp2p_stream::Behaviour::new(),
            })
            .unwrap()
            .build();
        let mut control = greedy.behaviour().streams.new_control();
        let incoming = control.accept(StreamProtocol::new(CONTROL)).unwrap();
        greedy.dial(address).unwrap();
        let of = loop {
            if let SwarmEvent::ConnectionEstablished { peer_id, .. } = greedy.select_next_some().await {
                break peer_id;
            }
        };
        let running = tokio::spawn(async move { while greedy.next().await.is_some() {} });
        Self { control, of, running, _incoming: incoming }
    }

    /// A stream with these first bytes, however often it is asked for: a peer that has not yet taken the one before drops it.
    pub async fn keeps_asking(&mut self, protocol: &'static str, bytes: &[u8]) -> Stream {
        let asking = async {
            loop {
                if let Some(stream) = self.stream(protocol, bytes).await {
                    return stream;
                }
            }
        };
        tokio::time::timeout(DEADLINE, asking).await.expect("no stream is taken")
    }

    /// A stream with these first bytes; none if there is no connection any more, or it was dropped at once.
    pub async fn stream(&mut self, protocol: &'static str, bytes: &[u8]) -> Option<Stream> {
        let mut stream = self.control.open_stream(self.of, StreamProtocol::new(protocol)).await.ok()?;
        stream.write_all(bytes).await.ok()?;
        stream.flush().await.ok()?;
        Some(stream)
    }
}
