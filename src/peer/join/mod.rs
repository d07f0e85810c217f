//! Joining with one known address: the manifest, and the blobs that every peer of the run stores.

pub(super) mod authentication;

use std::path::PathBuf;
use std::time::Duration;

use crate::access::authentication::{AuthenticationRequest, AuthenticationResponse};
use crate::names::{BlobRef, PeerKey, RunId};
use crate::network::limits::PUNCHING_PAUSE;
use crate::network::{
    DialError, FetchError, Multiaddr, NetworkEvent, NetworkEvents, NetworkHandle, RequestError, is_relayed,
};
use crate::peer::join::authentication::authenticate;
use crate::peer::manifest::{Manifest, ManifestError};
use crate::protocol::wire::amended::Amended;
use crate::protocol::wire::encoding;
use crate::protocol::{Request, Response};
use crate::sizes::in_words;

/// Attempts for a blob before joining fails.
const ATTEMPTS: usize = 5;

/// Time between two of them.
const PAUSE: Duration = Duration::from_millis(500);

/// How often a newcomer begins anew with hole punching that has failed: on a busy machine, it may only have been too slow.
const PUNCHES: u32 = 2;

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("{address} was reached but did not answer: {reason}")]
    NoAnswer { address: String, reason: String },
    #[error("{address} sent no manifest: {reason}")]
    Refused { address: String, reason: String },
    #[error("{address}: {reason}; this peer's key is {me}")]
    NotInvited { address: String, reason: String, me: PeerKey },
    #[error("the invitation is for peer {wanted}, but this is peer {me}")]
    NotForMe { wanted: PeerKey, me: PeerKey },
    /// A one-time invitation can be redeemed only by its maker, which is not at the address.
    #[error(
        "the one-time invitation must be redeemed by peer {maker}, which made it, but no address of that peer is known"
    )]
    MakerUnknown { maker: PeerKey },
    #[error("{address}: {source}")]
    Manifest { address: String, source: ManifestError },
    #[error("{address} answers for run {found}, but this folder holds run {expected}; use another --dir")]
    OtherRun { address: String, found: RunId, expected: RunId },
    #[error(
        "{reason}; run {run} in {} has never had a peer at {address}", folder.display()
    )]
    NotKnown { address: String, reason: String, run: RunId, folder: PathBuf },
    #[error(
        "the run takes about {} on the disk, this machine gives {} (disk_bytes = {disk_bytes})",
        in_words(*needs_bytes),
        in_words(*disk_bytes)
    )]
    TooLarge { needs_bytes: u64, disk_bytes: u64 },
    #[error(transparent)]
    Disk(std::io::Error),
    #[error("{what} could not be fetched from {from}: {reason}")]
    Blob { what: &'static str, from: String, reason: String },
}

/// Asks the peer at an address for the run's manifest, after authentication.
pub async fn fetch_manifest(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    address: &Multiaddr,
    shown: Option<&AuthenticationRequest>,
) -> Result<(PeerKey, Vec<u8>, Manifest, RunId), JoinError> {
    if let Some(shown) = shown {
        authenticate(network, events, address, shown).await?;
    }
    let bytes = encoding::encode(&Request::Manifest).map_err(|error| refused(address, error))?;
    let (peer, answer) = ask(network, events, address, bytes).await?;
    if let Ok(AuthenticationResponse::NotInvited(reason)) = encoding::decode(&answer) {
        return Err(JoinError::NotInvited { address: address.to_string(), reason, me: network.me() });
    }
    match encoding::decode::<Response>(&answer).map_err(|error| refused(address, error))? {
        Response::Manifest(bytes) => {
            let manifest = |source| JoinError::Manifest { address: address.to_string(), source };
            let (decoded, run) = Manifest::decode(&bytes).map_err(manifest)?;
            Ok((peer, bytes, decoded, run))
        }
        Response::Refused(reason) => Err(refused(address, reason)),
        _ => Err(refused(address, "it sent an unexpected answer")),
    }
}

/// What the peer at an address says of an amendment of its run; nothing if it knows of none, or does not answer.
pub(crate) async fn ask_for_amendment(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    address: &Multiaddr,
) -> Option<Amended> {
    let bytes = encoding::encode(&Request::Directory { start: None }).ok()?;
    let (peer, answer) = ask(network, events, address, bytes).await.ok()?;
    amendment_of(peer, &encoding::decode(&answer).ok()?)
}

/// What a peer says of an amendment in its answer about the peers that it knows: its own word alone.
pub(crate) fn amendment_of(peer: PeerKey, answer: &Response) -> Option<Amended> {
    let Response::Directory(entries) = answer else { return None };
    let own = entries.iter().find(|entry| entry.peer == peer)?;
    Amended::of_leases(&own.leases)
}

/// The response of the peer at an address to these bytes.
pub(crate) async fn ask(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    address: &Multiaddr,
    bytes: Vec<u8>,
) -> Result<(PeerKey, Vec<u8>), JoinError> {
    let mut attempts = if is_relayed(address) { RELAYED_ATTEMPTS } else { 1 };
    loop {
        let peer = match network.dial(address.clone()).await {
            Ok(peer) => peer,
            Err(DialError::Failed { reason, .. }) if attempts > 1 => {
                tracing::info!(reason, "the connection broke before the peer was identified: trying again");
                attempts -= 1;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        network.request(0, peer, vec![address.clone()], bytes.clone()).map_err(|error| no_answer(address, error))?;
        attempts -= 1;
        match answer_to(events).await {
            Some(Ok(answer)) => return Ok((peer, answer)),
            Some(Err(RequestError::Closed | RequestError::Unreachable(_))) if attempts > 0 => {}
            Some(Err(error)) => return Err(no_answer(address, error)),
            None => return Err(no_answer(address, "the network has stopped")),
        }
    }
}

/// Attempts of a request through a relay: after hole punching, the relayed connection is closed, even during a request, and
/// while it is punched, connections break.
/// Requests of newcomers may be repeated.
const RELAYED_ATTEMPTS: u32 = 5;

async fn answer_to(events: &mut NetworkEvents) -> Option<Result<Vec<u8>, RequestError>> {
    loop {
        if let NetworkEvent::Response { id: 0, result, .. } = events.next().await? {
            return Some(result);
        }
    }
}

fn no_answer(address: &Multiaddr, reason: impl ToString) -> JoinError {
    JoinError::NoAnswer { address: address.to_string(), reason: reason.to_string() }
}

fn refused(address: &Multiaddr, reason: impl ToString) -> JoinError {
    JoinError::Refused { address: address.to_string(), reason: reason.to_string() }
}

/// Fetches a blob into the store.
pub async fn fetch_blob(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    blob: BlobRef,
    what: &'static str,
    from: (PeerKey, &Multiaddr),
) -> Result<(), JoinError> {
    fetch(network, events, (blob, what), &[(from.0, vec![from.1.clone()])], 0).await
}

/// The same for a newcomer, which does not give up when hole punching has failed once: some minutes at most.
pub async fn fetch_part(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    blob: BlobRef,
    what: &'static str,
    from: (PeerKey, &Multiaddr),
) -> Result<(), JoinError> {
    fetch(network, events, (blob, what), &[(from.0, vec![from.1.clone()])], PUNCHES).await
}

/// The same from several peers, of which some may be gone.
pub async fn fetch_from_any(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    blob: BlobRef,
    what: &'static str,
    from: &[(PeerKey, Vec<Multiaddr>)],
) -> Result<(), JoinError> {
    fetch(network, events, (blob, what), from, 0).await
}

async fn fetch(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    (blob, what): (BlobRef, &'static str),
    donors: &[(PeerKey, Vec<Multiaddr>)],
    mut punches: u32,
) -> Result<(), JoinError> {
    let addresses = || donors.iter().flat_map(|(_, addresses)| addresses).map(Multiaddr::to_string);
    let from = || addresses().collect::<Vec<_>>().join(", ");
    let mut reason = String::new();
    let (mut id, mut attempts) = (0, 0);
    while attempts < ATTEMPTS {
        if id > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        id += 1;
        attempts += 1;
        if let Err(error) = network.fetch(id, blob, donors.to_vec()) {
            reason = error.to_string();
            continue;
        }
        let result = loop {
            match events.next().await {
                Some(NetworkEvent::Fetched { id: fetched, result, .. }) if fetched == id => break result,
                Some(_) => {}
                None => {
                    return Err(JoinError::Blob { what, from: from(), reason: "the network has stopped".to_owned() });
                }
            }
        };
        match result {
            Ok(()) => return Ok(()),
            Err(FetchError::Storage { kind, reason }) => {
                return Err(JoinError::Disk(std::io::Error::new(kind, reason)));
            }
            Err(error @ FetchError::OnlyRelayed { .. }) if punches > 0 => {
                tracing::info!(%error, seconds = PUNCHING_PAUSE.as_secs(), "trying again after a pause");
                punches -= 1;
                attempts = 0;
                punch_again(network, events, donors).await;
            }
            Err(error) => reason = error.to_string(),
        }
    }
    Err(JoinError::Blob { what, from: from(), reason })
}

/// A hole is punched once for each relayed connection. So ends these, and waits until fetches wait for the next.
async fn punch_again(network: &NetworkHandle, events: &mut NetworkEvents, donors: &[(PeerKey, Vec<Multiaddr>)]) {
    for (peer, _) in donors {
        // A peer that is too busy to hear this is asked again beside the old connection.
        let _ = network.disconnect(*peer);
    }
    let pause = tokio::time::sleep(PUNCHING_PAUSE);
    tokio::pin!(pause);
    loop {
        tokio::select! {
            () = &mut pause => return,
            event = events.next() => if event.is_none() {
                return;
            },
        }
    }
}

/// The blobs that every peer of a run stores, with their names. Those that list others come first.
pub fn parts(manifest: &Manifest) -> Vec<(BlobRef, &'static str)> {
    let parts = [
        (manifest.shards.table, "the shard table"),
        (manifest.tokenizer, "the tokenizer"),
        (manifest.router, "the router"),
        (manifest.shard_index, "the shard index"),
        (manifest.test_routes, "the routes of the test text"),
        (manifest.ancestor, "the ancestor"),
    ];
    let atlas = manifest.resharding.map(|parts| (parts.atlas, "the atlas"));
    parts.into_iter().chain(atlas).collect()
}
