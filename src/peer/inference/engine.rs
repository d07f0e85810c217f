//! Answers queries about text from a run's blobs, with the ancestor, its router, or a path whose states are available.
//!
//! The [server](crate::peer::inference::server) reads blobs from the peer's store; the
//! [client](crate::peer::inference::client) fetches those of a path that no peer can run.

use std::sync::Arc;

use anyhow::Context;

use crate::config::DeviceChoice;
use crate::model::tensor_memory::{first_line, ran_out_of_memory};
use crate::model::{PathModel, exchange};
use crate::names::{BlobHash, BlobRef, ModuleId};
use crate::outer::ModuleState;
use crate::peer::client::memory_blobs::MemoryBlobs;
use crate::peer::inference::model_slot::{ModelSlot, Part, continue_text, continue_with_scores, nats, routes};
use crate::peer::manifest::{Manifest, genesis};
use crate::peer::trainer::path_state::PathState;
use crate::protocol::Response;
use crate::query::{QueriedModel, Query, QueryLimits, QueryResult};
use crate::routing::Router;
use crate::store::BlobStore;

/// The limits of queries in a run.
pub(in crate::peer) fn bounds(manifest: &Manifest) -> anyhow::Result<QueryLimits> {
    let config = &manifest.config;
    Ok(QueryLimits {
        paths: config.grid()?.path_count(),
        vocabulary: config.model.ids(),
        context: config.model.context,
        prefix_tokens: config.routing.prefix_tokens,
    })
}

/// A source of blobs.
pub(in crate::peer) trait Blobs: Send {
    fn read(&self, blob: BlobRef) -> anyhow::Result<Option<Vec<u8>>>;
}

impl Blobs for MemoryBlobs {
    fn read(&self, blob: BlobRef) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(self.get(blob.hash))
    }
}

impl Blobs for BlobStore {
    fn read(&self, blob: BlobRef) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(self.get(blob.hash, blob.bytes)?)
    }
}

/// The parts of a path.
pub(in crate::peer) struct PathParts {
    /// One module for each level, with its state.
    pub states: Vec<(ModuleId, BlobRef)>,
    /// The trainer state with the path's own parameters, if it has any.
    pub trainer: Option<BlobRef>,
}

pub(in crate::peer) struct Engine {
    manifest: Arc<Manifest>,
    device: DeviceChoice,
    blobs: Box<dyn Blobs>,
    counts: Vec<usize>,
    slot: Option<ModelSlot>,
    /// The router, and the hash of its state or file.
    router: Option<(BlobHash, Router)>,
}

/// A state was replaced between the query and its use.
#[derive(Debug, thiserror::Error)]
#[error("module {0} has a newer version by now: ask again")]
struct MovedOn(ModuleId);

impl Engine {
    /// Without a network yet.
    pub fn new(manifest: Arc<Manifest>, device: DeviceChoice, blobs: Box<dyn Blobs>) -> Self {
        Self { counts: manifest.level_counts(), manifest, device, blobs, slot: None, router: None }
    }

    /// Frees the network's memory.
    pub fn rest(&mut self) {
        self.slot = None;
    }

    /// The response to a query: a result or a refusal.
    pub fn answer(&mut self, question: &Query, parts: &PathParts) -> Response {
        match self.result(question, parts) {
            Ok(result) => Response::QueryResult(result),
            Err(error) if error.is::<MovedOn>() => Response::Refused(error.to_string()),
            Err(error) if ran_out_of_memory(error.as_ref()) => {
                // Its trainer may need what the network has.
                self.rest();
                tracing::warn!(reason = %first_line(&format_args!("{error:#}")), "no memory for a query");
                Response::Refused("busy: this peer is out of memory; ask another one, or again later".to_owned())
            }
            Err(error) => {
                // Errors of the disk or the device are not sent to other peers.
                tracing::warn!(error = %format!("{error:#}"), "a query was not answered");
                Response::Refused("this peer cannot run the model; see its log".to_owned())
            }
        }
    }

    /// The result of a query.
    pub fn result(&mut self, question: &Query, parts: &PathParts) -> anyhow::Result<QueryResult> {
        Ok(match question {
            Query::Route(prefixes) => {
                self.read_router(&parts.states)?;
                let prefixes: Vec<&[u32]> = prefixes.iter().map(Vec::as_slice).collect();
                let (by, router) = self.router.take().context("the router has been read")?;
                let ancestor = if router.needs_features() { self.ancestor().map(Some) } else { Ok(None) };
                let paths = ancestor.and_then(|ancestor| routes(&router, ancestor, &prefixes));
                self.router = Some((by, router));
                QueryResult::Routes(paths?)
            }
            Query::Score(player, pieces) => {
                let model = match player {
                    QueriedModel::Ancestor => self.ancestor()?,
                    QueriedModel::Path(_) => self.path(parts)?,
                };
                QueryResult::Nats(nats(model, pieces)?.into_iter().map(Into::into).collect())
            }
            Query::Continue(opening) => {
                let tokens = continue_text(self.path(parts)?, opening)?;
                let ended = tokens.len() < opening.count as usize;
                QueryResult::Tokens(tokens, ended)
            }
            Query::ContinueWithScores(opening) => {
                let scored = continue_with_scores(self.path(parts)?, opening)?;
                let ended = scored.len() < opening.count as usize;
                QueryResult::ScoredTokens(scored.into_iter().map(|it| (it.token, it.logprob.into())).collect(), ended)
            }
        })
    }

    fn read(&self, blob: BlobRef, what: &'static str) -> anyhow::Result<Vec<u8>> {
        self.blobs.read(blob)?.with_context(|| format!("{what} is not in the store"))
    }

    /// The router in this state, or else the creating router.
    fn read_router(&mut self, states: &[(ModuleId, BlobRef)]) -> anyhow::Result<()> {
        let by = states.first().map_or(self.manifest.router.hash, |(_, state)| state.hash);
        if self.router.as_ref().is_some_and(|(known, _)| *known == by) {
            return Ok(());
        }
        let router = match states.first() {
            Some((module, state)) => {
                let bytes = self.blobs.read(*state)?.ok_or(MovedOn(*module))?;
                self.manifest.router_state(&bytes)?.router
            }
            None => Router::decode(&self.read(self.manifest.router, "the router")?)?,
        };
        let (bounds, width) = (bounds(&self.manifest)?, self.manifest.config.model.width);
        router.check(bounds.paths, width, bounds.prefix_tokens)?;
        self.router = Some((by, router));
        Ok(())
    }

    /// The network, opened if needed.
    fn slot(&mut self) -> anyhow::Result<ModelSlot> {
        let new = || {
            let frozen = genesis::frozen(&self.manifest, |ancestor| self.blobs.read(ancestor))?;
            ModelSlot::new(&self.manifest.config, self.device, &frozen)
        };
        self.slot.take().map_or_else(new, Ok)
    }

    fn ancestor(&mut self) -> anyhow::Result<&PathModel> {
        let mut slot = self.slot()?;
        let config = &self.manifest.config;
        let parts = slot.load_whole(Part::Ancestor, || {
            let file = self.read(self.manifest.ancestor, "the ancestor")?;
            let level = |level| Ok(exchange::decode_level(&file, &config.model, level)?);
            config.levels.iter().map(level).collect()
        });
        let failed = parts.map(drop).err();
        let model = self.slot.insert(slot).model();
        failed.map_or(Ok(model), Err)
    }

    fn parameters_of(&self, level: usize, (module, state): (ModuleId, BlobRef)) -> anyhow::Result<Vec<f32>> {
        let bytes = self.blobs.read(state)?.ok_or(MovedOn(module))?;
        Ok(ModuleState::decode(&bytes, module, self.counts[level])?.parameters)
    }

    /// The own parameters of a path from its trainer state: the best ones, if final, or else those of its modules
    /// without unsent changes.
    fn own(&self, states: &[(ModuleId, BlobRef)], trainer: BlobRef) -> anyhow::Result<Vec<Vec<f32>>> {
        let (module, _) = states.first().context("a path has modules")?;
        let bytes = self.blobs.read(trainer)?.ok_or(MovedOn(*module))?;
        let mut trainer = PathState::decode(&bytes, &self.counts)?;
        if let Some(best) = trainer.best.take_if(|best| best.settled) {
            return Ok(best.levels);
        }
        let replicated = states.iter().enumerate().map(|(level, state)| self.parameters_of(level, *state));
        let replicated: Vec<Vec<f32>> = replicated.collect::<anyhow::Result<_>>()?;
        Ok(trainer.own_copy(&self.manifest.config, &replicated).into_owned())
    }

    fn path(&mut self, PathParts { states, trainer }: &PathParts) -> anyhow::Result<&PathModel> {
        let mut slot = self.slot()?;
        let parts: Vec<Part> = states.iter().map(|(_, state)| Part::Module(state.hash)).collect();
        let parts = match trainer {
            Some(trainer) => {
                let hashes = states.iter().map(|(_, state)| state.hash).chain([trainer.hash]);
                let own = BlobHash::of(&hashes.flat_map(|hash| hash.0).collect::<Vec<u8>>());
                slot.load_whole(Part::Own(own), || self.own(states, *trainer))
            }
            None => slot.load(&parts, &mut |level| self.parameters_of(level, states[level])),
        };
        let failed = parts.map(drop).err();
        let model = self.slot.insert(slot).model();
        failed.map_or(Ok(model), Err)
    }
}
