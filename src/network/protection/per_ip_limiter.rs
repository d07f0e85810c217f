//! Limits the connections from one IP address, since keys are free but addresses are not.
//!
//! An IPv6 network of 64 bits counts as one address, and one of 48 bits, which a site has, as a few. Relayed connections
//! are not counted, since the relay counts them. A peer does not count connections from its own machine, on which there
//! may be many peers; a relay does.

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
use crate::network::limits::{COMING_BURST, COMING_PER_SECOND, CONNECTIONS_PER_IP, NETWORKS_PER_SITE, PENDING_PER_IP};
use crate::network::protection::rate_limiter::KeyedRateLimiter;

#[derive(Debug, thiserror::Error)]
#[error("too many connections come from {0}")]
struct TooManyConnections(IpAddr);

/// Connections are counted by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Address(IpAddr),
    /// The 48 bits of an IPv6 address.
    Site(IpAddr),
}

impl Group {
    fn of(ip: IpAddr) -> impl Iterator<Item = Self> {
        [Some(Self::Address(ip)), ip.is_ipv6().then(|| Self::Site(site_of(ip)))].into_iter().flatten()
    }

    /// How many times as much as an address it may have.
    fn times(self) -> usize {
        match self {
            Self::Address(_) => 1,
            Self::Site(_) => NETWORKS_PER_SITE as usize,
        }
    }
}

/// The network that one site has: 48 bits of an IPv6 address; of IPv4, the address itself.
pub(crate) fn site_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 80 << 80).into()),
    }
}

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
    coming_from_sites: KeyedRateLimiter<IpAddr>,
    from: BTreeMap<Group, Count>,
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
        let (per_second, burst) = bounds.coming;
        Self {
            bounds,
            coming: KeyedRateLimiter::new(bounds.coming),
            coming_from_sites: KeyedRateLimiter::new((per_second * NETWORKS_PER_SITE, burst * NETWORKS_PER_SITE)),
            from: BTreeMap::new(),
            pending: HashMap::new(),
            established: HashMap::new(),
        }
    }

    /// The IP address of a connection, if it is counted.
    fn counted(&self, local: &Multiaddr, remote: &Multiaddr) -> Option<IpAddr> {
        origin(local, remote).filter(|ip| self.bounds.own || !ip.is_loopback())
    }

    /// Whether an address, and the site that it belongs to, have less than this.
    fn has_less(&self, ip: IpAddr, than: impl Fn(&Count, usize) -> bool) -> bool {
        Group::of(ip).all(|group| than(&self.from.get(&group).copied().unwrap_or_default(), group.times()))
    }

    fn may_come(&mut self, ip: IpAddr) -> bool {
        self.coming.allows(&ip) && (ip.is_ipv4() || self.coming_from_sites.allows(&site_of(ip)))
    }

    fn add(&mut self, ip: IpAddr, which: fn(&mut Count) -> &mut usize) {
        Group::of(ip).for_each(|group| *which(self.from.entry(group).or_default()) += 1);
    }

    fn release(&mut self, ip: IpAddr, which: fn(&mut Count) -> &mut usize) {
        for group in Group::of(ip) {
            let Some(count) = self.from.get_mut(&group) else { continue };
            let one = which(count);
            *one = one.saturating_sub(1);
            if count.pending + count.established == 0 {
                self.from.remove(&group);
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
        let PerIpBounds { pending, connections, .. } = self.bounds;
        let space = self
            .has_less(ip, |count, times| count.pending < pending * times && count.established < connections * times);
        if !space || !self.may_come(ip) {
            return Err(ConnectionDenied::new(TooManyConnections(ip)));
        }
        self.add(ip, |count| &mut count.pending);
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
        let most = self.bounds.connections;
        if !self.has_less(ip, |count, times| count.established < most * times) {
            return Err(ConnectionDenied::new(TooManyConnections(ip)));
        }
        self.add(ip, |count| &mut count.established);
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
    use crate::network::limits::PENDING_INCOMING;

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
    fn silent_sockets_of_two_addresses_or_a_site_leave_handshakes_to_others() {
        let mut per_ip = PerIpLimiter::default();
        let from = |number: usize| format!("/ip4/198.51.100.{}/tcp/{number}", number % 2);
        let pending = (0..200).filter(|id| comes(&mut per_ip, *id, &from(*id))).count();
        assert_eq!(pending, 2 * PENDING_PER_IP);
        let of_a_site = |number: usize| format!("/ip6/2001:db8:1:{number:x}::1/tcp/1");
        let pending = (200..900).filter(|id| comes(&mut per_ip, *id, &of_a_site(*id))).count();
        assert_eq!(pending, NETWORKS_PER_SITE as usize * PENDING_PER_IP);
        assert!(6 * PENDING_PER_IP < PENDING_INCOMING as usize);
        assert!(comes(&mut per_ip, 900, "/ip6/2001:db8:2::1/tcp/1"), "the next site");
        (0..=900).for_each(|id| per_ip.close(ConnectionId::new_unchecked(id)));
        assert!(per_ip.from.is_empty() && per_ip.pending.is_empty());
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
