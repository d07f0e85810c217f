//! Additional blobs of a run that reshards: the slice that paths score, and the atlas.

use std::collections::BTreeSet;

use crate::config::RunConfig;
use crate::config::routing::SLICE_DOCUMENTS;
use crate::names::{BlobHash, PathId};
use crate::peer::create::CreateError;
use crate::peer::create::dense::Dense;
use crate::peer::create::dense_trainer::DenseTrainer;
use crate::peer::manifest::Resharding;
use crate::routing::resharding::{Atlas, Catalogue, Place};
use crate::routing::{DocumentKey, Router};
use crate::store::{BlobError, BlobStore};
use crate::text::TokenSet;
use crate::text::corpus::falls_within;

/// Training text without the slice, and the slice: documents whose hash is within a share, independent of routing.
/// Documents with equal tokens are all in it or none.
pub fn set_apart(run: &RunConfig, paths: u32, train: &TokenSet) -> Result<(TokenSet, TokenSet), CreateError> {
    if run.routing.reshard.is_empty() {
        return Ok((train.clone(), TokenSet::default()));
    }
    let documents = train.documents().len();
    let least = SLICE_DOCUMENTS * paths as usize;
    // A few more than requested, since hashes decide.
    let share = run.routing.slice_share.max(1.2 * least as f64 / documents.max(1) as f64);
    if share > 0.5 {
        return Err(CreateError::Slice { documents, least, needed: (2.4 * least as f64).ceil() as usize });
    }
    let (mut rest, mut slice) = (Vec::new(), Vec::new());
    for range in train.documents() {
        let mut hasher = blake3::Hasher::new_derive_key("pathswarm slice");
        let hash = hasher.update(&DocumentKey::of(&train.span(range.clone())).0).finalize();
        if falls_within(hash.as_bytes(), share) { slice.extend(range) } else { rest.extend(range) }
    }
    Ok((train.subset(&rest), train.subset(&slice)))
}

/// The creating text of the paths, by path.
pub struct RunTexts {
    /// Training, held-out and test text.
    pub shards: Vec<[TokenSet; 3]>,
    /// The slice for scoring.
    pub slice: TokenSet,
}

impl RunTexts {
    /// Puts atlas and slice into the creator's store.
    pub fn put_apart(&self, atlas: &Atlas, blobs: &BlobStore) -> Result<Resharding, BlobError> {
        let slice_documents = atlas.slice_documents() as u32;
        Ok(Resharding { atlas: blobs.put(&atlas.encode())?, slice: blobs.put(&self.slice.encode())?, slice_documents })
    }

    /// The features and places of all documents. A document in several shards is listed once.
    pub fn atlas(
        &self,
        run: &RunConfig,
        trainer: &mut DenseTrainer<'_>,
        (ancestor, hash): (&Dense, BlobHash),
        router: &Router,
    ) -> anyhow::Result<Atlas> {
        let prefix = run.routing.prefix_tokens;
        let mut features = |prefixes: &[&[u32]]| trainer.features(ancestor, prefixes);
        let mut catalogue = |purpose: usize| -> anyhow::Result<Catalogue> {
            let (mut seen, mut places, mut prefixes) = (BTreeSet::new(), Vec::new(), Vec::new());
            for (path, shard) in self.shards.iter().enumerate() {
                let set = &shard[purpose];
                for (document, range) in set.documents().enumerate() {
                    if !seen.insert(DocumentKey::of(&set.span(range.clone()))) {
                        continue;
                    }
                    prefixes.push(set.prefix(range.start, prefix));
                    let (shard, sequences) = (PathId(path as u32), range.len() as u32);
                    places.push(Place { shard, document: document as u32, sequences });
                }
            }
            Ok(Catalogue { places, features: features(&prefixes)? })
        };
        let (train, held_out, test) = (catalogue(0)?, catalogue(1)?, catalogue(2)?);
        let prefixes: Vec<&[u32]> =
            self.slice.documents().map(|range| self.slice.prefix(range.start, prefix)).collect();
        let slice = features(&prefixes)?;
        let slice_routes = router.route_all(if router.needs_features() { &slice } else { &[] }, &prefixes);
        Ok(Atlas { width: run.model.width, ancestor: hash, train, held_out, test, slice, slice_routes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::run::tests::SMALL;

    #[test]
    fn a_slice_is_taken_by_hash_and_never_most_of_the_text() {
        let mut run = RunConfig::from_toml(SMALL).unwrap();
        let documents: Vec<Vec<u32>> = (0..400u32).map(|i| vec![i % 290, i / 290, 1, 2, 3]).collect();
        let set = TokenSet::cut_for_scoring(&documents, 64);
        let (rest, slice) = set_apart(&run, 2, &set).unwrap();
        assert_eq!((rest.len(), slice.len()), (400, 0), "nothing asks for one");
        run.routing.reshard = vec![1];
        let (rest, slice) = set_apart(&run, 2, &set).unwrap();
        assert!((100..150).contains(&slice.len()) && rest.len() + slice.len() == 400, "{}", slice.len());
        let fewer = set.subset(&(0..399).collect::<Vec<_>>());
        let (again, _) = set_apart(&run, 2, &fewer).unwrap();
        assert!(
            again.documents().all(|range| rest.documents().any(|other| rest.span(other) == again.span(range.clone())))
        );
        let error = set_apart(&run, 4, &set).unwrap_err().to_string();
        assert_eq!(
            error,
            "resharding needs a slice of 200 documents for the paths to score, but there are only 400 training \
             documents; give at least 480, or leave routing.reshard out"
        );
    }
}
