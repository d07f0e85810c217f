//! The manifest, which defines a run. Its BLAKE3 hash is the run's id; everything that it names is fetched by hash.
//! [`shard_table`] has each path's text, `genesis` the first state of each module, [`amending`] what its creator
//! changes later, [`cost`] what taking part costs.

pub mod amending;
pub mod cost;
pub(super) mod genesis;
pub mod shard_table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::compress::frame;
use crate::config::run::RunConfigError;
use crate::config::{Codec, MAX_PHASES, OuterConfig, RunConfig, Stagger, level_parameters};
use crate::grid::GridError;
use crate::model::hugging_face::pretrained::MAX_ENCODED_BYTES;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, RunId};
use crate::outer::ModuleState;
use crate::peer::manifest::shard_table::{Shard, Shards, TableError, table_bytes, weights};
use crate::protocol::RunPlan;
use crate::protocol::limits::{FULL_WEIGHT, MAX_CONTROL_BYTES};
use crate::protocol::wire::amended::Amended;
use crate::protocol::wire::encoding::WIRE_VERSION;
use crate::routing::resharding::{Atlas, AtlasError, PathScores, RouterState, StateError};
use crate::store::BlobStore;

/// Changes with the manifest, a blob's format or the outer arithmetic. Peers with different versions refuse each other.
pub const FORMAT_VERSION: u32 = 3;

/// Limit of the slice, which bounds the allocation for a manifest.
pub const MAX_SLICE_DOCUMENTS: u32 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT_VERSION`] of the creator.
    pub format_version: u32,
    /// Version of the messages.
    pub wire_version: u16,
    pub config: RunConfig,
    /// Hash of the text before tokenisation.
    pub corpus: BlobHash,
    /// Hash of the test text.
    pub test_corpus: BlobHash,
    /// Whether newcomers receive their shard from peers.
    pub share_text: bool,
    pub tokenizer: BlobRef,
    pub router: BlobRef,
    /// The shards of all documents.
    pub shard_index: BlobRef,
    /// The path of each test document, in order: u32, little endian.
    pub test_routes: BlobRef,
    /// Parameters of the dense ancestor, which the router needs too, as a safetensors file.
    pub ancestor: BlobRef,
    /// Settings and chat template of the pretrained model from which the run came.
    pub pretrained: Option<BlobRef>,
    /// By path.
    pub shards: Shards,
    /// Additional blobs for resharding.
    pub resharding: Option<Resharding>,
    /// The state of each module before the first update.
    pub genesis: Vec<(ModuleId, BlobRef)>,
    /// What the swarm trains after this run, starting from its result.
    pub then: Option<Box<RunConfig>>,
    /// The run that the swarm trained before.
    pub after: Option<RunId>,
    /// Whose amendments are valid and, in a run by invitation, whose invitations. Runs of older programs have none.
    pub creator: Option<PeerKey>,
    /// The amendment that `config` has in it.
    #[serde(skip)]
    pub amendment: Option<Amended>,
}

/// Additional blobs of a run that reshards.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resharding {
    /// Features and places of all documents.
    pub atlas: BlobRef,
    /// The documents that paths score.
    pub slice: BlobRef,
    /// Number of these documents.
    pub slice_documents: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest cannot be decoded: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error(
        "the run has wire version {wire} and format version {format}, this program {WIRE_VERSION} and \
         {FORMAT_VERSION}; use the creator's version of pathswarm"
    )]
    Version { wire: u16, format: u32 },
    #[error("the configuration in the manifest: {0}")]
    Config(#[from] RunConfigError),
    #[error("the configuration in the manifest: {0}")]
    Grid(#[from] GridError),
    #[error("the manifest names {found} modules, but its grid has {expected}")]
    Count { found: usize, expected: usize },
    #[error("the run's shard table has not been read")]
    NoTable,
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("the manifest gives module {0} a state of the wrong size")]
    StateSize(ModuleId),
    /// Resharding is configured but its blobs are missing, or the reverse.
    #[error("the manifest and its configuration differ in whether the text is resharded")]
    Resharding,
    #[error("the manifest names {0} bytes of a pretrained model's settings, at most {MAX_ENCODED_BYTES}")]
    Pretrained(u64),
    #[error("the run is by invitation, but the manifest names nobody who invites")]
    Admission,
    #[error("the manifest has {0} bytes, at most {MAX_CONTROL_BYTES} can be sent; use a smaller grid")]
    Large(usize),
}

impl Manifest {
    /// The bytes whose hash is the run's id.
    pub fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        let bytes = serde_json::to_vec_pretty(self)?;
        // Leaves space for the header and length of a response.
        if bytes.len() + 64 > MAX_CONTROL_BYTES {
            return Err(ManifestError::Large(bytes.len()));
        }
        Ok(bytes)
    }

    /// Decodes and checks a manifest from an untrusted source.
    pub fn decode(bytes: &[u8]) -> Result<(Self, RunId), ManifestError> {
        #[derive(Deserialize)]
        struct Versions {
            format_version: u32,
            wire_version: u16,
        }
        let versions: Versions = serde_json::from_slice(bytes)?;
        let (wire, format) = (versions.wire_version, versions.format_version);
        if (wire, format) != (WIRE_VERSION, FORMAT_VERSION) {
            return Err(ManifestError::Version { wire, format });
        }
        let manifest: Self = serde_json::from_slice(bytes)?;
        manifest.check()?;
        Ok((manifest, RunId(*blake3::hash(bytes).as_bytes())))
    }

    fn check(&self) -> Result<(), ManifestError> {
        self.config.check()?;
        self.then.as_ref().map_or(Ok(()), |then| then.check())?;
        if !self.config.admission.is_open() && self.creator.is_none() {
            return Err(ManifestError::Admission);
        }
        if let Some(files) = self.pretrained.filter(|files| files.bytes > MAX_ENCODED_BYTES as u64) {
            return Err(ManifestError::Pretrained(files.bytes));
        }
        let grid = self.config.grid()?;
        let paths = grid.path_count() as usize;
        if self.shards.table.bytes != table_bytes(paths) {
            return Err(TableError::Header(paths).into());
        }
        let (router, slots) = (self.config.router_module(), self.config.slots()?);
        let most = MAX_SLICE_DOCUMENTS;
        if router.is_some() != self.resharding.is_some_and(|parts| (1..=most).contains(&parts.slice_documents)) {
            return Err(ManifestError::Resharding);
        }
        // Checked before modules are listed: a manifest of 100 kB could ask for a thousand million.
        let (found, expected) = (self.genesis.len(), slots.grid().module_count());
        if found != expected {
            return Err(ManifestError::Count { found, expected });
        }
        let counts = self.level_counts();
        for (expected, (module, state)) in slots.grid().modules().into_iter().zip(&self.genesis) {
            let size = match counts.get(usize::from(expected.level)) {
                Some(count) => ModuleState::size_bytes(*count, self.config.outer.mode),
                None => RouterState::size_bytes(grid.path_count(), self.config.model.width),
            };
            if *module != expected || state.bytes != size {
                return Err(ManifestError::StateSize(expected));
            }
        }
        Ok(())
    }

    /// Whether this is the manifest of the second stage of the run `first`, whose id is `run`.
    pub fn follows(&self, first: &Self, run: RunId) -> bool {
        let text = |manifest: &Self| (manifest.corpus, manifest.test_corpus, manifest.share_text);
        let same = text(self) == text(first) && self.creator == first.creator;
        // It may be amended by now.
        let as_created = |then: &RunConfig| {
            let mut config = self.config.clone();
            (config.training.phases, config.requires) = (then.training.phases, then.requires.clone());
            config == *then
        };
        self.after == Some(run) && first.then.as_deref().is_some_and(as_created) && same
    }

    /// Parameters in a module of each level.
    pub fn level_counts(&self) -> Vec<usize> {
        self.config.levels.iter().map(|level| level_parameters(&self.config.model, level)).collect()
    }

    /// Upper bound of a trainer state: residuals, two moments and the best parameters, and framing.
    pub fn most_trainer_bytes(&self) -> u64 {
        16 * self.level_counts().iter().sum::<usize>() as u64 + (1 << 16)
    }

    /// The protocol's view of the run.
    pub fn plan(&self) -> Result<RunPlan, ManifestError> {
        let slots = self.config.slots()?;
        let shards = self.shards.listed();
        if shards.len() != slots.grid().path_count() as usize {
            return Err(ManifestError::NoTable);
        }
        let outer = &self.config.outer;
        let counts = self.level_counts();
        let frames = |codec: fn(&OuterConfig) -> Codec| {
            let most =
                move |(level, count): (usize, &usize)| frame::max_bytes(codec(&self.config.outer_of(level)), *count);
            counts.iter().enumerate().map(most)
        };
        let paths = slots.grid().path_count();
        let scores = self.resharding.map(|parts| PathScores::max_bytes(paths, parts.slice_documents as usize));
        // If sizes change, each path scales its contribution itself, and all have the same weight.
        let weights = match self.resharding {
            Some(_) => vec![FULL_WEIGHT; shards.len()],
            None => weights(shards.iter().map(|shard| shard.sequences)),
        };
        Ok(RunPlan {
            slots,
            mode: self.config.outer.mode,
            phases: self.config.training.phases,
            inner_steps: self.config.training.inner_steps,
            streaming: outer.streaming.map(|streaming| {
                Stagger::new(self.config.levels.len(), self.config.training.inner_steps, streaming.overlap)
            }),
            reshard: self.config.routing.reshard.clone(),
            weights,
            genesis: self.genesis.iter().copied().collect::<BTreeMap<_, _>>(),
            offer_bytes: frames(|outer| outer.codec).chain(scores).collect(),
            average_bytes: frames(OuterConfig::average_codec).chain(scores).collect(),
            norm_cap: outer.cap(),
            audit_share: outer.audit_share,
            centred_clipping: outer.centred_clipping,
            deterministic: outer.deterministic,
        })
    }

    /// Reads the shard table.
    pub fn take_table(&mut self, bytes: &[u8]) -> Result<(), ManifestError> {
        let paths = self.config.grid()?.path_count() as usize;
        Ok(self.shards.take_table(bytes, paths)?)
    }

    /// The same, from a store that has it.
    pub fn with_table_in(mut self, blobs: &BlobStore) -> anyhow::Result<Self> {
        let bytes = blobs.get(self.shards.table.hash, self.shards.table.bytes)?;
        self.take_table(&bytes.context("the run's shard table is not in the store")?)?;
        Ok(self)
    }

    /// Decodes a state of the run's router.
    pub fn router_state(&self, bytes: &[u8]) -> Result<RouterState, StateError> {
        let (paths, run) = (self.shards.listed().len() as u32, &self.config);
        let state = RouterState::decode(bytes, paths, run.model.width, run.routing.prefix_tokens)?;
        // Others may know of an amendment of the run.
        let possible = state.rounds <= MAX_PHASES && u64::from(state.fits) <= state.rounds;
        let fitted = state.fits == 0 || state.router.ancestor() == Some(self.ancestor.hash);
        if possible && fitted { Ok(state) } else { Err(StateError::Format("what no round of this run makes")) }
    }

    /// Decodes the atlas of the run.
    pub fn decode_atlas(&self, bytes: &[u8]) -> Result<Atlas, AtlasError> {
        let atlas = Atlas::decode(bytes, self.shards.listed().len() as u32)?;
        let documents = self.resharding.map_or(0, |parts| parts.slice_documents as usize);
        let own = (self.config.model.width, self.ancestor.hash, documents);
        let found = (atlas.width, atlas.ancestor, atlas.slice_documents());
        if found == own { Ok(atlas) } else { Err(AtlasError::Format("of another model, ancestor or slice")) }
    }

    /// One path's part of the text; the shards must have been read.
    pub fn shard(&self, path: PathId) -> &Shard {
        &self.shards.listed()[path.0 as usize]
    }

    /// The run that invitations name, and its creator; `None` if it is open. Invitations to the first of two stages are
    /// valid in both.
    pub fn invites(&self, run: RunId) -> Option<(RunId, PeerKey)> {
        let creator = self.creator.filter(|_| !self.config.admission.is_open());
        creator.map(|creator| (self.after.unwrap_or(run), creator))
    }

    /// Blobs that a peer never sends: the text, unless the run shares it.
    pub fn private_blobs(&self) -> BTreeSet<BlobHash> {
        if self.share_text {
            return BTreeSet::new();
        }
        let slice = self.resharding.map(|parts| parts.slice.hash);
        self.shards.listed().iter().flat_map(Shard::hashes).chain(slice).collect()
    }

    /// All text that training a path needs: its shard, or all first shards in a run that reshards.
    pub fn text_for(&self, path: PathId) -> Vec<BlobRef> {
        let Some(parts) = self.resharding else { return self.shard(path).blobs().to_vec() };
        self.shards.listed().iter().flat_map(Shard::blobs).chain([parts.slice]).collect()
    }

    /// The part of it on which a path is scored.
    pub fn text_to_score(&self, path: PathId) -> Vec<BlobRef> {
        match self.resharding {
            Some(_) => self.shards.listed().iter().map(|shard| shard.held_out).collect(),
            None => vec![self.shard(path).held_out],
        }
    }

    /// The text that peers send each other, without that of these paths.
    pub fn text_besides(&self, paths: &BTreeSet<PathId>) -> BTreeSet<BlobHash> {
        if !self.share_text || self.resharding.is_some() {
            return BTreeSet::new();
        }
        let kept: BTreeSet<BlobHash> = paths.iter().flat_map(|path| self.shard(*path).hashes()).collect();
        self.shards.listed().iter().flat_map(Shard::hashes).filter(|blob| !kept.contains(blob)).collect()
    }

    /// The blobs that every peer of the run stores, whatever its paths.
    pub fn for_everybody(&self) -> Vec<BlobRef> {
        let parts = [self.shards.table, self.tokenizer, self.router, self.shard_index, self.test_routes, self.ancestor];
        let atlas = self.resharding.map(|parts| parts.atlas);
        parts.into_iter().chain(atlas).chain(self.pretrained).collect()
    }

    /// The blobs of the run itself, which a peer never removes.
    pub fn pinned_blobs(&self) -> BTreeSet<BlobHash> {
        let everybody = self.for_everybody().into_iter().map(|blob| blob.hash);
        let text = self.shards.listed().iter().flat_map(Shard::hashes);
        let text = text.chain(self.resharding.map(|parts| parts.slice.hash));
        everybody.chain(text).chain(self.genesis.iter().map(|(_, state)| state.hash)).collect()
    }
}
