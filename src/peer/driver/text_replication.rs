//! Replication of a run's text, if peers send it to each other. Two living peers besides the one that trains it store
//! the text of each path, so that the creator of the run may leave for good. Text that a local path waits for is
//! fetched first.

use std::collections::BTreeSet;

use crate::names::{BlobHash, PathId, PeerKey};
use crate::peer::driver::{Driver, PeerError};
use crate::peer::status::TextHere;
use crate::protocol::Event;

/// Peers that store a path's text.
const REPLICAS: usize = 2;

/// Paths checked at a time, since each takes a disk access.
const PATHS_AT_ONCE: u32 = 16;

/// Which text is here, and which is missing.
#[derive(Debug, Default)]
pub(crate) struct TextReplication {
    /// Paths of the grid whose text was missing when it was needed.
    wanted: BTreeSet<PathId>,
    /// Paths of the grid with all text here.
    here: BTreeSet<PathId>,
    /// Paths with text fetched for other peers.
    for_others: BTreeSet<PathId>,
    /// The next path to check.
    next: u32,
    /// Set when the disk was full: no text is stored for others any more.
    stop_replicating: bool,
}

impl TextReplication {
    /// Requests a path's text.
    pub(crate) fn want(&mut self, drawn: PathId) {
        self.wanted.insert(drawn);
    }

    /// Whether a path's text was requested.
    pub(crate) fn wants(&self, drawn: PathId) -> bool {
        self.wanted.contains(&drawn)
    }

    /// One of the requested paths.
    pub(crate) fn first_wanted(&self) -> Option<PathId> {
        self.wanted.first().copied()
    }

    /// Stops storing text for others. Returns the paths whose text was stored for them.
    pub(crate) fn stop_replicating(&mut self) -> BTreeSet<PathId> {
        (self.stop_replicating, self.here) = (true, BTreeSet::new());
        std::mem::take(&mut self.for_others)
    }
}

impl Driver {
    /// Fetches text for local paths, and then for others.
    pub(crate) fn replicate_text(&mut self) -> Result<(), PeerError> {
        if !self.manifest.share_text {
            return Ok(());
        }
        for drawn in self.text_replication.wanted.clone() {
            if self.has_text(drawn)? {
                self.text_replication.wanted.remove(&drawn);
                self.events.push_back(Event::TextHere(drawn));
            }
        }
        let paths = self.manifest.shards.listed().len() as u32;
        for _ in 0..PATHS_AT_ONCE.min(paths) {
            let path = PathId(self.text_replication.next % paths);
            self.text_replication.next = path.0 + 1;
            if self.text_replication.here.contains(&path) {
                continue;
            }
            if self.all_here(&self.manifest.text_for(path))? {
                self.text_replication.here.insert(path);
            } else if !self.text_replication.stop_replicating && !self.fetches_text() && self.is_replica(path) {
                self.text_replication.for_others.insert(path);
                self.has_text(path)?;
            }
        }
        Ok(())
    }

    /// Whether this peer should store a path's text, by the peers that it knows to be alive.
    fn is_replica(&self, path: PathId) -> bool {
        let mine = rank(path, self.node.me());
        self.node.living().filter(|peer| rank(path, *peer) > mine).take(REPLICAS).count() < REPLICAS
    }

    /// The share of the run's text here, if peers send it to each other.
    pub(crate) fn text_here(&self) -> Option<TextHere> {
        let of = self.manifest.shards.listed().len() as u64;
        self.manifest.share_text.then_some(TextHere { here: self.text_replication.here.len() as u64, of })
    }
}

/// The highest ranks store it: a random choice that is equal at all peers.
fn rank(path: PathId, peer: PeerKey) -> BlobHash {
    BlobHash::of(&[&path.0.to_le_bytes()[..], &peer.0].concat())
}
