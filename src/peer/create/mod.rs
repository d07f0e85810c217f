//! Creating a run: from text to the manifest that names every blob of the run.
//!
//! `text` reads the documents, `tokenize` encodes them, `enough_text` refuses too few before anything is trained. [`dense_trainer`] trains the ancestor, a [`dense`] path.
//! [`continuation`] goes on from a collected run. `routing` sends each document to its path; `resharding` adds what later resharding needs, and
//! [`domains`] what people want to know of each path's text. [`local_text`] is the corpus of a newcomer in a run that does
//! not send text.

pub mod continuation;
#[cfg(test)]
mod conversation_tests;
pub mod dense;
pub mod dense_trainer;
pub mod domains;
mod enough_text;
mod error;
pub mod local_text;
mod resharding;
mod routing;
mod text;
mod tokenize;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use crate::peer::create::error::CreateError;
pub use crate::peer::create::text::{Documents, Text};

use crate::config::run::RunConfigError;
use crate::config::{MachineConfig, OuterMode, RunConfig, TextFormat};
use crate::model::hugging_face::PretrainedFiles;
use crate::model::open_device;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, RunId};
use crate::network::limits::TOPICS_PER_PEER;
use crate::peer::collected::Collected;
use crate::peer::create::continuation::Continuation;
use crate::peer::create::dense::{Dense, DenseCheckpoint};
use crate::peer::create::dense_trainer::{DenseTrainer, Stopped};
use crate::peer::create::domains::{DomainsByPath, count};
use crate::peer::create::enough_text::{check_tokens, read};
use crate::peer::create::resharding::{RunTexts, set_apart};
use crate::peer::create::routing::{first_router, routed_to, routes};
use crate::peer::folder::{lock_store, read_manifest, write_manifest};
use crate::peer::manifest::genesis::first_state;
use crate::peer::manifest::shard_table::{Shard, Shards, encode_table};
use crate::peer::manifest::{FORMAT_VERSION, Manifest};
use crate::peer::trainer::device_scheduler::DeviceScheduler;
use crate::protocol::wire::encoding::WIRE_VERSION;
use crate::routing::ShardIndex;
use crate::routing::resharding::RouterState;
use crate::routing::shards::trained_on;
use crate::store::{BlobError, BlobStore, LockedStore};
use crate::text::chat::template::chat_of;
use crate::text::{CorpusSource, Survey, TokenSet};
use crate::training::memory_plan::planned;

/// The text of a new run.
pub enum TextFrom {
    Corpus {
        /// For training.
        corpus: CorpusSource,
        /// For testing; if absent, a share of the corpus.
        test: Option<CorpusSource>,
        /// A `tokenizer.json` to use instead of training one.
        tokenizer: Option<Vec<u8>>,
    },
    /// Tokens of an earlier run.
    Tokens(Box<Text>),
}

/// The inputs of a new run.
pub struct Plan<'a> {
    pub run: &'a RunConfig,
    /// What the swarm trains after this run.
    pub then: Option<RunConfig>,
    /// The run that the swarm trained before.
    pub after: Option<RunId>,
    pub machine: &'a MachineConfig,
    pub folder: &'a Path,
    pub text: TextFrom,
    /// Whether newcomers receive their shard from peers.
    pub share_text: bool,
    /// Whose invitations are valid, in a run by invitation.
    pub creator: Option<PeerKey>,
    pub start: StartFrom,
}

/// What a run starts from.
pub enum StartFrom {
    /// Nothing: it trains its ancestor.
    Nothing,
    /// A trained ancestor.
    Ancestor {
        /// Its parameters, level by level.
        levels: Vec<Vec<f32>>,
        /// What no level lists, beside adapters.
        frozen: Arc<[f32]>,
        /// Settings and chat template of the pretrained model from which it came.
        pretrained: Option<PretrainedFiles>,
    },
    /// The modules of a collected run.
    Continuation(Box<Continuation>),
}

/// A step of creating a run, for progress reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Reading: bytes read of the files, and their total.
    Reading(u64, u64),
    /// The text was read.
    Corpus(Box<Survey>),
    /// The text for testing was read; so many of its documents are in the training text, too.
    TestCorpus(Box<Survey>, u64),
    /// A tokenizer is learnt: bytes of text counted, and their total.
    Learning(u64, u64),
    /// The tokenizer is ready.
    Tokens {
        /// Entries of the vocabulary.
        vocabulary: usize,
        /// Training tokens.
        tokens: u64,
        /// Training sequences.
        sequences: usize,
    },
    /// Encoding: bytes encoded, and their total.
    Tokenizing(u64, u64),
    /// A step of the ancestor: its number, the total, and the loss.
    Ancestor(u64, u64, f64),
    /// Training sequences by path.
    Shards(Vec<u64>),
}

/// A created run, ready to start.
pub struct CreatedRun {
    /// The creator's store with all blobs.
    pub store: LockedStore,
    pub manifest: Manifest,
    /// The manifest's bytes.
    pub bytes: Vec<u8>,
    pub id: RunId,
    /// The ancestor with its AdamW state, for the dense control.
    pub ancestor: Dense,
    /// All text that paths train on, without what they hold out.
    pub train: TokenSet,
    /// All test text.
    pub test: TokenSet,
}

/// Folder of tokens until they are divided into shards.
const TEXT_FOLDER: &str = "text";

/// Reads the text, trains what needs training, and stores every blob of the run in the creator's store. A stopped
/// ancestor is resumed from its checkpoint.
///
/// The store is opened only when the text is known to be enough, so that a mistake leaves nothing behind.
///
/// # Errors
/// If the text cannot be read or is too small, or training or the store fails.
pub fn create_run(
    plan: Plan<'_>,
    scheduler: &DeviceScheduler,
    stop: &AtomicBool,
    told: &mut dyn FnMut(Stage),
) -> anyhow::Result<CreatedRun> {
    let (run, then) = (&with_chat(plan.run, &plan.start)?, plan.then.as_ref());
    let then = then.map(|then| with_chat(then, &plan.start)).transpose()?;
    let grid = run.grid()?;
    let most_paths = check_before_work(&plan)?;
    let paths = grid.path_count();
    let found = read(plan.text, run, most_paths, stop, told)?;
    go_on(stop)?;
    let store = lock_store(plan.folder)?;
    if read_manifest(plan.folder)?.is_some() {
        return Err(CreateError::Meanwhile(plan.folder.to_owned()).into());
    }
    let mut text = found.tokens(run, (&text_folder(plan.folder), stop), told)?;
    check_tokens(run, most_paths, &text)?;
    let slice;
    (text.train, slice) = set_apart(run, paths, &text.train)?;
    go_on(stop)?;
    let blobs = &store.blobs;
    let mut trainer = DenseTrainer::new(run, plan.machine, scheduler, stop)?;
    let seen = trained_on(&text.train, run.text.held_out_share);
    let ancestor = match plan.start.ancestor(run) {
        Some(ancestor) => ancestor,
        None => train_ancestor(run, plan.folder, (&mut trainer, &seen), of_text(run, &text)?, told)?,
    };
    let ancestor_file = ancestor.to_safetensors(run)?;
    let ancestor_hash = BlobHash::of(&ancestor_file);

    go_on(stop)?;
    let continuation = plan.start.continuation();
    let router = first_router(run, continuation, &mut trainer, (&ancestor, ancestor_hash), &text.train)?;
    let train_routes = routes(&router, &mut trainer, &ancestor, &text.train, run.routing.overlap)?;
    let index = ShardIndex::build(&text.train, &train_routes, paths, run.text.held_out_share)?;
    told(Stage::Shards(index.sizes()));
    go_on(stop)?;
    let test_routes = routes(&router, &mut trainer, &ancestor, &text.test, 1)?;

    let (texts, sizes) = (RunTexts { shards: shard_texts(&index, &test_routes, &text), slice }, index.sizes());
    let shards = put_shards(&texts, &sizes, blobs)?;
    let mut states = genesis(&grid.modules(), (continuation, &ancestor.levels), run.outer.mode, blobs)?;
    let mut resharding = None;
    if let Some(module) = run.router_module() {
        let atlas = texts.atlas(run, &mut trainer, (&ancestor, ancestor_hash), &router)?;
        resharding = Some(texts.put_apart(&atlas, blobs)?);
        let state = RouterState::initial(router.clone(), sizes);
        states.push((module, blobs.put(&state.encode(run.model.width))?));
    }
    let pretrained = plan.start.pretrained().map(PretrainedFiles::encode).transpose()?;
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        wire_version: WIRE_VERSION,
        config: run.clone(),
        corpus: text.corpus,
        test_corpus: text.test_corpus,
        share_text: plan.share_text,
        tokenizer: blobs.put(text.tokenizer.json())?,
        router: blobs.put(&router.encode())?,
        shard_index: blobs.put(&index.encode())?,
        test_routes: blobs.put(&test_routes.iter().flat_map(|path| path.0.to_le_bytes()).collect::<Vec<u8>>())?,
        ancestor: blobs.put(&ancestor_file)?,
        pretrained: pretrained.map(|files| blobs.put(&files)).transpose()?,
        shards,
        resharding,
        genesis: states,
        then: then.map(Box::new),
        after: plan.after,
        creator: plan.creator,
        amendment: None,
    };
    let bytes = manifest.encode()?;
    let (manifest, id) = Manifest::decode(&bytes)?;
    let domains = count(&text.domains, &text.train, (&train_routes, run.routing.overlap), paths);
    DomainsByPath::new(id, domains).write(plan.folder)?;
    let manifest = manifest.with_table_in(blobs)?;
    Ok(CreatedRun { manifest, bytes, id, ancestor, train: seen, test: text.test, store })
}

/// Trains the ancestor on all text that no path holds out, or resumes its training. `of` is the hash of its training.
fn train_ancestor(
    run: &RunConfig,
    folder: &Path,
    (trainer, text): (&mut DenseTrainer<'_>, &TokenSet),
    of: BlobHash,
    told: &mut dyn FnMut(Stage),
) -> anyhow::Result<Dense> {
    let checkpoint = unfinished_ancestor(folder, of);
    let steps = run.training.ancestor_steps;
    let mut told = |step, loss| told(Stage::Ancestor(step, steps, loss));
    trainer.train(Dense::initial(run), text, 0..steps, &checkpoint, &mut told)
}

/// The run with the chat template of the pretrained model that it starts from, where it reads conversations and names none
/// itself. Whoever has the run can then read such text.
///
/// # Errors
/// If the template is too long for a manifest.
fn with_chat(run: &RunConfig, start: &StartFrom) -> Result<RunConfig, RunConfigError> {
    let mut run = run.clone();
    if run.text.format != TextFormat::Text && run.text.chat.is_none() {
        let earlier = start.continuation().and_then(|from| from.collected().manifest.config.text.chat.clone());
        run.text.chat = earlier.or_else(|| chat_of(start.pretrained()?.exported()));
        run.check()?;
    }
    Ok(run)
}

/// What can be refused before any work: too many modules, adapters beside nothing, a device that is missing or too small.
/// Returns the largest number of paths over the stages of the run, since the text must be enough for later stages, too.
fn check_before_work(plan: &Plan<'_>) -> anyhow::Result<u32> {
    if plan.run.frozen().is_some() && matches!(plan.start, StartFrom::Nothing) {
        return Err(CreateError::NotPretrained.into());
    }
    for machine in plan.machine.of_trainers(1) {
        planned(plan.run, &machine, open_device(machine.device)?)?;
    }
    let mut most_paths = 1;
    for stage in std::iter::once(plan.run).chain(plan.then.as_ref()) {
        let modules = stage.slots()?.grid().modules().len();
        if modules > TOPICS_PER_PEER {
            return Err(CreateError::Modules(modules).into());
        }
        most_paths = most_paths.max(stage.grid()?.path_count());
    }
    Ok(most_paths)
}

/// The folder of a peer's tokens until they are in shards.
pub fn text_folder(folder: &Path) -> PathBuf {
    folder.join(TEXT_FOLDER)
}

pub fn remove_text(folder: &Path) {
    let text = text_folder(folder);
    match std::fs::remove_dir_all(&text) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!("{} is no longer needed, but cannot be removed: {error}", text.display()),
    }
}

/// Lets the user stop between two stages.
fn go_on(stop: &AtomicBool) -> Result<(), Stopped> {
    if stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
}

/// The checkpoint of an ancestor, until the run is created.
fn unfinished_ancestor(folder: &Path, of: BlobHash) -> DenseCheckpoint {
    DenseCheckpoint { file: folder.join("ancestor.unfinished"), of }
}

/// Hash of the training of an ancestor: its configuration and its text.
fn of_text(run: &RunConfig, text: &Text) -> anyhow::Result<BlobHash> {
    let config = BlobHash::of(&serde_json::to_vec(run)?);
    let parts = [config, text.corpus, BlobHash::of(text.tokenizer.json())];
    Ok(BlobHash::of(&parts.map(|part| part.0).concat()))
}

/// Writes the manifest into the creator's folder, which completes the creation.
pub fn settle(folder: &Path, manifest: &[u8]) -> anyhow::Result<()> {
    write_manifest(folder, manifest)?;
    unfinished_ancestor(folder, BlobHash::of(b"")).remove();
    remove_text(folder);
    Ok(())
}

/// The training, held-out and test text of each path.
fn shard_texts(index: &ShardIndex, test_routes: &[PathId], text: &Text) -> Vec<[TokenSet; 3]> {
    let of = |path: PathId| {
        let part = |held_out| text.train.subset(&index.select(&text.train, path, held_out));
        [part(false), part(true), text.test.subset(&routed_to(&text.test, test_routes, path))]
    };
    (0..index.paths()).map(|path| of(PathId(path))).collect()
}

fn put_shards(texts: &RunTexts, sizes: &[u64], blobs: &BlobStore) -> Result<Shards, BlobError> {
    let put = |set: &TokenSet| blobs.put_written(set.encoded_bytes(), |out| set.write_to(out));
    let shard = |([train, held_out, test], sequences): (&[TokenSet; 3], &u64)| {
        Ok(Shard { train: put(train)?, held_out: put(held_out)?, test: put(test)?, sequences: *sequences })
    };
    let shards = texts.shards.iter().zip(sizes).map(shard).collect::<Result<Vec<_>, BlobError>>()?;
    let table = blobs.put(&encode_table(&shards))?;
    Ok(Shards::in_table(shards, table))
}

impl StartFrom {
    /// The ancestor, if it need not be trained.
    fn ancestor(&self, run: &RunConfig) -> Option<Dense> {
        let (levels, frozen) = match self {
            Self::Nothing => return None,
            Self::Ancestor { levels, frozen, .. } => (levels, frozen),
            Self::Continuation(continuation) => {
                let Collected { ancestor, frozen, .. } = continuation.collected();
                (ancestor, frozen)
            }
        };
        Some(Dense { levels: levels.clone(), frozen: frozen.clone(), ..Dense::initial(run) })
    }

    fn continuation(&self) -> Option<&Continuation> {
        match self {
            Self::Continuation(continuation) => Some(continuation),
            _ => None,
        }
    }

    /// What is kept of a pretrained model, if the run came from one.
    fn pretrained(&self) -> Option<&PretrainedFiles> {
        match self {
            Self::Nothing => None,
            Self::Ancestor { pretrained, .. } => pretrained.as_ref(),
            Self::Continuation(continuation) => {
                let Collected { manifest, pretrained, .. } = continuation.collected();
                manifest.pretrained.is_some().then_some(pretrained)
            }
        }
    }
}

/// The first state of every module, with its module id: its level of the ancestor, or a module of an earlier run.
fn genesis(
    modules: &[ModuleId],
    (continuation, ancestor): (Option<&Continuation>, &[Vec<f32>]),
    mode: OuterMode,
    blobs: &BlobStore,
) -> anyhow::Result<Vec<(ModuleId, BlobRef)>> {
    let state = |module: &ModuleId| {
        let parameters = match continuation {
            Some(continuation) => continuation.parameters_of(*module)?,
            None => ancestor[usize::from(module.level)].clone(),
        };
        Ok((*module, blobs.put(&first_state(*module, parameters, mode))?))
    };
    modules.iter().map(state).collect()
}

/// Makes the shards of a run again from its text, for a peer with its own copy of the corpus.
///
/// # Errors
/// If a shard differs from the run's, or the disk fails.
pub fn make_shards(manifest: &Manifest, text: &Text, blobs: &BlobStore) -> anyhow::Result<()> {
    let read = |blob: BlobRef| -> anyhow::Result<Vec<u8>> {
        blobs.get(blob.hash, blob.bytes)?.ok_or_else(|| anyhow::anyhow!("blob {} is not in the store", blob.hash))
    };
    let index = ShardIndex::decode(&read(manifest.shard_index)?)?;
    let routes = read(manifest.test_routes)?;
    let routes: Vec<PathId> =
        routes.as_chunks::<4>().0.iter().map(|route| PathId(u32::from_le_bytes(*route))).collect();
    for (path, (shard, made)) in manifest.shards.listed().iter().zip(shard_texts(&index, &routes, text)).enumerate() {
        for (blob, set) in shard.blobs().into_iter().zip(made) {
            if blobs.put_written(set.encoded_bytes(), |out| set.write_to(out))? != blob {
                anyhow::bail!(
                    "the shard of path {path} made from this text differs from the run's; check that it is the corpus \
                     of the run"
                );
            }
        }
    }
    if let Some(parts) = manifest.resharding {
        let (_, slice) = set_apart(&manifest.config, index.paths(), &text.train)?;
        if blobs.put(&slice.encode())? != parts.slice {
            anyhow::bail!(
                "the slice for scoring made from this text differs from the run's; check that it is the corpus of the \
                 run"
            );
        }
    }
    Ok(())
}
