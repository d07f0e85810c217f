//! The ancestor of a run of adapters, of which every path reads the frozen part. If the disk has damaged or lost it, it is
//! fetched again before the peer starts.

use crate::names::PeerKey;
use crate::network::Multiaddr;
use crate::peer::join::authentication::Authentication;
use crate::peer::join::fetch_from_any;
use crate::peer::manifest::Manifest;
use crate::store::{BlobError, LockedStore};

/// A peer with its addresses.
type Donor = (PeerKey, Vec<Multiaddr>);

/// Peers that are asked.
const MOST_DONORS: usize = 8;

/// Fetches the ancestor from peers that this one knows, if the run needs it and it is not whole here. What every peer has
/// lost is missed by whoever reads it, which says what to do.
///
/// # Errors
/// If the disk fails.
pub(super) async fn make_whole(
    again: &mut Authentication<'_>,
    manifest: &Manifest,
    store: &LockedStore,
    contacts: &[Donor],
) -> anyhow::Result<()> {
    if manifest.config.frozen().is_none() {
        return Ok(());
    }
    let (blobs, ancestor) = (store.blobs.clone(), manifest.ancestor);
    match tokio::task::spawn_blocking(move || blobs.get(ancestor.hash, ancestor.bytes)).await? {
        Ok(Some(_)) => return Ok(()),
        Ok(None) | Err(BlobError::Rotten { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let parsed = |addresses: Vec<String>| addresses.iter().filter_map(|address| address.parse().ok()).collect();
    let known = store.peers()?.into_iter().map(|(peer, addresses)| (peer, parsed(addresses)));
    let all = contacts.iter().cloned().chain(known).filter(|(_, addresses): &Donor| !addresses.is_empty());
    let mut donors: Vec<Donor> = Vec::new();
    for (peer, addresses) in all.take(MOST_DONORS) {
        // In a run by invitation, a peer gives nothing to a stranger.
        if !donors.iter().any(|(other, _)| *other == peer) && admits(again, &addresses).await {
            donors.push((peer, addresses));
        }
    }
    tracing::warn!(peers = donors.len(), "the ancestor is damaged or missing on the disk: it is fetched again");
    if donors.is_empty() {
        return Ok(());
    }
    let what = "the ancestor";
    let fetched = fetch_from_any(again.network, again.events, ancestor, what, &donors).await;
    if let Err(error) = fetched {
        tracing::error!(%error, "the ancestor was not fetched");
    }
    Ok(())
}

async fn admits(again: &mut Authentication<'_>, addresses: &[Multiaddr]) -> bool {
    for address in addresses {
        if again.enter(address, None).await.is_ok() {
            return true;
        }
    }
    false
}
