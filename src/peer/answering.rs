//! Answers others' questions about text: a thread with a network of its own, which plays the ancestor or a path whose
//! modules are all here, in turn with the machine's trainers.
//!
//! The network is opened at the first question and given back when nobody has asked for a while. The driver looks up which
//! states a path has now, hands the question over and forgets it; the thread answers by itself. A state that is replaced
//! before it is read is gone: the asker is told so, and asks again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;

use super::driver::Driver;
use super::inbox::respond;
use super::manifest::Manifest;
use super::path_state::PathState;
use super::playing::{Part, Stage, go_on, nats, routes};
use super::trainer_thread::leave_behind;
use super::turns::Turns;
use crate::config::DeviceChoice;
use crate::grid::Grid;
use crate::model::{PathModel, exchange};
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey};
use crate::network::{NetworkHandle, RequestToken};
use crate::outer::ModuleState;
use crate::protocol::Response;
use crate::protocol::limits::{MAX_QUESTIONS, MAX_QUESTIONS_OF_ONE};
use crate::protocol::questions::{Bounds, Played, Player, Question};
use crate::routing::Router;
use crate::store::BlobStore;

/// Without a question for so long, the network's memory is given back.
const IDLE: Duration = Duration::from_secs(120);

/// How long the question in hand may take when the peer stops.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// What a run's questions are held to.
///
/// # Errors
/// If the manifest's levels make no grid.
pub(super) fn bounds(manifest: &Manifest) -> anyhow::Result<Bounds> {
    let config = &manifest.config;
    Ok(Bounds {
        paths: config.grid()?.path_count(),
        vocabulary: config.model.vocabulary,
        context: config.model.context,
        prefix_tokens: config.routing.prefix_tokens,
    })
}

/// A question, and where the answer goes.
struct Asked {
    from: PeerKey,
    token: RequestToken,
    question: Question,
    /// Of the path that is to play, its modules as they are now.
    states: Vec<(ModuleId, BlobRef)>,
    /// Or the trainer that has the parameters with which it was best.
    best: Option<BlobRef>,
}

/// How many questions of each peer are here.
type Waiting = Arc<Mutex<BTreeMap<PeerKey, usize>>>;

fn lock(waiting: &Waiting) -> MutexGuard<'_, BTreeMap<PeerKey, usize>> {
    // Counters are whole whatever happened to a thread that held them.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread, to whoever hands over questions.
pub(super) struct Answering {
    bounds: Bounds,
    grid: Grid,
    questions: SyncSender<Asked>,
    waiting: Waiting,
    stops: Arc<AtomicBool>,
    /// Hangs up when the thread ends.
    ended: Mutex<mpsc::Receiver<()>>,
    thread: JoinHandle<()>,
}

impl Answering {
    /// Starts the thread. It takes no memory to speak of before the first question.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        manifest: Arc<Manifest>,
        device: DeviceChoice,
        blobs: BlobStore,
        turns: Arc<Turns>,
        network: NetworkHandle,
    ) -> anyhow::Result<Self> {
        let (bounds, grid) = (bounds(&manifest)?, manifest.config.grid()?);
        let (questions, asked) = mpsc::sync_channel::<Asked>(MAX_QUESTIONS);
        let (alive, ended) = mpsc::sync_channel(0);
        let (waiting, stops) = (Waiting::default(), Arc::new(AtomicBool::new(false)));
        let mut worker = Worker { counts: manifest.level_counts(), manifest, device, blobs, stage: None, router: None };
        let (done_with, stopping, span) = (waiting.clone(), stops.clone(), tracing::Span::current());
        let thread = std::thread::Builder::new().name("answering".to_owned()).spawn(move || {
            let _alive: SyncSender<()> = alive;
            let _peer = span.enter();
            loop {
                let Asked { from, token, question, states, best } = match asked.recv_timeout(IDLE) {
                    Ok(asked) => asked,
                    Err(RecvTimeoutError::Timeout) => {
                        worker.stage = None;
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let response = match stopping.load(Ordering::SeqCst) {
                    true => Response::Refused("I am leaving".to_owned()),
                    false => {
                        let _turn = turns.take();
                        worker.answer(&question, &states, best)
                    }
                };
                respond(&network, token, &response);
                release(&done_with, from);
            }
        })?;
        Ok(Self { bounds, grid, questions, waiting, stops, ended: Mutex::new(ended), thread })
    }

    /// Hands a question over, or says why not.
    fn ask(&self, asked: Asked) -> Result<(), String> {
        let from = asked.from;
        {
            let mut waiting = lock(&self.waiting);
            let own = waiting.entry(from).or_default();
            if *own >= MAX_QUESTIONS_OF_ONE {
                return Err(format!("busy: {MAX_QUESTIONS_OF_ONE} questions of yours are here already"));
            }
            *own += 1;
        }
        self.questions.try_send(asked).map_err(|error| {
            release(&self.waiting, from);
            match error {
                TrySendError::Full(_) => format!("busy: {MAX_QUESTIONS} questions are waiting"),
                TrySendError::Disconnected(_) => "I answer no more questions".to_owned(),
            }
        })
    }

    /// Answers no further question, and waits for the one in hand, but not for ever: libtorch must not be torn down under
    /// it. Blocks.
    pub fn end(self) {
        let Self { questions, stops, ended, thread, .. } = self;
        stops.store(true, Ordering::SeqCst);
        drop(questions);
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Nothing is ever sent.
        match ended.recv_timeout(END_PATIENCE) {
            Err(RecvTimeoutError::Timeout) => leave_behind(),
            // If it panicked, it has said so.
            _ => drop(thread.join()),
        }
    }
}

fn release(waiting: &Waiting, from: PeerKey) {
    let mut waiting = lock(waiting);
    if let Some(own) = waiting.get_mut(&from) {
        *own = own.saturating_sub(1);
    }
    waiting.retain(|_, own| *own > 0);
}

impl Driver {
    /// Hands a question about text over, if it is one that can be answered here.
    pub(super) fn play(&self, from: PeerKey, token: RequestToken, question: Question) {
        let handed = self.answering.bounds.check(&question).map_err(|error| error.to_string()).and_then(|()| {
            let states = match &question {
                Question::Score(Player::Path(path), _) => self.states_of(*path)?,
                Question::Continue(opening) => self.states_of(opening.path)?,
                Question::Route(_) => self.state_of_the_router(),
                Question::Score(Player::Ancestor, _) => Vec::new(),
            };
            let path = match &question {
                Question::Score(Player::Path(path), _) => Some(*path),
                Question::Continue(opening) => Some(opening.path),
                Question::Route(_) | Question::Score(Player::Ancestor, _) => None,
            };
            let best = path.and_then(|path| self.errands.best.get(&path).copied());
            self.answering.ask(Asked { from, token, question, states, best })
        });
        if let Err(reason) = handed {
            respond(&self.network, token, &Response::Refused(reason));
        }
    }

    /// As it is by now, where the text is shared out anew.
    fn state_of_the_router(&self) -> Vec<(ModuleId, BlobRef)> {
        let module = self.manifest.config.router_module();
        let states = self.node.states().into_iter().filter(|(held, ..)| Some(*held) == module);
        states.map(|(module, _, state)| (module, state)).collect()
    }

    /// What a path of the grid is made of, if all of its modules are here.
    fn states_of(&self, path: PathId) -> Result<Vec<(ModuleId, BlobRef)>, String> {
        // In the end, only who holds it knows what it was best with.
        let over = self.manifest.config.training.early_stopping && self.node.is_done();
        if over && !self.node.paths().contains(&path) {
            return Err(format!("I do not hold path {path}, which may have been best before the end"));
        }
        let here: BTreeMap<ModuleId, BlobRef> =
            self.node.states().into_iter().map(|(module, _, state)| (module, state)).collect();
        let state = |module: ModuleId| {
            let state = here.get(&module).ok_or_else(|| format!("I do not hold module {module} of path {path}"))?;
            Ok((module, *state))
        };
        self.answering.grid.modules_of(path).into_iter().map(state).collect()
    }
}

struct Worker {
    manifest: Arc<Manifest>,
    device: DeviceChoice,
    blobs: BlobStore,
    counts: Vec<usize>,
    stage: Option<Stage>,
    /// Which, and the state or file that it is from.
    router: Option<(BlobHash, Router)>,
}

/// A state that was here when the question came, and is not any more.
#[derive(Debug, thiserror::Error)]
#[error("module {0} has moved on meanwhile: ask again")]
struct MovedOn(ModuleId);

impl Worker {
    fn answer(&mut self, question: &Question, states: &[(ModuleId, BlobRef)], best: Option<BlobRef>) -> Response {
        match self.played(question, states, best) {
            Ok(played) => Response::Played(played),
            Err(error) if error.is::<MovedOn>() => Response::Refused(error.to_string()),
            Err(error) => {
                // What the disk or the device says is nobody else's business.
                tracing::warn!(error = %format!("{error:#}"), "a question about text was not answered");
                Response::Refused("I cannot play it; my log says why".to_owned())
            }
        }
    }

    fn played(
        &mut self,
        question: &Question,
        states: &[(ModuleId, BlobRef)],
        best: Option<BlobRef>,
    ) -> anyhow::Result<Played> {
        Ok(match question {
            Question::Route(prefixes) => {
                self.read_router(states)?;
                let prefixes: Vec<&[u32]> = prefixes.iter().map(Vec::as_slice).collect();
                let (by, router) = self.router.take().context("the router has been read")?;
                let ancestor = if router.needs_features() { self.ancestor().map(Some) } else { Ok(None) };
                let paths = ancestor.and_then(|ancestor| routes(&router, ancestor, &prefixes));
                self.router = Some((by, router));
                Played::Routes(paths?)
            }
            Question::Score(player, pieces) => {
                let model = match player {
                    Player::Ancestor => self.ancestor()?,
                    Player::Path(_) => self.path(states, best)?,
                };
                Played::Nats(nats(model, pieces)?.into_iter().map(Into::into).collect())
            }
            Question::Continue(opening) => {
                let tokens = go_on(self.path(states, best)?, opening)?;
                let ended = tokens.len() < opening.count as usize;
                Played::Tokens(tokens, ended)
            }
        })
    }

    fn read(&self, blob: BlobRef, what: &'static str) -> anyhow::Result<Vec<u8>> {
        self.blobs.get(blob.hash, blob.bytes)?.with_context(|| format!("{what} is not in the store"))
    }

    /// The one in this state, or else the one that the run was founded with.
    fn read_router(&mut self, states: &[(ModuleId, BlobRef)]) -> anyhow::Result<()> {
        let by = states.first().map_or(self.manifest.router.hash, |(_, state)| state.hash);
        if self.router.as_ref().is_some_and(|(known, _)| *known == by) {
            return Ok(());
        }
        let router = match states.first() {
            Some((module, state)) => {
                let bytes = self.blobs.get(state.hash, state.bytes)?.ok_or(MovedOn(*module))?;
                self.manifest.router_state(&bytes)?.router
            }
            None => Router::decode(&self.read(self.manifest.router, "the router")?)?,
        };
        let (bounds, width) = (bounds(&self.manifest)?, self.manifest.config.model.width);
        router.check(bounds.paths, width, bounds.prefix_tokens)?;
        self.router = Some((by, router));
        Ok(())
    }

    /// The network, opened if it is not.
    fn stage(&mut self) -> anyhow::Result<Stage> {
        self.stage.take().map_or_else(|| Stage::new(&self.manifest.config, self.device), Ok)
    }

    fn ancestor(&mut self) -> anyhow::Result<&PathModel> {
        let mut stage = self.stage()?;
        let config = &self.manifest.config;
        let cast = stage.cast_whole(Part::Ancestor, || {
            let file = self.read(self.manifest.ancestor, "the ancestor")?;
            let level = |level| Ok(exchange::decode_level(&file, &config.model, level)?);
            config.levels.iter().map(level).collect()
        });
        let failed = cast.map(drop).err();
        let model = self.stage.insert(stage).model();
        failed.map_or(Ok(model), Err)
    }

    fn path(&mut self, states: &[(ModuleId, BlobRef)], best: Option<BlobRef>) -> anyhow::Result<&PathModel> {
        let mut stage = self.stage()?;
        let parts: Vec<Part> = states.iter().map(|(_, state)| Part::Module(state.hash)).collect();
        let cast = match best {
            Some(best) => stage.cast_whole(Part::Best(best.hash), || {
                let (module, _) = states.first().context("a path has modules")?;
                let bytes = self.blobs.get(best.hash, best.bytes)?.ok_or(MovedOn(*module))?;
                let trainer = PathState::decode(&bytes, &self.counts)?;
                Ok(trainer.best.context("the trainer has no best parameters")?.levels)
            }),
            None => stage.cast(&parts, &mut |level| {
                let (module, state) = states[level];
                let bytes = self.blobs.get(state.hash, state.bytes)?.ok_or(MovedOn(module))?;
                Ok(ModuleState::decode(&bytes, module, self.counts[level])?.parameters)
            }),
        };
        let failed = cast.map(drop).err();
        let model = self.stage.insert(stage).model();
        failed.map_or(Ok(model), Err)
    }
}
