//! Kademlia: finds members of any module from any one peer.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use libp2p::core::Endpoint;
use libp2p::kad::store::{MemoryStore, MemoryStoreConfig, RecordStore};
use libp2p::kad::{self, Mode, ProviderRecord, RecordKey, StoreInserts};
use libp2p::swarm::{ConnectionId, NetworkBehaviour};
use libp2p::{Multiaddr, PeerId, StreamProtocol};

use crate::names::{ModuleId, PeerKey, RunId};
use crate::network::connectivity::address_scope::Scope;
use crate::network::connectivity::addresses::usable;
use crate::network::connectivity::scoped::Scoped;
use crate::network::identity::peer_key;
use crate::network::limits::{
    KAD_ADDRESS_BYTES, KAD_ADDRESSES, KAD_FRAME_BYTES, LOOKUP_TIMEOUT, PROVIDER_RECORDS, PROVIDERS_PER_KEY,
    TOPICS_PER_PEER,
};

const KAD_PROTOCOL: StreamProtocol = StreamProtocol::new("/pathswarm/kad/1");

/// Time after which a record expires unless it is announced again.
const RECORD_TTL: Duration = Duration::from_secs(30 * 60);

/// BLAKE3.
const KEY_BYTES: usize = 32;

/// Kademlia with its records in memory.
pub(crate) type Providers = kad::Behaviour<MemoryStore>;

/// A peer that claims to be a member of a module. Only its own signed heartbeats prove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    pub peer: PeerKey,
    pub addresses: Vec<Multiaddr>,
}

/// Kademlia for this program. It is a server from the start, since on a LAN no peer confirms an address. It stores only
/// provider records, which are announced every 5 minutes and expire after 30, since members come and go by the minute.
pub(crate) fn providers(local: PeerId) -> Providers {
    let mut config = kad::Config::new(KAD_PROTOCOL);
    config
        .set_max_packet_size(KAD_FRAME_BYTES)
        .set_record_filtering(StoreInserts::FilterBoth)
        .set_query_timeout(LOOKUP_TIMEOUT)
        .set_periodic_bootstrap_interval(Some(Duration::from_secs(15 * 60)))
        .set_provider_publication_interval(Some(Duration::from_secs(5 * 60)))
        .set_provider_record_ttl(Some(RECORD_TTL));
    let store = MemoryStoreConfig {
        max_records: 0,
        max_value_bytes: 0,
        max_providers_per_key: PROVIDERS_PER_KEY,
        // Never reached: `ProviderRecords` counts the records of others, and the actor our own.
        max_provided_keys: PROVIDER_RECORDS + TOPICS_PER_PEER,
    };
    let mut providers = Providers::with_config(local, MemoryStore::with_config(local, store), config);
    providers.set_mode(Some(Mode::Server));
    providers
}

/// The key under which a module's members are announced.
pub(crate) fn module_key(run: RunId, module: ModuleId) -> RecordKey {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&run.0).update(b"module");
    hasher.update(&module.level.to_le_bytes()).update(&module.expert.to_le_bytes());
    RecordKey::new(hasher.finalize().as_bytes())
}

/// The records that other peers announced to this one, oldest first. libp2p's store is bounded, but records that no one
/// requests do not expire: a peer that announces many modules would fill it for good and prevent our own announcements.
#[derive(Default)]
pub(crate) struct ProviderRecords {
    next: u64,
    by_age: BTreeMap<u64, (RecordKey, PeerId, Instant)>,
    ages: HashMap<(RecordKey, PeerId), u64>,
}

impl ProviderRecords {
    /// Keeps a provider record of another peer, with as many addresses as this peer would pass on.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(crate) fn keep(&mut self, providers: &mut Scoped<Providers>, mut record: ProviderRecord) {
        let name = (record.key.clone(), record.provider);
        let known = self.ages.remove(&name).and_then(|age| self.by_age.remove(&age)).is_some();
        let of_this_peer = self.by_age.values().filter(|(_, peer, _)| *peer == record.provider).count();
        if record.key.as_ref().len() != KEY_BYTES || (!known && of_this_peer >= TOPICS_PER_PEER) {
            tracing::debug!(peer = %record.provider, "a provider record that no member would send");
            return;
        }
        self.evict(providers);
        self.by_age.insert(self.next, (name.0.clone(), name.1, Instant::now()));
        self.ages.insert(name, self.next);
        self.next += 1;
        let scope = providers.scope_of(&record.provider);
        record.addresses = bounded_addresses(record.addresses, record.provider, scope);
        if let Err(error) = providers.store_mut().add_provider(record) {
            tracing::debug!("provider record not kept: {error}");
        }
    }

    /// Removes expired records, and the oldest one if space is needed.
    fn evict(&mut self, providers: &mut Scoped<Providers>) {
        while let Some((_, (_, _, announced))) = self.by_age.first_key_value() {
            if announced.elapsed() < RECORD_TTL && self.by_age.len() < PROVIDER_RECORDS {
                break;
            }
            if let Some((_, (key, peer, _))) = self.by_age.pop_first() {
                providers.store_mut().remove_provider(&key, &peer);
                self.ages.remove(&(key, peer));
            }
        }
    }
}

/// Remembers a peer's addresses, as far as it may name them, for peers that ask.
pub(crate) fn learn(providers: &mut Scoped<Providers>, peer: PeerId, addresses: Vec<Multiaddr>) {
    for address in bounded_addresses(addresses, peer, providers.scope_of(&peer)) {
        providers.add_address(&peer, address);
    }
}

fn bounded_addresses(mut addresses: Vec<Multiaddr>, peer: PeerId, scope: Scope) -> Vec<Multiaddr> {
    addresses.retain(|address| address.len() <= KAD_ADDRESS_BYTES && scope.may_name(address));
    let mut addresses = usable(addresses, peer);
    addresses.truncate(KAD_ADDRESSES);
    addresses
}

/// A peer found by a running lookup. Its addresses are known only during the lookup.
pub(crate) fn provider_of(providers: &mut Scoped<Providers>, key: &RecordKey, peer: PeerId) -> Option<Provider> {
    let mut addresses: Vec<Multiaddr> = providers
        .handle_pending_outbound_connection(ConnectionId::new_unchecked(0), Some(peer), &[], Endpoint::Dialer)
        .unwrap_or_default();
    let records = providers.store_mut().providers(key).into_iter().filter(|record| record.provider == peer);
    addresses.extend(records.flat_map(|record| record.addresses));
    Some(Provider { peer: peer_key(&peer)?, addresses: usable(addresses, peer) })
}

#[cfg(test)]
mod tests {
    use libp2p::core::ConnectedPoint;
    use libp2p::swarm::FromSwarm;
    use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished};

    use super::*;
    use crate::network::identity::{Identity, peer_id};

    #[test]
    fn every_module_of_every_run_has_its_own_key() {
        let module = |level, expert| ModuleId { level, expert };
        let key = module_key(RunId([1; 32]), module(1, 2));
        assert_eq!(key, module_key(RunId([1; 32]), module(1, 2)));
        assert_ne!(key, module_key(RunId([2; 32]), module(1, 2)));
        assert_ne!(key, module_key(RunId([1; 32]), module(2, 1)));
    }

    #[test]
    fn a_provider_cannot_fill_our_memory_with_addresses() {
        let mut store = Scoped::new(providers(PeerId::random()));
        let key = module_key(RunId([1; 32]), ModuleId { level: 0, expert: 0 });
        let short = (0..99).map(|port| format!("/ip4/10.0.0.1/tcp/{port}").parse().unwrap());
        let long = format!("/dns4/{}/tcp/1", "x".repeat(KAD_ADDRESS_BYTES)).parse().unwrap();
        let addresses = std::iter::once(long).chain(short).collect();
        ProviderRecords::default().keep(&mut store, ProviderRecord::new(key.clone(), PeerId::random(), addresses));
        let records = store.store_mut().providers(&key);
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].addresses.len(), KAD_ADDRESSES);
        assert!(records[0].addresses.iter().all(|address| address.len() <= KAD_ADDRESS_BYTES));
    }

    #[test]
    fn what_others_say_of_a_neighbour_that_has_gone_is_not_taken_for_its_own_word() {
        let [neighbour, informant] = [(); 2].map(|()| Identity::generate().key()).map(|key| peer_id(key).unwrap());
        let mut store = Scoped::new(providers(PeerId::random()));
        let ends = ["/ip4/192.168.1.7/tcp/9", "/ip4/198.51.100.1/tcp/9"].map(|from| ConnectedPoint::Listener {
            local_addr: "/ip4/192.0.2.1/tcp/1".parse().unwrap(),
            send_back_addr: from.parse().unwrap(),
        });
        for (number, (peer_id, endpoint)) in [neighbour, informant].into_iter().zip(&ends).enumerate() {
            store.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id,
                connection_id: ConnectionId::new_unchecked(number),
                endpoint,
                failed_addresses: &[],
                other_established: 0,
            }));
        }
        for address in ["/ip4/192.168.1.1/tcp/80", "/ip4/203.0.113.7/tcp/4001"] {
            store.add_address(&neighbour, address.parse().unwrap());
        }
        let key = module_key(RunId([1; 32]), ModuleId { level: 0, expert: 0 });
        let found = |store: &mut Scoped<Providers>| provider_of(store, &key, neighbour).unwrap().addresses.len();
        assert_eq!(found(&mut store), 2, "as long as it is there");
        store.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed {
            peer_id: neighbour,
            connection_id: ConnectionId::new_unchecked(0),
            endpoint: &ends[0],
            cause: None,
            remaining_established: 0,
        }));
        assert_eq!(found(&mut store), 1);
        assert_eq!(store.scope_of(&neighbour), Scope::Lan, "what it has signed itself may still come");
    }

    #[test]
    fn a_peer_that_announces_everything_keeps_nobody_else_out() {
        let mut store = Scoped::new(providers(PeerId::random()));
        let mut records = ProviderRecords::default();
        let key = |expert| module_key(RunId([1; 32]), ModuleId { level: 0, expert });
        let greedy = PeerId::random();
        for expert in 0..1000 {
            records.keep(&mut store, ProviderRecord::new(key(expert), greedy, vec![]));
        }
        assert_eq!(records.by_age.len(), TOPICS_PER_PEER);
        records.keep(&mut store, ProviderRecord::new(key(0), greedy, vec![]));
        assert_eq!(records.by_age.len(), TOPICS_PER_PEER, "announced again");
        records.keep(&mut store, ProviderRecord::new(RecordKey::new(&[0; 99]), PeerId::random(), vec![]));
        assert_eq!(records.by_age.len(), TOPICS_PER_PEER, "not a module's key");

        for expert in 0..PROVIDER_RECORDS as u32 {
            records.keep(&mut store, ProviderRecord::new(key(expert), PeerId::random(), vec![]));
        }
        assert_eq!((records.by_age.len(), records.ages.len()), (PROVIDER_RECORDS, PROVIDER_RECORDS));
        assert!(store.store_mut().providers(&key(0)).iter().all(|record| record.provider != greedy), "oldest first");
        assert!(store.start_providing(key(5000)).is_ok(), "our own always find room");
    }
}
