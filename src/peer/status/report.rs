//! The status of a peer as it tells other peers and their visitors: without what concerns its machine alone, as
//! compressed JSON that fits into one response.

use std::collections::BTreeSet;
use std::io::{self, Read};

use crate::peer::status::PeerStatus;
use crate::protocol::limits::MAX_CONTROL_BYTES;
use crate::protocol::status::waiting::Waiting;

/// Limit of the compressed status: the rest of the response has a few bytes.
const MAX_BYTES: usize = MAX_CONTROL_BYTES - 64;

/// Limit of its JSON: a forged response must not make the receiver allocate more.
const MAX_JSON_BYTES: u64 = 8 << 20;

/// Fast: a peer compresses its status once a second at most.
const LEVEL: i32 = 3;

/// Why a status cannot be sent, or what was received is none.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("the status cannot be written: {0}")]
    Write(#[source] serde_json::Error),
    #[error("it is no status: {0}")]
    Read(#[source] serde_json::Error),
    #[error("it is not compressed as a status is: {0}")]
    Compression(#[from] io::Error),
    #[error("it has more than {MAX_JSON_BYTES} bytes")]
    Size,
}

/// What others are told of a status, compressed. Of a swarm whose members do not fit, some are left out.
pub fn encode(mut status: PeerStatus) -> Result<Vec<u8>, ReportError> {
    leave_out_private(&mut status);
    loop {
        let json = serde_json::to_vec(&status).map_err(ReportError::Write)?;
        let bytes = zstd::bulk::compress(&json, LEVEL)?;
        let most = status.node.members.len() / 2;
        if bytes.len() <= MAX_BYTES || status.node.members.is_empty() {
            return Ok(bytes);
        }
        keep_members(&mut status, most);
    }
}

/// # Errors
/// If the bytes are not a compressed status, or too long.
pub fn decode(bytes: &[u8]) -> Result<PeerStatus, ReportError> {
    let mut json = Vec::new();
    zstd::stream::read::Decoder::new(bytes)?.take(MAX_JSON_BYTES + 1).read_to_end(&mut json)?;
    if json.len() as u64 > MAX_JSON_BYTES {
        return Err(ReportError::Size);
    }
    serde_json::from_slice(&json).map_err(ReportError::Read)
}

/// Bans name third parties, and tables, the disk and its errors are the machine's own.
fn leave_out_private(status: &mut PeerStatus) {
    status.bans.clear();
    status.invited = None;
    status.activity.queues.clear();
    status.activity.disk_bytes = 0;
    let node = &mut status.node;
    let waits = node.paths.iter_mut().map(|path| &mut path.waits_for).chain([&mut node.waits_for]);
    for reason in waits.flatten().filter_map(|waiting| match waiting {
        Waiting::Disk { reason } => Some(reason),
        _ => None,
    }) {
        *reason = "its log says why".to_owned();
    }
}

fn keep_members(status: &mut PeerStatus, most: usize) {
    let node = &mut status.node;
    let kept: BTreeSet<String> = node.members.keys().take(most).map(ToString::to_string).collect();
    node.members.retain(|peer, _| kept.contains(&peer.to_string()));
    node.peers.retain(|peer| kept.contains(peer));
    node.peer_scores.retain(|score| score.quarantined || kept.contains(&score.peer.to_string()));
    node.peer_scores.truncate(most);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobHash, PeerKey};
    use crate::protocol::status::MemberStatus;
    use crate::protocol::status::PathStatus;

    fn status(members: usize) -> PeerStatus {
        let mut status = PeerStatus { name: "friends".to_owned(), ..PeerStatus::default() };
        for number in 0..members {
            let key = PeerKey(BlobHash::of(&number.to_le_bytes()).0);
            let modules = [("0.0".to_owned(), Some(7)), ("1.3".to_owned(), Some(7))].into();
            let member = MemberStatus { modules, steps_per_1000_s: 4_000, ..MemberStatus::default() };
            status.node.members.insert(key, member);
            status.node.peers.push(key.to_string());
        }
        status
    }

    #[test]
    fn a_thousand_members_fit_into_one_response() {
        let told = decode(&encode(status(1_000)).unwrap()).unwrap();
        assert_eq!(told, status(1_000));
    }

    #[test]
    fn of_a_swarm_that_does_not_fit_some_members_are_told() {
        let bytes = encode(status(20_000)).unwrap();
        assert!(bytes.len() <= MAX_BYTES);
        let told = decode(&bytes).unwrap();
        assert!(told.node.members.len() >= 1_000, "{}", told.node.members.len());
        assert_eq!(told.node.members.len(), told.node.peers.len());
    }

    #[test]
    fn what_concerns_the_machine_alone_is_not_told() {
        let mut own = status(1);
        let reason = "/home/me/runs: no space left".to_owned();
        own.node.waits_for = Some(Waiting::Disk { reason: reason.clone() });
        let waits_for = Some(Waiting::Disk { reason });
        own.node.paths.push(PathStatus { waits_for, ..PathStatus::default() });
        own.activity.disk_bytes = 5;
        let told = serde_json::to_string(&decode(&encode(own).unwrap()).unwrap()).unwrap();
        assert!(!told.contains("/home/me") && told.contains("\"disk_bytes\":0"), "{told}");
    }

    #[test]
    fn what_is_no_status_is_an_error() {
        assert!(matches!(decode(b"rubbish"), Err(ReportError::Compression(_))));
        let other = zstd::bulk::compress(b"{\"run\":1}", LEVEL).unwrap();
        assert!(matches!(decode(&other), Err(ReportError::Read(_))));
        let bomb = zstd::bulk::compress(&vec![b' '; 9 << 20], LEVEL).unwrap();
        assert!(bomb.len() < MAX_BYTES);
        assert!(matches!(decode(&bomb), Err(ReportError::Size)));
    }
}
