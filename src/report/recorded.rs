//! What `metrics.jsonl` tells of a run: who trained, the losses, and the bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use serde_json::Value;

/// A longer line is none that this program wrote.
const MOST_LINE_BYTES: usize = 1 << 20;
/// Points of a curve that is shown.
const MOST_POINTS: usize = 400;
/// Phases of paths whose means are kept.
const MOST_MEANS: usize = 1 << 20;

/// The newest step, the sum of losses and their number, by path and phase: a phase may be in several lines.
type Sums = BTreeMap<(u32, u64), (u64, f64, f64)>;

/// A count that begins anew when its process does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counter {
    pub(super) total: f64,
    last: f64,
}

impl Counter {
    fn reads(&mut self, value: &Value) {
        let Some(value) = value.as_f64().filter(|value| value.is_finite() && *value >= 0.0) else { return };
        self.total += if value >= self.last { value - self.last } else { value };
        self.last = value;
    }
}

/// One peer.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedPeer {
    /// Its name in its process.
    pub(super) name: String,
    pub(super) first_ms: u64,
    pub(super) last_ms: u64,
    pub(super) tokens: Counter,
    /// Seconds of inner steps.
    pub(super) trained_s: Counter,
    pub(super) blobs_sent: Counter,
    pub(super) blobs_received: Counter,
    pub(super) messages_sent: Counter,
    pub(super) messages_received: Counter,
    pub(super) messages_dropped: Counter,
    /// Seconds waited, by kind.
    pub(super) waited: BTreeMap<String, Counter>,
    /// Compressed outer gradients fetched: bytes and parameters.
    pub(super) contributions: (Counter, Counter),
    /// Averages fetched.
    pub(super) averages: (Counter, Counter),
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    /// By key.
    pub(super) peers: BTreeMap<String, RecordedPeer>,
    /// Inner steps and training loss in nats a token, by path.
    pub(super) losses: BTreeMap<u32, Vec<(f64, f64)>>,
    /// The same of the dense control.
    pub(super) dense: Vec<(f64, f64)>,
    /// Bits a byte of held-out text, by path and phase.
    pub(super) held_out: BTreeMap<(u32, u64), f64>,
    /// Milliseconds since 1970, and bytes of blobs and of messages sent until then by all peers.
    pub(super) sent: Vec<(u64, f64, f64)>,
    /// The newest version of each module.
    pub(super) versions: BTreeMap<String, u64>,
    /// Lines that are none.
    pub(super) unreadable: u64,
}

impl Recorded {
    /// Reads both files of a folder; nothing where there are none. Lines of other runs than `run` do not count.
    /// `inner_steps` are those of a phase.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn read(folder: &Path, run: &str, inner_steps: u64) -> std::io::Result<Self> {
        let (mut recorded, mut sums) = (Self::default(), Sums::default());
        for name in ["metrics.jsonl.1", "metrics.jsonl"] {
            let file = match File::open(folder.join(name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file?,
            };
            for line in BufReader::new(file).split(b'\n') {
                let line = line?;
                match serde_json::from_slice::<Value>(&line) {
                    Ok(line @ Value::Object(_)) if line["run"].is_null() || line["run"] == run => {
                        recorded.takes(&line, inner_steps, &mut sums);
                    }
                    Ok(Value::Object(_)) => {}
                    _ if line.len() > MOST_LINE_BYTES || !line.is_empty() => recorded.unreadable += 1,
                    _ => {}
                }
            }
        }
        for ((path, _), (step, sum, count)) in sums {
            recorded.losses.entry(path).or_default().push((step as f64, sum / count));
        }
        for points in recorded.losses.values_mut().chain([&mut recorded.dense]) {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            *points = thinned(points);
        }
        Ok(recorded)
    }

    fn takes(&mut self, line: &Value, inner_steps: u64, sums: &mut Sums) {
        if let Some(point) = point(&line["dense"][0], &line["dense"][1]) {
            self.dense.push(point);
        }
        let (Some(key), Some(at_ms)) = (line["key"].as_str(), line["at_ms"].as_u64()) else { return };
        let peer = self.peers.entry(key.to_owned()).or_default();
        peer.takes(line, at_ms);
        let sum = |of: fn(&RecordedPeer) -> Counter| self.peers.values().map(|peer| of(peer).total).sum::<f64>();
        let sent = (at_ms, sum(|peer| peer.blobs_sent), sum(|peer| peer.messages_sent));
        // Peers of one process write their lines at the same moment.
        match self.sent.last_mut().filter(|last| last.0 == at_ms) {
            Some(last) => *last = sent,
            None => self.sent.push(sent),
        }
        takes_losses(line, inner_steps, sums);
        for score in line["scores"].as_array().into_iter().flatten() {
            let numbers = [&score["path"], &score["phase"], &score["millibits_per_byte"]].map(Value::as_u64);
            if let [Some(path), Some(phase), Some(millibits)] = numbers {
                self.held_out.insert((path as u32, phase), millibits as f64 / 1e3);
            }
        }
        for module in line["modules"].as_array().into_iter().flatten() {
            if let (Some(name), Some(version)) = (module[0].as_str(), module[1].as_u64()) {
                let newest = self.versions.entry(name.to_owned()).or_default();
                *newest = version.max(*newest);
            }
        }
    }

    /// The mean loss of all paths along their steps: one point for each phase.
    pub(super) fn mean_losses(&self, inner_steps: u64) -> Vec<(f64, f64)> {
        let mut phases: BTreeMap<u64, (f64, f64, f64)> = BTreeMap::new();
        for (step, loss) in self.losses.values().flatten() {
            let phase = (step - 1.0).max(0.0) as u64 / inner_steps.max(1);
            let (steps, losses, count) = phases.entry(phase).or_default();
            (*steps, *losses, *count) = (*steps + step, *losses + loss, *count + 1.0);
        }
        thinned(&phases.into_values().map(|(steps, losses, count)| (steps / count, losses / count)).collect::<Vec<_>>())
    }

    /// Minutes from the first line to the last.
    pub(super) fn minutes(&self) -> f64 {
        let ends = self.sent.first().zip(self.sent.last());
        ends.map_or(0.0, |(first, last)| last.0.saturating_sub(first.0) as f64 / 60e3)
    }

    /// Minutes since the first line, and millions of bytes sent until then.
    pub(super) fn sent_by_minutes(&self, of: fn(&(u64, f64, f64)) -> f64) -> Vec<(f64, f64)> {
        let first = self.sent.first().map_or(0, |(at_ms, ..)| *at_ms);
        let point = |sent: &(u64, f64, f64)| (sent.0.saturating_sub(first) as f64 / 60e3, of(sent) / 1e6);
        let points: Vec<_> = self.sent.iter().map(point).collect();
        // Of sums that only grow, the last of several points says more than their mean.
        let stride = points.len().div_ceil(MOST_POINTS).max(1);
        points.chunks(stride).filter_map(|chunk| chunk.last().copied()).collect()
    }
}

impl RecordedPeer {
    fn takes(&mut self, line: &Value, at_ms: u64) {
        if self.first_ms == 0 {
            self.first_ms = at_ms;
        }
        self.last_ms = at_ms.max(self.last_ms);
        if let Some(name) = line["peer"].as_str() {
            name.clone_into(&mut self.name);
        }
        let (activity, traffic, synced) = (&line["activity"], &line["traffic"], &line["synced"]);
        self.tokens.reads(&activity["tokens"]);
        self.trained_s.reads(&activity["trained_s"]);
        self.messages_dropped.reads(&activity["messages_dropped"]);
        self.blobs_sent.reads(&traffic["blob_bytes_sent"]);
        self.blobs_received.reads(&traffic["blob_bytes_received"]);
        self.messages_sent.reads(&traffic["message_bytes_sent"]);
        self.messages_received.reads(&traffic["message_bytes_received"]);
        self.contributions.0.reads(&synced["contribution_bytes"]);
        self.contributions.1.reads(&synced["contribution_parameters"]);
        self.averages.0.reads(&synced["average_bytes"]);
        self.averages.1.reads(&synced["average_parameters"]);
        for (kind, seconds) in line["waited_s"].as_object().into_iter().flatten() {
            self.waited.entry(kind.clone()).or_default().reads(seconds);
        }
    }
}

/// Adds the losses of a line.
fn takes_losses(line: &Value, inner_steps: u64, sums: &mut Sums) {
    let mut add = |path: &Value, step: &Value, loss: &Value, count: u64| {
        let path = path.as_u64().and_then(|path| u32::try_from(path).ok());
        let (Some(path), Some(step), Some((_, loss))) = (path, step.as_u64(), point(step, loss)) else { return };
        let phase = step.saturating_sub(1) / inner_steps.max(1);
        if sums.len() < MOST_MEANS || sums.contains_key(&(path, phase)) {
            let (newest, sum, reports) = sums.entry((path, phase)).or_default();
            let count = count.max(1) as f64;
            (*newest, *sum, *reports) = (step.max(*newest), *sum + loss * count, *reports + count);
        }
    };
    if let Some(means) = line["losses"].as_array() {
        return means.iter().for_each(|mean| add(&mean[0], &mean[1], &mean[2], mean[3].as_u64().unwrap_or(1)));
    }
    // Earlier versions wrote only the loss of the last step.
    let activity = &line["activity"];
    let step = activity["phase"].as_u64().zip(activity["step"].as_u64());
    let step = step.map(|(phase, step)| Value::from(phase.saturating_mul(inner_steps).saturating_add(step)));
    add(&activity["path"], &step.unwrap_or_default(), &activity["loss"], 1);
}

fn point(x: &Value, y: &Value) -> Option<(f64, f64)> {
    x.as_f64().zip(y.as_f64()).filter(|(x, y)| x.is_finite() && y.is_finite())
}

/// Neighbouring points become their mean until they are as many as are shown.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mean = |chunk: &[(f64, f64)]| {
        let sum = chunk.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / chunk.len() as f64, sum.1 / chunk.len() as f64)
    };
    points.chunks(points.len().div_ceil(MOST_POINTS).max(1)).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(lines: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("metrics.jsonl"), lines).unwrap();
        folder
    }

    #[test]
    fn curves_are_what_the_lines_say_and_counts_go_on_after_a_restart() {
        let lines = r#"{"at_ms":1000,"peer":"a","key":"k","run":"r","activity":{"tokens":100,"trained_s":2.0},"losses":[[0,5,8.0,1],[1,10,6.0,2]],"traffic":{"blob_bytes_sent":1000000,"message_bytes_sent":5},"scores":[{"path":0,"phase":1,"millibits_per_byte":2345}],"modules":[["0.0",1]],"waited_s":{"owner":1.5}}
{"at_ms":61000,"peer":"a","key":"k","run":"r","activity":{"tokens":150},"losses":[[0,10,2.0,2],[0,20,3.0,1]],"traffic":{"blob_bytes_sent":3000000},"modules":[["0.0",2]]}
{"at_ms":121000,"peer":"a","key":"k","run":"r","activity":{"tokens":30},"losses":[],"traffic":{"blob_bytes_sent":500000}}
{"at_ms":121000,"peer":"b","key":"other","run":"another","activity":{"tokens":9}}
{"at_ms":130000,"dense":[20,3.5]}
nonsense
"#;
        let recorded = Recorded::read(folder(lines).path(), "r", 10).unwrap();
        assert_eq!(recorded.losses[&0], [(10.0, 4.0), (20.0, 3.0)]);
        assert_eq!(recorded.mean_losses(10), [(10.0, 5.0), (20.0, 3.0)]);
        assert_eq!(recorded.dense, [(20.0, 3.5)]);
        assert_eq!(recorded.held_out[&(0, 1)], 2.345);
        assert_eq!(recorded.sent_by_minutes(|sent| sent.1), [(0.0, 1.0), (1.0, 3.0), (2.0, 3.5)]);
        assert_eq!((recorded.peers.len(), recorded.peers["k"].tokens.total), (1, 180.0));
        assert_eq!(recorded.peers["k"].waited["owner"].total, 1.5);
        assert_eq!((recorded.versions["0.0"], recorded.unreadable), (2, 1));
    }

    #[test]
    fn lines_of_earlier_versions_have_the_loss_of_the_last_step() {
        let line = r#"{"at_ms":1,"key":"k","run":"r","activity":{"path":3,"phase":2,"step":4,"loss":1.25}}"#;
        let recorded = Recorded::read(folder(line).path(), "r", 10).unwrap();
        assert_eq!(recorded.losses[&3], [(24.0, 1.25)]);
    }

    #[test]
    fn without_a_file_nothing_is_recorded() {
        let recorded = Recorded::read(tempfile::tempdir().unwrap().path(), "r", 10).unwrap();
        assert!(recorded.peers.is_empty() && recorded.losses.is_empty() && recorded.sent.is_empty());
    }

    #[test]
    fn a_long_curve_keeps_its_mean_and_its_ends() {
        let points: Vec<_> = (0..100_000).map(|step| (f64::from(step), f64::from(step % 2))).collect();
        let shown = thinned(&points);
        assert_eq!(shown.len(), MOST_POINTS);
        assert!(shown.iter().all(|(_, loss)| (loss - 0.5).abs() < 1e-9) && shown[0].0 < 250.0);
    }
}
