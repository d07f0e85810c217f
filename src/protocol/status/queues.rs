//! A table that others can make grow, with its limit.

/// One of the tables that a node keeps. Of those that there are for each module, the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// What is in it.
    pub name: &'static str,
    /// How many.
    pub length: usize,
    /// How many at the most.
    pub limit: usize,
}
