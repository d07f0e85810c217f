//! The length and limit of a table that other peers can make grow.

/// A table of a node. If there is one per module, the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// What it contains.
    pub name: &'static str,
    /// Its current length.
    pub length: usize,
    /// Its maximum length.
    pub limit: usize,
}
