//! Whether enough of the expected weight is there.

use std::collections::BTreeMap;

use crate::names::PathId;

/// Whether a collection can close without the rest: at its deadline if half of the expected weight is in, at twice the
/// deadline with a quarter, and so on. A path that never contributes must not stop the others for good. `more` is
/// unexpected weight that is in.
pub fn quorum(expected: &BTreeMap<PathId, u32>, is_there: impl Fn(PathId) -> bool, more: u64, deadlines: u64) -> bool {
    let weight = |(_, weight): (&PathId, &u32)| u64::from(*weight);
    let there = more + expected.iter().filter(|(path, _)| is_there(**path)).map(weight).sum::<u64>();
    let all: u64 = expected.iter().map(weight).sum();
    // This many halvings reduce any weight to nothing.
    let halvings = deadlines.min(30);
    deadlines > 0 && there << halvings >= all
}
