//! Looking inside a path: what its parts do on a text, and what becomes of the text if something else is put in their place.
//!
//! [`subject`] is the path and the text; [`directional`] are the tools for attention whose directions are routed, [`dna`] those
//! for tokens that choose their route.

pub mod directional;
pub mod dna;
pub mod plots;
pub mod statistics;
pub mod subject;

pub use subject::{Passages, Subject};
