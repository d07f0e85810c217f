//! Dials peers: one attempt for each peer, shared by all that wait for it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, NetworkBehaviour};
use libp2p::{Multiaddr, PeerId, Swarm, swarm};

use crate::network::connectivity::addresses::{is_relayed, same_place, usable};
use crate::network::connectivity::dial_error::{DialError, explain};
use crate::network::limits::ADDRESSES_PER_PEER;

/// Who needs a dial, the least first. Where there is not a place for all, the least gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Another peer has named one that is no member.
    Named,
    /// This peer wants something of one that is no member.
    Wanted,
    /// The user's wish, or a member.
    First,
}

/// A peer that cannot be connected.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("no connection to the peer after {:.1} s: {reason}", waited.as_secs_f64())]
pub struct Unreachable {
    /// The addresses that were tried; Kademlia may have added some of its own.
    pub tried: Vec<Multiaddr>,
    pub waited: Duration,
    pub reason: String,
}

pub(crate) enum Failure {
    /// The error of libp2p.
    Swarm(swarm::DialError),
    /// The own limit of dials.
    Busy,
}

/// A failed attempt, and the purposes that waited for it.
pub(crate) struct Failed<P> {
    pub waiting: Vec<P>,
    tried: Vec<Multiaddr>,
    waited: Duration,
    failure: Failure,
}

impl<P> Failed<P> {
    /// There was no place for an attempt, or it has given way to another.
    pub(crate) fn busy(tried: Vec<Multiaddr>, waiting: Vec<P>) -> Self {
        Self { waiting, tried, waited: Duration::ZERO, failure: Failure::Busy }
    }

    /// The error for requests and fetches.
    pub(crate) fn unreachable(&self) -> Unreachable {
        let reason = match (&self.failure, self.tried.first()) {
            (Failure::Busy, _) => "too many connections are being dialled".to_owned(),
            (Failure::Swarm(swarm::DialError::NoAddresses), _) => "no address of the peer is known".to_owned(),
            (Failure::Swarm(error), Some(address)) => explain(error, address, self.waited).to_string(),
            (Failure::Swarm(error), None) => error.to_string(),
        };
        Unreachable { tried: self.tried.clone(), waited: self.waited, reason }
    }

    /// The error for a caller that dialled this address.
    pub(crate) fn dial_error(&self, address: Multiaddr, asked: Instant) -> DialError {
        match &self.failure {
            Failure::Busy => DialError::Busy(address),
            Failure::Swarm(error) => explain(error, &address, asked.elapsed()),
        }
    }
}

struct Attempt<P> {
    connection: ConnectionId,
    began: Instant,
    tried: Vec<Multiaddr>,
    /// Addresses learnt during the attempt, which are tried if it fails.
    next: Vec<Multiaddr>,
    /// Addresses at which other peers answer.
    wrong: Vec<Multiaddr>,
    waiting: Vec<P>,
    beside: Beside,
    priority: Priority,
}

/// Existing connections to the peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A relayed connection, while a direct one is sought.
    ARelay,
}

/// Pending dials, and the purposes of each connection.
pub(crate) struct Connecting<P> {
    attempts: BTreeMap<PeerId, Attempt<P>>,
}

impl<P> Default for Connecting<P> {
    fn default() -> Self {
        Self { attempts: BTreeMap::new() }
    }
}

impl<P> Connecting<P> {
    /// Begins an attempt, or joins the pending one. Must not be called for a connected peer. The caller has made a place.
    pub(crate) fn begin(
        &mut self,
        swarm: &mut Swarm<impl NetworkBehaviour>,
        peer: PeerId,
        addresses: Vec<Multiaddr>,
        purpose: Option<P>,
        priority: Priority,
    ) -> Result<(), Box<Failed<P>>> {
        self.begin_one(swarm, peer, usable(addresses, peer), purpose, (Beside::Nothing, priority))
    }

    /// The same for a direct connection while there is a relayed one.
    pub(crate) fn begin_beside(
        &mut self,
        swarm: &mut Swarm<impl NetworkBehaviour>,
        peer: PeerId,
        addresses: Vec<Multiaddr>,
        priority: Priority,
    ) {
        let mut addresses = usable(addresses, peer);
        addresses.retain(|address| !is_relayed(address));
        if !addresses.is_empty()
            && let Err(failed) = self.begin_one(swarm, peer, addresses, None, (Beside::ARelay, priority))
        {
            tracing::debug!(%peer, error = %failed.unreachable(), "not dialled while a relay is in use");
        }
    }

    /// Pending attempts.
    pub(crate) fn pending(&self) -> usize {
        self.attempts.len()
    }

    /// The attempt that gives way to one of this priority: the oldest of the least.
    pub(crate) fn gives_way_to(&self, priority: Priority) -> Option<(Priority, PeerId)> {
        let lower = self.attempts.iter().filter(|(_, attempt)| attempt.priority < priority);
        let first = lower.min_by_key(|(_, attempt)| (attempt.priority, attempt.began));
        first.map(|(peer, attempt)| (attempt.priority, *peer))
    }

    /// Ends an attempt, if there is one.
    pub(crate) fn abandon(&mut self, swarm: &mut Swarm<impl NetworkBehaviour>, peer: &PeerId) -> Option<Failed<P>> {
        let Attempt { tried, waiting, beside, .. } = self.attempts.remove(peer)?;
        if beside == Beside::Nothing {
            // There is no connection to end, but the dial.
            let _ = swarm.disconnect_peer_id(*peer);
        }
        Some(Failed::busy(tried, waiting))
    }

    /// Whether an attempt is pending.
    pub(crate) fn is_dialling(&self, peer: &PeerId) -> bool {
        self.attempts.contains_key(peer)
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    fn begin_one(
        &mut self,
        swarm: &mut Swarm<impl NetworkBehaviour>,
        peer: PeerId,
        mut addresses: Vec<Multiaddr>,
        purpose: Option<P>,
        (beside, priority): (Beside, Priority),
    ) -> Result<(), Box<Failed<P>>> {
        if let Some(attempt) = self.attempts.get_mut(&peer) {
            addresses.retain(|address| !attempt.tried.contains(address) && !attempt.next.contains(address));
            attempt.next.extend(addresses);
            attempt.next.truncate(ADDRESSES_PER_PEER);
            attempt.waiting.extend(purpose);
            attempt.priority = attempt.priority.max(priority);
            return Ok(());
        }
        match dial(swarm, peer, addresses.clone(), Known::Too, beside) {
            Ok(connection) => {
                let waiting = purpose.into_iter().collect();
                let attempt = Attempt {
                    connection,
                    began: Instant::now(),
                    tried: addresses,
                    next: Vec::new(),
                    wrong: Vec::new(),
                    waiting,
                    beside,
                    priority,
                };
                self.attempts.insert(peer, attempt);
                Ok(())
            }
            Err(error) => {
                let waiting = purpose.into_iter().collect();
                let failure = Failure::Swarm(error);
                Err(Box::new(Failed { waiting, tried: addresses, waited: Duration::ZERO, failure }))
            }
        }
    }

    /// A peer has connected, dialled by either side. Returns the purposes that waited for it.
    pub(crate) fn connected(&mut self, peer: PeerId) -> Vec<P> {
        self.attempts.remove(&peer).map(|attempt| attempt.waiting).unwrap_or_default()
    }

    /// A dial has failed. `None` if it was not ours, or if there are more addresses to try.
    pub(crate) fn failed(
        &mut self,
        swarm: &mut Swarm<impl NetworkBehaviour>,
        peer: PeerId,
        connection: ConnectionId,
        error: swarm::DialError,
    ) -> Option<Failed<P>> {
        let attempt = self.attempts.get_mut(&peer).filter(|attempt| attempt.connection == connection)?;
        let mut error = error;
        let mut next = std::mem::take(&mut attempt.next);
        attempt.tried.extend(next.iter().cloned());
        // libp2p gives up on all addresses when another peer answers at one of them, so the rest are dialled again.
        if let swarm::DialError::WrongPeerId { address, .. } = &error {
            attempt.wrong.push(address.clone());
            next = attempt.tried.clone();
            next.retain(|tried| !attempt.wrong.iter().any(|wrong| same_place(tried, wrong)));
        }
        if !next.is_empty() && attempt.wrong.len() <= ADDRESSES_PER_PEER {
            match dial(swarm, peer, next, Known::No, attempt.beside) {
                Ok(connection) => {
                    attempt.connection = connection;
                    return None;
                }
                Err(second) => error = second,
            }
        }
        let Attempt { began, tried, waiting, .. } = self.attempts.remove(&peer)?;
        Some(Failed { waiting, tried, waited: began.elapsed(), failure: Failure::Swarm(error) })
    }
}

/// Whether addresses from Kademlia and mDNS are tried as well.
#[derive(PartialEq, Eq)]
enum Known {
    Too,
    No,
}

/// Dials even if Kademlia is dialling the same peer at other addresses. Uses a new port: libp2p would otherwise dial
/// from the listening port, which only helps hole punching, and fails on a quick reconnect.
fn dial(
    swarm: &mut Swarm<impl NetworkBehaviour>,
    peer: PeerId,
    addresses: Vec<Multiaddr>,
    known: Known,
    beside: Beside,
) -> Result<ConnectionId, swarm::DialError> {
    let condition = match beside {
        Beside::Nothing => PeerCondition::Disconnected,
        Beside::ARelay => PeerCondition::Always,
    };
    let mut options = DialOpts::peer_id(peer).condition(condition).addresses(addresses).allocate_new_port();
    if known == Known::Too && beside == Beside::Nothing {
        options = options.extend_addresses_through_behaviour();
    }
    let options = options.build();
    let connection = options.connection_id();
    swarm.dial(options)?;
    Ok(connection)
}
