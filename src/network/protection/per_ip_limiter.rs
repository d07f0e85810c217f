//! Limits the connections from one IP address, since keys are free but addresses are not.
//!
//! An IPv6 /64 network counts as one address. Relayed connections are not counted, since the relay counts them. A peer
//! does not count connections from its own machine, on which there may be many peers; a relay does.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
    dummy,
};
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::address_scope::origin_of;
use crate::network::connectivity::addresses::is_relayed;
use crate::network::limits::{COMING_BURST, COMING_PER_SECOND, CONNECTIONS_PER_IP, PENDING_PER_IP};
use crate::network::protection::rate_limiter::KeyedRateLimiter;

#[derive(Debug, thiserror::Error)]
#[error("too many connections come from {0}")]
struct TooManyConnections(IpAddr);

/// The connections that came from one address.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    pending: usize,
    established: usize,
}

/// How much one address may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerIpBounds {
    pub pending: usize,
    pub connections: usize,
    /// Connections in a second, and at once.
    pub coming: (u32, u32),
    /// Whether this machine's own addresses are counted.
    pub own: bool,
}

impl Default for PerIpBounds {
    fn default() -> Self {
        let coming = (COMING_PER_SECOND, COMING_BURST);
        Self { pending: PENDING_PER_IP, connections: CONNECTIONS_PER_IP, coming, own: false }
    }
}

/// Counts connections.
pub(crate) struct PerIpLimiter {
    bounds: PerIpBounds,
    coming: KeyedRateLimiter<IpAddr>,
    from: BTreeMap<IpAddr, Count>,
    pending: HashMap<ConnectionId, IpAddr>,
    established: HashMap<ConnectionId, IpAddr>,
}

impl Default for PerIpLimiter {
    fn default() -> Self {
        Self::new(PerIpBounds::default())
    }
}

/// The IP address of a direct connection.
fn origin(local: &Multiaddr, remote: &Multiaddr) -> Option<IpAddr> {
    origin_of(remote).filter(|_| !is_relayed(local) && !is_relayed(remote))
}

impl PerIpLimiter {
    pub(crate) fn new(bounds: PerIpBounds) -> Self {
        let coming = KeyedRateLimiter::new(bounds.coming);
        Self { bounds, coming, from: BTreeMap::new(), pending: HashMap::new(), established: HashMap::new() }
    }

    /// The IP address of a connection, if it is counted.
    fn counted(&self, local: &Multiaddr, remote: &Multiaddr) -> Option<IpAddr> {
        origin(local, remote).filter(|ip| self.bounds.own || !ip.is_loopback())
    }

    fn release(&mut self, ip: IpAddr, which: fn(&mut Count) -> &mut usize) {
        if let Some(count) = self.from.get_mut(&ip) {
            let one = which(count);
            *one = one.saturating_sub(1);
            if count.pending + count.established == 0 {
                self.from.remove(&ip);
            }
        }
    }

    fn settle(&mut self, connection: ConnectionId) {
        if let Some(ip) = self.pending.remove(&connection) {
            self.release(ip, |count| &mut count.pending);
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        self.settle(connection);
        if let Some(ip) = self.established.remove(&connection) {
            self.release(ip, |count| &mut count.established);
        }
    }
}

impl NetworkBehaviour for PerIpLimiter {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = std::convert::Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        let Some(ip) = self.counted(local, remote) else { return Ok(()) };
        let count = self.from.get(&ip).copied().unwrap_or_default();
        let space = count.pending < self.bounds.pending && count.established < self.bounds.connections;
        if !space || !self.coming.allows(&ip) {
            return Err(ConnectionDenied::new(TooManyConnections(ip)));
        }
        self.from.entry(ip).or_default().pending += 1;
        self.pending.insert(connection, ip);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.settle(connection);
        let Some(ip) = self.counted(local, remote) else { return Ok(dummy::ConnectionHandler) };
        if self.from.get(&ip).is_some_and(|count| count.established >= self.bounds.connections) {
            return Err(ConnectionDenied::new(TooManyConnections(ip)));
        }
        self.from.entry(ip).or_default().established += 1;
        self.established.insert(connection, ip);
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionClosed(event) => self.close(event.connection_id),
            // Also for a connection that another behaviour has refused.
            FromSwarm::ListenFailure(event) => self.close(event.connection_id),
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Multiaddr {
        address.parse().unwrap()
    }

    fn comes(per_ip: &mut PerIpLimiter, id: usize, from: &str) -> bool {
        let (id, local) = (ConnectionId::new_unchecked(id), at("/ip4/192.0.2.1/tcp/4001"));
        per_ip.handle_pending_inbound_connection(id, &local, &at(from)).is_ok()
    }

    fn stays(per_ip: &mut PerIpLimiter, id: usize, from: &str) -> bool {
        let (id, local) = (ConnectionId::new_unchecked(id), at("/ip4/192.0.2.1/tcp/4001"));
        per_ip.handle_established_inbound_connection(id, PeerId::random(), &local, &at(from)).is_ok()
    }

    #[test]
    fn one_address_cannot_take_all_handshakes_nor_all_connections() {
        let mut per_ip = PerIpLimiter::default();
        let from = "/ip4/198.51.100.7/tcp/5";
        let pending = (0..200).filter(|id| comes(&mut per_ip, *id, from)).count();
        assert_eq!(pending, PENDING_PER_IP);
        assert!(comes(&mut per_ip, 900, "/ip4/198.51.100.8/tcp/5"), "its neighbour");
        let staying = (0..200).filter(|id| stays(&mut per_ip, *id, from)).count();
        assert_eq!(staying, CONNECTIONS_PER_IP);
        assert!(!comes(&mut per_ip, 901, from));
        (0..200).for_each(|id| per_ip.close(ConnectionId::new_unchecked(id)));
        assert!(comes(&mut per_ip, 902, from), "when they have gone");
        per_ip.close(ConnectionId::new_unchecked(900));
        per_ip.close(ConnectionId::new_unchecked(902));
        assert!(per_ip.from.is_empty() && per_ip.pending.is_empty() && per_ip.established.is_empty());
    }

    #[test]
    fn who_comes_and_goes_too_fast_is_refused_for_a_while() {
        let mut per_ip = PerIpLimiter::default();
        let mut come = 0;
        for id in 0..1_000 {
            come += usize::from(comes(&mut per_ip, id, "/ip4/198.51.100.7/udp/5/quic-v1"));
            per_ip.close(ConnectionId::new_unchecked(id));
        }
        assert!((COMING_BURST as usize..COMING_BURST as usize + 100).contains(&come), "{come}");
    }

    #[test]
    fn a_network_of_64_bits_is_one_address_and_this_machine_is_not_counted() {
        let local = at("/ip6/2001:db8::1/tcp/1");
        let from = |remote: &str| origin(&local, &at(remote));
        assert_eq!(from("/ip6/2001:db8:1:2:3:4:5:6/tcp/1"), from("/ip6/2001:db8:1:2::9/tcp/1"));
        assert_ne!(from("/ip6/2001:db8:1:2::9/tcp/1"), from("/ip6/2001:db8:1:3::9/tcp/1"));
        assert_eq!(from("/ip6/::ffff:198.51.100.7/tcp/1"), from("/ip4/198.51.100.7/tcp/1"));
        let relays = PerIpLimiter::new(PerIpBounds { own: true, ..PerIpBounds::default() });
        for own in ["/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/1"] {
            assert_eq!(PerIpLimiter::default().counted(&local, &at(own)), None);
            assert_eq!(relays.counted(&local, &at(own)), from(own));
        }
        let relay = PeerId::random();
        assert_eq!(from(&format!("/ip4/198.51.100.7/tcp/1/p2p/{relay}/p2p-circuit")), None);
    }
}
