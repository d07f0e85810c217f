//! A stand-in for training with the same shape: from a path's modules to an outer gradient for each.
//!
//! Path `p` pulls each value of its module `m` towards a target of its own, a given share of the way in a phase:
//! gradient descent on ½‖θ − target(p, m)‖²; in a phase of fewer inner steps, a share as much smaller. The consensus of a module is the mean of its paths' targets. Two peers that
//! train the same phase of the same path do not come to quite the same.

use crate::names::{ModuleId, PathId};
use crate::seed::Seed;

/// The share of the way to its target that a phase goes.
const STRIDE: f32 = 0.5;

/// Where a path wants a module's values: `likeness` of the way to where all its paths want them.
pub fn target(module: ModuleId, path: PathId, values: usize, likeness: f32) -> Vec<f32> {
    let seed = Seed::root(7).child("learner").number(u64::from(module.level)).number(u64::from(module.expert));
    let of = |seed: u64, index: u64| {
        let mixed = (seed ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (mixed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let (common, own) = (seed.child("common").to_u64(), seed.number(u64::from(path.0)).to_u64());
    (0..values as u64).map(|index| likeness * of(common, index) + (1.0 - likeness) * of(own, index)).collect()
}

/// The outer gradient of one phase on one peer, parameters before minus after; `share` is that of the steps made.
pub fn outer_gradient(target: &[f32], peer: usize, share: f32, parameters: &[f32]) -> Vec<f32> {
    let stride = STRIDE * share * (1.0 + peer as f32 / 64.0);
    parameters.iter().zip(target).map(|(value, target)| stride * (value - target)).collect()
}
