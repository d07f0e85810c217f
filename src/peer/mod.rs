//! A peer: everything put together.
//!
//! [`founding`] makes a run of some text, or [`joining`] fetches one from an address; both leave a [`manifest`] (and a
//! [`shard_table`], if it has many paths) and blobs in a store; [`launch`] does either. [`start`] then assembles the
//! actors: the [`driver`] around the protocol's node, with what comes in (`inbox`), what each action comes to
//! (`actions`), what else is to be done (`errands`), what a run's modules begin with (`genesis`), whom to dial again (`reconnecting`), what becomes of it all while
//! the disk is full (`shortage`) and what it tells of itself ([`observing`]); the [`trainer`] on its [`trainer_thread`]
//! (with its [`tasks`] and its [`path_state`], in [`turns`] with others), the [`aggregator`], the store, seen by the
//! network through `blob_access`. What they have to tell is [`news`]; [`status_socket`] answers other processes.
//! [`dense`] trains the ancestor and the control.
//!
//! [`collecting`] brings a run's modules together in one folder, from peers or from their stores; [`collected`] is that
//! folder. [`asking`] is how text is read by a run: by a collected one, or by the peers of one that goes on, whose
//! `answering` has it done by `performing` on the network of [`playing`]; [`scoring`] and [`sampling`] ask, through a [`transducer`] if there is one. [`visiting`] a swarm is what
//! collecting and asking have in common; [`succession`] leads from the first stage of a run to the second. What `signatures`
//! checks is believed.
//!
//! A run may be by invitation: `letters` are what people hand on, `entering` is how a newcomer shows one, the [`access_control`]
//! says who may take part, and `admitting` is what the driver does about it. [`control_socket`] takes the user's orders.

pub mod access;
pub mod aggregator;
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
#[cfg(test)]
mod tests;
pub mod trainer;
pub mod transducer;

pub use crate::peer::access::blob_access::StoredBlobs;
pub use crate::peer::collect::{CollectError, collect_from_stores, collect_from_swarm};
pub use crate::peer::driver::events::{EventSink, PeerEvent};
pub use crate::peer::driver::status::PeerStatus;
pub use crate::peer::start::assembly::{Peer, PeerPlan};
pub use crate::peer::trainer::device_scheduler::DeviceScheduler;
pub use collected::{Collected, CollectedError};
pub use driver::PeerError;
pub use manifest::Manifest;
