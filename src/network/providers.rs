//! Kademlia: from any one peer to members of any module.

use std::time::Duration;

use libp2p::core::Endpoint;
use libp2p::kad::store::{MemoryStore, MemoryStoreConfig, RecordStore};
use libp2p::kad::{self, Mode, ProviderRecord, RecordKey, StoreInserts};
use libp2p::swarm::{ConnectionId, NetworkBehaviour};
use libp2p::{Multiaddr, PeerId, StreamProtocol};

use super::addresses::usable;
use super::identity::peer_key;
use super::limits::{
    KAD_ADDRESS_BYTES, KAD_ADDRESSES, KAD_FRAME_BYTES, LOOKUP_TIMEOUT, PROVIDED_KEYS, PROVIDERS_PER_KEY,
};
use crate::names::{ModuleId, PeerKey, RunId};

const KAD_PROTOCOL: StreamProtocol = StreamProtocol::new("/pathswarm/kad/1");

/// Kademlia with its records in memory.
pub(super) type Providers = kad::Behaviour<MemoryStore>;

/// Somebody who says that it is a member of a module. Nothing of this is proven: its own signed beats are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Who.
    pub peer: PeerKey,
    /// Where it may be found.
    pub addresses: Vec<Multiaddr>,
}

/// Why this peer is not announced for a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvideError {
    /// Keys are named by the run.
    #[error("no run has been joined, so module {0} has no key yet")]
    NoRun(ModuleId),
    /// No room for another record.
    #[error("module {0} cannot be announced: this peer already keeps records for {PROVIDED_KEYS} modules")]
    TooMany(ModuleId),
    /// The network has stopped.
    #[error("the network has stopped")]
    Stopped,
}

/// Kademlia as this program uses it: a server from the start, since a swarm on one LAN has nobody to confirm an
/// address; provider records alone, no values; announced again every 5 minutes and forgotten after 30, since members
/// come and go by the minute, not by the day.
pub(super) fn providers(local: PeerId) -> Providers {
    let mut config = kad::Config::new(KAD_PROTOCOL);
    config
        .set_max_packet_size(KAD_FRAME_BYTES)
        .set_record_filtering(StoreInserts::FilterBoth)
        .set_query_timeout(LOOKUP_TIMEOUT)
        .set_provider_publication_interval(Some(Duration::from_secs(5 * 60)))
        .set_provider_record_ttl(Some(Duration::from_secs(30 * 60)));
    let store = MemoryStoreConfig {
        max_records: 0,
        max_value_bytes: 0,
        max_providers_per_key: PROVIDERS_PER_KEY,
        max_provided_keys: PROVIDED_KEYS,
    };
    let mut providers = Providers::with_config(local, MemoryStore::with_config(local, store), config);
    providers.set_mode(Some(Mode::Server));
    providers
}

/// Where a module's members are announced.
pub(super) fn module_key(run: RunId, module: ModuleId) -> RecordKey {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&run.0).update(b"module");
    hasher.update(&module.level.to_le_bytes()).update(&module.expert.to_le_bytes());
    RecordKey::new(hasher.finalize().as_bytes())
}

/// Keeps what another peer says it provides, with no more addresses than we would pass on.
pub(super) fn keep(providers: &mut Providers, mut record: ProviderRecord) {
    record.addresses = worth_passing_on(record.addresses, record.provider);
    if let Err(error) = providers.store_mut().add_provider(record) {
        tracing::debug!("provider record not kept: {error}");
    }
}

/// Remembers where a peer listens, and tells others who ask.
pub(super) fn learn(providers: &mut Providers, peer: PeerId, addresses: Vec<Multiaddr>) {
    for address in worth_passing_on(addresses, peer) {
        providers.add_address(&peer, address);
    }
}

fn worth_passing_on(mut addresses: Vec<Multiaddr>, peer: PeerId) -> Vec<Multiaddr> {
    addresses.retain(|address| address.len() <= KAD_ADDRESS_BYTES);
    let mut addresses = usable(addresses, peer);
    addresses.truncate(KAD_ADDRESSES);
    addresses
}

/// A peer that a lookup under way has found. Its addresses are known only while the lookup lasts.
pub(super) fn found(providers: &mut Providers, key: &RecordKey, peer: PeerId) -> Option<Provider> {
    let mut addresses: Vec<Multiaddr> = providers
        .handle_pending_outbound_connection(ConnectionId::new_unchecked(0), Some(peer), &[], Endpoint::Dialer)
        .unwrap_or_default();
    let kept = providers.store_mut().providers(key).into_iter().filter(|record| record.provider == peer);
    addresses.extend(kept.flat_map(|record| record.addresses));
    Some(Provider { peer: peer_key(&peer)?, addresses: usable(addresses, peer) })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut store = providers(PeerId::random());
        let key = module_key(RunId([1; 32]), ModuleId { level: 0, expert: 0 });
        let short = (0..99).map(|port| format!("/ip4/10.0.0.1/tcp/{port}").parse().unwrap());
        let long = format!("/dns4/{}/tcp/1", "x".repeat(KAD_ADDRESS_BYTES)).parse().unwrap();
        let addresses = std::iter::once(long).chain(short).collect();
        keep(&mut store, ProviderRecord::new(key.clone(), PeerId::random(), addresses));
        let kept = store.store_mut().providers(&key);
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].addresses.len(), KAD_ADDRESSES);
        assert!(kept[0].addresses.iter().all(|address| address.len() <= KAD_ADDRESS_BYTES));
    }
}
