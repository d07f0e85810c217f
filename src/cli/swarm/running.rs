//! A peer in the foreground: its progress, its control socket, its stop by Ctrl-C, and the scores of its paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::interrupt::{Interrupt, Interrupted};
use super::mistake::Mistake;
use super::peer_progress::PeerLine;
use crate::cli::process::signals;
use crate::config::admission::TooOld;
use crate::names::PathId;
use crate::observe::{Progress, ProgressEvent};
use crate::peer::driver::PeerError;
use crate::peer::driver::control_socket;
use crate::peer::driver::control_socket::ControlSocket;
use crate::peer::driver::handle::PeerHandle;
use crate::peer::folder::RESULT;
use crate::peer::start::Launched;
use crate::peer::start::assembly::Peer;
use crate::peer::{EventSink, PeerEvent, PeerStatus};
use crate::store::write_file;
use crate::telemetry::Telemetry;
use crate::training::Score;

/// The name of the only peer of a command.
pub const THIS_PEER: &str = "this peer";

/// Interval of checking a running peer.
const LOOK: Duration = Duration::from_millis(500);

type Scores = Arc<Mutex<BTreeMap<PathId, (Score, Score)>>>;

/// What of the result was told.
#[derive(Default)]
struct Told {
    /// Paths with their scores.
    paths: BTreeSet<u32>,
    /// Phases of the run at that time.
    phases: u64,
}

/// Observes one peer.
pub struct Watch {
    folder: PathBuf,
    display: Display,
    scores: Scores,
    pub event_sink: EventSink,
}

impl Watch {
    /// Shows a peer of a run with so many phases of so many steps, once these are known.
    pub fn new(folder: &Path, display: Display, line: Arc<Mutex<Option<PeerLine>>>) -> Self {
        let scores = Scores::default();
        let heard = scores.clone();
        let event_sink: EventSink = Arc::new(move |news| {
            if let PeerEvent::Scored { drawn, held_out, test, .. } = &news {
                heard.lock().unwrap_or_else(PoisonError::into_inner).insert(*drawn, (*held_out, *test));
            }
            if let Some(line) = line.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                line.hear(&news);
            }
        });
        Self { folder: folder.to_owned(), display, scores, event_sink }
    }

    /// Runs until the peer is interrupted, or fails, or comes to the phase from which it is too old.
    pub async fn stay(self, launched: Launched, interrupt: &Interrupt) -> anyhow::Result<()> {
        let socket = self.display.open(&self.folder, THIS_PEER, launched.peer.handle());
        let mut told = Told::default();
        loop {
            let handle = launched.peer.handle();
            // Also while the peer does not answer.
            tokio::select! {
                () = interrupt.wait() => break,
                too_old = self.look(&handle, &mut told) => {
                    if let Some(too_old) = too_old {
                        leave(launched.peer, &self.display.progress).await?;
                        let hint = "install the newer version; the same command goes on then";
                        return Err(Mistake::new(too_old).hint(hint).into());
                    }
                }
            }
            if launched.peer.has_stopped() {
                return Ok(launched.peer.finished().await?);
            }
        }
        drop(socket);
        self.display
            .progress
            .note("leaving: other peers take over this peer's paths and modules; Ctrl-C again leaves at once");
        leave(launched.peer, &self.display.progress).await?;
        // A peer that has finished its work was not interrupted in it.
        if told.paths.is_empty() { Err(Interrupted.into()) } else { Ok(()) }
    }

    /// After a while, tells the result if there is one. Returns why this program may not go on, if its modules have come to
    /// a phase that needs a newer one.
    async fn look(&self, peer: &PeerHandle, told: &mut Told) -> Option<TooOld> {
        tokio::time::sleep(LOOK).await;
        let status = peer.status().await?;
        if std::mem::replace(&mut told.phases, status.node.phases) != status.node.phases {
            // What was told was not the end.
            told.paths.clear();
        }
        // Once more, since a path may have been taken over later, from a peer that has gone.
        if let Some(scored) = scored(&status)
            && !scored.is_subset(&told.paths)
            && let Some(status) = peer.status_with_hashes().await
        {
            self.tell_result(&status);
            told.paths.extend(scored);
        }
        let phase = status.node.modules.iter().filter_map(|module| module.phase).max().unwrap_or(0);
        peer.config().await?.is_too_new().filter(|too_old| phase >= too_old.from_phase)
    }

    fn tell_result(&self, status: &PeerStatus) {
        let scores = self.scores.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let score = |score: &Score| json!({ "perplexity": score.perplexity(), "bits_per_byte": score.bits_per_byte() });
        let rows: Vec<_> = scores
            .iter()
            .map(|(path, (held_out, test))| json!({ "path": path.0, "held_out": score(held_out), "test": score(test) }))
            .collect();
        let result = json!({
            "event": "result",
            "run": status.run,
            "paths": rows,
            "modules": status.parameter_hashes,
            "folder": self.folder.display().to_string(),
        });
        let file = self.folder.join(RESULT);
        let written = write_file(&file, format!("{result:#}").as_bytes());
        self.display.progress.result(result);
        self.display.progress.note(match written {
            Ok(()) => format!("all phases are done; the result is in {}", file.display()),
            Err(error) => format!("all phases are done; the result could not be stored: {error}"),
        });
        self.display.progress.note("still serving the run to others; Ctrl-C leaves");
    }
}

/// Leaves the swarm within the grace time. What a peer has stored by then is kept, as after a crash.
pub async fn leave(peer: Peer, progress: &Progress) -> Result<(), PeerError> {
    let grace = signals::grace();
    // The rest is for the threads to end, and for the log.
    let left = tokio::time::timeout(grace.mul_f64(0.8), peer.stop_within(grace.mul_f64(0.6))).await;
    left.unwrap_or_else(|_| {
        progress.note("left in the middle of its work, as the grace time is over; what was stored is kept");
        Ok(())
    })
}

/// The paths here, if there are any and all are finished and scored.
pub fn scored(status: &PeerStatus) -> Option<BTreeSet<u32>> {
    let paths: BTreeSet<u32> = status.node.paths.iter().map(|path| path.path).collect();
    let all = status.node.done && !paths.is_empty() && paths.iter().all(|path| status.scored.contains(path));
    all.then_some(paths)
}

/// Where a command shows its peers: its progress, and what its page and its metrics show.
#[derive(Clone)]
pub struct Display {
    pub progress: Progress,
    pub telemetry: Telemetry,
}

/// A peer that other commands and viewers can ask. They no longer can once this is dropped.
#[must_use = "the peer cannot be asked once this is dropped"]
pub struct Opened {
    telemetry: Telemetry,
    peer: String,
    _socket: Option<ControlSocket>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.telemetry.detach(&self.peer);
    }
}

impl Display {
    /// Progress, and telemetry that hears the notes and the stages of it.
    pub fn new(progress: Progress) -> Self {
        let telemetry = Telemetry::default();
        let hears = telemetry.clone();
        let progress = progress.tapped(move |event| match event {
            ProgressEvent::Note { text } => hears.note(text),
            ProgressEvent::Stage { name, done, total } => hears.stage(name, *done, *total),
            ProgressEvent::Peer(_) | ProgressEvent::Result(_) => {}
        });
        Self { progress, telemetry }
    }

    /// Tells people, and programs.
    pub fn tell(&self, text: String, value: serde_json::Value) {
        self.progress.note(text);
        self.progress.result(value);
    }

    /// Opens the control socket, for `pathswarm status` and `pathswarm revoke`, and shows the peer to viewers. A peer
    /// works without a socket, too.
    pub fn open(&self, folder: &Path, peer: &str, handle: PeerHandle) -> Opened {
        self.telemetry.attach(peer, handle.clone());
        let opened = control_socket::serve(folder, handle);
        let told = |error: &std::io::Error| {
            let socket = control_socket::path(folder);
            self.progress.note(format!("other commands cannot reach this peer: {}: {error}", socket.display()));
        };
        let socket = opened.inspect_err(told).ok();
        Opened { telemetry: self.telemetry.clone(), peer: peer.to_owned(), _socket: socket }
    }

    /// Writes `metrics.jsonl` into a folder. A run goes on without.
    pub fn record_in(&self, folder: &Path) {
        if let Err(error) = self.telemetry.record_in(folder) {
            self.progress.note(format!("{} cannot be written: {error}", folder.join("metrics.jsonl").display()));
        }
    }
}
