//! Analyses of a path: the outputs of its parts on a text, and the effect of replacing them.
//!
//! [`subject`] is the path and the text; [`directional`] has the analyses of directional attention, [`dna`] those of
//! tokens that choose their route.

pub mod directional;
pub mod dna;
pub mod plots;
pub mod statistics;
pub mod subject;

pub use subject::{Passages, Subject};
