//! Tools for networks whose tokens choose their way through a pool of modules.
//!
//! [`journeys`] is what every token of a text chose. From that follow [`flow`], where tokens are in each step and how sure
//! routers are of it; [`ranks`], which ways there are and how often each is taken; [`ribbon`], who goes
//! along one; and [`compute`], how much is computed for
//! tokens and sequences, and which modules they come back to; [`dreaming`] makes images that take the ways of a given one. Images of ways are drawn by [`plots::ways`](super::plots::ways).

pub mod compute;
pub mod dreaming;
pub mod flow;
pub mod journeys;
pub mod ranks;
pub mod ribbon;
#[cfg(test)]
mod tests;

pub use compute::{Compute, Likeness, compute, likeness};
pub use dreaming::{Dreamt, Wish, dream};
pub use flow::{Flow, flow};
pub use journeys::{Journey, Journeys};
pub use ranks::{Ranks, Way, ranks};
pub use ribbon::Ribbon;
