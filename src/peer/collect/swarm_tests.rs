//! Tests of collecting from real peers on loopback.

use std::path::Path;
use std::sync::Arc;

use crate::names::PathId;
use crate::network::Multiaddr;
use crate::peer::collect::*;
use crate::peer::folder::store_folder;
use crate::peer::tests::tiny_run::Tiny;
use crate::peer::{Collected, PeerEvent};
use crate::protocol::Record;
use crate::protocol::wire::encoding;
use crate::store::StoreFolder;

async fn collect(address: &Multiaddr, target: &Path) -> Result<crate::peer::collected::writing::Summary, CollectError> {
    collect_from_swarm(std::slice::from_ref(address), target, &mut |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_running_peer_gives_is_what_its_store_holds_afterwards() {
    let tiny = Tiny::create(true);
    let folder = tiny.peer("creator", &[]);
    let (peer, network, address, mut news) = tiny.start(folder.clone(), true, &Arc::default()).await;
    let mut scored = std::collections::BTreeSet::new();
    while scored.len() < 2 {
        if let PeerEvent::Scored { path, .. } = news.recv().await.unwrap() {
            scored.insert(path);
        }
    }
    assert_eq!(scored, [PathId(0), PathId(1)].into());
    let status = peer.handle().status_with_hashes().await.unwrap();
    let target = tiny.home.path().join("all");
    let over_the_network = collect(&address, &target).await.unwrap();
    assert_eq!((over_the_network.run, over_the_network.versions()), (tiny.run, (2, 2)));
    for (module, about) in &over_the_network.modules {
        assert_eq!(about.parameter_hash.to_string(), status.parameter_hashes[module]);
    }
    assert!(over_the_network.paths_without_text.is_empty());
    Collected::open(&target).unwrap();
    drop(network);
    peer.stop().await.unwrap();

    let again = collect_from_stores(&tiny.manifest, &[folder], &target).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), serde_json::to_value(&over_the_network).unwrap());
    let collected = Collected::open(&target).unwrap();
    collected.levels_of(PathId(1)).unwrap();

    let error = collect(&address, &target).await.unwrap_err().to_string();
    assert!(error.contains("/ip4/127.0.0.1/tcp/"), "{error}");
    Collected::open(&target).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_no_reachable_peer_holds_is_named() {
    let tiny = Tiny::create(false);
    let folder = tiny.peer("alone", &[("0.0", 0), ("1.0", 0)]);
    let mut store = StoreFolder::open(&store_folder(&folder), tiny.run).unwrap();
    let lease = Record::Lease { path: PathId(0), held: true, standby: false };
    store.journal.append(&encoding::encode(&lease).unwrap()).unwrap();
    drop(store);
    let (peer, _network, address, _news) = tiny.start(folder, false, &Arc::default()).await;
    let target = tiny.home.path().join("all");
    let error = collect(&address, &target).await.unwrap_err().to_string();
    assert!(error.contains("no reachable peer holds module 0.1; asked 1 peers"), "{error}");
    assert!(!target.exists() && !tiny.home.path().join(".all.unfinished").exists());
    peer.stop().await.unwrap();
}
