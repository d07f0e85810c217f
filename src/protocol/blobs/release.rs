//! The release of blobs to which nothing refers any more.
//!
//! Blobs are named by their hash, so two uses may share one blob, and workers may still read what the protocol no
//! longer needs. A released blob is therefore only a candidate until no part of the node refers to it.

use std::collections::BTreeSet;

use crate::names::BlobHash;

/// The candidates for release.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Releases {
    candidates: BTreeSet<BlobHash>,
    /// Whether a reference may have gone since the last check.
    changed: bool,
}

impl Releases {
    /// One use of this blob has ended.
    pub(in crate::protocol) fn add(&mut self, blob: BlobHash) {
        self.candidates.insert(blob);
        self.changed = true;
    }

    /// A reference has gone, perhaps to a candidate.
    pub(in crate::protocol) fn look_again(&mut self) {
        self.changed = true;
    }

    pub(in crate::protocol) fn clear(&mut self) {
        self.candidates.clear();
    }

    /// Removes and returns the candidates to which nothing refers, if anything has changed. `references` visits
    /// everything that is referred to.
    pub(in crate::protocol) fn take_unreferenced(
        &mut self,
        references: impl FnOnce(&mut dyn FnMut(BlobHash)),
    ) -> Vec<BlobHash> {
        if !std::mem::take(&mut self.changed) {
            return Vec::new();
        }
        let candidates: Vec<BlobHash> = std::mem::take(&mut self.candidates).into_iter().collect();
        // The candidates are in order, so those with the same first byte are adjacent. There is mostly one or none.
        let mut starts = [0; 257];
        candidates.iter().for_each(|blob| starts[usize::from(blob.0[0]) + 1] += 1);
        (0..256).for_each(|byte| starts[byte + 1] += starts[byte]);
        let mut is_kept = vec![false; candidates.len()];
        references(&mut |blob| {
            let alike = starts[usize::from(blob.0[0])]..starts[usize::from(blob.0[0]) + 1];
            if let Some(at) = alike.into_iter().find(|at| candidates[*at] == blob) {
                is_kept[at] = true;
            }
        });
        let (kept, gone): (Vec<_>, Vec<_>) = candidates.into_iter().zip(is_kept).partition(|(_, is_kept)| *is_kept);
        self.candidates.extend(kept.into_iter().map(|(blob, _)| blob));
        gone.into_iter().map(|(blob, _)| blob).collect()
    }
}
