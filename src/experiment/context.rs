//! The state shared by arms: the text, and the ancestors, each of which is trained once.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::routing::{SLICE_DOCUMENTS, SLICE_SHARE};
use crate::config::{MachineConfig, RunConfig};
use crate::experiment::checkpoint::ArmCheckpoint;
use crate::experiment::dataset::{Dataset, Shares};
use crate::experiment::plan::{Arm, Experiment};
use crate::experiment::results::outcome::{Outcome, Point};
use crate::model::exchange;
use crate::names::BlobHash;
use crate::peer::DeviceScheduler;
use crate::peer::create::dense::{Dense, DenseCheckpoint};
use crate::peer::create::dense_trainer::{DenseTrainer, Stopped};
use crate::peer::create::{Documents, Stage, Text};
use crate::text::corpus::Domains;
use crate::text::{CorpusSource, TokenSet, is_test, stream_corpus};

/// Progress events.
#[derive(Clone, Debug)]
pub enum ExperimentEvent<'a> {
    /// The text was read or encoded.
    Text(Stage),
    /// A step of an ancestor: its number, and the total.
    Ancestor(u64, u64),
    /// A phase of a path of an arm with a seed: its number, and the total.
    Phase(&'a str, u64, u64),
    /// The held-out loss of an arm with a seed.
    Scored(&'a str, Point),
    /// An arm with a seed is done.
    Done(&'a Outcome),
}

/// The text and tokenizer.
pub struct Source {
    /// For training.
    pub corpus: CorpusSource,
    /// For testing; if absent, a share of the corpus.
    pub test_corpus: Option<CorpusSource>,
    /// A `tokenizer.json` to use instead of training one.
    pub tokenizer: Option<Vec<u8>>,
}

/// The shared state of all arms.
pub struct ExperimentContext<'a> {
    pub machine: &'a MachineConfig,
    /// Folder of checkpoints and ancestors.
    pub folder: PathBuf,
    /// Whether the user asked to stop.
    pub stop: &'a AtomicBool,
    watch: &'a dyn Fn(ExperimentEvent<'_>),
    source: Source,
    /// For the trainings on this machine.
    pub(super) scheduler: DeviceScheduler,
    texts: BTreeMap<BlobHash, Arc<Tokens>>,
}

/// Text as tokens.
pub struct Tokens {
    /// Hash of text and tokenizer.
    pub hash: BlobHash,
    train: TokenSet,
    test: TokenSet,
    token_bytes: Vec<u32>,
    /// Domains of the test documents.
    pub domains: Domains,
}

/// The dense network from which all paths of an arm start.
pub struct CommonAncestor {
    /// The run with all parameters in one level.
    pub run: RunConfig,
    /// Its parameters and AdamW state.
    pub dense: Dense,
    /// As a safetensors file.
    pub file: Vec<u8>,
}

impl CommonAncestor {
    /// Its parameters in the levels of an arm.
    pub fn levels(&self, run: &RunConfig) -> anyhow::Result<Vec<Vec<f32>>> {
        let level = |level| exchange::decode_level(&self.file, &run.model, level);
        Ok(run.levels.iter().map(level).collect::<Result<_, _>>()?)
    }
}

/// Hash of a value's JSON.
pub(super) fn hash_of(value: &impl serde::Serialize) -> serde_json::Result<BlobHash> {
    Ok(BlobHash::of(&serde_json::to_vec(value)?))
}

impl<'a> ExperimentContext<'a> {
    pub fn new(
        machine: &'a MachineConfig,
        folder: PathBuf,
        source: Source,
        stop: &'a AtomicBool,
        watch: &'a dyn Fn(ExperimentEvent<'_>),
    ) -> Self {
        Self { machine, folder, stop, watch, source, scheduler: DeviceScheduler::default(), texts: BTreeMap::new() }
    }

    pub fn tell(&self, event: ExperimentEvent<'_>) {
        (self.watch)(event);
    }

    /// The text as tokens of an arm's model.
    pub fn tokens(&mut self, run: &RunConfig) -> anyhow::Result<Arc<Tokens>> {
        let key = hash_of(&(&run.text, run.model.vocabulary, run.model.context))?;
        if let Some(known) = self.texts.get(&key) {
            return Ok(known.clone());
        }
        let mut told = |stage| (self.watch)(ExperimentEvent::Text(stage));
        let test_corpus = self.source.test_corpus.as_ref();
        let learn = self.source.tokenizer.is_none();
        let documents = Documents::read(&self.source.corpus, test_corpus, (run, learn), self.stop, &mut told)?;
        let text = Text::of(documents, self.source.tokenizer.as_deref(), run, (None, self.stop), &mut told)?;
        let hash = hash_of(&(key, text.corpus, text.test_corpus, BlobHash::of(text.tokenizer.json())))?;
        let token_bytes = text.tokenizer.token_bytes_for(&run.model);
        let domains = self.domains_of_tests(run)?;
        let tokens = Arc::new(Tokens { hash, train: text.train, test: text.test, token_bytes, domains });
        self.texts.insert(key, tokens.clone());
        Ok(tokens)
    }

    fn domains_of_tests(&self, run: &RunConfig) -> anyhow::Result<Domains> {
        let (source, parted) = match &self.source.test_corpus {
            Some(source) => (source, false),
            None => (&self.source.corpus, true),
        };
        let mut domains = Domains::default();
        let read = stream_corpus(source, run.reading(), self.stop, &mut |found| {
            if !parted || is_test(found.document.bytes(), run.text.test_share) {
                domains.push(found.domain);
            }
            if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match read {
            Err(_) if self.stop.load(Ordering::Relaxed) => Err(Stopped.into()),
            read => Ok(read.map(|_| domains)?),
        }
    }

    /// The slice's share of the training documents: enough for the arm that needs most, and equal for all.
    pub fn slice_share(&self, experiment: &Experiment, tokens: &Tokens) -> f64 {
        let documents = tokens.train.documents().len().max(1);
        let least = (SLICE_DOCUMENTS * experiment.fitted_paths() as usize) as f64 / documents as f64;
        let share = experiment.slice_share.unwrap_or(if least > 0.0 { SLICE_SHARE } else { 0.0 });
        share.max(least).min(0.5)
    }

    /// The parts of the text for an arm.
    pub fn dataset(&self, experiment: &Experiment, arm: &Arm, tokens: &Tokens) -> Dataset {
        let (held_out, slice) = (arm.run.text.held_out_share, self.slice_share(experiment, tokens));
        let shares = Shares { held_out, slice, train: arm.text_share.unwrap_or(1.0) };
        Dataset::part(tokens.train.clone(), tokens.test.clone(), tokens.token_bytes.clone(), shares)
    }

    /// The checkpoint file of an arm.
    pub fn checkpoint(&self, of: BlobHash) -> ArmCheckpoint {
        self.arm_file(of, "unfinished")
    }

    /// The file of a trained arm, so that scoring it in another way needs no training.
    pub fn trained(&self, of: BlobHash) -> ArmCheckpoint {
        self.arm_file(of, "trained")
    }

    fn arm_file(&self, of: BlobHash, what: &str) -> ArmCheckpoint {
        ArmCheckpoint { file: self.folder.join(format!("arm-{}.{what}", &of.to_string()[..16])), of }
    }

    /// The ancestor of an arm, trained on its training documents, or read from disk.
    pub fn ancestor(&self, run: &RunConfig, tokens: &Tokens, text: &TokenSet) -> anyhow::Result<CommonAncestor> {
        let run = run.undivided();
        let of = hash_of(&(&run.model, &run.training, run.seed, tokens.hash, text.len(), text.tokens()))?;
        let checkpoint =
            DenseCheckpoint { file: self.folder.join(format!("ancestor-{}.dense", &of.to_string()[..16])), of };
        let steps = run.training.ancestor_steps;
        let initial = Dense::initial(&run);
        let sizes: Vec<usize> = initial.levels.iter().map(Vec::len).collect();
        let ready =
            if checkpoint.file.exists() { checkpoint.read(&sizes).filter(|(step, _)| *step == steps) } else { None };
        let dense = match ready {
            Some((_, dense)) => dense,
            None => {
                let mut trainer = DenseTrainer::new(&run, self.machine, &self.scheduler, self.stop)?;
                let mut told = |step, _| self.tell(ExperimentEvent::Ancestor(step, steps));
                let dense = trainer.train(initial, text, 0..steps, &checkpoint, &mut told)?;
                checkpoint.write(steps, &dense)?;
                dense
            }
        };
        let pairs: Vec<_> = run.levels.iter().zip(dense.levels.iter().map(Vec::as_slice)).collect();
        let file = exchange::encode(&run.model, &pairs, &[])?;
        Ok(CommonAncestor { run, dense, file })
    }
}
