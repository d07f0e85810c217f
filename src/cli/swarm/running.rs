//! A peer in the foreground: shown, asked for its status, stopped by Ctrl-C, and scored when its paths are done.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::interrupt::Interrupt;
use super::peer_progress::PeerLine;
use crate::names::PathId;
use crate::observe::Progress;
use crate::peer::launch::Launched;
use crate::peer::{News, Newsroom, PeerStatus, status_socket};
use crate::store::write_file;
use crate::training::Score;

/// How often a running peer is looked at.
const LOOK: Duration = Duration::from_millis(500);

type Scores = Arc<Mutex<BTreeMap<PathId, (Score, Score)>>>;

/// What watches one peer.
pub struct Watch {
    folder: PathBuf,
    progress: Progress,
    scores: Scores,
    /// Takes the peer's news.
    pub newsroom: Newsroom,
}

impl Watch {
    /// Shows a peer of a run with so many phases of so many steps, once these are known.
    pub fn new(folder: &Path, progress: Progress, line: Arc<Mutex<Option<PeerLine>>>) -> Self {
        let scores = Scores::default();
        let heard = scores.clone();
        let newsroom: Newsroom = Arc::new(move |news| {
            if let News::Scored { path, held_out, test } = &news {
                heard.lock().unwrap_or_else(PoisonError::into_inner).insert(*path, (*held_out, *test));
            }
            if let Some(line) = line.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                line.hear(&news);
            }
        });
        Self { folder: folder.to_owned(), progress, scores, newsroom }
    }

    /// Stays with the peer until it is interrupted, or cannot go on.
    ///
    /// # Errors
    /// Why it cannot go on.
    pub async fn stay(self, launched: Launched, interrupt: &Interrupt) -> anyhow::Result<()> {
        let door = status_socket::serve(&self.folder, launched.peer.watcher())?;
        let mut told = false;
        loop {
            tokio::select! {
                () = interrupt.wait() => break,
                () = tokio::time::sleep(LOOK) => {}
            }
            if launched.peer.has_stopped() {
                door.abort();
                return Ok(launched.peer.finished().await?);
            }
            if !told && let Some(status) = launched.peer.watcher().status().await {
                told = self.tell_result(&status)?;
            }
        }
        door.abort();
        self.progress.note("leaving: the other members take over what this peer owns");
        launched.peer.stop().await?;
        self.progress.note("left; the same command goes on where this one stopped");
        Ok(())
    }

    /// Once every path here is scored. Whether it was told.
    fn tell_result(&self, status: &PeerStatus) -> anyhow::Result<bool> {
        let scores = self.scores.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let paths: Vec<u32> = status.node.paths.iter().map(|path| path.path).collect();
        if !status.node.done || paths.is_empty() || paths.iter().any(|path| !status.scored.contains(path)) {
            return Ok(false);
        }
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
        let file = self.folder.join("result.json");
        write_file(&file, &serde_json::to_vec_pretty(&result)?)?;
        self.progress.result(result);
        self.progress.note(format!("all phases are done; the result is in {}", file.display()));
        self.progress.note("still serving the run to others; Ctrl-C leaves");
        Ok(true)
    }
}
