//! The libp2p swarm and the task that owns it.
//!
//! The application has a [`handle`], which sends commands to the [`actor`]. The actor drives the swarm, which [`build`]
//! makes of the parts in [`behaviour`], and sends [`events`]. [`families`]: a machine without IPv4, or without IPv6.

pub(super) mod actor;
pub(super) mod behaviour;
pub(super) mod build;
pub(super) mod events;
pub(super) mod families;
pub(super) mod handle;
