//! The checkpoint that is being scored here, and the newest score of each path.

use std::collections::BTreeMap;

use crate::names::{BlobHash, PathId, PeerKey, Phase};
use crate::protocol::limits::MAX_SCORES;
use crate::protocol::wire::message::Score;

/// A node's evaluations.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Evaluations {
    /// The checkpoint that is being scored, with the blobs that it is read from.
    under_way: Option<(PathId, Phase, Vec<BlobHash>)>,
    /// The newest checkpoint of each path that was scored here or could not be.
    tried: BTreeMap<PathId, Phase>,
    /// The newest score of each path, and the peer that reported it.
    scores: BTreeMap<PathId, (Score, PeerKey)>,
}

impl Evaluations {
    pub(in crate::protocol) fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether this checkpoint is being scored.
    pub(in crate::protocol) fn is_scoring(&self, path: PathId, phase: Phase) -> bool {
        self.under_way.as_ref().is_some_and(|(of, at, _)| (*of, *at) == (path, phase))
    }

    /// The blobs that the scorer may not have read yet.
    pub(in crate::protocol) fn reads(&self) -> impl Iterator<Item = BlobHash> {
        self.under_way.iter().flat_map(|(_, _, reads)| reads).copied()
    }

    pub(in crate::protocol) fn begin(&mut self, path: PathId, phase: Phase, reads: Vec<BlobHash>) {
        self.under_way = Some((path, phase, reads));
    }

    /// The checkpoint was scored or could not be. Returns the blobs that were read; nothing if it was not being scored.
    pub(in crate::protocol) fn end(&mut self, path: PathId, phase: Phase) -> Option<Vec<BlobHash>> {
        let (_, _, reads) = self.under_way.take_if(|(of, at, _)| (*of, *at) == (path, phase))?;
        self.tried.insert(path, phase);
        Some(reads)
    }

    /// The newest scored phase of a path.
    pub(in crate::protocol) fn scored(&self, path: PathId) -> Option<Phase> {
        self.scores.get(&path).map(|(score, _)| score.phase)
    }

    /// Whether a checkpoint is newer than all that were scored or tried.
    pub(in crate::protocol) fn is_new(&self, path: PathId, phase: Phase) -> bool {
        self.scored(path).max(self.tried.get(&path).copied()) < Some(phase)
    }

    /// Keeps a score if it is newer than the known one.
    pub(in crate::protocol) fn keep(&mut self, score: Score, by: PeerKey) {
        let known = self.scored(score.path);
        if known < Some(score.phase) && (known.is_some() || self.scores.len() < MAX_SCORES) {
            self.scores.insert(score.path, (score, by));
        }
    }

    /// The newest score of each path, and the peer that reported it.
    pub(in crate::protocol) fn scores(&self) -> impl ExactSizeIterator<Item = &(Score, PeerKey)> {
        self.scores.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newer_scores_are_kept_and_only_newer_checkpoints_tried() {
        let (path, peer) = (PathId(1), PeerKey([1; 32]));
        let score = |phase| Score { path, phase: Phase(phase), millibits_per_byte: phase as u32 };
        let mut evaluations = Evaluations::default();
        evaluations.keep(score(3), peer);
        evaluations.keep(score(2), peer);
        assert_eq!(evaluations.scores().map(|(score, _)| score.phase).collect::<Vec<_>>(), [Phase(3)]);
        assert!(!evaluations.is_new(path, Phase(3)) && evaluations.is_new(path, Phase(4)));
        evaluations.begin(path, Phase(4), vec![BlobHash([1; 32])]);
        assert_eq!(evaluations.end(path, Phase(5)), None);
        assert_eq!(evaluations.end(path, Phase(4)), Some(vec![BlobHash([1; 32])]));
        assert!(!evaluations.is_new(path, Phase(4)) && !evaluations.is_busy());
    }
}
