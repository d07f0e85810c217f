//! The starting state of a simulated run, stored so that the same command resumes: the manifest and its blobs in the
//! creator's folder; the ancestor with its AdamW state, and all text, for the dense control.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;

use crate::config::{MachineConfig, RunConfig};
use crate::model::exchange;
use crate::names::BlobHash;
use crate::peer::create;
use crate::peer::create::dense::{Dense, DenseCheckpoint};
use crate::peer::create::{CreatedRun, Plan, Stage, StartFrom, TextFrom};
use crate::peer::folder::{identity_of, lock_store, read_manifest};
use crate::peer::trainer::path_state::PathState;
use crate::peer::{DeviceScheduler, Manifest};
use crate::store::write_file;
use crate::text::{CorpusSource, IdsWriter, TokenSet, Tokenizer};
use crate::training::Score;

/// The creator's folder within a run's.
pub fn creator_folder(folder: &Path) -> PathBuf {
    folder.join("peer-0")
}

/// The manifest's bytes.
pub fn manifest_bytes(folder: &Path) -> anyhow::Result<Vec<u8>> {
    let (bytes, _, _) = read_manifest(&creator_folder(folder))?.context("the run was not created in this folder")?;
    Ok(bytes)
}

/// A run that is ready to be trained here.
pub struct Preparation {
    pub manifest: Arc<Manifest>,
    /// A `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// The ancestor with its AdamW state.
    pub ancestor: Dense,
    /// All training text.
    pub train: TokenSet,
    /// All test text.
    pub test: TokenSet,
    /// Bytes of text of each token.
    pub token_bytes: Vec<u32>,
    folder: PathBuf,
}

/// Inputs of the preparation.
pub struct Request {
    pub run: RunConfig,
    pub machine: MachineConfig,
    pub folder: PathBuf,
    pub corpus: CorpusSource,
    pub test_corpus: Option<CorpusSource>,
    pub tokenizer: Option<Vec<u8>>,
    pub start: StartFrom,
    pub scheduler: Arc<DeviceScheduler>,
}

impl Request {
    /// Creates the run, unless it exists.
    pub fn carry_out(self, stop: &AtomicBool, told: &mut dyn FnMut(Stage)) -> anyhow::Result<Preparation> {
        let creator = creator_folder(&self.folder);
        let folder = self.folder.join("control");
        if let Some((_, manifest, _)) = read_manifest(&creator)? {
            return Preparation::read(folder, manifest, &creator);
        }
        let key = match self.run.admission.is_open() {
            true => None,
            false => Some(identity_of(&creator)?.key()),
        };
        let plan = Plan {
            run: &self.run,
            then: None,
            after: None,
            creator: key,
            machine: &self.machine,
            folder: &creator,
            text: TextFrom::Corpus { corpus: self.corpus, test: self.test_corpus, tokenizer: self.tokenizer },
            share_text: true,
            start: self.start,
        };
        let created = create::create_run(plan, &self.scheduler, stop, told)?;
        Preparation::keep(folder, created, &creator)
    }
}

impl Preparation {
    /// The manifest is written last, so its blobs exist.
    fn keep(folder: PathBuf, created: CreatedRun, creator: &Path) -> anyhow::Result<Self> {
        write_file(&folder.join("ancestor.trainer"), &created.ancestor.state().encode())?;
        for (name, set) in [("train.tokens", &created.train), ("test.tokens", &created.test)] {
            let mut file = BufWriter::new(File::create(folder.join(name))?);
            set.write_to(&mut file)?;
            file.into_inner()?.sync_all()?;
        }
        create::settle(creator, &created.bytes)?;
        drop(created.store);
        Self::read(folder, created.manifest, creator)
    }

    fn read(folder: PathBuf, manifest: Manifest, creator: &Path) -> anyhow::Result<Self> {
        let blobs = lock_store(creator)?.blobs;
        let manifest = manifest.with_table_in(&blobs)?;
        let blob = |blob: crate::names::BlobRef| -> anyhow::Result<Vec<u8>> {
            let bytes = blobs.get(blob.hash, blob.bytes)?;
            bytes.with_context(|| format!("{} lacks blob {}", creator.display(), blob.hash))
        };
        let file = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (model, levels) = (&manifest.config.model, &manifest.config.levels);
        let ancestor_file = blob(manifest.ancestor)?;
        let parameters = levels.iter().map(|level| exchange::decode_level(&ancestor_file, model, level));
        let parameters = parameters.collect::<Result<Vec<_>, _>>()?;
        let frozen = exchange::decode_frozen(&ancestor_file, model, levels)?;
        let state = PathState::decode(&file("ancestor.trainer")?, &manifest.level_counts())?;
        let tokens = |name: &str| -> anyhow::Result<TokenSet> {
            let path = folder.join(name);
            let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let bytes = file.metadata()?.len();
            Ok(TokenSet::read_for(model, BufReader::new(file), bytes, IdsWriter::unnamed(&folder)?)?)
        };
        let tokenizer = blob(manifest.tokenizer)?;
        let token_bytes = Tokenizer::from_json(&tokenizer)?.token_bytes_for(model);
        Ok(Self {
            ancestor: Dense { levels: parameters, frozen: frozen.into(), inner: state.inner },
            train: tokens("train.tokens")?,
            test: tokens("test.tokens")?,
            token_bytes,
            tokenizer,
            manifest: Arc::new(manifest),
            folder,
        })
    }

    /// The beginning of the first test document, long enough to route it.
    pub fn a_beginning(&self) -> anyhow::Result<String> {
        let count = self.manifest.config.routing.prefix_tokens;
        let set = if self.test.is_empty() { &self.train } else { &self.test };
        let beginning = if set.is_empty() { &[][..] } else { set.prefix(0, count) };
        Ok(Tokenizer::from_json(&self.tokenizer)?.decode(beginning))
    }

    /// The checkpoint of the dense control.
    pub fn unfinished_dense(&self) -> DenseCheckpoint {
        let of = [self.manifest.corpus.0, self.manifest.ancestor.hash.0].concat();
        DenseCheckpoint { file: self.folder.join("dense.unfinished"), of: BlobHash::of(&of) }
    }

    fn dense_file(&self) -> PathBuf {
        self.folder.join("dense.json")
    }

    /// The stored score of the dense control.
    pub fn dense_score(&self) -> anyhow::Result<Option<Score>> {
        let path = self.dense_file();
        if !path.exists() {
            return Ok(None);
        }
        let (nats, tokens, bytes) = serde_json::from_slice(&std::fs::read(&path)?)
            .with_context(|| format!("{} is damaged; remove it", path.display()))?;
        Ok(Some(Score { nats, tokens, bytes }))
    }

    /// Stores the score of the dense control.
    pub fn keep_dense_score(&self, score: Score) -> anyhow::Result<()> {
        write_file(&self.dense_file(), &serde_json::to_vec(&(score.nats, score.tokens, score.bytes))?)?;
        self.unfinished_dense().remove();
        Ok(())
    }
}
