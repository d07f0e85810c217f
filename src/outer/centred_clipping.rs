//! Centred clipping bounds the distance of each contribution from the module's recent average.
//!
//! Karimireddy, He and Jaggi, "Learning from History for Byzantine Robust Optimization" (ICML 2021). With a centre `v`,
//! contributions `Δ_i` and a radius `r`:
//!
//! ```text
//! v + mean[(Δ_i − v) · min(1, r / ‖Δ_i − v‖)]
//! ```
//!
//! This is the mean of the contributions, each moved towards `v` until its distance is at most `r`. Contributions
//! within `r` are added unchanged, bit for bit, with the same weights and exact sum; a Byzantine path moves the mean by
//! at most `r` times its share. One round takes two passes: distances, then the sum. `r` is the median distance, the
//! lower one of an even number. `v` follows from the state before the update, which all members have: the momentum is a
//! sum of past averages with weights that fall by `β`. Divided by the sum of these weights, and by the factor that
//! rescales averages, it is their mean. Without momentum it is the last average.
//!
//! Distances are f64, added in a fixed order. Each operation is one correctly rounded one, without fusing.

use rayon::prelude::*;

use super::CHUNK_VALUES;
use super::rescale::rescale_factor;
use super::state::ModuleState;
use crate::config::OuterConfig;

/// The contributions to one update, in their order.
#[derive(Clone, Debug)]
pub struct CentredClipping {
    centre: Vec<f32>,
    distances: Vec<f64>,
}

impl CentredClipping {
    /// Centred on the state's momentum, for an update whose average is rescaled for so many paths.
    pub fn around(state: &ModuleState, paths: usize, outer: &OuterConfig) -> Self {
        let factor = f64::from(outer.momentum);
        // The sum of β^k over the updates so far, cut off where further terms change nothing.
        let (mut sum, mut power) = (0.0f64, 1.0f64);
        for _ in 0..state.version.0 {
            let more = sum + power;
            if more == sum {
                break;
            }
            (sum, power) = (more, power * factor);
        }
        let scale = sum.max(1.0) * f64::from(rescale_factor(outer.rescale, paths));
        let centre = state.momentum.par_iter().with_min_len(CHUNK_VALUES);
        Self { centre: centre.map(|value| (f64::from(*value) / scale) as f32).collect(), distances: Vec::new() }
    }

    /// First pass: the distance of a contribution from the centre.
    pub fn measure(&mut self, values: &[f32]) {
        self.distances.push(self.distance(values));
    }

    /// Second pass: clips a contribution before it is added.
    pub fn clip(&self, values: &mut [f32]) {
        let (distance, radius) = (self.distance(values), self.radius());
        if distance <= radius {
            return;
        }
        let share = radius / distance;
        values.par_iter_mut().with_min_len(CHUNK_VALUES).zip(&self.centre).for_each(|(value, centre)| {
            let centre = f64::from(*centre);
            *value = (centre + (f64::from(*value) - centre) * share) as f32;
        });
    }

    fn radius(&self) -> f64 {
        let mut sorted = self.distances.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
    }

    fn distance(&self, values: &[f32]) -> f64 {
        let square = |(value, centre): (&f32, &f32)| {
            let off = f64::from(*value) - f64::from(*centre);
            off * off
        };
        let chunks = values.par_chunks(CHUNK_VALUES).zip(self.centre.par_chunks(CHUNK_VALUES));
        let parts: Vec<f64> = chunks.map(|(values, centre)| values.iter().zip(centre).map(square).sum()).collect();
        parts.into_iter().sum::<f64>().sqrt()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{OuterMode, Rescale};
    use crate::names::{ModuleId, Version};

    fn state(version: u64, momentum: &[f32]) -> ModuleState {
        let initial =
            ModuleState::initial(ModuleId { level: 0, expert: 0 }, vec![0.0; momentum.len()], OuterMode::Synchronous);
        ModuleState { version: Version(version), momentum: momentum.to_vec(), ..initial }
    }

    fn outer(momentum: f32, rescale: Rescale) -> OuterConfig {
        OuterConfig { momentum, rescale, ..OuterConfig::default() }
    }

    fn clipped(mut clipping: CentredClipping, contributions: &[Vec<f32>]) -> Vec<Vec<f32>> {
        contributions.iter().for_each(|values| clipping.measure(values));
        let mut contributions = contributions.to_vec();
        contributions.iter_mut().for_each(|values| clipping.clip(values));
        contributions
    }

    #[test]
    fn a_contribution_beyond_the_median_distance_is_moved_to_it() {
        // Distances from (1, 0): 1, 2, 5, 10, 2.
        let contributions = [[2.0, 0.0], [1.0, 2.0], [4.0, 4.0], [-9.0, 0.0], [1.0, -2.0]].map(Vec::from);
        let around = CentredClipping::around(&state(1, &[1.0, 0.0]), 5, &outer(0.9, Rescale::None));
        let drawn = [[2.0, 0.0], [1.0, 2.0], [2.2, 1.6], [-1.0, 0.0], [1.0, -2.0]].map(Vec::from);
        assert_eq!(clipped(around.clone(), &contributions), drawn);
        // The lower median of an even number.
        assert_eq!(clipped(around, &contributions[..2])[1], [1.0, 1.0]);
    }

    #[test]
    fn the_centre_is_the_mean_of_past_averages_or_the_last_one_without_momentum() {
        let none = CentredClipping::around(&state(0, &[0.0; 2]), 4, &outer(0.9, Rescale::SqrtPaths));
        assert_eq!(none.centre, [0.0; 2]);
        let last = CentredClipping::around(&state(7, &[3.0, -1.0]), 4, &outer(0.0, Rescale::None));
        assert_eq!(last.centre, [3.0, -1.0]);
        // Averages of √4·1, then √4·2, with β = 1/2: the momentum is 2/2 + 4 = 5, and 1 counts half as much as 2.
        let two = CentredClipping::around(&state(2, &[5.0]), 4, &outer(0.5, Rescale::SqrtPaths));
        assert_eq!(two.centre, [(5.0f64 / 3.0) as f32]);
        // After many updates, the sum is 1 / (1 − β).
        let long = CentredClipping::around(&state(u64::MAX, &[8.0]), 1, &outer(0.5, Rescale::SqrtPaths));
        assert_eq!(long.centre, [4.0]);
    }

    #[test]
    fn chunks_and_threads_do_not_change_the_result() {
        let wave =
            |phase: f32| (0..2 * CHUNK_VALUES + 17).map(|i| (i as f32 * 0.001 + phase).sin()).collect::<Vec<f32>>();
        let contributions: Vec<Vec<f32>> = (0..5).map(|at| wave(at as f32)).collect();
        let around = CentredClipping::around(&state(1, &wave(0.5)), 5, &outer(0.9, Rescale::None));
        let many = clipped(around.clone(), &contributions);
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(one.install(|| clipped(around, &contributions)), many);
        assert_ne!(many, contributions);
    }

    proptest! {
        #[test]
        fn equal_contributions_stay_the_same_to_the_bit(
            values in prop::collection::vec(-2.0f32..2.0, 6),
            momentum in prop::collection::vec(-20.0f32..20.0, 6),
            (count, version) in (1usize..9, 0u64..40),
        ) {
            let around = CentredClipping::around(&state(version, &momentum), count, &OuterConfig::default());
            let contributions = vec![values; count];
            prop_assert_eq!(clipped(around, &contributions), contributions);
        }

        #[test]
        fn byzantine_contributions_below_half_move_the_mean_no_further_than_the_furthest_honest_one(
            honest in prop::collection::vec(prop::collection::vec(-1.0f32..1.0, 4), 3..6),
            far in prop::collection::vec(-60_000.0f32..60_000.0, 4),
        ) {
            let mut all = honest.clone();
            all.extend(vec![far; honest.len() - 1]);
            let around = CentredClipping::around(&state(0, &[0.0; 4]), all.len(), &OuterConfig::default());
            let furthest = honest.iter().map(|values| around.distance(values)).fold(0.0, f64::max);
            for values in clipped(around.clone(), &all) {
                prop_assert!(around.distance(&values) <= furthest * (1.0 + 1.0e-6));
            }
        }
    }
}
