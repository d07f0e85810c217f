//! Blobs that the node or a path needs: first states are computed from the ancestor, everything else is fetched from
//! peers.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey};
use crate::network::{Donor, FetchError, Offence};
use crate::peer::aggregator::Work;
use crate::peer::driver::events::PeerEvent;
use crate::peer::driver::{Driver, PeerError};
use crate::protocol::Event;
use crate::store::{PressureGuard, is_transient};

/// Texts fetched at a time, so that the node's fetches do not queue behind them.
const MOST_TEXTS: usize = 4;

/// Peers asked for a text at a time, since its holders are unknown.
const TEXT_HOLDERS: usize = 4;

/// Of these, peers that are no members: whoever is remembered may be made up.
const TEXT_STRANGERS: usize = 1;

/// A pending fetch.
pub(crate) struct Fetch {
    blob: BlobRef,
    /// Since the start of the peer.
    began: Millis,
    /// Whether it is for the node; otherwise it is for a path's shard.
    for_node: bool,
    /// Held while the disk rejects the blob.
    pub(crate) short: Option<PressureGuard>,
}

/// The pending fetches, and the first states being computed.
#[derive(Default)]
pub(crate) struct Fetches {
    under_way: BTreeMap<u64, Fetch>,
    next: u64,
    /// First states being computed, and their holders; at most as many as the run has modules.
    making: BTreeMap<BlobHash, (BlobRef, Vec<PeerKey>)>,
    /// First states that came out differently from the manifest.
    not_made: BTreeSet<BlobHash>,
    /// How often peers were asked for a text in vain: then others are asked.
    shard_holder: usize,
}

/// Whom to ask for a text after so many attempts: members first.
fn text_holders((mut members, mut others): (Vec<PeerKey>, Vec<PeerKey>), attempt: usize) -> Vec<PeerKey> {
    let strangers = TEXT_STRANGERS.max(TEXT_HOLDERS.saturating_sub(members.len())).min(others.len());
    let next = |peers: &mut Vec<PeerKey>, most: usize| {
        let first = attempt.saturating_mul(most) % peers.len().max(1);
        peers.rotate_left(first);
        peers.truncate(most);
    };
    next(&mut members, TEXT_HOLDERS - strangers);
    next(&mut others, strangers);
    members.extend(others);
    members
}

impl Driver {
    /// The module whose first state this is, if the ancestor can make it.
    fn begins_with(&self, blob: BlobRef) -> Option<ModuleId> {
        let levels = self.manifest.config.levels.len();
        let first = self.manifest.genesis.iter().find(|(module, state)| {
            *state == blob && usize::from(module.level) < levels && !self.fetches.not_made.contains(&blob.hash)
        });
        first.map(|(module, _)| *module)
    }

    /// Computes a blob for the node if possible, else fetches it.
    pub(crate) fn obtain(&mut self, blob: BlobRef, from: Vec<PeerKey>) {
        match self.begins_with(blob) {
            Some(module) => {
                self.fetches.making.insert(blob.hash, (blob, from));
                self.queue_work(Work::Genesis { module, state: blob });
            }
            None => self.begin_fetch(blob, from, true),
        }
    }

    /// Fetches a first state that could not be computed. Returns whether it was one.
    pub(crate) fn fetch_in_place(&mut self, state: BlobHash, found: bool) -> bool {
        let Some((blob, from)) = self.fetches.making.remove(&state).filter(|_| !found) else { return false };
        self.fetches.not_made.insert(state);
        self.begin_fetch(blob, from, true);
        true
    }

    pub(crate) fn all_here(&self, blobs: &[BlobRef]) -> Result<bool, PeerError> {
        for blob in blobs {
            if !self.blobs.has(blob.hash)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the text of a path of the grid is here; if not, fetches it.
    pub(crate) fn has_text(&mut self, path: PathId) -> Result<bool, PeerError> {
        self.has_blobs(path, self.manifest.text_for(path))
    }

    pub(crate) fn has_blobs(&mut self, path: PathId, blobs: Vec<BlobRef>) -> Result<bool, PeerError> {
        let mut all = true;
        for blob in blobs {
            if self.blobs.has(blob.hash)? {
                continue;
            }
            if !self.manifest.share_text {
                return Err(PeerError::TextGone(path));
            }
            all = false;
            let texts = || self.fetches.under_way.values().filter(|fetch| !fetch.for_node);
            let waiting_for = texts().any(|fetch| fetch.blob == blob) || texts().count() >= MOST_TEXTS;
            if waiting_for {
                continue;
            }
            let known = self.addresses.peers().partition(|peer| self.access.is_member(*peer));
            let holders = text_holders(known, self.fetches.shard_holder);
            if !holders.is_empty() {
                self.begin_fetch(blob, holders, false);
            }
        }
        Ok(all)
    }

    /// Whether a text is being fetched.
    pub(crate) fn fetches_text(&self) -> bool {
        self.fetches.under_way.values().any(|fetch| !fetch.for_node)
    }

    pub(crate) fn begin_fetch(&mut self, blob: BlobRef, from: Vec<PeerKey>, for_node: bool) {
        self.fetch(Fetch { blob, began: self.now(), for_node, short: None }, from);
    }

    pub(crate) fn fetch(&mut self, fetch: Fetch, from: Vec<PeerKey>) {
        // These peers must see our credential; if it arrives too late, they are asked again.
        from.iter().for_each(|peer| self.introduce(*peer));
        let id = self.fetches.next;
        self.fetches.next += 1;
        let book = &self.addresses;
        let from = from.into_iter().map(|peer| (peer, book.of(peer))).collect();
        if self.network.fetch(id, fetch.blob, from).is_ok() {
            self.fetches.under_way.insert(id, fetch);
        } else if fetch.for_node {
            self.events.push_back(Event::Fetched { blob: fetch.blob.hash, found: false });
        }
    }

    /// A fetch has ended. The node handles its own; for text, the next peer is asked.
    pub(crate) fn fetched(
        &mut self,
        id: u64,
        blob: BlobRef,
        donors: Vec<Donor>,
        result: Result<(), FetchError>,
    ) -> Result<(), PeerError> {
        let Some(fetch) = self.fetches.under_way.remove(&id) else { return Ok(()) };
        for Donor { peer, failed, .. } in &donors {
            match failed {
                Some(error @ FetchError::WrongHash { .. }) => {
                    tracing::warn!(peer = %peer.short(), blob = %blob.hash.short(), %error, "a peer sent wrong bytes");
                    (self.event_sink)(PeerEvent::WrongBytes { peer: *peer, blob: blob.hash });
                    self.report_offence(*peer, Offence::WrongBytes);
                }
                Some(error) => {
                    if matches!(error, FetchError::NotInvited { .. }) {
                        self.access.authenticate_again(*peer);
                    }
                    tracing::debug!(peer = %peer.short(), blob = %blob.hash.short(), %error, "a peer did not deliver a \
                        blob");
                }
                None => {}
            }
        }
        match &result {
            Err(FetchError::Storage { kind, reason }) if is_transient(*kind) => {
                let from = donors.into_iter().map(|donor| donor.peer).collect();
                self.hold_fetch(fetch, from, reason);
                return Ok(());
            }
            Err(FetchError::Storage { kind, reason }) => {
                return Err(PeerError::Fetched(std::io::Error::new(*kind, reason.clone())));
            }
            _ => {}
        }
        if let Err(error) = &result {
            tracing::debug!(blob = %blob.hash.short(), %error, "a blob was not fetched");
            self.fetches.shard_holder += usize::from(!fetch.for_node);
        }
        if result.is_ok() {
            let seconds = self.now().since(fetch.began) as f64 / 1e3;
            (self.event_sink)(PeerEvent::Fetched { bytes: blob.bytes, seconds });
        }
        if fetch.for_node && result.is_ok() {
            self.observed.arrived.insert(blob.hash, blob.bytes);
        }
        if fetch.for_node {
            self.events.push_back(Event::Fetched { blob: blob.hash, found: result.is_ok() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(numbers: std::ops::Range<u16>) -> Vec<PeerKey> {
        let key = |number: u16| {
            let mut key = [0; 32];
            key[..2].copy_from_slice(&number.to_be_bytes());
            PeerKey(key)
        };
        numbers.map(key).collect()
    }

    #[test]
    fn members_are_asked_for_text_at_each_attempt_however_many_others_are_remembered() {
        let (members, made_up) = (keys(1_000..1_005), keys(2_000..6_000));
        let asked = |attempt| text_holders((members.clone(), made_up.clone()), attempt);
        assert!((0..50).all(|attempt| asked(attempt).iter().filter(|peer| members.contains(peer)).count() == 3));
        let first: BTreeSet<PeerKey> = (0..2).flat_map(asked).collect();
        assert!(members.iter().all(|member| first.contains(member)), "two attempts reach all five");
        let others: BTreeSet<PeerKey> = (0..50).flat_map(asked).filter(|peer| made_up.contains(peer)).collect();
        assert_eq!(others.len(), 50, "each time another one");
    }

    #[test]
    fn without_members_others_are_asked_for_text_one_after_another() {
        let others = keys(0..6);
        let asked = |attempt| text_holders((Vec::new(), others.clone()), attempt);
        assert_eq!(asked(0), others[..4]);
        assert_eq!(asked(1), [4, 5, 0, 1].map(|number| others[number]));
        assert_eq!(text_holders((others[..1].to_vec(), others[1..3].to_vec()), 9).len(), 3);
        assert_eq!(text_holders((others.clone(), Vec::new()), 1).len(), TEXT_HOLDERS);
        assert_eq!(text_holders((Vec::new(), Vec::new()), 1), []);
    }
}
