//! Which path should read on, as targets: what a router learns of windows of text whose losses every path has told.
//!
//! Over a few dozen tokens the best of many paths is best by luck as often as not, and a router that learns the best alone
//! learns that luck. So a window has several targets, shared by a softmax of the paths' losses: a path that needs hardly a
//! nat more has nearly as many.

/// A path that needs so many nats more for a window than another has e times fewer targets. What sets alien texts' paths apart
/// is hundreds of nats, what sets those of kindred texts apart a few, and it is these that are to be told apart.
const TEMPERATURE_NATS: f64 = 2.0;

/// Votes of a window.
pub const TARGETS: usize = 16;

/// A router that chooses every so many tokens learns at places that are so many apart, or closer: of long windows there are
/// too few to learn from.
const STRIDE: usize = 16;

/// How far apart the places are at which a choice every so many tokens is learnt: a divisor of that.
pub fn stride(every: usize) -> usize {
    if every.is_multiple_of(STRIDE) { STRIDE } else { every }
}

/// What each path needs for a place and the `count - 1` after it in the same document, from what it needs for each place of
/// `documents` alone.
pub fn ahead(documents: &[usize], nats: &[Vec<f64>], count: usize) -> Vec<Vec<f64>> {
    let from = |place: usize| {
        let last = documents.len().min(place + count.max(1));
        let same = (place..last).take_while(|other| documents[*other] == documents[place]);
        same.map(|other| &nats[other]).fold(vec![0.0; nats[place].len()], |mut sum, of_paths| {
            sum.iter_mut().zip(of_paths).for_each(|(sum, nats)| *sum += nats);
            sum
        })
    };
    (0..documents.len()).map(from).collect()
}

/// The targets of each window, from the nats that each path needs for it. Votes are paths' numbers, in order.
pub fn soft_targets(nats: &[Vec<f64>]) -> Vec<Vec<u32>> {
    nats.iter().map(Vec::as_slice).map(shared_out).collect()
}

/// Equal steps through the paths' summed weights.
fn shared_out(nats: &[f64]) -> Vec<u32> {
    let least = nats.iter().copied().fold(f64::INFINITY, f64::min);
    let weights: Vec<f64> = nats.iter().map(|nats| ((least - nats) / TEMPERATURE_NATS).exp()).collect();
    let step = weights.iter().sum::<f64>() / TARGETS as f64;
    let (mut targets, mut sum) = (Vec::with_capacity(TARGETS), 0.0);
    for (path, weight) in weights.iter().enumerate() {
        sum += weight;
        while targets.len() < TARGETS && (targets.len() as f64 + 0.5) * step < sum {
            targets.push(path as u32);
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(targets: &[u32], path: u32) -> usize {
        targets.iter().filter(|target| **target == path).count()
    }

    #[test]
    fn a_better_path_has_more_targets_an_equal_one_as_many_and_a_hopeless_one_none() {
        let found = soft_targets(&[vec![10.0, 12.0, 10.0], vec![500.0, 10.0, 500.0], vec![7.0, 7.0, 7.0]]);
        assert!(found.iter().all(|targets| targets.len() == TARGETS && targets.is_sorted()));
        assert_eq!(found[1], [1; TARGETS]);
        assert!(found[2].iter().all(|path| *path < 3) && (5..=6).contains(&of(&found[2], 0)), "{:?}", found[2]);
        let only = soft_targets(&[vec![10.0, 12.0, 10.0]]).remove(0);
        assert!(of(&only, 0).abs_diff(of(&only, 2)) <= 1 && of(&only, 1) < of(&only, 0), "{only:?}");
    }

    #[test]
    fn targets_are_shared_by_a_softmax_of_nats() {
        let found = soft_targets(&[vec![3.0, 5.0], vec![5.0, 3.0]]);
        assert_eq!(of(&found[0], 0), (16.0 / (1.0 + (-1f64).exp())).round() as usize);
        assert_eq!(of(&found[1], 1), of(&found[0], 0));
    }

    #[test]
    fn what_is_ahead_ends_with_the_document() {
        let nats = [[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]].map(Vec::from);
        let found = ahead(&[3, 3, 3, 5], &nats, 2);
        assert_eq!(found, [[3.0, 30.0], [6.0, 60.0], [4.0, 40.0], [8.0, 80.0]].map(Vec::from));
        assert_eq!(ahead(&[3, 3, 3, 5], &nats, 1), nats);
        assert_eq!([16, 64, 24, 7].map(stride), [16, 16, 24, 7]);
    }

    #[test]
    fn where_all_are_equal_or_nothing_is_known_targets_are_still_paths() {
        assert_eq!(soft_targets(&[vec![2.0]]), [[0; TARGETS]]);
        assert!(soft_targets(&[]).is_empty());
    }
}
