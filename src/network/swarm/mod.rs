//! The libp2p swarm and the task that owns it.
//!
//! The application holds a [`handle`], which sends commands to the [`actor`]; the actor drives the swarm that [`build`]
//! made of the parts in [`behaviour`], and answers with [`events`].

pub(super) mod actor;
pub(super) mod behaviour;
pub(super) mod build;
pub(super) mod events;
pub(super) mod handle;
