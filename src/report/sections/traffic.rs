//! Bytes: who sent how many, when, and what they were for; and what was waited for.

use std::collections::BTreeMap;

use crate::report::folder::Run;
use crate::report::html::{paragraph, remark, table};
use crate::report::recorded::{Counter, RecordedPeer};
use crate::report::sections::curves::draw;
use crate::report::words::{key, seconds};
use crate::sizes::in_words;

/// The bytes of a point that a curve shows.
type Sent = fn(&(u64, f64, f64)) -> f64;

/// Curves of all runs, laid over each other.
pub(in crate::report) fn curves(runs: &[Run], names: &[String]) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for (run, name) in runs.iter().zip(names).filter(|(run, _)| !run.recorded.sent.is_empty()) {
        let kinds: [(&str, Sent); 2] = [("blobs", |sent| sent.1), ("messages", |sent| sent.2)];
        match runs.len() {
            1 => lines.extend(kinds.map(|(kind, of)| (kind.to_owned(), run.recorded.sent_by_minutes(of)))),
            _ => lines.push((name.clone(), run.recorded.sent_by_minutes(|sent| sent.1 + sent.2))),
        }
    }
    if lines.is_empty() {
        return Ok(remark("No bytes were recorded here."));
    }
    // The axis begins where training does.
    let longest = runs.iter().map(|run| run.recorded.minutes()).fold(0.0, f64::max);
    let (unit, times) = match longest {
        ..4.0 => ("seconds", 60.0),
        ..240.0 => ("minutes", 1.0),
        _ => ("hours", 1.0 / 60.0),
    };
    lines.iter_mut().flat_map(|(_, points)| points).for_each(|(x, _)| *x *= times);
    let described = format!(
        "Millions of bytes that the recorded peers have sent, against {unit}. Blobs are contributions, averages, states and text; \
         messages are all else."
    );
    draw(("sent", "Bytes sent"), &described, (unit, "MB"), &lines)
}

/// The peers of one run.
pub(in crate::report) fn of_run(run: &Run) -> String {
    let peers = &run.recorded.peers;
    if peers.is_empty() {
        return String::new();
    }
    let row = |(id, peer): (&String, &RecordedPeer)| {
        let counts = [peer.blobs_sent, peer.blobs_received, peer.messages_sent, peer.messages_received];
        let mut row = vec![peer.name.clone(), key(id)];
        row.extend(counts.map(|count| in_words(count.total as u64)));
        row
    };
    let rows: Vec<Vec<String>> = peers.iter().take(100).map(row).collect();
    let columns = ["peer", "key", "#blobs sent", "#blobs received", "#messages sent", "#messages received"];
    table(&columns, &rows) + &bits(run) + &waits(run)
}

/// Bits a parameter of what outer steps fetch.
fn bits(run: &Run) -> String {
    let measured = run.result.as_ref().map(|result| &result["bits_per_parameter_per_sync"]);
    if let Some((up, down)) = measured.and_then(|bits| bits["up"].as_f64().zip(bits["down"].as_f64())) {
        return paragraph(&format!(
            "Of each parameter, a peer sent {up:.2} bits and received {down:.2} bits in an exchange, all messages counted."
        ));
    }
    let sum = |of: fn(&RecordedPeer) -> Counter| run.recorded.peers.values().map(|peer| of(peer).total).sum::<f64>();
    let per = |bytes: f64, parameters: f64| (parameters > 0.0).then(|| format!("{:.2}", 8.0 * bytes / parameters));
    let up = per(sum(|peer| peer.contributions.0), sum(|peer| peer.contributions.1));
    let down = per(sum(|peer| peer.averages.0), sum(|peer| peer.averages.1));
    let up = up.map(|bits| format!("Contributions took {bits} bits a parameter."));
    let down = down.map(|bits| format!("Averages took {bits} bits a parameter."));
    let both: Vec<String> = up.into_iter().chain(down).collect();
    if both.is_empty() { String::new() } else { paragraph(&both.join(" ")) }
}

/// What peers waited for, the longest first.
fn waits(run: &Run) -> String {
    let mut waited: BTreeMap<&str, f64> = BTreeMap::new();
    for (kind, counter) in run.recorded.peers.values().flat_map(|peer| &peer.waited) {
        *waited.entry(kind).or_default() += counter.total;
    }
    let mut waited: Vec<(&str, f64)> = waited.into_iter().filter(|(_, waited)| *waited >= 0.5).collect();
    waited.sort_by(|one, other| other.1.total_cmp(&one.1));
    if waited.is_empty() {
        return remark("Nobody waited for half a second.");
    }
    let words: Vec<String> =
        waited.iter().take(12).map(|(kind, waited)| format!("{} {}", meaning(kind), seconds(*waited))).collect();
    paragraph(&format!("All recorded peers together waited for: {}.", words.join(", ")))
}

/// A kind of wait in words; an unknown one as it is.
fn meaning(kind: &str) -> &str {
    match kind {
        "directory" | "nobody" | "return" => "the answers of others",
        "modules" => "first states of modules",
        "text" => "text",
        "disk" => "the disk",
        "turn" => "their turn on the machine",
        "trainer" => "the state of a path's trainer",
        "taker" => "the peer that takes a path over",
        "applying" => "updates to be applied",
        "skipping" => "a round that others train",
        "unowned" | "owner" => "owners of modules",
        "contributions" | "collecting" | "arriving" | "settling" | "pausing" => "contributions",
        "combining" => "averages",
        other => other,
    }
}
