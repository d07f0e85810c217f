//! The libp2p swarm: its behaviour, the task that owns it, and the handle by which the application uses it.

pub(super) mod actor;
pub(super) mod behaviour;
pub(super) mod build;
pub(super) mod commands;
pub(super) mod events;
pub(super) mod handle;
pub(super) mod swarm_events;
