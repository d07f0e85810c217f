//! The text of a path as its trainer reads it: from creation, or resharded.

use std::io::BufReader;
use std::sync::Arc;

use crate::names::{BlobHash, BlobRef, PathId};
use crate::peer::manifest::Manifest;
use crate::peer::manifest::shard_table::Shard;
use crate::routing::resharding::{Atlas, Catalogue, RouterState};
use crate::store::BlobStore;
use crate::text::{IdsWriter, TokenSet};

/// The purpose of a path's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Train,
    /// Evaluation of the path.
    HeldOut,
    /// Evaluation of the run.
    Test,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::Train => "the shard",
            Self::HeldOut => "the held-out slice",
            Self::Test => "the test text",
        }
    }

    fn of_shard(self, shard: &Shard) -> BlobRef {
        match self {
            Self::Train => shard.train,
            Self::HeldOut => shard.held_out,
            Self::Test => shard.test,
        }
    }

    fn of_atlas(self, atlas: &Atlas) -> &Catalogue {
        match self {
            Self::Train => &atlas.train,
            Self::HeldOut => &atlas.held_out,
            Self::Test => &atlas.test,
        }
    }
}

/// Reads texts from the store.
pub struct Texts {
    manifest: Arc<Manifest>,
    blobs: BlobStore,
    atlas: Option<Atlas>,
    /// The cached shard. Paths that take turns reload theirs, which is cheap compared with a phase.
    held: Option<(PathId, Option<BlobHash>, TokenSet)>,
}

impl Texts {
    /// Nothing is read yet.
    pub fn new(manifest: Arc<Manifest>, blobs: BlobStore) -> Self {
        Self { manifest, blobs, atlas: None, held: None }
    }

    /// Loads a path's training text into the cache.
    pub fn hold(&mut self, path: PathId, router: Option<&RouterState>) -> anyhow::Result<()> {
        let rule = fitted(router).map(|router| router.router.hash());
        if self.held.as_ref().is_none_or(|(held, by, _)| (*held, *by) != (path, rule)) {
            self.held = Some((path, rule, self.of(path, Purpose::Train, router)?));
        }
        Ok(())
    }

    /// The cached training text.
    pub fn held(&self) -> Option<&TokenSet> {
        self.held.as_ref().map(|(.., text)| text)
    }

    /// A path's text, by a router, if it reshards.
    pub fn of(&mut self, path: PathId, purpose: Purpose, router: Option<&RouterState>) -> anyhow::Result<TokenSet> {
        let Some(router) = fitted(router) else {
            return self.tokens(purpose.of_shard(self.manifest.shard(path)), purpose.name());
        };
        let overlap = if purpose == Purpose::Train { self.manifest.config.routing.overlap } else { 1 };
        let atlas = self.take_atlas()?;
        let (catalogue, mut parts) = (purpose.of_atlas(&atlas), Vec::new());
        let documents = router.documents_of(path, catalogue, atlas.width, overlap);
        for own in documents.chunk_by(|a, b| catalogue.places[*a].shard == catalogue.places[*b].shard) {
            let shard = catalogue.places[own[0]].shard;
            let text = self.tokens(purpose.of_shard(self.manifest.shard(shard)), purpose.name())?;
            let ranges: Vec<_> = text.documents().collect();
            let mut sequences = Vec::new();
            for document in own {
                let range = ranges.get(catalogue.places[*document].document as usize);
                sequences.extend(range.cloned().ok_or_else(|| anyhow::anyhow!("the atlas is of other text"))?);
            }
            parts.push(text.subset(&sequences));
        }
        self.atlas = Some(atlas);
        Ok(TokenSet::joined(&parts, IdsWriter::unnamed(&self.blobs.scratch())?)?)
    }

    /// The slice that paths score.
    pub fn slice(&self) -> anyhow::Result<TokenSet> {
        let parts = self.manifest.resharding.ok_or_else(|| anyhow::anyhow!("this run does not reshard its text"))?;
        self.tokens(parts.slice, "the slice")
    }

    fn take_atlas(&mut self) -> anyhow::Result<Atlas> {
        if let Some(atlas) = self.atlas.take() {
            return Ok(atlas);
        }
        let parts = self.manifest.resharding.ok_or_else(|| anyhow::anyhow!("this run does not reshard its text"))?;
        Ok(self.manifest.decode_atlas(&self.read(parts.atlas, "the atlas")?)?)
    }

    fn tokens(&self, blob: BlobRef, what: &str) -> anyhow::Result<TokenSet> {
        let model = &self.manifest.config.model;
        let file = self.blobs.verified(blob)?.ok_or_else(|| gone(blob, what))?;
        let ids = IdsWriter::unnamed(&self.blobs.scratch())?;
        Ok(TokenSet::read_for(model, BufReader::new(file), blob.bytes, ids)?)
    }

    fn read(&self, blob: BlobRef, what: &str) -> anyhow::Result<Vec<u8>> {
        let bytes = self.blobs.get(blob.hash, blob.bytes)?;
        bytes.ok_or_else(|| gone(blob, what))
    }
}

fn gone(blob: BlobRef, what: &str) -> anyhow::Error {
    anyhow::anyhow!("{what} ({}) is not in the store", blob.hash)
}

/// Before the first fit, paths have their creating text.
fn fitted(router: Option<&RouterState>) -> Option<&RouterState> {
    router.filter(|router| router.fits > 0)
}
