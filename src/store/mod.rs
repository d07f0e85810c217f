//! What a peer keeps on disk: large data as blobs, what must survive a crash in a journal, the rest in an index.
//!
//! - [`folder`]: opens the store of a run, for one process; [`read_only`] reads that of a stopped peer.
//! - [`blobs`]: content-addressed files, complete or absent. Partial ones are resumed; a quota bounds all of them.
//! - [`journal`]: an append-only file with checksums, synced before a record is acted on. `kill -9` at any moment loses
//!   no acknowledged record.
//! - [`index`]: sled, for the checkpoint of each path and the addresses of peers; it can be rebuilt.
//! - [`actor`]: gives journal and index their own thread, since disks block.
//! - [`disk_pressure`]: writes that wait for a disk that rejects them.
//! - [`staging`]: a folder that is written next to its place and then moved there atomically.
//!
//! `durable` has the shared writes and errors of the disk.

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
pub use crate::store::disk_pressure::PressureGuard;
pub use crate::store::read_only::StoreReader;
pub use actor::{StoreError, StoreHandle};
pub use blobs::{BlobError, BlobStore};
pub use durable::{DiskError, is_transient};
pub use folder::{LockedStore, OpenError, StoreFolder};
pub use index::{Checkpoint, Index, ModuleCheckpoint};
pub use journal::Journal;
pub use journal::frames::FORMAT_VERSION as JOURNAL_VERSION;
pub use staging::{StagedFolder, StagingError};

/// Writes a file atomically.
pub fn write_file(path: &std::path::Path, contents: &[u8]) -> Result<(), DiskError> {
    durable::create_folder(path.parent().unwrap_or(path))?;
    durable::replace(path, contents, durable::open_file)
}
