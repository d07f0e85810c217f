//! Event files for TensorBoard: a folder for each curve, which TensorBoard calls a run, with a file for each start of the
//! program.
//!
//! Events go through a queue of bounded length to a thread, which writes once a second. Nothing waits for the disk: what
//! finds the queue full is left out, and if the disk refuses, the files end there. A file grows with the logarithm of the
//! time: after each [`AT_EACH_PACE`] events of a kind only every other one of those before is written.

mod event;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::names::ModuleId;
use crate::telemetry::curves::outer_steps::OuterPoint;
use crate::telemetry::curves::series::Point;
use crate::telemetry::now_ms;

/// Time between two writes.
const TICK: Duration = Duration::from_secs(1);

/// Events between two writes. A peer reports a path once a second at most.
const QUEUE: usize = 4_096;

/// Folders of curves: those of paths and of modules that are drawn.
const MOST_RUNS: usize = 520;

/// Events of one kind after which the pace is halved: 8 MB at most, with up to 160 bytes each.
const AT_EACH_PACE: u64 = 50_000;

/// How long the end of a command waits for the disk.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Numbers of a curve at one step.
#[derive(Clone, Debug, PartialEq)]
struct Scalars {
    /// The folder of its curve.
    run: String,
    at_ms: u64,
    step: u64,
    values: Vec<(&'static str, f64)>,
}

/// Takes events. They are written until [`Writing`] is dropped.
pub(super) struct EventFiles {
    queue: SyncSender<Scalars>,
    /// Of another run of this process than the first, a folder for its curves.
    of_run: Option<String>,
    left_out: u64,
}

/// The thread that writes. When this is dropped, it writes what is there, and ends.
#[must_use = "nothing is written once this is dropped"]
#[derive(Debug)]
pub struct Writing {
    ends: Option<SyncSender<()>>,
    ended: Receiver<()>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        drop(self.ends.take());
        // It hangs with its disk, or has ended: nothing is sent but the end.
        let _ = self.ended.recv_timeout(ENDS_WITHIN);
    }
}

/// Begins event files in a folder, which is made if it is not there.
///
/// # Errors
/// If the folder cannot be made or takes no files.
pub(super) fn open(folder: &Path) -> io::Result<(EventFiles, Writing)> {
    fs::create_dir_all(folder)?;
    let probe = folder.join(format!(".pathswarm-{}", std::process::id()));
    fs::write(&probe, b"")?;
    fs::remove_file(&probe)?;
    let (queue, events) = sync_channel(QUEUE);
    let (ends, is_ended) = sync_channel(0);
    let (end, ended) = sync_channel(0);
    let mut runs = Runs { folder: folder.to_owned(), runs: BTreeMap::new() };
    let write = move || {
        // Dropped with this thread.
        let _end = end;
        loop {
            let is_over = !matches!(is_ended.recv_timeout(TICK), Err(RecvTimeoutError::Timeout));
            if let Err(error) = runs.write(events.try_iter().take(QUEUE)) {
                tracing::warn!(%error, folder = %runs.folder.display(), "TensorBoard's files cannot be written; they end here");
                return;
            }
            if is_over {
                return;
            }
        }
    };
    std::thread::Builder::new().name("tensorboard".to_owned()).spawn(write)?;
    Ok((EventFiles { queue, of_run: None, left_out: 0 }, Writing { ends: Some(ends), ended }))
}

impl EventFiles {
    /// Another run of this process begins.
    pub(super) fn begin(&mut self, run: &str) {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '_';
        self.of_run = Some(run.chars().map(|char| if is_plain(char) { char } else { '-' }).collect());
    }

    /// A report of a trainer, or of the dense control, on the curve of this name.
    pub(super) fn point(&mut self, curve: &str, point: &Point) {
        let mut values = vec![("loss", point.loss)];
        // The dense control tells nothing else.
        if curve != "dense" {
            values.extend([
                ("tokens_per_s", point.tokens_per_s),
                ("learning_rate", point.learning_rate),
                ("gradient_norm", point.gradient_norm),
            ]);
        }
        self.add(&curve.replace('/', "-"), (point.at_ms, point.step), values);
    }

    /// A score of a path on held-out text, after so many inner steps.
    pub(super) fn held_out(&mut self, path: u32, at: (u64, u64), millibits_per_byte: u32) {
        let bits = f64::from(millibits_per_byte) / 1e3;
        self.add(&format!("path-{path}"), at, vec![("held_out_bits_per_byte", bits)]);
    }

    /// An outer step of a module.
    pub(super) fn outer_step(&mut self, module: ModuleId, point: &OuterPoint) {
        let norms = &point.norms;
        let mut values = vec![
            ("outer_gradient/norm", norms.average_norm),
            ("outer_gradient/contribution_norm", norms.mean_norm),
            ("outer_gradient/contributions", norms.contributions as f64),
        ];
        values.extend(norms.agreement.map(|agreement| ("outer_gradient/agreement", agreement)));
        self.add(&format!("module-{module}"), (point.at_ms, point.version), values);
    }

    fn add(&mut self, curve: &str, (at_ms, step): (u64, u64), values: Vec<(&'static str, f64)>) {
        let run = self.of_run.as_ref().map_or_else(|| curve.to_owned(), |of_run| format!("{of_run}/{curve}"));
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Scalars { run, at_ms, step, values }) {
            self.left_out += 1;
            if self.left_out == 1 {
                tracing::warn!("the disk is slow: TensorBoard's files leave out what does not fit");
            }
        }
    }
}

/// All folders of curves.
struct Runs {
    folder: PathBuf,
    runs: BTreeMap<String, Run>,
}

/// The file of one curve.
struct Run {
    file: PathBuf,
    /// What is not written yet.
    bytes: Vec<u8>,
    /// By the first tag.
    paces: BTreeMap<&'static str, Pace>,
}

/// Of how many events one is written.
#[derive(Clone, Copy)]
struct Pace {
    stride: u64,
    heard: u64,
    written: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { stride: 1, heard: 0, written: 0 }
    }
}

impl Pace {
    /// Whether the next event is written.
    fn writes(&mut self) -> bool {
        self.heard += 1;
        let writes = self.heard.is_multiple_of(self.stride);
        self.written += u64::from(writes);
        if writes && self.written.is_multiple_of(AT_EACH_PACE) {
            self.stride *= 2;
        }
        writes
    }
}

impl Runs {
    /// Writes events. A file is open only while it is written to: there may be hundreds.
    fn write(&mut self, events: impl Iterator<Item = Scalars>) -> io::Result<()> {
        for scalars in events {
            self.add(&scalars)?;
        }
        for run in self.runs.values_mut().filter(|run| !run.bytes.is_empty()) {
            OpenOptions::new().create(true).append(true).open(&run.file)?.write_all(&run.bytes)?;
            run.bytes.clear();
        }
        Ok(())
    }

    fn add(&mut self, scalars: &Scalars) -> io::Result<()> {
        let Scalars { run: name, at_ms, step, values } = scalars;
        if !self.runs.contains_key(name) {
            if self.runs.len() >= MOST_RUNS {
                return Ok(());
            }
            self.runs.insert(name.clone(), Run::begin(&self.folder.join(name))?);
        }
        // Seconds with their thousandths.
        let wall_time = *at_ms as f64 / 1e3;
        if let (Some(run), Some((kind, _))) = (self.runs.get_mut(name), values.first())
            && run.paces.entry(kind).or_default().writes()
        {
            event::frame(&event::scalars(wall_time, *step, values), &mut run.bytes);
        }
        Ok(())
    }
}

impl Run {
    /// Begins a file whose name comes after those that are there. TensorBoard reads the files of a folder in order of name.
    fn begin(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let second = |name: &str| name.strip_prefix("events.out.tfevents.")?.split('.').next()?.parse::<u64>().ok();
        let seconds = fs::read_dir(folder)?.filter_map(|entry| second(entry.ok()?.file_name().to_str()?));
        let begins_ms = now_ms();
        let at_s = seconds.max().map_or(0, |newest| newest.saturating_add(1)).max(begins_ms / 1_000);
        let file = folder.join(format!("events.out.tfevents.{at_s:010}.pathswarm"));
        let mut bytes = Vec::new();
        event::frame(&event::first(begins_ms as f64 / 1e3), &mut bytes);
        Ok(Self { file, bytes, paces: BTreeMap::new() })
    }
}
