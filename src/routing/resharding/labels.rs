//! Labels for the next router's fit: the path of each document of the slice.

use std::collections::BTreeSet;

use super::scores::PathScores;
use crate::names::PathId;

/// The label of each document of the slice: the path that predicts it best. `now` has the present paths. A path without
/// scores, or that is best nowhere, keeps its documents; if this leaves another path without any, that one keeps its
/// documents too.
pub fn labels(now: &[PathId], scores: &[PathScores], paths: u32) -> Vec<u32> {
    let heard: Vec<&PathScores> = scores.iter().filter(|scores| !scores.nats.is_empty()).collect();
    let best: Vec<PathId> = now.iter().enumerate().map(|(document, now)| best(&heard, document, *now)).collect();
    let all = || (0..paths).map(PathId);
    let mut keeps: BTreeSet<PathId> = all().filter(|path| heard.iter().all(|scores| scores.path != *path)).collect();
    loop {
        let label = |(now, best): (&PathId, &PathId)| if keeps.contains(now) { *now } else { *best };
        let labels: Vec<PathId> = now.iter().zip(&best).map(label).collect();
        let before = keeps.len();
        keeps.extend(all().filter(|path| !labels.contains(path)));
        if keeps.len() == before {
            return labels.into_iter().map(|path| path.0).collect();
        }
    }
}

/// The path that predicts a document best, the first of equals. If all are equal, there was nothing to predict, and the
/// document stays.
fn best(heard: &[&PathScores], document: usize, now: PathId) -> PathId {
    let nats = |scores: &&PathScores| scores.nats[document];
    let least = heard.iter().min_by(|a, b| nats(a).total_cmp(&nats(b)));
    let differ = heard.windows(2).any(|pair| nats(&pair[0]) != nats(&pair[1]));
    least.filter(|_| differ || heard.len() == 1).map_or(now, |scores| scores.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_speak_for_their_best_path_and_for_their_own_where_nothing_is_to_be_told() {
        let now = [0, 0, 1, 1, 2, 2].map(PathId);
        let scores = |path: u32, nats: [f32; 6]| PathScores { path: PathId(path), nats: nats.to_vec() };
        let all = [
            scores(0, [1.0, 3.0, 1.0, 5.0, 0.0, 4.0]),
            scores(1, [2.0, 2.0, 2.0, 4.0, 0.0, 3.0]),
            scores(2, [3.0, 4.0, 3.0, 6.0, 0.0, 3.5]),
        ];
        // The fifth document has nothing to predict, so the third path keeps one.
        assert_eq!(labels(&now, &all, 3), [0, 1, 0, 1, 2, 1]);
        assert_eq!(labels(&now, &all[..2], 3), [0, 1, 0, 1, 2, 2], "who says nothing keeps what it has");
        let mut nobodys_best = all.to_vec();
        nobodys_best[2].nats = vec![9.0; 6];
        assert_eq!(labels(&now, &nobodys_best, 3), [0, 1, 0, 1, 2, 2], "nor does who is nobody's best lose all");
    }
}
