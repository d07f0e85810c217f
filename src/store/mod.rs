//! What a peer keeps on disk: large things as blobs, what must survive as a journal, the rest as an index.
//!
//! - [`folder`]: opens the store of a run, for one process; [`read_only`] reads that of a peer that is not running.
//! - [`blobs`]: content-addressed files, whole or not there. Partial ones are resumed; a quota bounds all of them.
//! - [`journal`]: an append-only file with checksums, synced before a record is acted upon. `kill -9` at any moment loses
//!   nothing that was acknowledged.
//! - [`index`]: sled, for the checkpoint of each path and the addresses of peers; it can be rebuilt.
//! - [`actor`]: gives journal and index a thread of their own, since disks block.
//! - [`disk_pressure`]: what waits for a disk that does not take what is written.
//! - [`staging`]: a folder that is written beside its place, and then put there at once.
//!
//! `durable` has what they share: how bytes get to a disk, and what is said when they don't.

pub mod actor;
pub mod blobs;
pub mod disk_pressure;
mod durable;
pub mod folder;
pub mod index;
pub mod journal;
pub mod read_only;
pub mod staging;

pub use crate::store::blobs::receive::Receiving;
pub use crate::store::blobs::serve::Served;
pub use crate::store::disk_pressure::{DiskPressure, PressureGuard};
pub use crate::store::read_only::StoreReader;
pub use actor::{StoreError, StoreHandle};
pub use blobs::{BlobError, BlobStore};
pub use durable::{DiskError, is_transient};
pub use folder::{LockedStore, OpenError, StoreFolder};
pub use index::{Checkpoint, Index, IndexError, ModuleCheckpoint};
pub use journal::{Journal, JournalError};
pub use staging::{StagedFolder, StagingError};

/// Writes a file so that it is there whole, or not at all.
pub fn write_file(path: &std::path::Path, contents: &[u8]) -> Result<(), DiskError> {
    durable::create_folder(path.parent().unwrap_or(path))?;
    durable::replace(path, contents, durable::open_file)
}
