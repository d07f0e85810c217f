//! The norm cap: no contribution has more influence than others because its norm is larger.
//!
//! Every update states the norm of each contribution, and the module's *running norm* after it. A contribution whose
//! norm exceeds a few times the running norm has less weight, by the square of the excess: it then counts below the cap
//! by the same factor by which it exceeded the cap. An outlier thus counts for almost nothing. Where all norms are
//! larger, as when the learning rate rises, all have less weight and their average stays the same.
//!
//! A norm has 16 bits, the upper half of an f32. As an integer it grows with the logarithm of the norm, by 2⁷ for each
//! doubling. The running norm has all 32 bits of an f32. It moves by the mean distance of the contributions from it.
//! Each distance is limited to a doubling or a halving, so that neither a huge nor a tiny contribution moves it far.
//! Where all contributions are larger than the running norm, it moves to the smallest at once, because it may have
//! begun with phases that were cut short. All of this is integer arithmetic, or f64 in a stated order.

use crate::protocol::wire::message::{Counted, distinct_paths};

/// A doubling of the norm, in bits of an f32.
const OCTAVE: i64 = 1 << 23;

/// The bits of the smallest and largest positive running norm. Nothing overflows between them.
const LEAST: i64 = 0x0080_0000;
const MOST: i64 = 0x7F00_0000;

/// Norms at or above this are not finite, or negative.
pub const NO_NORM: u16 = 0x7F80;

/// The reference for the norms of contributions: the running norm or, before there is one, their median (the lower of
/// two); 0 if all norms are 0 or there are none.
pub fn reference(running: u32, norms: impl Iterator<Item = u16>) -> u32 {
    if running > 0 {
        return running;
    }
    let mut sorted: Vec<u16> = norms.collect();
    sorted.sort_unstable();
    let middle = sorted.get(sorted.len().saturating_sub(1) / 2);
    middle.map_or(0, |norm| u32::from(*norm) << 16)
}

/// The weight of a contribution with this norm whose full weight is given. Norms up to `cap` times the reference count
/// in full. With a cap or a reference of 0, every norm does.
pub fn capped_weight(weight: u32, norm: u16, reference: u32, cap: f32) -> u32 {
    let most = f64::from(cap) * f64::from(f32::from_bits(reference));
    let norm = f64::from(f32::from_bits(u32::from(norm) << 16));
    if most <= 0.0 || norm <= most {
        return weight;
    }
    let share = most / norm;
    ((f64::from(weight) * share * share) as u32).max(1)
}

/// The running norm after an update with these contributions. `paths` is the number of paths in a whole round. All
/// contributions pull alike, whatever their weight. Otherwise the capped ones would leave the norm to the others.
pub fn running_norm(before: u32, contributions: &[Counted], paths: usize) -> u32 {
    let from = i64::from(reference(before, contributions.iter().map(|counted| counted.norm)));
    if from == 0 {
        return 0;
    }
    let pull = |counted: &Counted| {
        let off = (i64::from(counted.norm) << 16) - from;
        off.clamp(-OCTAVE, OCTAVE)
    };
    let whole = contributions.len().max(paths).max(1) as i64;
    let mean = contributions.iter().map(pull).sum::<i64>() / whole;
    let least = contributions.iter().map(|counted| (i64::from(counted.norm) << 16) - from).min().unwrap_or(0);
    let moved = from + if distinct_paths(contributions) > 1 { mean.max(least) } else { mean };
    moved.clamp(LEAST, MOST) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobRef, PathId, Version};

    fn norm(length: f32) -> u16 {
        (length.to_bits() >> 16) as u16
    }

    fn counted(length: f32, weight: u32) -> Counted {
        Counted {
            path: PathId(0),
            parent: Version(0),
            steps: 1,
            uncapped: weight,
            weight,
            norm: norm(length),
            blob: BlobRef::of(b""),
        }
    }

    /// The running norm and the weights after so many rounds of contributions of these norms.
    fn after(rounds: usize, lengths: &[f32]) -> (f32, Vec<u32>) {
        let (mut running, mut weights) = (0, vec![]);
        for _ in 0..rounds {
            let reference = reference(running, lengths.iter().map(|length| norm(*length)));
            weights = lengths.iter().map(|length| capped_weight(10_000, norm(*length), reference, 2.0)).collect();
            let round: Vec<Counted> =
                lengths.iter().zip(&weights).map(|(length, weight)| counted(*length, *weight)).collect();
            running = running_norm(running, &round, round.len());
        }
        (f32::from_bits(running), weights)
    }

    #[test]
    fn a_contribution_of_ten_times_the_norm_counts_for_a_twentyfifth() {
        assert_eq!(after(1, &[1.0, 1.0, 1.0, 10.0]).1, [10_000, 10_000, 10_000, 400]);
        assert_eq!(after(1, &[1.0, 10.0]).1, [10_000, 400], "in the first round as well");
        let (running, weights) = after(50, &[1.0, 1.0, 1.0, 10.0]);
        assert!((1.0..1.4).contains(&running) && weights[3] < 800, "{running} {weights:?}");
        assert_eq!(after(50, &[1.0, 1.9]).1, [10_000, 10_000], "paths differ");
    }

    #[test]
    fn a_tiny_contribution_does_not_drag_the_norm_down() {
        let both =
            |lengths: [f32; 2]| lengths.map(|length| Counted { path: PathId(length.to_bits()), ..counted(length, 1) });
        let begun = running_norm(0, &both([1.0e-4, 1.0]), 2);
        assert!(
            f32::from_bits(running_norm(begun, &both([0.9, 1.0]), 2)) > 0.8,
            "it may begin with a phase that was cut short"
        );
        let mut running = norm_bits(1.0);
        for _ in 0..50 {
            running = running_norm(running, &[counted(1.0, 1), counted(0.0, 1)], 2);
        }
        assert!(f32::from_bits(running) > 0.4);
    }

    #[test]
    fn the_norm_follows_all_contributions_and_meanwhile_they_weigh_the_same() {
        let (mut running, mut length) = (norm_bits(1.0), 1.0f32);
        for _ in 0..6 {
            length *= 3.0;
            let weights = [1.0, 1.0].map(|part| capped_weight(10_000, norm(length * part), running, 2.0));
            assert_eq!(weights[0], weights[1]);
            let round = weights.map(|weight| counted(length, weight));
            running = running_norm(running, &round, round.len());
        }
        for _ in 0..20 {
            running = running_norm(running, &[counted(length, 1)], 2);
        }
        assert!((f32::from_bits(running) / length - 1.0).abs() < 0.02);
    }

    fn norm_bits(length: f32) -> u32 {
        length.to_bits()
    }

    #[test]
    fn zero_and_extreme_norms_do_not_overflow() {
        assert_eq!(after(3, &[0.0, 0.0]), (0.0, vec![10_000, 10_000]));
        let (running, weights) = after(300, &[f32::MAX, f32::MAX]);
        assert!(running.is_finite() && weights.iter().all(|weight| *weight > 0));
        assert_eq!(capped_weight(7, norm(1.0e30), norm_bits(1.0e-30), 2.0), 1, "never zero");
        assert_eq!(capped_weight(7, norm(9.0), norm_bits(1.0), 0.0), 7, "no cap");
    }
}
