//! A peer: the protocol's node, and everything that a machine adds to it. In data order:
//!
//! - [`create`] makes a run from text: tokenizer, ancestor, router, shards. [`manifest`] defines the run and names its
//!   blobs. [`join`] gets the manifest from a peer at a known address.
//! - [`folder`] is a peer's data on disk. [`start`] completes a folder, by creating or joining, and starts the actors.
//! - [`driver`] owns the node: events in, actions out. [`trainer`] trains phases of paths on its own thread,
//!   [`aggregator`] takes outer steps on another. `checkpoint_index` notes their progress, and
//!   `boot_clock` counts the time that the machine slept.
//! - [`access`] decides which peers may take part, and verifies signatures. [`client`] queries a swarm without taking
//!   part.
//!   [`status`] is a peer's status as a value, here and as others are told it.
//! - [`collect`] gathers the modules of a run into a folder, [`collected`] is that folder.
//! - [`inference`] scores and continues text, here or for other peers; [`transducer`] learns which path suits a text.
//! - [`stages`] leads from the first stage of a run to the second.

pub mod access;
pub mod aggregator;
mod boot_clock;
mod checkpoint_index;
pub mod client;
pub mod collect;
pub mod collected;
pub mod create;
pub mod driver;
pub mod folder;
pub mod inference;
pub mod join;
pub mod manifest;
mod respond;
pub mod stages;
pub mod start;
pub mod status;
#[cfg(test)]
pub(crate) mod tests;
pub mod trainer;
pub mod transducer;

pub use crate::peer::access::blob_access::StoredBlobs;
pub use crate::peer::collect::{CollectError, collect_from_stores, collect_from_swarm};
pub use crate::peer::driver::events::{EventSink, PeerEvent};
pub use crate::peer::start::assembly::Peer;
pub use crate::peer::status::PeerStatus;
pub use crate::peer::trainer::device_scheduler::DeviceScheduler;
pub use collected::{Collected, CollectedError};
pub use driver::PeerError;
pub use manifest::Manifest;
