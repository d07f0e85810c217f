//! Signatures of updates and starts, verified before they are trusted, whatever their source.

use crate::names::PeerKey;
use crate::protocol::wire::encoding;
use crate::protocol::wire::message::Start;
use crate::protocol::{Response, SignedUpdate};

/// Whether the owner of an update has signed it.
pub(in crate::peer) fn signature_holds(signed: &SignedUpdate) -> bool {
    encoding::encode(&signed.update)
        .is_ok_and(|bytes| crate::network::verify(signed.update.owner, &bytes, &signed.signature))
}

/// Whether a peer has signed this start.
pub(in crate::peer) fn start_holds(peer: PeerKey, start: &Start) -> bool {
    let signed = Start::signed_bytes(peer, start.incarnation, start.nonce);
    crate::network::verify(peer, &signed, &start.signature)
}

/// Whether every update in a response is signed by its owner.
pub(in crate::peer) fn signatures_hold(response: &Response) -> bool {
    match response {
        Response::Replay(updates) => updates.iter().all(signature_holds),
        Response::Snapshot(updates) => updates.iter().all(signature_holds),
        Response::Manifest(_) | Response::Directory(_) | Response::Refused(_) => true,
        Response::Path(_) | Response::QueryResult(_) | Response::Status(_) => true,
    }
}
