//! What a peer keeps on disk: large things as blobs, what must survive as a journal, the rest as an index.
//!
//! - [`blobs`]: content-addressed files, whole or not there; `incoming` while they are being written, `arriving` while
//!   others send their pieces, for whoever is `receiving` them; `serving` is what others may have of them.
//! - `streaming`: blobs that may be larger than the memory.
//! - [`journal`]: an append-only file with checksums (`journal_frames`), synced before it is acted upon. Kill -9 at any
//!   instant loses nothing that was acknowledged.
//! - [`index`]: sled, made safer by `checked`, for what can be rebuilt from the other two and from other peers.
//! - [`checkpoint`]: what the index keeps about a path.
//! - [`folder`]: opens all three, for one process and one run.
//! - [`reading`]: looks at the store of a peer that is not running, and changes nothing.
//! - [`staging`]: a folder that is written beside its place, and then put there at once.
//! - [`actor`]: gives them threads of their own, since disks block.
//! - [`shortage`]: who waits for a disk that does not take what is written.
//!
//! `durable` holds what they share: how bytes get to a disk, and what is said when they don't; `room` is the
//! machine's cap.

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
pub use crate::store::disk_pressure::{Short, Shortage};
pub use crate::store::read_only::StoreReader;
pub use actor::{StoreError, StoreHandle};
pub use blobs::{BlobError, BlobStore};
pub use durable::{DiskError, may_pass};
pub use folder::{LockedStore, OpenError, StoreFolder};
pub use index::{Checkpoint, Index, IndexError, ModuleCheckpoint};
pub use journal::{Journal, JournalError};
pub use staging::{StagedFolder, StagingError};

/// Writes a file so that it is there whole, or not at all.
///
/// # Errors
/// If the disk fails or is full; what was there before stays.
pub fn write_file(path: &std::path::Path, contents: &[u8]) -> Result<(), DiskError> {
    durable::create_folder(path.parent().unwrap_or(path))?;
    durable::replace(path, contents, durable::open_file)
}
