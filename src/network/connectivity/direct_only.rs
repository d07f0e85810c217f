//! Keeps bulk data off relays, whichever side asks: the behaviour for blob streams does not see relayed connections,
//! and its protocol is not offered there.

use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished};
use libp2p::swarm::derive_prelude::Either;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
    dummy,
};
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::addresses::is_relayed;

/// A behaviour that does not see relayed connections, so it neither opens nor accepts streams there.
pub(crate) struct DirectOnly<B>(pub B);

impl<B: NetworkBehaviour> NetworkBehaviour for DirectOnly<B> {
    type ConnectionHandler = Either<B::ConnectionHandler, dummy::ConnectionHandler>;
    type ToSwarm = B::ToSwarm;

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        match is_relayed(local) {
            true => Ok(Either::Right(dummy::ConnectionHandler)),
            false => self.0.handle_established_inbound_connection(connection, peer, local, remote).map(Either::Left),
        }
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        match is_relayed(address) {
            true => Ok(Either::Right(dummy::ConnectionHandler)),
            false => {
                self.0.handle_established_outbound_connection(connection, peer, address, role, port).map(Either::Left)
            }
        }
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match &event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished { endpoint, .. })
            | FromSwarm::ConnectionClosed(ConnectionClosed { endpoint, .. })
                if endpoint.is_relayed() => {}
            _ => self.0.on_swarm_event(event),
        }
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, connection: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {
            Either::Left(event) => self.0.on_connection_handler_event(peer, connection, event),
            Either::Right(never) => match never {},
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.0.poll(context).map(|action| action.map_in(Either::Left))
    }
}
