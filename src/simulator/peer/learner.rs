//! A simulated learner: it has the interface of training, from a path's modules to an outer gradient for each.
//!
//! Path `p` pulls each value of its module `m` towards its own target: gradient descent on ½‖θ − target(p, m)‖², in a
//! number of inner steps, with optional noise in the gradients. A whole phase covers a given share of the distance. The
//! consensus of a module is the mean of its paths' targets. In a drill of one seed the noise of a step is always the
//! same, so a resumed phase has the same result as an uninterrupted one; but two peers that train the same phase of the
//! same path get slightly different results, unless the run is to be deterministic, which it can only be on equal machines.

use crate::names::{ModuleId, PathId, Phase};
use crate::seed::Seed;
use crate::simulator::scenario::Swarm;

/// Inner steps of a phase.
pub const INNER_STEPS: u64 = 64;

/// Relative difference of the steps of consecutive peers' machines.
const MACHINES_DIFFER: f32 = 1.0 / 512.0;
/// Number of different machines, after which they repeat.
const MACHINES: usize = 64;

/// A number between -1 and 1, from this stream at this place.
fn of(stream: u64, place: u64) -> f32 {
    let mixed = (stream ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

fn of_module(module: ModuleId) -> Seed {
    Seed::root(7).child("learner").number(u64::from(module.level)).number(u64::from(module.expert))
}

/// The target of a path for a module's values: `likeness` of it is common to all its paths.
pub fn target(module: ModuleId, path: PathId, values: usize, likeness: f32) -> Vec<f32> {
    let seed = of_module(module);
    let (common, own) = (seed.child("common").to_u64(), seed.number(u64::from(path.0)).to_u64());
    (0..values as u64).map(|index| likeness * of(common, index) + (1.0 - likeness) * of(own, index)).collect()
}

/// One phase of a path on a module.
#[derive(Debug)]
pub(in crate::simulator) struct Descent {
    target: Vec<f32>,
    /// The size of each step.
    rate: f32,
    noise: f32,
    stream: u64,
}

impl Descent {
    pub(in crate::simulator) fn new(
        module: ModuleId,
        (path, phase, trainer): (PathId, Phase, u32),
        (seed, peer): (u64, usize),
        swarm: &Swarm,
    ) -> Self {
        let stream = of_module(module).child("noise").number(seed);
        let stream = stream.number(u64::from(path.0)).number(phase.0);
        // Each trainer of a path reads its text in another order.
        let stream = if trainer > 0 { stream.child("trainer").number(u64::from(trainer)) } else { stream };
        let rate = 1.0 - (1.0 - swarm.stride).powf(1.0 / INNER_STEPS as f32);
        let target = target(module, path, swarm.values, swarm.likeness);
        let machine = if swarm.deterministic { 0 } else { peer % MACHINES };
        Self {
            target,
            rate: rate * (1.0 + machine as f32 * MACHINES_DIFFER),
            noise: swarm.noise,
            stream: stream.to_u64(),
        }
    }

    /// One inner step.
    pub(in crate::simulator) fn step(&self, step: u64, parameters: &mut [f32]) {
        let stream = self.stream.rotate_left(step as u32 % 64).wrapping_add(step);
        for (index, (value, target)) in parameters.iter_mut().zip(&self.target).enumerate() {
            let noise = if self.noise > 0.0 { self.noise * of(stream, index as u64) } else { 0.0 };
            *value -= self.rate * (*value - target + noise);
        }
    }
}

/// Parameters before minus after, plus the residual.
pub(in crate::simulator) fn outer_gradient(before: &[f32], after: &[f32], residual: &[f32]) -> Vec<f32> {
    before.iter().zip(after).zip(residual).map(|((before, after), residual)| before - after + residual).collect()
}
