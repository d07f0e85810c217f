//! From text to a run: tokenizer, ancestor, router, shards, and the manifest that names them all.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::dense::{Dense, KeptDense};
use super::dense_trainer::{DenseTrainer, Stopped};
use super::launch::{lock_store, read_manifest, write_manifest};
use super::manifest::{FORMAT_VERSION, Manifest, ManifestError};
use super::shard_table::{Shard, Shards, encode_table};
use super::turns::Turns;
use crate::config::{MachineConfig, OuterMode, RoutingMethod, RunConfig};
use crate::model::{exchange, open_device};
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, RunId};
use crate::network::limits::TOPICS_PER_PEER;
use crate::outer::ModuleState;
use crate::protocol::wire::WIRE_VERSION;
use crate::routing::{Router, ShardIndex};
use crate::seed::Seed;
use crate::store::{BlobStore, LockedStore};
use crate::text::{Corpus, CorpusError, CorpusSource, TokenSet, Tokenizer, read_corpus, split_test};

/// What a run is founded from.
pub struct Plan<'a> {
    /// The run.
    pub run: &'a RunConfig,
    /// This machine.
    pub machine: &'a MachineConfig,
    /// The founder's folder.
    pub folder: &'a Path,
    /// The text to train on.
    pub corpus: CorpusSource,
    /// The text to test on; if absent, a share of the corpus.
    pub test_corpus: Option<CorpusSource>,
    /// Whether newcomers receive their shard from peers.
    pub share_text: bool,
    /// A `tokenizer.json` to use instead of training one.
    pub tokenizer: Option<Vec<u8>>,
    /// A trained ancestor to start from instead of training one: its parameters, level by level.
    pub ancestor: Option<Vec<Vec<f32>>>,
}

/// A step of founding, for whoever watches.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// The text was read.
    Corpus(Box<Corpus>),
    /// The tokenizer is ready: its entries, and the training text's tokens and sequences.
    Tokens {
        /// Entries.
        vocabulary: usize,
        /// Tokens to train on.
        tokens: u64,
        /// Sequences to train on.
        sequences: usize,
    },
    /// A step of the ancestor: how many of how many, and the loss.
    Ancestor(u64, u64, f64),
    /// Training sequences by path.
    Shards(Vec<u64>),
}

/// A run that can begin.
pub struct Founded {
    /// Its founder's store, which has all blobs.
    pub store: LockedStore,
    /// What it is.
    pub manifest: Manifest,
    /// The manifest's bytes.
    pub bytes: Vec<u8>,
    /// Its name.
    pub id: RunId,
    /// The ancestor with its AdamW, for the dense control.
    pub ancestor: Dense,
    /// All training text.
    pub train: TokenSet,
    /// All test text.
    pub test: TokenSet,
}

/// Why the text is not enough, or not the right one.
#[derive(Debug, thiserror::Error)]
pub enum FoundingError {
    /// Too few documents.
    #[error(
        "{corpus}: {documents} training documents for {paths} paths, at least {least} are needed; \
         give more text or use a smaller grid"
    )]
    Small {
        /// Which.
        corpus: String,
        /// To train on.
        documents: usize,
        /// In the grid.
        paths: u32,
        /// Documents needed.
        least: usize,
    },
    /// While this process read its text.
    #[error("another process has founded a run in {} meanwhile; start again to go on with that one", .0.display())]
    Meanwhile(PathBuf),
    /// The founder begins as a member of every module.
    #[error("the grid has {0} modules, a founder can begin with {TOPICS_PER_PEER}; use fewer levels or experts")]
    Modules(usize),
    /// The tokenizer has more entries than the model's embedding has rows.
    #[error("the tokenizer has {found} entries, model.vocabulary is {expected}; set model.vocabulary = {found}")]
    Vocabulary {
        /// The tokenizer's.
        found: usize,
        /// The model's.
        expected: usize,
    },
}

/// Documents that a path needs at the least to be called a shard.
const LEAST_DOCUMENTS: usize = 8;

/// Reads the text, trains what has to be trained and puts every blob of the run into the founder's store. What an
/// ancestor has learnt when this is stopped is kept in its folder.
///
/// The store is opened when the text is known to be enough: a mistake leaves nothing behind.
///
/// # Errors
/// If the text cannot be read or is too small, training fails, or the store does.
pub fn found(plan: Plan<'_>, turns: &Turns, stop: &AtomicBool, told: &mut dyn FnMut(Stage)) -> anyhow::Result<Founded> {
    let run = plan.run;
    let grid = run.grid()?;
    if grid.modules().len() > TOPICS_PER_PEER {
        return Err(FoundingError::Modules(grid.modules().len()).into());
    }
    // A device that is not there is known before any work is done.
    open_device(plan.machine.device)?;
    let documents = Documents::read(&plan.corpus, plan.test_corpus.as_ref(), run, told)?;
    let paths = grid.path_count();
    let least = LEAST_DOCUMENTS * paths as usize;
    if documents.train.len() < least {
        let (corpus, documents) = (plan.corpus.to_string(), documents.train.len());
        return Err(FoundingError::Small { corpus, documents, paths, least }.into());
    }
    go_on(stop)?;
    let text = Text::of(documents, plan.tokenizer.as_deref(), run, told)?;
    go_on(stop)?;
    let store = lock_store(plan.folder)?;
    if read_manifest(plan.folder)?.is_some() {
        return Err(FoundingError::Meanwhile(plan.folder.to_owned()).into());
    }
    let blobs = &store.blobs;
    let mut trainer = DenseTrainer::new(run, plan.machine, turns, stop)?;
    let initial = Dense::initial(run);
    let steps = run.training.ancestor_steps;
    let ancestor = match plan.ancestor {
        Some(levels) => Dense { levels, inner: initial.inner },
        None => {
            let kept = unfinished_ancestor(plan.folder, of_text(run, &text)?);
            let mut told = |step, loss| told(Stage::Ancestor(step, steps, loss));
            trainer.train(initial, &text.train, 0..steps, &kept, &mut told)?
        }
    };
    let pairs: Vec<_> = run.levels.iter().zip(ancestor.levels.iter().map(Vec::as_slice)).collect();
    let ancestor_file = exchange::encode(&run.model, &pairs, &[])?;
    let ancestor_hash = BlobHash::of(&ancestor_file);

    go_on(stop)?;
    let routing = Routing::new(run, &mut trainer, &ancestor, ancestor_hash, &text.train)?;
    let train_routes = routing.routes(&mut trainer, &ancestor, &text.train, run.routing.overlap)?;
    let index = ShardIndex::build(&text.train, &train_routes, paths, run.text.held_out_share)?;
    told(Stage::Shards(index.sizes()));
    go_on(stop)?;
    let test_routes = routing.routes(&mut trainer, &ancestor, &text.test, 1)?;

    let mut shards = Vec::new();
    for path in grid.paths() {
        shards.push(Shard {
            train: put_tokens(blobs, &text.train, &index.select(&text.train, path, false))?,
            held_out: put_tokens(blobs, &text.train, &index.select(&text.train, path, true))?,
            test: put_tokens(blobs, &text.test, &routed_to(&text.test, &test_routes, path))?,
            sequences: index.sizes()[path.0 as usize],
        });
    }
    let mut manifest = Manifest {
        format_version: FORMAT_VERSION,
        wire_version: WIRE_VERSION,
        config: run.clone(),
        corpus: text.corpus,
        test_corpus: text.test_corpus,
        share_text: plan.share_text,
        tokenizer: blobs.put(text.tokenizer.json())?,
        router: blobs.put(&routing.router.encode())?,
        shard_index: blobs.put(&index.encode())?,
        test_routes: blobs.put(&test_routes.iter().flat_map(|path| path.0.to_le_bytes()).collect::<Vec<u8>>())?,
        ancestor: blobs.put(&ancestor_file)?,
        shards: Shards::Listed(shards),
        genesis: genesis(&grid.modules(), &ancestor.levels, run.outer.mode, blobs)?,
    };
    let bytes = encode(&mut manifest, blobs)?;
    let (manifest, id) = Manifest::decode(&bytes)?;
    let manifest = manifest.with_table_in(blobs)?;
    Ok(Founded { manifest, bytes, id, ancestor, train: text.train, test: text.test, store })
}

/// The manifest's bytes; the shards go to a blob if they are too many for it.
fn encode(manifest: &mut Manifest, blobs: &BlobStore) -> anyhow::Result<Vec<u8>> {
    match manifest.encode() {
        Err(ManifestError::Large(_)) => {
            let shards = manifest.shards.listed().to_vec();
            let table = blobs.put(&encode_table(&shards))?;
            manifest.shards = Shards::in_table(shards, table);
            Ok(manifest.encode()?)
        }
        encoded => Ok(encoded?),
    }
}

/// Each stage takes a while; between two, the user may stop.
fn go_on(stop: &AtomicBool) -> Result<(), Stopped> {
    if stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
}

/// Where an ancestor in training is kept, until the run is founded.
fn unfinished_ancestor(folder: &Path, of: BlobHash) -> KeptDense {
    KeptDense { file: folder.join("ancestor.unfinished"), of }
}

/// Names what an ancestor is trained by and on.
fn of_text(run: &RunConfig, text: &Text) -> anyhow::Result<BlobHash> {
    let config = BlobHash::of(&serde_json::to_vec(run)?);
    let parts = [config, text.corpus, BlobHash::of(text.tokenizer.json())];
    Ok(BlobHash::of(&parts.map(|part| part.0).concat()))
}

/// Puts the manifest of a run into its founder's folder: from then on it is founded.
///
/// # Errors
/// If the disk fails.
pub fn settle(folder: &Path, manifest: &[u8]) -> anyhow::Result<()> {
    write_manifest(folder, manifest)?;
    unfinished_ancestor(folder, BlobHash::of(b"")).remove();
    Ok(())
}

/// The text of a run as tokens.
pub struct Text {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// To train on.
    pub train: TokenSet,
    /// To test on.
    pub test: TokenSet,
    /// Hash of the corpus.
    pub corpus: BlobHash,
    /// Hash of the test corpus, or of the corpus again if a share of it is the test text.
    pub test_corpus: BlobHash,
}

/// The documents of a run.
pub struct Documents {
    train: Vec<String>,
    test: Vec<String>,
    /// Hash of the corpus.
    pub corpus: BlobHash,
    /// Hash of the test corpus, or of the corpus again if a share of it is the test text.
    pub test_corpus: BlobHash,
}

impl Documents {
    /// Reads a corpus, and parts it in two if there is none to test on.
    ///
    /// # Errors
    /// If a file cannot be read, or nothing is left.
    pub fn read(
        corpus: &CorpusSource,
        test_corpus: Option<&CorpusSource>,
        run: &RunConfig,
        told: &mut dyn FnMut(Stage),
    ) -> Result<Self, CorpusError> {
        let corpus = read_corpus(corpus, &run.text)?;
        let hash = corpus.hash;
        told(Stage::Corpus(Box::new(corpus.clone())));
        let (train, test, test_hash) = match test_corpus {
            Some(source) => {
                let test = read_corpus(source, &run.text)?;
                (corpus.documents, test.documents, test.hash)
            }
            None => {
                let (train, test) = split_test(corpus.documents, run.text.test_share);
                (train, test, hash)
            }
        };
        Ok(Self { train, test, corpus: hash, test_corpus: test_hash })
    }
}

impl Text {
    /// Makes sequences of documents, with this `tokenizer.json` or with one that is trained on them.
    ///
    /// # Errors
    /// If the tokenizer cannot be used, or does not fit the model.
    pub fn of(
        documents: Documents,
        tokenizer: Option<&[u8]>,
        run: &RunConfig,
        told: &mut dyn FnMut(Stage),
    ) -> anyhow::Result<Self> {
        let Documents { train, test, corpus, test_corpus } = documents;
        let tokenizer = match tokenizer {
            Some(json) => Tokenizer::from_json(json)?,
            None => Tokenizer::train(&train, run.model.vocabulary)?,
        };
        let (found, expected) = (tokenizer.vocabulary(), run.model.vocabulary);
        if found > expected {
            return Err(FoundingError::Vocabulary { found, expected }.into());
        }
        let context = run.model.context;
        let train = TokenSet::cut_for_training(&tokenizer.encode_all(&train)?, context);
        let test = TokenSet::cut_for_scoring(&tokenizer.encode_all(&test)?, context);
        told(Stage::Tokens { vocabulary: found, tokens: train.tokens(), sequences: train.len() });
        Ok(Self { tokenizer, train, test, corpus, test_corpus })
    }
}

struct Routing {
    router: Router,
}

impl Routing {
    fn new(
        run: &RunConfig,
        trainer: &mut DenseTrainer<'_>,
        ancestor: &Dense,
        ancestor_hash: BlobHash,
        train: &TokenSet,
    ) -> anyhow::Result<Self> {
        let paths = run.grid()?.path_count();
        let prefix_tokens = run.routing.prefix_tokens;
        let seed = Seed::root(run.seed).child("routing");
        let router = match run.routing.method {
            RoutingMethod::Random => Router::random(paths, prefix_tokens, seed),
            RoutingMethod::Kmeans | RoutingMethod::ProductKmeans => {
                let product = run.routing.method == RoutingMethod::ProductKmeans;
                let features = trainer.features(ancestor, &prefixes(train, prefix_tokens))?;
                let (width, rounds) = (run.model.width, run.routing.kmeans_rounds);
                Router::fit((&features, width), (paths, product), prefix_tokens, ancestor_hash, rounds, seed)?
            }
        };
        Ok(Self { router })
    }

    /// For each document its `each` best paths.
    fn routes(
        &self,
        trainer: &mut DenseTrainer<'_>,
        ancestor: &Dense,
        set: &TokenSet,
        each: usize,
    ) -> anyhow::Result<Vec<PathId>> {
        let prefixes = prefixes(set, self.router.prefix_tokens());
        let features = if self.router.needs_features() { trainer.features(ancestor, &prefixes)? } else { Vec::new() };
        Ok(self.router.top_all(&features, &prefixes, each))
    }
}

fn prefixes(set: &TokenSet, count: usize) -> Vec<&[u32]> {
    set.documents().map(|sequences| set.prefix(sequences.start, count)).collect()
}

fn routed_to(set: &TokenSet, routes: &[PathId], path: PathId) -> Vec<usize> {
    let documents = set.documents().zip(routes).filter(|(_, route)| **route == path);
    documents.flat_map(|(sequences, _)| sequences).collect()
}

fn put_tokens(blobs: &BlobStore, set: &TokenSet, sequences: &[usize]) -> anyhow::Result<BlobRef> {
    Ok(blobs.put(&set.subset(sequences).encode())?)
}

/// Every module starts as the ancestor's level; its state says which module it is.
fn genesis(
    modules: &[ModuleId],
    levels: &[Vec<f32>],
    mode: OuterMode,
    blobs: &BlobStore,
) -> anyhow::Result<Vec<(ModuleId, BlobRef)>> {
    let state = |module: &ModuleId| {
        let parameters = levels[usize::from(module.level)].clone();
        Ok((*module, blobs.put(&ModuleState::initial(*module, parameters, mode).encode())?))
    };
    modules.iter().map(state).collect()
}

/// The shards of a run made again from its text: how a peer with its own copy of the corpus gets them.
///
/// # Errors
/// If a shard comes out differently, or the disk fails.
pub fn make_shards(manifest: &Manifest, text: &Text, blobs: &BlobStore) -> anyhow::Result<()> {
    let read = |blob: BlobRef| -> anyhow::Result<Vec<u8>> {
        blobs.get(blob.hash, blob.bytes)?.ok_or_else(|| anyhow::anyhow!("blob {} is not in the store", blob.hash))
    };
    let index = ShardIndex::decode(&read(manifest.shard_index)?)?;
    let routes = read(manifest.test_routes)?;
    let routes: Vec<PathId> =
        routes.as_chunks::<4>().0.iter().map(|route| PathId(u32::from_le_bytes(*route))).collect();
    for (path, shard) in manifest.shards.listed().iter().enumerate() {
        let path = PathId(path as u32);
        let test = put_tokens(blobs, &text.test, &routed_to(&text.test, &routes, path))?;
        let train = put_tokens(blobs, &text.train, &index.select(&text.train, path, false))?;
        let held_out = put_tokens(blobs, &text.train, &index.select(&text.train, path, true))?;
        if (train, held_out, test) != (shard.train, shard.held_out, shard.test) {
            anyhow::bail!("the shard of path {path} comes out differently from this text; is it the run's?");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::tiny_run::Tiny;
    use crate::protocol::limits::MAX_CONTROL_BYTES;

    #[test]
    fn shards_that_are_too_many_for_the_manifest_go_to_a_blob_that_it_names() {
        let tiny = Tiny::found(true);
        let shard = tiny.decoded.shard(PathId(0)).clone();
        let with = |paths| Manifest { shards: Shards::Listed(vec![shard.clone(); paths]), ..tiny.decoded.clone() };
        let mut few = with(300);
        encode(&mut few, &tiny.blobs).unwrap();
        assert_eq!(few.shards.table(), None);
        let mut many = with(3_000);
        let bytes = encode(&mut many, &tiny.blobs).unwrap();
        let table = many.shards.table().unwrap();
        assert!(bytes.len() < MAX_CONTROL_BYTES && tiny.blobs.has(table.hash).unwrap());
        assert_eq!(many.shards.listed().len(), 3_000);
    }
}
