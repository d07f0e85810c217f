//! The store as the network uses it.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, OnceLock};

use crate::names::{BlobHash, BlobRef, PeerKey};
use crate::network::{BlobAccess, BlobSink, BlobSource, PeerAccess, Standing, Verdict};
use crate::peer::access::access_control::AccessControl;
use crate::peer::access::known_members::KnownMembers;
use crate::pieces::{PieceSet, PieceTree};
use crate::store::{BlobError, BlobStore, DiskError, Receiving, Served};

/// Receives blobs once there is a store, and serves blobs once it is known which are private.
///
/// The network starts first: a newcomer's store is created when a peer has answered.
#[derive(Clone, Default)]
pub struct StoredBlobs(Arc<Stored>);

#[derive(Default)]
struct Stored {
    blobs: OnceLock<BlobStore>,
    /// Blobs that are never served.
    private: OnceLock<BTreeSet<BlobHash>>,
    /// Which peers may fetch, in a run by invitation.
    access_control: OnceLock<Option<Arc<AccessControl>>>,
    /// The members of this peer's modules, in an open run.
    members: KnownMembers,
}

impl StoredBlobs {
    /// The members of this peer's modules, which its driver keeps up to date.
    pub(in crate::peer) fn members(&self) -> KnownMembers {
        self.0.members.clone()
    }

    /// Sets the store.
    pub fn take_in(&self, blobs: BlobStore) {
        // A second one would be of the same folder.
        let _ = self.0.blobs.set(blobs);
    }

    /// Starts to serve all blobs but the private ones, to admitted peers.
    pub fn serve_all_but(&self, private: BTreeSet<BlobHash>, access_control: Option<Arc<AccessControl>>) {
        // Equal at each start of a peer of the run.
        let _ = self.0.access_control.set(access_control);
        let _ = self.0.private.set(private);
    }
}

struct Source(Served);
struct Sink(Receiving);

/// Before it is known whether the run is open, nobody is admitted.
impl PeerAccess for StoredBlobs {
    fn is_by_invitation(&self) -> bool {
        self.0.access_control.get().is_none_or(Option::is_some)
    }

    fn standing(&self, peer: PeerKey) -> Standing {
        match self.0.access_control.get() {
            Some(Some(access_control)) => access_control.standing(peer),
            Some(None) if self.0.members.contains(peer) => Standing::Member,
            Some(None) => Standing::Stranger,
            None => Standing::NotAdmitted,
        }
    }

    fn verdict(&self, author: PeerKey, bytes: &[u8]) -> Verdict {
        match self.0.access_control.get() {
            Some(Some(access_control)) => access_control.verdict(author, bytes),
            Some(None) => Verdict::Accept,
            None => Verdict::Ignore,
        }
    }
}

impl BlobAccess for StoredBlobs {
    fn open(&self, blob: BlobRef) -> io::Result<Option<Box<dyn BlobSource>>> {
        let may = self.0.private.get().is_some_and(|private| !private.contains(&blob.hash));
        let Some(blobs) = self.0.blobs.get().filter(|_| may) else { return Ok(None) };
        let served = blobs.serve(blob).map_err(DiskError::into_io)?;
        Ok(served.map(|served| Box::new(Source(served)) as Box<dyn BlobSource>))
    }

    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>> {
        let blobs = self.0.blobs.get().ok_or_else(|| io::Error::other("there is no store yet"))?;
        let receiving = blobs.receive(blob).map_err(BlobError::into_io)?;
        Ok(Box::new(Sink(receiving)))
    }
}

impl BlobSource for Source {
    fn pieces(&self) -> PieceSet {
        self.0.pieces()
    }

    fn tree(&self) -> io::Result<Option<Arc<PieceTree>>> {
        self.0.tree().map_err(BlobError::into_io)
    }

    fn read(&self, piece: u32, into: &mut Vec<u8>) -> io::Result<bool> {
        self.0.read(piece, into).map_err(DiskError::into_io)
    }
}

impl BlobSink for Sink {
    fn tree(&self) -> Option<Arc<PieceTree>> {
        self.0.tree()
    }

    fn begin(&self, tree: &Arc<PieceTree>) -> io::Result<PieceSet> {
        self.0.begin(tree).map_err(DiskError::into_io)
    }

    fn write(&self, piece: u32, bytes: &[u8]) -> io::Result<()> {
        self.0.write(piece, bytes).map_err(DiskError::into_io)
    }

    fn finish(&self) -> io::Result<()> {
        self.0.finish().map(drop).map_err(BlobError::into_io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_served_to_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::open(folder.path()).unwrap();
        let (text, update) = (blobs.put(b"the run's text").unwrap(), blobs.put(b"an update").unwrap());
        let access = StoredBlobs::default();
        assert!(access.open(update).unwrap().is_none(), "there is no store yet");
        access.take_in(blobs);
        assert!(access.open(update).unwrap().is_none(), "private blobs are not known yet");
        access.serve_all_but(BTreeSet::from([text.hash]), None);
        assert!(access.open(text).unwrap().is_none());
        assert!(access.open(update).unwrap().is_some());
    }
}
