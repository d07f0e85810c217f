//! `pathswarm status`: what running peers are doing.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::Globals;
use super::explain::COPIED_IDENTITY;
use super::interrupt::Interrupt;
use super::mistake::Mistake;
use super::output::Output;
use super::stopped::stopped_peer;
use super::whom::{LocalPeers, Place, Whom, ask, local_peers};
use crate::network::{Ban, Reachability, now_s};
use crate::peer::client::observer::Observer;
use crate::peer::status::{Activity, DeviceActivity, Invited, PeerStatus};
use crate::protocol::limits::FULL_WEIGHT;
use crate::protocol::status::waiting::Waiting;
use crate::protocol::status::{CopiedIdentity, ModuleStatus, PathStatus, PeerScoreStatus, ScoreStatus};
use crate::sizes::in_words;
use crate::telemetry::words::waits_for;

/// How long the command waits for its connections to end.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The shortest time between two looks with --watch, in seconds.
const LEAST_WATCH_S: i64 = 1;

/// `pathswarm status`
#[derive(Args)]
pub struct Status {
    #[command(flatten)]
    whom: Whom,
    /// Show it again every so many seconds, until Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = clap::value_parser!(u32).range(LEAST_WATCH_S..=86_400))]
    watch: Option<u32>,
}

impl Status {
    /// # Errors
    /// If no peer runs there. The contents of its store are printed before.
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        // One thread is enough to ask.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(async {
            let interrupt = Interrupt::listen()?;
            let mut place = self.whom.place(globals).await?;
            loop {
                match &mut place {
                    Place::Folder(folder) => of_folder(globals, folder).await?,
                    Place::Address(entrance) => of_swarm(globals.output(), entrance).await?,
                }
                let Some(seconds) = self.watch else { return Ok(()) };
                tokio::select! {
                    () = interrupt.wait() => return Ok(()),
                    () = tokio::time::sleep(Duration::from_secs(seconds.into())) => globals.output().text("")?,
                }
            }
        });
        runtime.shutdown_timeout(ENDS_WITHIN);
        outcome
    }
}

/// What the peers below a folder tell.
async fn of_folder(globals: &Globals, folder: &Path) -> anyhow::Result<()> {
    let LocalPeers { running: peers, stopped } = local_peers(folder);
    let mut running = 0;
    let mut silent = Vec::new();
    for peer in peers {
        match ask(&peer).await {
            Ok((status, value)) => {
                if running > 0 {
                    globals.output().text("")?;
                }
                print(globals.output(), ("folder", &peer.display().to_string()), &status, value)?;
                running += 1;
            }
            Err(reason) => silent.push(format!("{}: {reason}", peer.display())),
        }
    }
    for stopped in stopped.iter().filter_map(|folder| stopped_peer(folder).ok().flatten()) {
        stopped.print(globals.output())?;
    }
    match (running, silent.first()) {
        (0, Some(reason)) => Err(not_running(folder, &format!(" ({reason})")).into()),
        (0, None) => Err(not_running(folder, "").into()),
        _ => Ok(()),
    }
}

/// What the peers of a swarm tell a visitor.
async fn of_swarm(output: Output, observer: &mut Observer) -> anyhow::Result<()> {
    let (mut told, mut reason) = (0, None);
    for (peer, status) in observer.look().await? {
        match status {
            Ok(status) => {
                if told > 0 {
                    output.text("")?;
                }
                let value = serde_json::to_value(&status)?;
                print(output, ("peer", &peer.to_string()), &status, value)?;
                told += 1;
            }
            Err(why) => drop(reason.get_or_insert(format!("…{}: {why}", peer.short()))),
        }
    }
    match (told, reason) {
        (0, reason) => {
            let why = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            let hint = "ask another peer, or the owner of this one to set tell_status in the machine's profile";
            Err(Mistake::new(format!("no peer of this swarm tells its status{why}")).hint(hint).into())
        }
        _ => Ok(()),
    }
}

pub(super) fn not_running(folder: &Path, why: &str) -> Mistake {
    if !folder.exists() {
        return Mistake::new(format!(
            "{} does not exist, and is no address of a peer (/ip4/…/p2p/…)",
            folder.display()
        ))
        .hint("name the folder of a peer, or copy the whole address that one printed");
    }
    Mistake::new(format!("no peer is running in {}{why}", folder.display()))
        .hint("start one with pathswarm create or pathswarm join, or name the folder of one that runs")
}

/// Prints a status under the name of where it came from.
fn print(output: Output, (kind, place): (&str, &str), status: &PeerStatus, mut value: Value) -> anyhow::Result<()> {
    let shown = if kind == "folder" { place.to_owned() } else { short(place) };
    for line in lines(&shown, status) {
        output.text(&line)?;
    }
    value["event"] = json!("status");
    value[kind] = json!(place);
    output.json(&value)?;
    Ok(())
}

fn lines(place: &str, status: &PeerStatus) -> Vec<String> {
    let node = &status.node;
    let done = if node.done { ", done" } else { "" };
    let known = node.peers.iter().map(|peer| short(peer)).collect::<Vec<_>>().join(" ");
    let mut lines = vec![
        format!("{place}  run {} ({}){done}", status.name, head(&status.run)),
        format!("peer     {}", short(&node.peer)),
        format!("at       {}", status.addresses.join(" ")),
        format!("members  {} others known{}{known}", node.peers.len(), if known.is_empty() { "" } else { ": " }),
    ];
    if let Some(number) = node.amendment {
        lines.push(format!("amended  {} phases (amendment {number}){}", node.phases, requirement(status)));
    }
    let said = |waiting: &&Waiting| node.paths.iter().any(|path| path.waits_for.as_ref() == Some(waiting));
    lines.extend(
        node.waits_for
            .iter()
            .filter(|waiting| !said(waiting))
            .map(|waiting| format!("waits    for {}", waits_for(waiting))),
    );
    for CopiedIdentity { peer, addresses } in &node.copied_identities {
        let whose = short(&peer.to_string());
        lines.push(format!("copied   two machines run with the identity of {whose}: {}", addresses.join(" ")));
        lines.push(format!("         {COPIED_IDENTITY}"));
    }
    lines.extend(strangers(status));
    lines.push(format!("{:<8} {:>9}  {:<9} waits for", "path", "phase", "stage"));
    lines.extend(node.paths.iter().map(|path| path_line(path, node.phases)));
    lines.extend(status.activity.devices.iter().map(device_line));
    let module = ("module", "phase", "version", "owner", "term", "members", "late");
    let (name, phase, version, owner, term, members, late) = module;
    lines.push(format!("{name:<8} {phase:>9} {version:>7}  {owner:<9} {term:>4} {members:>7} {late:>8}  parameters"));
    lines.extend(node.modules.iter().map(|module| {
        let hash = status.parameter_hashes.get(&module.module);
        module_line(module, node.phases, hash.map(String::as_str))
    }));
    lines.extend(node.scores.iter().map(|score| {
        let ScoreStatus { path, phase, millibits_per_byte, by } = score;
        let bits = f64::from(*millibits_per_byte) / 1e3;
        format!("score    path {path} at phase {phase}: {bits:.3} bits per byte, says {}", short(&by.to_string()))
    }));
    lines.extend(node.peer_scores.iter().filter(|it| !it.faults.is_empty()).map(peer_score_line));
    lines.push(machine_line(&status.activity));
    let traffic = &status.traffic;
    lines.push(format!(
        "traffic  blobs {} out, {} in; messages {} out, {} in",
        in_words(traffic.blob_bytes_sent),
        in_words(traffic.blob_bytes_received),
        in_words(traffic.message_bytes_sent),
        in_words(traffic.message_bytes_received)
    ));
    lines
}

/// Which program an amended run needs.
fn requirement(status: &PeerStatus) -> String {
    let needs = status.requires.as_ref();
    needs.map_or_else(String::new, |it| format!("; from phase {} on it needs {} or newer", it.from_phase, it.version))
}

/// How others reach the peer, how far they are, and what memory it takes.
fn machine_line(activity: &Activity) -> String {
    let reached = match activity.reachability {
        Reachability::Public => "peers outside connect to it",
        Reachability::Private => "peers outside do not connect to it directly",
        Reachability::Unknown => "not known whether peers outside connect to it",
    };
    let median = activity.median_round_trip_ms().map(|median| format!(", median round trip {median:.1} ms"));
    let relayed = Some(activity.relayed.len()).filter(|count| *count > 0);
    let relayed = relayed.map(|count| format!(", {count} through relays"));
    let parts = [median, relayed].into_iter().flatten().collect::<String>();
    let memory = [
        activity.resident_bytes.map(|bytes| format!("; memory {}", in_words(bytes))),
        activity.device_memory_bytes.map(|bytes| format!(", on devices {}", in_words(bytes))),
    ];
    let connections = activity.connections;
    format!("network  {reached}; {connections} connected{parts}{}", memory.into_iter().flatten().collect::<String>())
}

/// Faults of a peer: quarantine, reason, and counts.
fn peer_score_line(score: &PeerScoreStatus) -> String {
    let faults: u64 = score.faults.values().sum();
    let state = if score.quarantined { "quarantined: " } else { "" };
    let reason = score.reason.as_deref().unwrap_or("some contributions were faulty");
    let (who, counted) = (short(&score.peer.to_string()), score.counted);
    format!("faults   {who} {state}{reason} ({faults} faults, {counted} valid contributions)")
}

/// Banned peers, and access in a run by invitation.
fn strangers(status: &PeerStatus) -> Vec<String> {
    let ban = |Ban { peer, until_s, times, reason }: &Ban| {
        let minutes = until_s.saturating_sub(now_s()).div_ceil(60);
        format!("banned   …{} for {minutes} min (ban {times}): {reason}", peer.short())
    };
    let invited = status.invited.iter().flat_map(|Invited { known, revoked, until_s, refused }| {
        let days = until_s.map(|until_s| format!("; this peer for {} days", until_s.saturating_sub(now_s()) / 86_400));
        let out = refused.iter().map(|reason| format!("outside  the other peers do not admit this peer: {reason}"));
        let line = format!("invited  {known} peers known, {revoked} revoked{}", days.unwrap_or_default());
        std::iter::once(line).chain(out)
    });
    invited.chain(status.bans.iter().map(ban)).collect()
}

/// What one of several devices does.
fn device_line(device: &DeviceActivity) -> String {
    let what = match (device.retired, device.path) {
        (true, _) => "out of service: it failed again and again; see the log".to_owned(),
        (false, None) => "idle".to_owned(),
        (false, Some(path)) => {
            let pace = device.tokens_per_s.map_or_else(String::new, |pace| format!(", {pace:.0} tokens/s"));
            format!("path {path}{pace}")
        }
    };
    format!("device   {:<9}  {what}", device.device)
}

fn path_line(path: &PathStatus, phases: u64) -> String {
    let phase = path.phase.map_or_else(|| "-".to_owned(), |phase| format!("{phase}/{phases}"));
    let waits = path.waits_for.as_ref().map_or_else(|| "-".to_owned(), waits_for);
    let drawn = if path.drawn == path.path { String::new() } else { format!(" ({})", path.drawn) };
    let trainer = if path.trainer > 1 { format!(", trainer {}", path.trainer) } else { String::new() };
    format!("{:<8} {phase:>9}  {:<9} {waits}", format!("{}{drawn}{trainer}", path.path), path.stage)
}

fn module_line(module: &ModuleStatus, phases: u64, hash: Option<&str>) -> String {
    let phase = module.phase.map_or_else(|| "-".to_owned(), |phase| format!("{phase}/{phases}"));
    let version = module.version.map_or_else(|| "-".to_owned(), |version| version.to_string());
    let late = format!("{:.1}/{}", module.staleness_mean, module.staleness_most);
    let owner = match &module.owner {
        _ if module.owned_here => "here".to_owned(),
        Some(owner) => short(owner),
        None => "nobody".to_owned(),
    };
    let hash = hash.map_or("-", head);
    let alone = match module {
        _ if module.no_replica => "  no replica",
        _ if module.replica => "  replica",
        _ => "",
    };
    let lost = match module.weight_lost {
        0 => String::new(),
        weight => format!("  {:.1} phases lost", weight as f64 / f64::from(FULL_WEIGHT)),
    };
    let (name, term, members) = (&module.module, module.term, module.members);
    format!("{name:<8} {phase:>9} {version:>7}  {owner:<9} {term:>4} {members:>7} {late:>8}  {hash}{alone}{lost}")
}

/// The abbreviation of a key in progress lines.
fn short(key: &str) -> String {
    format!("…{}", head(key))
}

fn head(hash: &str) -> &str {
    hash.get(..8).unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::swarm::whom::read;

    const ANSWER: &str = r#"{
        "run": "0123456789abcdef", "name": "demo", "peer": "aaaaaaaaaaaaaaaa", "phases": 20, "done": false,
        "modules": [
            {"module": "0.1", "version": 7, "phase": 3, "staleness_mean": 1.25, "staleness_most": 4,
             "state_hash": "ff", "owner": "bbbbbbbbbbbb", "term": 2,
             "owned_here": false, "members": 2, "no_replica": false, "replica": true, "uncounted": 0, "weight_lost": 24576},
            {"module": "1.0", "version": null, "phase": null, "staleness_mean": 0.0, "staleness_most": 0,
             "state_hash": null, "owner": null, "term": 0,
             "owned_here": false, "members": 1, "no_replica": true, "replica": false, "uncounted": 0, "weight_lost": 0},
            {"module": "1.1", "version": 4, "phase": 4, "staleness_mean": 0.0, "staleness_most": 0,
             "state_hash": "ee", "owner": "aaaaaaaaaaaaaaaa", "term": 1,
             "owned_here": true, "members": 3, "no_replica": false, "replica": false, "uncounted": 0, "weight_lost": 0}
        ],
        "paths": [{"path": 2, "trainer": 3, "drawn": 17, "phase": 3, "stage": "waiting", "waits_for":
            {"kind": "unowned", "module": "0.1"}}],
        "waits_for": {"kind": "nobody", "asked": 2}, "scores": [{"path": 3, "phase": 2, "millibits_per_byte": 1234, "by": "KEY"}],
        "copied_identities": [{"peer": "KEY", "addresses": ["here", "there"]}], "audited": 5,
        "peer_scores": [{"peer": "KEY", "counted": 4, "faults": {"overlong": 3}, "quarantined": true, "reason": "was too long"},
                    {"peer": "KEY", "counted": 9, "faults": {}, "quarantined": false, "reason": null}],
        "peers": ["bbbbbbbbbbbb"], "parameter_hashes": {"0.1": "123456789abc", "1.1": "fedcba987654"},
        "addresses": ["/ip4/127.0.0.1/tcp/4001"],
        "traffic": {"blob_bytes_sent": 12345678, "blob_bytes_received": 23456, "blob_bytes_forwarded": 0, "contribution_bytes_received": 0,
                    "average_bytes_received": 0, "message_bytes_sent": 1, "message_bytes_received": 0},
        "activity": {"reachability": "private", "round_trip_ms": {"a": 12.5, "b": 40.04, "c": 3.0}, "relayed": ["b"],
                     "connections": 3, "resident_bytes": 123456789, "device_memory_bytes": 23456789},
        "bans": [{"peer": "BANNED", "until_s": 9000000000, "times": 2, "reason": "it lied"}],
        "invited": {"known": 3, "revoked": 1, "until_s": null, "refused": "it has ended"},
        "phases_trained": 3, "scored": [], "something_newer": 1, "synced": {"contribution_bytes": 0,
        "contribution_parameters": 0, "average_bytes": 0, "average_parameters": 0}
    }"#;

    #[test]
    fn the_table_says_who_owns_what_and_what_is_waited_for() {
        let (status, value) =
            read(&ANSWER.replace("KEY", &"c".repeat(64)).replace("BANNED", &"01".repeat(32))).unwrap();
        let table = lines("runs/demo/a", &status).join("\n");
        let words: Vec<&str> = table.split_whitespace().collect();
        let row = |row: &[&str]| assert!(words.windows(row.len()).any(|found| found == row), "{row:?} in\n{table}");
        row(&["runs/demo/a", "run", "demo", "(01234567)"]);
        row(&["members", "1", "others", "known:", "…bbbbbbbb"]);
        row(&["2", "(17),", "trainer", "3", "3/20", "waiting", "module", "0.1:", "it", "has", "no", "owner"]);
        row(&["waits", "for", "the", "leases", "of", "others:", "none", "of", "2", "peers"]);
        row(&["0.1", "3/20", "7", "…bbbbbbbb", "2", "2", "1.2/4", "12345678", "replica", "1.5", "phases", "lost"]);
        row(&["1.0", "-", "-", "nobody", "0", "1", "0.0/0", "-", "no", "replica"]);
        row(&["1.1", "4/20", "4", "here", "1", "3", "0.0/0", "fedcba98"]);
        row(&["blobs", "12.3", "MB", "out,", "23.5", "kB", "in;", "messages", "1", "B", "out,", "0", "B", "in"]);
        row(&["banned", "…01010101", "for"]);
        row(&[
            "connect",
            "to",
            "it",
            "directly;",
            "3",
            "connected,",
            "median",
            "round",
            "trip",
            "12.5",
            "ms,",
            "1",
            "through",
            "relays;",
        ]);
        row(&["memory", "123.5", "MB,", "on", "devices", "23.5", "MB"]);
        row(&["(ban", "2):", "it", "lied"]);
        row(&["invited", "3", "peers", "known,", "1", "revoked"]);
        row(&["outside", "the", "other", "peers", "do", "not", "admit", "this", "peer:", "it", "has", "ended"]);
        row(&["copied", "two", "machines", "run", "with", "the", "identity", "of", "…cccccccc:", "here", "there"]);
        row(&["score", "path", "3", "at", "phase", "2:", "1.234", "bits", "per", "byte,", "says", "…cccccccc"]);
        row(&[
            "faults",
            "…cccccccc",
            "quarantined:",
            "was",
            "too",
            "long",
            "(3",
            "faults,",
            "4",
            "valid",
            "contributions)",
        ]);
        assert_eq!(words.iter().filter(|word| **word == "quarantined:").count(), 1, "of the others nothing is said");
        assert_eq!(value["something_newer"], 1);
    }

    #[test]
    fn an_answer_that_is_no_status_is_refused() {
        assert!(read("").is_err() && read("{}").is_err());
        assert!(read(&ANSWER.replace("\"phases\": 20", "\"phases\": \"many\"")).is_err());
    }
}
