//! A swarm that runs, asked for what its peers hold: each question goes to somebody who can play the part, and to the next
//! if that one refuses, is silent or has gone. If nobody can play a path, its modules come here, and the
//! [`understudy`](crate::peer::inference::client::local_fallback) does.
//!
//! Else only the manifest and the tokenizer of the run come here: routes are asked for like everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::config::{DeviceChoice, RunConfig};
use crate::model::exchange;
use crate::names::{BlobRef, PathId, PeerKey};
use crate::network::{Multiaddr, Stopped};
use crate::peer::client::connection::Client;
use crate::peer::client::directory::Directory;
use crate::peer::client::{Entrance, Visit, VisitError, visit};
use crate::peer::inference::client::local_fallback::{Sources, Understudy};
use crate::peer::inference::client::memory_blobs::BlobsInMemory;
use crate::peer::inference::client::requests::{Continuing, Errand, Routing, Scoring};
use crate::peer::inference::client::{Draw, Players};
use crate::peer::inference::engine::bounds;
use crate::peer::manifest::Manifest;
use crate::protocol::{Request, Response, RunPlan};
use crate::query::MAX_SPANS;
use crate::query::{QueriedModel, Query, QueryLimits, TokenSpan};
use crate::text::{IdsWriter, TokenSet, Tokenizer};

/// Looking for somebody who answers ends after so long, but not before a second look.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two of them.
const PAUSE: Duration = Duration::from_secs(3);

/// Questions are halved so often at the most.
const MOST_HALVED: u32 = 7;

/// After so many looks in which nobody answered for a path, it is played here.
const LOOKS: u32 = 2;

/// How a peer's refusal begins that has too many questions.
const BUSY: &str = "busy";

/// How often the peer at the address is asked for a part of the run.
const ATTEMPTS: usize = 3;

/// Peers from whom a text is tried, besides those of its path.
const OTHERS: usize = 4;

/// Why a swarm did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody at the address, or not one of us.
    #[error(transparent)]
    Visit(#[from] VisitError),
    /// The network went away.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// A part of the run could not be had.
    #[error("{what} could not be fetched: {reason}")]
    Part {
        /// Which.
        what: &'static str,
        /// What went wrong last.
        reason: String,
    },
    /// Nobody plays it.
    #[error("nobody can be asked for {what}: {reason} (of {asked} peers)")]
    Nobody {
        /// The path, or the ancestor.
        what: String,
        /// What went wrong last.
        reason: String,
        /// How many peers were found in all.
        asked: usize,
    },
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

/// Says how it is going, where that takes longer than usual.
pub type Teller = Box<dyn FnMut(&str) + Send>;

/// A run whose peers are asked.
pub struct Swarm {
    runtime: Runtime,
    manifest: Arc<Manifest>,
    tokenizer: Tokenizer,
    visitor: Visitor,
    address: Multiaddr,
}

/// Who goes from peer to peer.
struct Visitor {
    client: Client,
    directory: Directory,
    blobs: BlobsInMemory,
    plan: RunPlan,
    bounds: QueryLimits,
    contact: (PeerKey, Multiaddr),
    answered: BTreeSet<PeerKey>,
    /// How often questions to a part are halved, since somebody took too long.
    halved: BTreeMap<QueriedModel, u32>,
    understudy: Understudy,
    /// Paths of which it was said that they are played here.
    told_of: BTreeSet<PathId>,
    told: Teller,
}

/// How an errand goes.
#[derive(Default)]
struct Trouble {
    /// They did not answer in this round.
    passed_over: BTreeSet<PeerKey>,
    rounds: u32,
    /// Somebody who lives was busy or slow in this round.
    waits: bool,
    /// Since when.
    began: Option<Instant>,
    reason: Option<String>,
}

impl Swarm {
    /// Visits the swarm at an address. What nobody there can play is played here, on a device of this machine.
    ///
    /// # Errors
    /// If nobody answers there, or the tokenizer cannot be had.
    pub fn visit<'a>(at: impl Into<Entrance<'a>>, device: DeviceChoice, told: Teller) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let blobs = BlobsInMemory::default();
        let visited = runtime.block_on(visit(at.into(), Arc::new(blobs.clone()))).map_err(AskError::from)?;
        let Visit { mut client, contact, address, manifest } = visited;
        let (mut manifest, _) = Manifest::decode(&manifest)?;
        if let Some(table) = manifest.shards.table() {
            let table = runtime.block_on(part(&mut client, &blobs, table, "the shard table", &[contact; ATTEMPTS]))?;
            manifest.take_table(&table)?;
        }
        let tokenizer =
            runtime.block_on(part(&mut client, &blobs, manifest.tokenizer, "the tokenizer", &[contact; ATTEMPTS]))?;
        let manifest = Arc::new(manifest);
        let visitor = Visitor {
            understudy: Understudy::new(manifest.clone(), device, blobs.clone())?,
            told_of: BTreeSet::new(),
            client,
            directory: Directory::default(),
            blobs,
            plan: manifest.plan()?,
            bounds: bounds(&manifest)?,
            contact: (contact, address.clone()),
            answered: BTreeSet::new(),
            halved: BTreeMap::new(),
            told,
        };
        let tokenizer = Tokenizer::from_json(&tokenizer)?;
        Ok(Self { runtime, manifest, tokenizer, visitor, address })
    }

    /// As if somebody had told of another peer.
    #[cfg(test)]
    pub fn hears_of(&mut self, peer: PeerKey, address: Multiaddr) {
        self.visitor.client.learn(peer, vec![address]);
    }

    fn carry_out(&mut self, errands: &mut [&mut dyn Errand]) -> anyhow::Result<()> {
        self.runtime.block_on(self.visitor.carry_out(errands))
    }
}

async fn part(
    client: &mut Client,
    blobs: &BlobsInMemory,
    blob: BlobRef,
    what: &'static str,
    from: &[PeerKey],
) -> Result<Vec<u8>, AskError> {
    let fetched = client.fetch(blob, from).await?.map_err(|reason| AskError::Part { what, reason });
    fetched.map(|()| blobs.take(blob.hash).unwrap_or_default())
}

impl Visitor {
    /// Asks until all errands are done: of each the next question at the same time, and of each peer one.
    async fn carry_out(&mut self, errands: &mut [&mut dyn Errand]) -> anyhow::Result<()> {
        let mut troubles: Vec<Trouble> = errands.iter().map(|_| Trouble::default()).collect();
        self.search(errands).await?;
        loop {
            let mut taken = BTreeSet::new();
            let (mut wave, mut asks, mut stuck) = (Vec::new(), Vec::new(), false);
            let (mut refused, before) = (BTreeMap::new(), now());
            let mut played = false;
            for (number, errand) in errands.iter_mut().enumerate() {
                let player = errand.player();
                let halved = self.halved.get(&player).copied().unwrap_or(0);
                let Some(question) = errand.next(&self.bounds, halved) else { continue };
                let trouble = &mut troubles[number];
                let mut players = self.players(player);
                players.retain(|peer| !trouble.passed_over.contains(peer));
                if players.is_empty() {
                    if self.play_here(&mut **errand, trouble, &mut refused).await? {
                        played = true;
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
            if played {
                // Nobody else's patience was tried meanwhile.
                let spent = before.elapsed();
                troubles.iter_mut().filter_map(|trouble| trouble.began.as_mut()).for_each(|began| *began += spent);
            }
            if stuck {
                tokio::time::sleep(PAUSE).await;
                self.search(errands).await?;
                continue;
            }
            if wave.is_empty() {
                return Ok(());
            }
            let answers = self.client.ask_each(&asks).await?;
            for ((number, (peer, request)), answer) in wave.into_iter().zip(asks).zip(answers) {
                let Request::Query(question) = request else { continue };
                self.heard(peer, &question, answer, &mut *errands[number], &mut troubles[number]);
            }
        }
    }

    fn heard(
        &mut self,
        peer: PeerKey,
        question: &Query,
        answer: Result<Response, String>,
        errand: &mut dyn Errand,
        trouble: &mut Trouble,
    ) {
        let checked = answer.and_then(|response| match response {
            Response::QueryResult(played) => match self.bounds.check_result(question, &played) {
                Ok(()) => Ok(played),
                Err(error) => Err(error.to_string()),
            },
            _ => Err("it answered something else".to_owned()),
        });
        match checked {
            Ok(played) => {
                errand.take(played);
                self.answered.insert(peer);
                *trouble = Trouble::default();
            }
            Err(reason) => {
                tracing::debug!(peer = %peer.short(), %reason, "a question was not answered");
                let lives = self.directory.answering().any(|other| other == peer);
                trouble.waits |= reason.starts_with(BUSY) || (self.client.is_silent(peer) && lives);
                if self.client.is_silent(peer) {
                    let halved = self.halved.entry(errand.player()).or_default();
                    *halved = (*halved + 1).min(MOST_HALVED);
                }
                trouble.passed_over.insert(peer);
                trouble.reason = Some(format!("peer …{}: {reason}", peer.short()));
            }
        }
    }

    /// Carries an errand out without anybody, if it is one of a path that nobody plays and all parts of which can be had;
    /// whether it has been. `refused` says of which paths it is known in this round that they cannot be had.
    async fn play_here(
        &mut self,
        errand: &mut dyn Errand,
        trouble: &mut Trouble,
        refused: &mut BTreeMap<PathId, String>,
    ) -> anyhow::Result<bool> {
        let QueriedModel::Path(path) = errand.player() else { return Ok(false) };
        if !self.understudy.knows(path) {
            if trouble.rounds < LOOKS || trouble.waits {
                return Ok(false);
            }
            if self.told_of.insert(path) {
                let line = format!("path {path}: nobody plays it as a whole; its modules are fetched to play it here");
                (self.told)(&line);
            }
        }
        if let Some(reason) = refused.get(&path) {
            trouble.reason = Some(reason.clone());
            return Ok(false);
        }
        let Self { client, directory, plan, understudy, .. } = self;
        let learnt = understudy.learn(&mut Sources { client, directory, plan }, path).await?;
        if let Err(reason) = learnt.and_then(|()| self.play_all(path, errand)) {
            self.understudy.forget(path);
            trouble.reason = Some(reason.clone());
            refused.insert(path, reason);
            return Ok(false);
        }
        Ok(true)
    }

    fn play_all(&mut self, path: PathId, errand: &mut dyn Errand) -> Result<(), String> {
        while let Some(question) = errand.next(&self.bounds, 0) {
            let played = self.understudy.play(path, &question).map_err(|error| format!("{error:#}"))?;
            self.bounds.check_result(&question, &played).map_err(|error| error.to_string())?;
            errand.take(played);
        }
        Ok(())
    }

    fn begin_again(&mut self, player: QueriedModel, trouble: &mut Trouble) -> Result<(), AskError> {
        let reason = trouble.reason.clone().unwrap_or_else(|| "no peer that can be reached holds it".to_owned());
        trouble.rounds += 1;
        let began = *trouble.began.get_or_insert_with(now);
        if trouble.rounds > 2 && began.elapsed() > PATIENCE {
            return Err(AskError::Nobody { what: name(player), reason, asked: self.directory.asked() });
        }
        if trouble.rounds == 1 {
            (self.told)(&format!("{}: {reason}; looking for another peer", name(player)));
        }
        trouble.passed_over.clear();
        trouble.waits = false;
        // What was said is of this round: the next may find nobody at all.
        trouble.reason = None;
        self.client.forget_silent();
        self.directory.begin_again();
        Ok(())
    }

    async fn search(&mut self, errands: &[&mut dyn Errand]) -> Result<(), AskError> {
        let left = errands.iter().filter(|errand| errand.next(&self.bounds, 0).is_some());
        let path = |player| match player {
            QueriedModel::Ancestor => None,
            QueriedModel::Path(path) => Some(path),
        };
        let paths = left.filter_map(|errand| path(errand.player())).collect();
        let (contact, address) = &self.contact;
        self.client.learn(*contact, vec![address.clone()]);
        Ok(self.directory.search_players(&mut self.client, &self.plan, &paths).await?)
    }

    /// Who can be asked; those that did not answer last time come last.
    fn players(&self, player: QueriedModel) -> Vec<PeerKey> {
        let mut players: Vec<PeerKey> = match player {
            QueriedModel::Ancestor => self.directory.answering().collect(),
            QueriedModel::Path(path) => self.directory.players(&self.plan, path),
        };
        players.sort_by_key(|peer| self.client.is_silent(*peer));
        if matches!(player, QueriedModel::Path(path) if self.understudy.knows(path)) {
            players.retain(|peer| !self.client.is_silent(*peer));
        }
        players
    }

    /// Something that every peer of the run has.
    async fn part(&mut self, blob: BlobRef) -> Result<Option<Vec<u8>>, AskError> {
        let from: Vec<PeerKey> = std::iter::once(self.contact.0).chain(self.directory.answering()).collect();
        let fetched = self.client.fetch(blob, &from).await?;
        Ok(fetched.ok().and_then(|()| self.blobs.take(blob.hash)))
    }

    /// From the holders of the path first; then from anybody, since the founder has it all.
    async fn test_text(&mut self, path: PathId, text: BlobRef) -> Result<Option<Vec<u8>>, AskError> {
        self.directory.search_players(&mut self.client, &self.plan, &BTreeSet::from([path])).await?;
        let mut from = self.directory.players(&self.plan, path);
        from.push(self.contact.0);
        from.extend(self.directory.answering().take(OTHERS));
        let fetched = self.client.fetch(text, &from).await?;
        Ok(fetched.ok().and_then(|()| self.blobs.take(text.hash)))
    }
}

impl Players for Swarm {
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
        format!("the swarm at {}", self.address)
    }

    fn test_text(&mut self, path: PathId) -> anyhow::Result<Option<TokenSet>> {
        if !self.manifest.share_text {
            return Ok(None);
        }
        let text = self.manifest.shard(path).test;
        let Some(bytes) = self.runtime.block_on(self.visitor.test_text(path, text))? else { return Ok(None) };
        let model = &self.manifest.config.model;
        Ok(Some(TokenSet::read_for(model, &bytes[..], bytes.len() as u64, IdsWriter::in_memory())?))
    }

    fn ancestor(&mut self) -> anyhow::Result<Vec<f32>> {
        let file = self.runtime.block_on(self.visitor.part(self.manifest.ancestor))?;
        let file = file.ok_or_else(|| anyhow::anyhow!("no peer sent the ancestor of the run"))?;
        let run = self.manifest.config.undivided();
        Ok(exchange::decode_level(&file, &run.model, &run.levels[0])?)
    }

    fn routes(&mut self, prefixes: &[&[u32]]) -> anyhow::Result<Vec<PathId>> {
        let parts = prefixes.chunks(MAX_SPANS);
        let mut errands: Vec<Routing> = parts.map(|prefixes| Routing { prefixes, paths: Vec::new() }).collect();
        let mut all: Vec<&mut dyn Errand> = errands.iter_mut().map(|errand| errand as &mut dyn Errand).collect();
        self.carry_out(&mut all)?;
        Ok(errands.into_iter().flat_map(|errand| errand.paths).collect())
    }

    fn nats(&mut self, readings: &[(QueriedModel, &[TokenSpan])]) -> anyhow::Result<Vec<Vec<f64>>> {
        let errands = readings.iter().map(|(player, pieces)| Scoring { player: *player, pieces, nats: Vec::new() });
        let mut errands: Vec<Scoring> = errands.collect();
        let mut all: Vec<&mut dyn Errand> = errands.iter_mut().map(|errand| errand as &mut dyn Errand).collect();
        self.carry_out(&mut all)?;
        Ok(errands.into_iter().map(|errand| errand.nats).collect())
    }

    fn go_on(&mut self, path: PathId, text: &[u32], count: usize, draw: &Draw) -> anyhow::Result<Vec<u32>> {
        let stop = self.tokenizer.end_of_document();
        let mut errand = Continuing { path, text: text.to_vec(), left: count, draw: *draw, stop };
        self.carry_out(&mut [&mut errand])?;
        Ok(errand.text.split_off(text.len()))
    }

    fn answered(&self) -> Vec<PeerKey> {
        self.visitor.answered.iter().copied().collect()
    }
}
