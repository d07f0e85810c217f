//! What was trained, and by whom.

use crate::names::PathId;
use crate::report::folder::{Kind, Run};
use crate::report::html::{paragraph, remark, table, tiles};
use crate::report::recorded::RecordedPeer;
use crate::report::words::{key, seconds, short, time, whole};
use crate::sizes::in_words;

/// Peers that are listed.
const MOST_PEERS: usize = 100;

/// The numbers at the top of the page.
pub(in crate::report) fn at_a_glance(run: &Run) -> String {
    let mut shown = Vec::new();
    let mut add = |label: &str, value: String, note: &str| shown.push((label.to_owned(), value, note.to_owned()));
    let score = |name: &str| run.result.as_ref().and_then(|result| result[name]["bits_per_byte"].as_f64());
    if let Some(bits) = score("dipaco") {
        let note =
            score("dense").map_or_else(|| "test text".to_owned(), |dense| format!("test text; dense: {dense:.3}"));
        add("bits a byte", format!("{bits:.3}"), &note);
    }
    let config = &run.manifest.config;
    let counts = run.manifest.level_counts();
    let parameters = counts.iter().sum::<usize>() as f64;
    let paths = config.grid().map_or(0, |grid| grid.path_count());
    let note = format!("{} parameters each", short(parameters));
    add(if paths == 1 { "path" } else { "paths" }, whole(f64::from(paths)), &note);
    let peers = &run.recorded.peers;
    if !peers.is_empty() {
        let note = if run.kind == Kind::Peer { "whose folder this is" } else { "recorded here" };
        add(if peers.len() == 1 { "peer" } else { "peers" }, whole(peers.len() as f64), note);
        let sum = |of: fn(&RecordedPeer) -> f64| peers.values().map(of).sum::<f64>();
        let note = format!("{} of inner steps", seconds(sum(|peer| peer.trained_s.total)));
        add("tokens trained on", short(sum(|peer| peer.tokens.total)), &note);
        let sent = sum(|peer| peer.blobs_sent.total + peer.messages_sent.total);
        add("sent", in_words(sent as u64), "by all recorded peers");
    }
    let newest = run.modules.iter().filter_map(|module| module.version).max();
    let note = format!("of {} steps each", whole(config.training.inner_steps as f64));
    let of = whole(config.training.phases as f64);
    add("phases", newest.map_or_else(|| of.clone(), |newest| format!("{} of {of}", whole(newest as f64))), &note);
    tiles(&shown)
}

/// What was trained.
pub(in crate::report) fn what(run: &Run) -> String {
    let config = &run.manifest.config;
    let counts = run.manifest.level_counts();
    let Ok(grid) = config.grid() else { return String::new() };
    let experts: Vec<u32> = (0..counts.len()).map(|level| grid.experts(level)).collect();
    let in_all: f64 = counts.iter().zip(&experts).map(|(count, experts)| *count as f64 * f64::from(*experts)).sum();
    let shape = experts.iter().map(u32::to_string).collect::<Vec<_>>().join("×");
    let per_path = short(counts.iter().sum::<usize>() as f64);
    let training = &config.training;
    let mut body = paragraph(&format!(
        "The run {:?} is a {shape} grid of modules: {} paths of {per_path} parameters each, {} in all. A path trains for {} \
         phases of {} inner steps, after {} steps of the dense ancestor from which all paths start. After each phase the \
         peers average what they have learnt, module by module.",
        config.name,
        whole(f64::from(grid.path_count())),
        short(in_all),
        training.phases,
        training.inner_steps,
        training.ancestor_steps,
    ));
    let admission = if config.admission.is_open() { "open to everybody" } else { "by invitation" };
    body += &paragraph(&format!("The run is {admission}."));
    body
}

/// Who trained it.
pub(in crate::report) fn who(run: &Run) -> String {
    let recorded = &run.recorded;
    if recorded.peers.is_empty() {
        return remark(match run.kind {
            Kind::Collected => "Who trained it is not stored with a collected run: report the peers' folders for it.",
            _ => "There are no lines of this run in metrics.jsonl, so who trained it is not known here.",
        });
    }
    let mut peers: Vec<(&String, &RecordedPeer)> = recorded.peers.iter().collect();
    peers.sort_by(|one, other| other.1.tokens.total.total_cmp(&one.1.tokens.total).then(one.0.cmp(other.0)));
    let all: f64 = peers.iter().map(|(_, peer)| peer.tokens.total).sum();
    let row = |(id, peer): &(&String, &RecordedPeer)| {
        vec![
            peer.name.clone(),
            key(id),
            whole(peer.tokens.total),
            format!("{:.0} %", 100.0 * peer.tokens.total / all.max(1.0)),
            seconds(peer.trained_s.total),
            time(peer.first_ms),
            time(peer.last_ms),
        ]
    };
    let rows: Vec<Vec<String>> = peers.iter().take(MOST_PEERS).map(row).collect();
    let columns = ["peer", "key", "#tokens", "#share", "#inner steps took", "first seen", "last seen"];
    let mut body = table(&columns, &rows);
    if peers.len() > MOST_PEERS {
        body += &remark(&format!("{} more peers are left out.", peers.len() - MOST_PEERS));
    }
    if run.kind == Kind::Peer {
        body += &remark("A peer records itself alone: other peers of the run are not listed.");
    }
    if recorded.unreadable > 0 {
        body += &remark(&format!("{} lines of metrics.jsonl cannot be read.", recorded.unreadable));
    }
    body
}

/// The name of a path for people.
pub(in crate::report) fn path_name(path: u32) -> String {
    format!("path {}", PathId(path))
}
