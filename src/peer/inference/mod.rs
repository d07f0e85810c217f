//! Queries about text: the engine, the server that answers other peers, and the client that sends them.

pub mod client;
mod device_share;
pub(super) mod engine;
pub mod model_slot;
pub mod sample;
pub mod score;
pub(super) mod server;
pub mod talk;
