//! HTTP servers of this program, on one base: what may connect, how long it may take, and what it may ask.
//!
//! [`listen`] binds an address that a user has typed, [`guard`] decides which requests are heard, and [`server`] serves them
//! on a thread of its own, so that no client slows the peer. Connections, headers and bodies have bounds ([`Limits`]).

mod guard;
mod listen;
mod server;
#[cfg(test)]
mod tests;

pub use guard::{Guard, Refusal};
pub use listen::{ListenError, listen};
pub use server::{Limits, Server};
