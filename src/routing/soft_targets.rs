//! Soft targets for a router that chooses the path of each window of text, from the loss of every path on it.
//!
//! Over a few dozen tokens, the best of many paths is often best by chance, and a router that learns only the best path
//! learns noise. So a window has several targets, distributed as a softmax of the paths' losses: a path with nearly the
//! least loss gets nearly as many.

/// A path with this many more nats on a window gets a factor e fewer targets. Unrelated texts differ by hundreds of
/// nats, related texts by a few; the temperature is set for the latter.
const TEMPERATURE_NATS: f64 = 2.0;

/// Targets of a window.
pub const TARGETS: usize = 16;

/// Most distance between the windows that a router learns from. With longer windows there would be too few.
const STRIDE: usize = 16;

/// Distance between the windows for a choice every `every` tokens: a divisor of that.
pub fn stride(every: usize) -> usize {
    if every.is_multiple_of(STRIDE) { STRIDE } else { every }
}

/// The loss of each path on each position and the `count - 1` after it in the same document, from the loss on each
/// position of `documents`.
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

/// The targets of each window, from the nats of each path on it: numbers of paths, in order.
pub fn soft_targets(nats: &[Vec<f64>]) -> Vec<Vec<u32>> {
    nats.iter().map(Vec::as_slice).map(shared_out).collect()
}

/// Takes equal steps through the cumulative weights of the paths.
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
