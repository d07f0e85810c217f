//! A transducer: the ancestor, fine-tuned to choose the path that should read on (DiPaCo, supplement 7.2.2), and a run
//! whose texts are routed by it.

pub mod training_set;

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use crate::config::{MachineConfig, RunConfig};
use crate::model::exchange::{self, ExchangeError};
use crate::model::open_device;
use crate::names::{PathId, PeerKey};
use crate::peer::create::dense_trainer::Stopped;
use crate::peer::inference::client::{Draw, InferenceClient};
use crate::peer::transducer::training_set::TrainingSet;
use crate::query::{QueriedModel, TokenSpan};
use crate::routing::SwitchThreshold;
use crate::seed::Seed;
use crate::text::{TokenSet, Tokenized, Tokenizer, Window};
use crate::training::{BatchOrder, InnerTrainer, Marked, Sequences, preferences};

/// Steps of the first stage, which learns the path of the document being read. These targets need no path's loss, so
/// all documents with a path serve.
pub const STEPS_HOMES: u64 = 800;

/// Steps of the second stage, which learns how much better each path reads on.
pub const STEPS_SOFT_TARGETS: u64 = 400;

/// Peak learning rate, as a share of the ancestor's.
const RATE: f64 = 0.3;

/// A network of the ancestor's shape in one level that learns the marks of a training set in so many steps.
///
/// # Errors
/// If a step fails or the user asks to stop.
pub fn fine_tune(
    run: &RunConfig,
    machine: &MachineConfig,
    levels: &[Vec<f32>],
    (training_set, steps): (&Marked<'_>, u64),
    stop: &AtomicBool,
) -> anyhow::Result<InnerTrainer> {
    let mut run = run.clone();
    let training = &mut run.training;
    training.learning_rate *= RATE;
    (training.ancestor_steps, training.phases, training.inner_steps) = (steps, 0, 1);
    training.warmup_steps = training.warmup_steps.min(steps / 10);
    training.decay_restarts.clear();
    let mut inner = InnerTrainer::new(&run, machine, open_device(machine.first_device())?)?;
    inner.load(levels)?;
    let order = BatchOrder { seed: Seed::root(run.seed).child("transducer"), sequences: training_set.len() };
    for step in 0..steps {
        if stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        inner.step(training_set, &order, step)?;
    }
    Ok(inner)
}

#[derive(Debug, thiserror::Error)]
pub enum TransducerError {
    #[error("there is nothing to learn from: no document is longer than the {0} tokens that choose its path")]
    TooShort(usize),
    #[error(
        "a transducer is a copy of the whole ancestor, and this run trains adapters only; route without --route-every"
    )]
    Adapter,
    #[error("it is not a transducer of this run: {0}")]
    Model(#[from] ExchangeError),
    /// For another number of paths, or another distance between choices.
    #[error(
        "it chooses among {found_paths} paths every {found_every} tokens, not among {paths} paths every {every} tokens"
    )]
    Purpose { found_paths: String, found_every: String, paths: u32, every: usize },
}

/// A run whose texts continue on the paths that a transducer chooses.
pub struct Guided {
    client: Box<dyn InferenceClient>,
    inner: InnerTrainer,
    paths: u32,
    switch_threshold: SwitchThreshold,
}

impl Guided {
    /// Reads a transducer's file for a choice every so many tokens.
    pub fn open(
        client: Box<dyn InferenceClient>,
        file: &[u8],
        every: usize,
        machine: &MachineConfig,
    ) -> anyhow::Result<Self> {
        if client.config().frozen().is_some() {
            return Err(TransducerError::Adapter.into());
        }
        let run = client.config().undivided();
        let paths = run_paths(client.config())?;
        let notes = exchange::notes(file).map_err(TransducerError::from)?;
        let note = |key: &str| notes.get(key).cloned().unwrap_or_else(|| "?".to_owned());
        let (found_paths, found_every) = (note("paths"), note("every"));
        if (&found_paths, &found_every) != (&paths.to_string(), &every.to_string()) {
            return Err(TransducerError::Purpose { found_paths, found_every, paths, every }.into());
        }
        // Older files have no switch threshold.
        let switch_threshold =
            note("switch_threshold_nats").parse().ok().and_then(SwitchThreshold::of).unwrap_or(SwitchThreshold::NONE);
        let level = exchange::decode_level(file, &run.model, &run.levels[0]).map_err(TransducerError::from)?;
        let mut inner = InnerTrainer::new(&run, machine, open_device(machine.first_device())?)?;
        inner.load(&[level])?;
        Ok(Self { client, inner, paths, switch_threshold })
    }
}

fn run_paths(run: &RunConfig) -> anyhow::Result<u32> {
    Ok(run.grid()?.path_count())
}

/// Makes a transducer's file: every path of a run reads a text in windows of so many tokens, and the ancestor learns
/// which path reads on best.
///
/// # Errors
/// If the run does not answer, no document is longer than its first window, a step fails, or the user asks to stop.
pub fn make(
    client: &mut dyn InferenceClient,
    documents: &Tokenized,
    every: usize,
    machine: &MachineConfig,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<u8>> {
    if client.config().frozen().is_some() {
        return Err(TransducerError::Adapter.into());
    }
    let run = client.config().undivided();
    let paths = run_paths(client.config())?;
    let set = documents.cut_for_scoring(run.model.context);
    let prefix = run.routing.prefix_tokens;
    let prefixes: Vec<&[u32]> = set.documents().map(|sequences| set.prefix(sequences.start, prefix)).collect();
    let homes = client.routes(&prefixes)?;
    let training_set =
        TrainingSet::new(&set, &homes, (run.starts(), every), |places| costs(client, &set, places, paths))?;
    if training_set.is_empty() {
        return Err(TransducerError::TooShort(prefix).into());
    }
    let ancestor = client.ancestor()?;
    let at_home = fine_tune(&run, machine, &[ancestor], (&training_set.homes(), STEPS_HOMES), stop)?.levels()?;
    let inner = fine_tune(&run, machine, &at_home, (&training_set.learnt(), STEPS_SOFT_TARGETS), stop)?;
    let said = preferences(inner.model(), &training_set.apart(), paths as usize)?.concat();
    let switch_threshold = training_set.switch_threshold(&said).nats();
    let level = inner.levels()?.concat();
    let notes = [
        ("paths", paths.to_string()),
        ("every", every.to_string()),
        ("switch_threshold_nats", switch_threshold.to_string()),
    ];
    Ok(exchange::encode(&run.model, &[(&run.levels[0], &level)], &notes)?)
}

/// The nats of every path on each window.
fn costs(
    client: &mut dyn InferenceClient,
    set: &TokenSet,
    windows: &[Window],
    paths: u32,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let piece = |(sequence, range): &(usize, std::ops::Range<usize>)| TokenSpan {
        tokens: set.sequence(*sequence)[..range.end].to_vec(),
        from: range.start as u32,
    };
    let pieces: Vec<TokenSpan> = windows.iter().flat_map(|window| window.pieces.iter().map(piece)).collect();
    let mut costs: Vec<Vec<f64>> = vec![Vec::with_capacity(paths as usize); windows.len()];
    for path in 0..paths {
        let nats = client.nats(&[(QueriedModel::Path(PathId(path)), &pieces)])?;
        let mut nats = nats.first().context("one player, one answer")?.iter();
        for (window, costs) in windows.iter().zip(&mut costs) {
            costs.push(nats.by_ref().take(window.pieces.len()).sum());
        }
    }
    Ok(costs)
}

impl InferenceClient for Guided {
    fn config(&self) -> &RunConfig {
        self.client.config()
    }

    fn tokenizer(&self) -> &Tokenizer {
        self.client.tokenizer()
    }

    fn shares_text(&self) -> bool {
        self.client.shares_text()
    }

    fn place(&self) -> String {
        self.client.place()
    }

    fn test_text(&mut self, path: PathId) -> anyhow::Result<Option<TokenSet>> {
        self.client.test_text(path)
    }

    fn ancestor(&mut self) -> anyhow::Result<Vec<f32>> {
        self.client.ancestor()
    }

    fn routes(&mut self, prefixes: &[&[u32]]) -> anyhow::Result<Vec<PathId>> {
        self.client.routes(prefixes)
    }

    fn reach(&self) -> usize {
        self.client.config().model.context
    }

    fn routes_on(&mut self, before: &[(PathId, &[u32])]) -> anyhow::Result<Vec<PathId>> {
        // A network does not read a sequence's last token.
        let chunks: Vec<Vec<u32>> = before.iter().map(|(_, tokens)| [tokens, &[0][..]].concat()).collect();
        let set = TokenSet::cut_for_scoring(&chunks, self.reach());
        let said = preferences(self.inner.model(), &Marked::at_ends(&set), self.paths as usize)?.concat();
        Ok(before.iter().zip(said).map(|((own, _), said)| PathId(self.switch_threshold.choose(&said, own.0))).collect())
    }

    fn nats(&mut self, readings: &[(QueriedModel, &[TokenSpan])]) -> anyhow::Result<Vec<Vec<f64>>> {
        self.client.nats(readings)
    }

    fn continue_text(&mut self, path: PathId, text: &[u32], count: usize, draw: &Draw) -> anyhow::Result<Vec<u32>> {
        self.client.continue_text(path, text, count, draw)
    }

    fn continue_with_scores(
        &mut self,
        path: PathId,
        text: &[u32],
        count: usize,
        draw: &Draw,
    ) -> anyhow::Result<Vec<(u32, f64)>> {
        self.client.continue_with_scores(path, text, count, draw)
    }

    fn answered(&self) -> Vec<PeerKey> {
        self.client.answered()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::run::tests::SMALL;
    use crate::model::initial_levels;

    /// Two paths, the first good at small letters and the second at capital letters.
    struct CasePaths {
        run: RunConfig,
        tokenizer: Tokenizer,
    }

    impl CasePaths {
        fn new() -> Self {
            let mut run = RunConfig::from_toml(SMALL).unwrap();
            (run.model.context, run.routing.prefix_tokens, run.training.learning_rate) = (32, 16, 2e-2);
            let tokenizer = Tokenizer::train(&["none of these".to_owned()], 300).unwrap();
            Self { run, tokenizer }
        }

        /// Sixteen letters of one case, then sixteen of the other or of the same, twice; the last letter before tells
        /// which. The final window suits neither path, as its last letter tells.
        fn documents() -> Vec<String> {
            let part = |large: bool, next: bool| {
                let text = if large { "ABABABABABABABA" } else { "abababababababa" };
                format!("{text}{}", if next { "Z" } else { "z" })
            };
            let document =
                |i: u32| part(i & 1 == 1, i & 2 == 2) + &part(i & 2 == 2, i & 4 == 4) + &part(i & 4 == 4, false);
            (0..64).map(document).collect()
        }
    }

    impl InferenceClient for CasePaths {
        fn config(&self) -> &RunConfig {
            &self.run
        }

        fn tokenizer(&self) -> &Tokenizer {
            &self.tokenizer
        }

        fn shares_text(&self) -> bool {
            false
        }

        fn place(&self) -> String {
            "here".to_owned()
        }

        fn test_text(&mut self, _: PathId) -> anyhow::Result<Option<TokenSet>> {
            Ok(None)
        }

        fn ancestor(&mut self) -> anyhow::Result<Vec<f32>> {
            let run = self.run.undivided();
            Ok(initial_levels(&run.model, &run.levels, Seed::root(1)).concat())
        }

        fn routes(&mut self, prefixes: &[&[u32]]) -> anyhow::Result<Vec<PathId>> {
            Ok(vec![PathId(0); prefixes.len()])
        }

        fn nats(&mut self, readings: &[(QueriedModel, &[TokenSpan])]) -> anyhow::Result<Vec<Vec<f64>>> {
            let cost = |player: &QueriedModel, piece: &TokenSpan| {
                let text = self.tokenizer.decode(&piece.tokens[piece.from as usize..]);
                let large = text.chars().filter(|character| character.is_uppercase()).count() as f64;
                if *player == QueriedModel::Path(PathId(1)) { text.len() as f64 - large } else { large }
            };
            Ok(readings
                .iter()
                .map(|(player, pieces)| pieces.iter().map(|piece| cost(player, piece)).collect())
                .collect())
        }

        fn continue_text(&mut self, _: PathId, _: &[u32], _: usize, _: &Draw) -> anyhow::Result<Vec<u32>> {
            Ok(Vec::new())
        }

        fn continue_with_scores(
            &mut self,
            _: PathId,
            _: &[u32],
            _: usize,
            _: &Draw,
        ) -> anyhow::Result<Vec<(u32, f64)>> {
            Ok(Vec::new())
        }

        fn answered(&self) -> Vec<PeerKey> {
            Vec::new()
        }
    }

    #[test]
    fn a_transducer_learns_which_path_reads_on_best_and_is_refused_elsewhere() {
        let machine = MachineConfig { threads: 1, ..MachineConfig::default() };
        let (mut client, stop) = (CasePaths::new(), AtomicBool::new(false));
        let documents = Tokenized::from(&client.tokenizer.encode_all(&CasePaths::documents()).unwrap()[..]);
        let file = make(&mut client, &documents, 16, &machine, &stop).unwrap();
        let mut guided = Guided::open(Box::new(CasePaths::new()), &file, 16, &machine).unwrap();
        let ends: Vec<Vec<u32>> = ["abababababababaZ", "ABABABABABABABAz", "abababababababaz", "ABABABABABABABAZ"]
            .map(|text| client.tokenizer.encode(text).unwrap())
            .into();
        let ends: Vec<&[u32]> = ends.iter().map(Vec::as_slice).collect();
        let of_zero: Vec<(PathId, &[u32])> = ends.iter().map(|end| (PathId(0), *end)).collect();
        assert_eq!(guided.routes_on(&of_zero).unwrap(), [1, 0, 0, 1].map(PathId));
        guided.switch_threshold = SwitchThreshold::of(f64::INFINITY).unwrap();
        assert_eq!(guided.routes_on(&of_zero).unwrap(), [PathId(0); 4], "each goes on where it is at home");
        assert_eq!(guided.routes(&ends).unwrap(), [PathId(0); 4], "how a text begins is not its business");
        let refused = |file: &[u8], every| {
            Guided::open(Box::new(CasePaths::new()), file, every, &machine).err().expect("refused").to_string()
        };
        assert_eq!(refused(&file, 8), "it chooses among 2 paths every 16 tokens, not among 2 paths every 8 tokens");
        assert!(refused(b"no file", 16).contains("it is not a transducer of this run"));
        stop.store(true, Ordering::Relaxed);
        assert!(make(&mut client, &documents, 16, &machine, &stop).unwrap_err().is::<Stopped>());
    }
}
