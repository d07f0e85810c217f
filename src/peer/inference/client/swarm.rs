//! Inference by a running swarm: each query goes to a peer that can run the model, and to the next one if that peer
//! refuses, is silent or has gone. If no peer can run a path, its modules are fetched and the [local
//! fallback](crate::peer::inference::client::local_fallback) runs it.
//!
//! Otherwise, only the manifest and the tokenizer of the run are fetched; even routes are queried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::config::{DeviceChoice, RunConfig};
use crate::model::exchange;
use crate::names::{PathId, PeerKey};
use crate::network::Stopped;
use crate::peer::client::swarm::SwarmClient;
use crate::peer::client::{Entrance, VisitError};
use crate::peer::inference::client::local_fallback::LocalFallback;
use crate::peer::inference::client::requests::{Continuing, QuerySequence, Routing, Scoring};
use crate::peer::inference::client::{Draw, InferenceClient};
use crate::peer::inference::engine::bounds;
use crate::peer::manifest::Manifest;
use crate::protocol::{Request, Response};
use crate::query::MAX_SPANS;
use crate::query::{QueriedModel, Query, QueryLimits, TokenSpan};
use crate::text::{IdsWriter, TokenSet, Tokenizer};

/// Time after which the search for a peer ends, but not before a second round.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two rounds.
const PAUSE: Duration = Duration::from_secs(3);

/// Limit of halvings of queries.
const MOST_HALVED: u32 = 7;

/// Rounds without an answer for a path after which it runs locally.
const LOOKS: u32 = 2;

/// Prefix of a refusal by a peer with too many queries.
const BUSY: &str = "busy";

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Visit(#[from] VisitError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error("no peer can answer for {what}: {reason} (of {asked} peers)")]
    Nobody { what: String, reason: String, asked: usize },
}

#[expect(clippy::disallowed_methods, reason = "an edge: how long nobody has answered")]
fn now() -> Instant {
    Instant::now()
}

fn name(player: QueriedModel) -> String {
    match player {
        QueriedModel::Ancestor => "the ancestor".to_owned(),
        QueriedModel::Path(path) => format!("path {path}"),
    }
}

/// Reports progress if it takes longer than usual.
pub type Teller = Box<dyn FnMut(&str) + Send>;

/// The peers of a running swarm.
pub struct Swarm {
    runtime: Runtime,
    manifest: Arc<Manifest>,
    tokenizer: Tokenizer,
    visitor: Visitor,
}

/// The client and its search.
struct Visitor {
    client: SwarmClient,
    bounds: QueryLimits,
    answered: BTreeSet<PeerKey>,
    /// Halvings of queries to a model, after a peer took too long.
    halved: BTreeMap<QueriedModel, u32>,
    fallback: LocalFallback,
    /// Paths already reported as running locally.
    told_of: BTreeSet<PathId>,
    told: Teller,
}

/// The state of a sequence of queries that has failed so far.
#[derive(Default)]
struct Trouble {
    /// Peers that did not answer in this round.
    passed_over: BTreeSet<PeerKey>,
    rounds: u32,
    /// Whether a living peer was busy or slow in this round.
    waits: bool,
    /// Start of the search.
    began: Option<Instant>,
    reason: Option<String>,
}

impl Swarm {
    /// Joins the swarm at an address as a client. Paths that no peer can run will run on a device of this machine.
    pub fn visit<'a>(at: impl Into<Entrance<'a>>, device: DeviceChoice, told: Teller) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let mut client = runtime.block_on(SwarmClient::connect(at.into())).map_err(AskError::from)?;
        let (tokenizer, manifest) = (client.manifest.tokenizer, Arc::new(client.manifest.clone()));
        let tokenizer = runtime.block_on(client.part(tokenizer, "the tokenizer")).map_err(AskError::from)?;
        let visitor = Visitor {
            fallback: LocalFallback::new(manifest.clone(), device, client.blobs.clone())?,
            told_of: BTreeSet::new(),
            bounds: bounds(&manifest)?,
            client,
            answered: BTreeSet::new(),
            halved: BTreeMap::new(),
            told,
        };
        let tokenizer = Tokenizer::from_json(&tokenizer)?;
        Ok(Self { runtime, manifest, tokenizer, visitor })
    }

    /// As if another peer had been reported.
    #[cfg(test)]
    pub fn hears_of(&mut self, peer: PeerKey, address: crate::network::Multiaddr) {
        self.visitor.client.connection.learn(peer, vec![address]);
    }

    fn carry_out(&mut self, sequences: &mut [&mut dyn QuerySequence]) -> anyhow::Result<()> {
        self.runtime.block_on(self.visitor.carry_out(sequences))
    }
}

impl Visitor {
    /// Runs all sequences of queries in parallel: the next query of each, with one for each peer.
    async fn carry_out(&mut self, sequences: &mut [&mut dyn QuerySequence]) -> anyhow::Result<()> {
        let mut troubles: Vec<Trouble> = sequences.iter().map(|_| Trouble::default()).collect();
        self.search(sequences).await?;
        loop {
            let mut taken = BTreeSet::new();
            let (mut wave, mut asks, mut stuck) = (Vec::new(), Vec::new(), false);
            let (mut refused, before) = (BTreeMap::new(), now());
            let mut result = false;
            for (number, sequence) in sequences.iter_mut().enumerate() {
                let player = sequence.player();
                let halved = self.halved.get(&player).copied().unwrap_or(0);
                let Some(question) = sequence.next(&self.bounds, halved) else { continue };
                let trouble = &mut troubles[number];
                let mut players = self.peers_for_path(player);
                players.retain(|peer| !trouble.passed_over.contains(peer));
                if players.is_empty() {
                    if self.answer_locally(&mut **sequence, trouble, &mut refused).await? {
                        result = true;
                    } else {
                        self.begin_again(player, trouble)?;
                        stuck = true;
                    }
                } else if let Some(peer) = players.into_iter().find(|peer| !taken.contains(peer)) {
                    taken.insert(peer);
                    wave.push(number);
                    asks.push((peer, Request::Query(question)));
                }
            }
            if result {
                // The others did not have their time meanwhile.
                let spent = before.elapsed();
                troubles.iter_mut().filter_map(|trouble| trouble.began.as_mut()).for_each(|began| *began += spent);
            }
            if stuck {
                tokio::time::sleep(PAUSE).await;
                self.search(sequences).await?;
                continue;
            }
            if wave.is_empty() {
                return Ok(());
            }
            let answers = self.client.connection.ask_each(&asks).await?;
            for ((number, (peer, request)), answer) in wave.into_iter().zip(asks).zip(answers) {
                let Request::Query(question) = request else { continue };
                self.heard(peer, &question, answer, &mut *sequences[number], &mut troubles[number]);
            }
        }
    }

    fn heard(
        &mut self,
        peer: PeerKey,
        question: &Query,
        answer: Result<Response, String>,
        sequence: &mut dyn QuerySequence,
        trouble: &mut Trouble,
    ) {
        let checked = answer.and_then(|response| match response {
            Response::QueryResult(result) => match self.bounds.check_result(question, &result) {
                Ok(()) => Ok(result),
                Err(error) => Err(error.to_string()),
            },
            _ => Err("it sent an unexpected answer".to_owned()),
        });
        match checked {
            Ok(result) => {
                sequence.take(result);
                self.answered.insert(peer);
                *trouble = Trouble::default();
            }
            Err(reason) => {
                tracing::debug!(peer = %peer.short(), %reason, "a query was not answered");
                let lives = self.client.directory.answering().any(|other| other == peer);
                trouble.waits |= reason.starts_with(BUSY) || (self.client.connection.is_silent(peer) && lives);
                if self.client.connection.is_silent(peer) {
                    let halved = self.halved.entry(sequence.player()).or_default();
                    *halved = (*halved + 1).min(MOST_HALVED);
                }
                trouble.passed_over.insert(peer);
                trouble.reason = Some(format!("peer …{}: {reason}", peer.short()));
            }
        }
    }

    /// Runs a sequence locally, if no peer can run its path and all parts can be fetched. Returns whether it has.
    /// `refused` has the paths known in this round to be incomplete.
    async fn answer_locally(
        &mut self,
        sequence: &mut dyn QuerySequence,
        trouble: &mut Trouble,
        refused: &mut BTreeMap<PathId, String>,
    ) -> anyhow::Result<bool> {
        let QueriedModel::Path(path) = sequence.player() else { return Ok(false) };
        if !self.fallback.knows(path) {
            if trouble.rounds < LOOKS || trouble.waits {
                return Ok(false);
            }
            if self.told_of.insert(path) {
                let line = format!(
                    "path {path}: no peer holds all of its modules; they are fetched, and the path runs on this machine"
                );
                (self.told)(&line);
            }
        }
        if let Some(reason) = refused.get(&path) {
            trouble.reason = Some(reason.clone());
            return Ok(false);
        }
        let learnt = self.fallback.learn(&mut self.client, path).await?;
        if let Err(reason) = learnt.and_then(|()| self.answer_all(path, sequence)) {
            self.fallback.forget(path);
            trouble.reason = Some(reason.clone());
            refused.insert(path, reason);
            return Ok(false);
        }
        Ok(true)
    }

    fn answer_all(&mut self, path: PathId, sequence: &mut dyn QuerySequence) -> Result<(), String> {
        while let Some(question) = sequence.next(&self.bounds, 0) {
            let result = self.fallback.play(path, &question).map_err(|error| format!("{error:#}"))?;
            self.bounds.check_result(&question, &result).map_err(|error| error.to_string())?;
            sequence.take(result);
        }
        Ok(())
    }

    fn begin_again(&mut self, player: QueriedModel, trouble: &mut Trouble) -> Result<(), AskError> {
        let reason = trouble.reason.clone().unwrap_or_else(|| "no reachable peer holds it".to_owned());
        trouble.rounds += 1;
        let began = *trouble.began.get_or_insert_with(now);
        if trouble.rounds > 2 && began.elapsed() > TIMEOUT {
            return Err(AskError::Nobody { what: name(player), reason, asked: self.client.directory.asked() });
        }
        if trouble.rounds == 1 {
            (self.told)(&format!("{}: {reason}; looking for another peer", name(player)));
        }
        trouble.passed_over.clear();
        trouble.waits = false;
        // The reason is of this round: the next may find no peer at all.
        trouble.reason = None;
        self.client.connection.forget_silent();
        self.client.directory.begin_again();
        Ok(())
    }

    async fn search(&mut self, sequences: &[&mut dyn QuerySequence]) -> Result<(), AskError> {
        let left = sequences.iter().filter(|sequence| sequence.next(&self.bounds, 0).is_some());
        let path = |player| match player {
            QueriedModel::Ancestor => None,
            QueriedModel::Path(path) => Some(path),
        };
        let paths = left.filter_map(|sequence| path(sequence.player())).collect();
        let (contact, address) = self.client.contact.clone();
        self.client.connection.learn(contact, vec![address]);
        Ok(self.client.search_paths(&paths).await?)
    }

    /// Peers for a model; those that did not answer last time come last.
    fn peers_for_path(&self, player: QueriedModel) -> Vec<PeerKey> {
        let mut players: Vec<PeerKey> = match player {
            QueriedModel::Ancestor => self.client.directory.answering().collect(),
            QueriedModel::Path(path) => self.client.directory.peers_for_path(&self.client.plan, path),
        };
        players.sort_by_key(|peer| self.client.connection.is_silent(*peer));
        if matches!(player, QueriedModel::Path(path) if self.fallback.knows(path)) {
            players.retain(|peer| !self.client.connection.is_silent(*peer));
        }
        players
    }
}

impl InferenceClient for Swarm {
    fn config(&self) -> &RunConfig {
        &self.manifest.config
    }

    fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn shares_text(&self) -> bool {
        self.manifest.share_text
    }

    fn place(&self) -> String {
        format!("the swarm at {}", self.visitor.client.contact.1)
    }

    fn test_text(&mut self, path: PathId) -> anyhow::Result<Option<TokenSet>> {
        if !self.manifest.share_text {
            return Ok(None);
        }
        let Some(bytes) = self.runtime.block_on(self.visitor.client.test_text(path))? else { return Ok(None) };
        let model = &self.manifest.config.model;
        Ok(Some(TokenSet::read_for(model, &bytes[..], bytes.len() as u64, IdsWriter::in_memory())?))
    }

    fn ancestor(&mut self) -> anyhow::Result<Vec<f32>> {
        let file = self.runtime.block_on(self.visitor.client.part(self.manifest.ancestor, "the ancestor"))?;
        let run = self.manifest.config.undivided();
        Ok(exchange::decode_level(&file, &run.model, &run.levels[0])?)
    }

    fn routes(&mut self, prefixes: &[&[u32]]) -> anyhow::Result<Vec<PathId>> {
        let parts = prefixes.chunks(MAX_SPANS);
        let mut sequences: Vec<Routing> = parts.map(|prefixes| Routing { prefixes, paths: Vec::new() }).collect();
        let mut all: Vec<&mut dyn QuerySequence> =
            sequences.iter_mut().map(|sequence| sequence as &mut dyn QuerySequence).collect();
        self.carry_out(&mut all)?;
        Ok(sequences.into_iter().flat_map(|sequence| sequence.paths).collect())
    }

    fn nats(&mut self, readings: &[(QueriedModel, &[TokenSpan])]) -> anyhow::Result<Vec<Vec<f64>>> {
        let sequences = readings.iter().map(|(player, pieces)| Scoring { player: *player, pieces, nats: Vec::new() });
        let mut sequences: Vec<Scoring> = sequences.collect();
        let mut all: Vec<&mut dyn QuerySequence> =
            sequences.iter_mut().map(|sequence| sequence as &mut dyn QuerySequence).collect();
        self.carry_out(&mut all)?;
        Ok(sequences.into_iter().map(|sequence| sequence.nats).collect())
    }

    fn continue_text(&mut self, path: PathId, text: &[u32], count: usize, draw: &Draw) -> anyhow::Result<Vec<u32>> {
        let mut sequence = Continuing::new(path, text, count, *draw, self.tokenizer.end_of_document());
        self.carry_out(&mut [&mut sequence])?;
        Ok(sequence.text.split_off(text.len()))
    }

    fn continue_with_scores(
        &mut self,
        path: PathId,
        text: &[u32],
        count: usize,
        draw: &Draw,
    ) -> anyhow::Result<Vec<(u32, f64)>> {
        let mut sequence = Continuing::new(path, text, count, *draw, self.tokenizer.end_of_document());
        sequence.logprobs = Some(Vec::new());
        self.carry_out(&mut [&mut sequence])?;
        let logprobs = sequence.logprobs.unwrap_or_default();
        Ok(sequence.text.split_off(text.len()).into_iter().zip(logprobs).collect())
    }

    fn answered(&self) -> Vec<PeerKey> {
        self.visitor.answered.iter().copied().collect()
    }
}
