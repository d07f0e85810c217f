//! Responses to requests of other peers.

use crate::network::{NetworkHandle, RequestToken};
use crate::protocol::Response;
use crate::protocol::wire::encoding;
use crate::protocol::wire::encoding::Framed;

/// Answers a request. Never waits.
pub(crate) fn respond<T: Framed>(network: &NetworkHandle, token: RequestToken, response: &T) {
    let bytes = encoding::encode(response).or_else(|error| encoding::encode(&Response::Refused(error.to_string())));
    let sent = bytes.map(|bytes| network.respond(token, bytes));
    if !matches!(sent, Ok(Ok(()))) {
        tracing::warn!("a request could not be answered");
    }
}
