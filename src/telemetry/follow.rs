//! Peers of other processes, by one status after the other: what has changed between two looks becomes curves, parts of
//! time and lines of the log, as a [`Feed`](super::Feed) makes them of events.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::config::MAX_PHASES;
use crate::names::{ModuleId, PeerKey};
use crate::peer::PeerStatus;
use crate::peer::status::OuterStepStatus;
use crate::protocol::status::PathStatus;
use crate::protocol::status::waiting::Waiting;
use crate::telemetry::curves::outer_steps::OuterPoint;
use crate::telemetry::curves::series::Point;
use crate::telemetry::hub::Telemetry;
use crate::telemetry::now_ms;
use crate::telemetry::run::RunOutline;
use crate::telemetry::spans::Doing;
use crate::telemetry::state::Tone;
use crate::telemetry::words::waits_for;

/// A peer that has not answered for so long is gone.
const GONE_AFTER_MS: u64 = 60_000;

/// Members that are said by name to come or to go in one look; of more, only the number is said.
const MOST_NAMED: usize = 4;

/// Quarantined peers that are told.
const MOST_QUARANTINED: usize = 4_096;

/// Follows the peers of one run.
pub struct Follower {
    telemetry: Telemetry,
    run: RunOutline,
    /// The last status of each peer, and when it was given.
    before: BTreeMap<String, (PeerStatus, u64)>,
    known: Known,
}

/// What has been told of the swarm, whichever peer said it.
#[derive(Default)]
struct Known {
    versions: BTreeMap<String, u64>,
    /// The term and the owner of each module.
    owners: BTreeMap<String, (u64, String)>,
    members: BTreeSet<String>,
    quarantined: BTreeSet<PeerKey>,
    done: BTreeSet<u32>,
}

impl Follower {
    /// Follows a run.
    pub fn new(telemetry: &Telemetry, run: RunOutline) -> Self {
        telemetry.begin(&run);
        Self { telemetry: telemetry.clone(), run, before: BTreeMap::new(), known: Known::default() }
    }

    /// Takes what one look at the peers has given, by their short names, and tells the viewers. A peer that is not among
    /// them has not answered.
    pub fn hear(&mut self, mut answers: Vec<(String, PeerStatus)>) {
        let now = now_ms();
        for (_, status) in &mut answers {
            // What a peer makes up must not fill tables here.
            status.node.modules.retain(|module| self.run.has_module(&module.module));
            status.node.paths.retain(|path| self.run.has_path(path.path));
            status.outer_steps.retain(|module, _| self.run.has_module(module));
            status.activity.path.take_if(|path| !self.run.has_path(*path));
            self.telemetry.amended(status.node.phases.min(MAX_PHASES));
            status.node.scores.retain(|score| self.run.has_path(score.path));
        }
        for (peer, status) in &answers {
            let before = self.before.get(peer).map(|(before, _)| before);
            self.telemetry.show(peer, status.clone());
            self.point(peer, before, status, now);
            self.does(peer, status);
            self.advances(peer, before, status);
            self.outer_steps(before, status, now);
        }
        for peer in self.before.keys().filter(|peer| !answers.iter().any(|(answered, _)| answered == *peer)) {
            self.telemetry.state().has_not_answered(peer, now);
        }
        self.tell_of(answers.iter().map(|(_, status)| status));
        for (peer, status) in answers {
            self.before.insert(peer, (status, now));
        }
        let gone = |(_, (_, at)): &(&String, &(PeerStatus, u64))| now.saturating_sub(*at) > GONE_AFTER_MS;
        let gone: Vec<String> = self.before.iter().filter(gone).map(|(peer, _)| peer.clone()).collect();
        for peer in gone {
            self.before.remove(&peer);
            self.telemetry.log(Some(&peer), Tone::Bad, "does not answer any more".to_owned());
            self.telemetry.detach(&peer);
        }
        self.telemetry.tell();
    }

    /// The newest steps, if there were any since the last look.
    fn point(&self, peer: &str, before: Option<&PeerStatus>, status: &PeerStatus, at_ms: u64) {
        let of = |status: &PeerStatus| (status.activity.path, status.activity.phase, status.activity.step);
        let (Some(path), Some(phase), Some(step)) = of(status) else { return };
        let Some(loss) = status.activity.loss.filter(|_| before.map(of) != Some(of(status))) else { return };
        let trainer = status.node.paths.iter().find(|it| it.path == path).map_or(1, |it| it.trainer);
        let tokens_before = before.map_or(status.activity.tokens, |before| before.activity.tokens);
        let point = Point {
            at_ms,
            step: self.run.steps(crate::names::Phase(phase), step),
            tokens: status.activity.tokens.saturating_sub(tokens_before),
            loss,
            tokens_per_s: status.activity.tokens_per_s.unwrap_or(0.0),
            ..Point::default()
        };
        let name = if trainer > 1 { format!("path/{path}/{trainer}") } else { format!("path/{path}") };
        self.telemetry.trained(peer, path, (phase, point.step), loss);
        self.telemetry.point(&name, point);
    }

    fn does(&self, peer: &str, status: &PeerStatus) {
        let trains = |path: &&PathStatus| path.stage == "training";
        let training = status.node.paths.iter().find(trains);
        match (training, &status.node.waits_for) {
            (Some(path), _) => {
                let doing = Doing::Training { path: path.path, phase: path.phase.unwrap_or(0) };
                self.telemetry.does(peer, now_ms(), doing, String::new());
            }
            (None, Some(Waiting::Done) | None) => self.telemetry.idles(peer),
            (None, Some(waiting)) => {
                let value = json!(waiting);
                let text = |key: &str| value[key].as_str().map(str::to_owned);
                let doing = Doing::Waiting { kind: text("kind").unwrap_or_default(), module: text("module") };
                self.telemetry.does(peer, now_ms(), doing, waits_for(waiting));
            }
        }
    }

    /// Updates that the peer has applied since the last look.
    fn advances(&self, peer: &str, before: Option<&PeerStatus>, status: &PeerStatus) {
        let Some(before) = before else { return };
        for module in &status.node.modules {
            let earlier = before.node.modules.iter().find(|it| it.module == module.module);
            let updates = module.version.unwrap_or(0).saturating_sub(earlier.and_then(|it| it.version).unwrap_or(0));
            if updates > 0
                && earlier.is_some_and(|it| it.version.is_some())
                && let Ok(name) = module.module.parse::<ModuleId>()
            {
                self.telemetry.updated(peer, name, updates);
            }
        }
    }

    /// The newest outer steps that the peer has computed, as the owner of modules.
    fn outer_steps(&self, before: Option<&PeerStatus>, status: &PeerStatus, at_ms: u64) {
        for (module, step) in &status.outer_steps {
            let known = before.and_then(|before| before.outer_steps.get(module));
            if known != Some(step)
                && let Ok(module) = module.parse()
            {
                let OuterStepStatus { version, norms } = *step;
                self.telemetry.outer_step(module, OuterPoint { at_ms, version, norms });
            }
        }
    }

    /// Says what is new in the swarm, once, whoever knows it first.
    fn tell_of<'a>(&mut self, statuses: impl Iterator<Item = &'a PeerStatus> + Clone) {
        let Self { telemetry, known, before, .. } = self;
        // The first look tells the state, not news.
        let is_first = before.is_empty();
        let say = |tone, line: String| {
            if !is_first {
                telemetry.log(None, tone, line);
            }
        };
        for status in statuses.clone() {
            for module in &status.node.modules {
                let version = module.version.unwrap_or(0);
                let newest = known.versions.entry(module.module.clone()).or_default();
                if version > *newest {
                    *newest = version;
                    say(Tone::Plain, format!("module {} is at version {version}", module.module));
                }
                if let Some(owner) = &module.owner {
                    known.owned(&module.module, module.term, owner, &say);
                }
            }
            for path in status.node.paths.iter().filter(|path| path.stage == "done") {
                if known.done.insert(path.path) {
                    say(Tone::Good, format!("path {} is done", path.path));
                }
            }
            for score in status.node.peer_scores.iter().filter(|score| score.quarantined) {
                if known.quarantined.len() < MOST_QUARANTINED && known.quarantined.insert(score.peer) {
                    let reason = score.reason.as_deref().unwrap_or("faulty contributions");
                    say(Tone::Bad, format!("{} is quarantined: {reason}", short(&score.peer.to_string())));
                }
            }
        }
        let alive = |status: &'a PeerStatus| {
            let silent = |peer: &String| {
                let member = peer.parse().ok().and_then(|peer| status.node.members.get(&peer));
                member.is_some_and(|member| member.silent_s.is_some())
            };
            status.node.peers.iter().filter(move |peer| !silent(peer)).chain([&status.node.peer])
        };
        let members: BTreeSet<String> = statuses.flat_map(alive).cloned().collect();
        // Nobody has answered: that is no news of the others.
        if !members.is_empty() {
            let (come, gone) = (members.difference(&known.members), known.members.difference(&members));
            list(come).into_iter().for_each(|names| say(Tone::Good, format!("joined: {names}")));
            list(gone).into_iter().for_each(|names| say(Tone::Warning, format!("not heard any more: {names}")));
            known.members = members;
        }
    }
}

impl Known {
    fn owned(&mut self, module: &str, term: u64, owner: &str, say: &impl Fn(Tone, String)) {
        let earlier = self.owners.get(module);
        if earlier.is_some_and(|(known, _)| *known >= term) {
            return;
        }
        if earlier.is_none_or(|(_, known)| known != owner) {
            say(Tone::Plain, format!("{} owns module {module}", short(owner)));
        }
        self.owners.insert(module.to_owned(), (term, owner.to_owned()));
    }
}

fn list<'a>(peers: impl Iterator<Item = &'a String>) -> Option<String> {
    let peers: Vec<&String> = peers.collect();
    match peers.len() {
        0 => None,
        1..=MOST_NAMED => Some(peers.iter().map(|peer| short(peer)).collect::<Vec<_>>().join(", ")),
        many => Some(format!("{many} peers")),
    }
}

/// The abbreviation of a key.
fn short(key: &str) -> String {
    format!("…{}", key.get(..8).unwrap_or(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::status::ModuleStatus;

    const RUN: &str = include_str!("../../configs/demo.toml");

    fn follower() -> (Telemetry, Follower) {
        let (telemetry, run) = (Telemetry::default(), crate::config::RunConfig::from_toml(RUN).unwrap());
        let follower = Follower::new(&telemetry, RunOutline::new(&run).unwrap());
        (telemetry, follower)
    }

    fn key(number: u8) -> String {
        PeerKey([number; 32]).to_string()
    }

    fn status(number: u8, step: u64, owner: (u64, u8)) -> PeerStatus {
        let mut status = PeerStatus { run: "1".to_owned(), ..PeerStatus::default() };
        status.node.peer = key(number);
        status.node.peers = (1..4).filter(|other| *other != number).map(key).collect();
        status.node.paths =
            vec![PathStatus { path: 2, trainer: 1, stage: "training".to_owned(), ..Default::default() }];
        let (term, owner) = owner;
        let version = Some(term);
        let module =
            ModuleStatus { module: "0.1".to_owned(), version, owner: Some(key(owner)), term, ..Default::default() };
        status.node.modules = vec![module];
        let activity = &mut status.activity;
        (activity.path, activity.phase, activity.step) = (Some(2), Some(1), Some(step));
        (activity.loss, activity.tokens, activity.tokens_per_s) = (Some(3.5), 100 * step, Some(1e4));
        status
    }

    fn whole(telemetry: &Telemetry) -> serde_json::Value {
        serde_json::from_str(&telemetry.subscribe().whole).unwrap()
    }

    #[test]
    fn looks_at_a_peer_become_a_curve_and_a_part_of_its_time() {
        let (telemetry, mut follower) = follower();
        for step in [3, 3, 5] {
            follower.hear(vec![("a".to_owned(), status(1, step, (4, 1)))]);
        }
        let whole = whole(&telemetry);
        let points = whole["points"]["path/2"].as_array().unwrap();
        assert_eq!(points.len(), 2, "a look without new steps adds nothing: {points:?}");
        assert_eq!((points[1][2].as_u64(), points[1][3].as_f64()), (Some(200), Some(3.5)));
        assert_eq!(whole["spans"][0]["kind"], "training");
        assert_eq!(whole["state"]["peers"]["a"]["status"]["peer"], key(1));
    }

    #[test]
    fn a_peer_that_answers_no_look_is_late_until_it_answers_again() {
        let (telemetry, mut follower) = follower();
        let answer = || vec![("a".to_owned(), status(1, 1, (4, 1)))];
        let is_late = || telemetry.state().peers["a"].silent_since(now_ms() + 60_000).is_some();
        follower.hear(answer());
        assert!(!is_late(), "it has not been asked since");
        follower.hear(vec![]);
        assert!(is_late());
        assert!(telemetry.state().peers["a"].silent_since(now_ms()).is_none(), "one look is not a while");
        follower.hear(answer());
        assert!(!is_late());
    }

    #[test]
    fn an_owner_that_is_replaced_and_a_peer_that_goes_are_told_once() {
        let (telemetry, mut follower) = follower();
        let both = |term, owner| [1, 2].map(|peer| (peer.to_string(), status(peer, 1, (term, owner)))).to_vec();
        follower.hear(both(4, 3));
        assert_eq!(whole(&telemetry)["events"].as_array().unwrap().len(), 0, "the state at first is no news");
        let mut next = both(5, 1);
        for (_, status) in &mut next {
            status.node.peers.retain(|peer| *peer != key(3));
        }
        follower.hear(next.clone());
        follower.hear(next);
        let events = whole(&telemetry)["events"].clone();
        let lines: Vec<&str> = events.as_array().unwrap().iter().filter_map(|event| event["line"].as_str()).collect();
        let expected = ["module 0.1 is at version 5", "…01010101 owns module 0.1", "not heard any more: …03030303"];
        assert_eq!(lines, expected);
    }
}
