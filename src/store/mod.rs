//! What a peer keeps on disk: large things as blobs, what must survive as a journal, the rest as an index.
//!
//! - [`blobs`]: content-addressed files, whole or not there.
//! - [`journal`]: an append-only file with checksums, synced before it is acted upon. Kill -9 at any instant loses
//!   nothing that was acknowledged.
//! - [`index`]: sled, for what can be rebuilt from the other two and from other peers.
//! - [`folder`]: opens all three, for one process and one run.
//! - [`reading`]: looks at the store of a peer that is not running, and changes nothing.
//! - [`staging`]: a folder that is written beside its place, and then put there at once.
//! - [`actor`]: gives them threads of their own, since disks block.
//!
//! `durable` holds what they share: how bytes get to a disk, and what is said when they don't.

pub mod actor;
pub mod blobs;
pub mod checkpoint;
mod durable;
pub mod folder;
pub mod index;
pub mod journal;
pub mod reading;
pub mod staging;

pub use actor::{StoreError, StoreHandle};
pub use blobs::{BlobError, BlobStore, Receiving};
pub use checkpoint::{Checkpoint, ModuleCheckpoint};
pub use durable::DiskError;
pub use folder::{OpenError, StoreFolder};
pub use index::{DocumentKey, Index, IndexError};
pub use journal::{Journal, JournalError};
pub use reading::StoreReader;
pub use staging::{StagedFolder, StagingError};
