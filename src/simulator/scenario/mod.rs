//! A scenario from a file in `configs/drills`: a swarm, its network, its clocks and its faults.

pub mod byzantine;
pub mod clocks;
pub mod faults;
pub mod links;

use serde::Deserialize;

use crate::config::streaming::read_streaming;
use crate::config::{Codec, MAX_PHASES, OuterConfig, OuterMode, Rescale, SampleConfig, Streaming};
use crate::grid::{Grid, GridError, Sharing};
use crate::names::PathId;
use crate::protocol::limits::{MAX_LEASES, MAX_TRAINERS};
use crate::sampling::{SampleError, WorkerSlots};
use crate::simulator::rng::Between;
use crate::simulator::scenario::byzantine::Byzantine;
use crate::simulator::scenario::clocks::Clocks;
use crate::simulator::scenario::faults::{FaultSchedule, Faults, Kind};
use crate::simulator::scenario::links::Links;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One sentence about it.
    pub about: String,
    pub swarm: Swarm,
    #[serde(default)]
    pub links: Links,
    #[serde(default)]
    pub clocks: Clocks,
    #[serde(default)]
    pub faults: Vec<Faults>,
    /// Faults in turn.
    pub fault_schedule: Option<FaultSchedule>,
    /// Amendments of the run.
    #[serde(default)]
    pub amendments: Vec<Amendment>,
    /// Byzantine behaviours, of one peer each.
    #[serde(default)]
    pub byzantine: Vec<Byzantine>,
    /// Start of Byzantine behaviour, after all peers have a path.
    #[serde(default = "ten_seconds")]
    pub byzantine_from_ms: u64,
}

/// An amendment of the run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amendment {
    /// The phases that the run has with it.
    pub phases: u64,
    /// When it is signed.
    pub at_ms: Between,
}

/// A swarm and its run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swarm {
    /// The levels of the grid.
    pub levels: Vec<Sharing>,
    /// How many paths are trained at a time, and for how long; all paths if absent.
    pub sample: Option<SampleConfig>,
    /// How many trainers a path may have.
    #[serde(default = "one_trainer")]
    pub trainers_per_path: u32,
    /// When owners make updates.
    #[serde(default = "synchronous")]
    pub mode: OuterMode,
    #[serde(default = "default_momentum")]
    pub momentum: f32,
    /// Compression of contributions.
    #[serde(default = "four_bits")]
    pub codec: Codec,
    #[serde(default = "long_steps")]
    pub rescale: Rescale,
    /// Whether levels are synchronised one after the other.
    #[serde(default, deserialize_with = "read_streaming")]
    pub streaming: Option<Streaming>,
    /// The norm cap as a multiple of the running norm; 0 for none; the default if absent.
    pub norm_cap: Option<f32>,
    /// Expected number of members that audit an update.
    #[serde(default = "default_audit_share")]
    pub audit_share: f64,
    /// Whether updates of five paths or more use centred clipping.
    #[serde(default)]
    pub centred_clipping: bool,
    /// Whether each update waits for a whole phase of every path.
    #[serde(default)]
    pub deterministic: bool,
    /// The common part of the targets of all paths through a module, from 0 to 1.
    #[serde(default)]
    pub likeness: f32,
    /// The share of the distance to its targets that a whole phase covers.
    #[serde(default = "half")]
    pub stride: f32,
    /// Largest noise of each inner step's gradient, for targets between -1 and 1.
    #[serde(default)]
    pub noise: f32,
    /// A loss; the time at which it is reached is reported.
    pub given_loss: Option<f64>,
    /// The first creates the run, the others join within seconds.
    pub peers: usize,
    /// Instead, each peer starts with its path and the run's first states, as after a restart.
    #[serde(default)]
    pub placed: bool,
    /// If it is placed, how many paths each peer has, as far as there are so many.
    #[serde(default = "one_path")]
    pub paths_each: usize,
    pub phases: u64,
    /// Values of each module.
    pub values: usize,
    /// Duration of a path's phase on a machine of speed 1.
    pub phase_ms: Between,
    /// Slowness of each peer's machine: peer `i` has the `i`-th factor, repeated from the first.
    #[serde(default = "all_equal")]
    pub slowness: Vec<u64>,
    /// Devices of each peer, with a trainer each: peer `i` has the `i`-th number, repeated from the first.
    #[serde(default = "one_device")]
    pub devices: Vec<usize>,
    /// Virtual time by which everything must be done.
    #[serde(default = "ten_minutes")]
    pub deadline_ms: u64,
}

impl Swarm {
    /// The paths with which a placed peer starts.
    pub fn paths_of(&self, peer: usize, slots: &WorkerSlots) -> Vec<PathId> {
        let first = peer * self.paths_each;
        (first..slots.count() as usize).take(self.paths_each).map(|path| PathId(path as u32)).collect()
    }

    /// The outer configuration; other values are defaults. The step is DiPaCo's, the longest of those in use.
    pub fn outer(&self) -> OuterConfig {
        OuterConfig {
            mode: self.mode,
            codec: self.codec,
            learning_rate: 0.7,
            momentum: self.momentum,
            rescale: self.rescale,
            streaming: self.streaming,
            norm_cap: self.norm_cap,
            audit_share: self.audit_share,
            centred_clipping: self.centred_clipping,
            deterministic: self.deterministic,
            ..OuterConfig::default()
        }
    }
}

fn one_trainer() -> u32 {
    1
}

fn one_path() -> usize {
    1
}

fn one_device() -> Vec<usize> {
    vec![1]
}

fn all_equal() -> Vec<u64> {
    vec![1]
}

fn ten_seconds() -> u64 {
    10_000
}

fn synchronous() -> OuterMode {
    OuterMode::Synchronous
}

fn four_bits() -> Codec {
    OuterConfig::default().codec
}

fn long_steps() -> Rescale {
    Rescale::SqrtPaths
}

fn default_audit_share() -> f64 {
    OuterConfig::default().audit_share
}

fn half() -> f32 {
    0.5
}

fn default_momentum() -> f32 {
    0.9
}

fn ten_minutes() -> u64 {
    600_000
}

#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    #[error("swarm.levels: {0}")]
    Grid(#[from] GridError),
    #[error("swarm.sample: {0}")]
    Sample(#[from] SampleError),
    #[error("{key}: {expected}")]
    Range { key: &'static str, expected: &'static str },
}

/// The most peers of a drill.
const MOST_PEERS: usize = 100_000;

impl Scenario {
    /// Reads and checks a drill.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text)?;
        scenario.check()?;
        Ok(scenario)
    }

    pub fn check(&self) -> Result<(), ScenarioError> {
        let slots = self.slots()?;
        let share = |share: f64| (0.0..=1.0).contains(&share);
        let ranges = [
            ("swarm.peers", (1..=MOST_PEERS).contains(&self.swarm.peers), "1 to 100000"),
            ("byzantine", self.byzantine.len() < self.swarm.peers, "fewer than peers"),
            (
                "swarm.mode",
                !slots.are_drawn_anew() || self.swarm.mode == OuterMode::Synchronous,
                "must be synchronous where paths are drawn again",
            ),
            (
                "swarm.streaming",
                self.swarm.streaming.is_none_or(|streaming| self.streams(&streaming)),
                "only in a synchronous swarm of all paths with two levels or more: mix from 0 to below 1, overlap from \
                 1 to the levels less one",
            ),
            (
                "swarm.placed",
                !self.swarm.placed
                    || self.swarm.peers <= (slots.count() as usize).div_ceil(self.swarm.paths_each.max(1)),
                "must be a path for each peer",
            ),
            ("swarm.paths_each", (1..=MAX_LEASES).contains(&self.swarm.paths_each), "1 to 16"),
            ("swarm.phases", self.swarm.phases >= 1, "1 or more"),
            (
                "amendments.phases",
                self.amendments.iter().all(|it| (self.swarm.phases..=MAX_PHASES).contains(&it.phases)),
                "swarm.phases to 16777216",
            ),
            ("swarm.values", (1..=1 << 20).contains(&self.swarm.values), "1 to 1048576"),
            ("swarm.slowness", !self.swarm.slowness.contains(&0) && !self.swarm.slowness.is_empty(), "1 or more each"),
            (
                "swarm.devices",
                self.swarm.devices.iter().all(|count| (1..=MAX_TRAINERS).contains(count))
                    && !self.swarm.devices.is_empty(),
                "1 to 15 each",
            ),
            ("swarm.momentum", (0.0..1.0).contains(&self.swarm.momentum), "from 0 up to, but not including, 1"),
            ("swarm.likeness", (0.0..=1.0).contains(&self.swarm.likeness), "0 to 1"),
            (
                "swarm.norm_cap",
                self.swarm.norm_cap.is_none_or(|cap| cap == 0.0 || (1.0..=1_000.0).contains(&cap)),
                "1 to 1000, or 0",
            ),
            ("swarm.audit_share", (0.0..=64.0).contains(&self.swarm.audit_share), "0 to 64"),
            (
                "swarm.centred_clipping",
                !self.swarm.centred_clipping || self.swarm.outer().can_clip(),
                "must be false where the swarm is asynchronous or the codec is top-k",
            ),
            ("swarm.stride", self.swarm.stride > 0.0 && self.swarm.stride < 1.0, "between 0 and 1"),
            ("swarm.noise", (0.0..=16.0).contains(&self.swarm.noise), "0 to 16"),
            ("links.loss", share(self.links.loss), "0 to 1"),
            ("links.duplication", share(self.links.duplication), "0 to 1"),
            ("links.stragglers", share(self.links.stragglers), "0 to 1"),
            ("clocks.drift_ppm", self.clocks.drift_ppm <= 500_000, "at most 500000"),
            (
                "fault_schedule.every_ms",
                self.fault_schedule.as_ref().is_none_or(|fault_schedule| fault_schedule.every_ms > 0),
                "1 or more",
            ),
            ("faults.every_ms", self.faults.iter().all(|fault| fault.every_ms != Some(0)), "1 or more"),
        ];
        match ranges.into_iter().find(|(_, fits, _)| !fits) {
            Some((key, _, expected)) => Err(ScenarioError::Range { key, expected }),
            None => Ok(()),
        }
    }

    fn streams(&self, streaming: &Streaming) -> bool {
        let can = self.swarm.mode == OuterMode::Synchronous && self.swarm.sample.is_none();
        can && streaming.fits(self.swarm.levels.len())
    }

    /// Modules, and the trained paths. Every seed draws the same.
    pub fn slots(&self) -> Result<WorkerSlots, ScenarioError> {
        let grid = Grid::new(self.swarm.levels.clone())?;
        let slots = match self.swarm.sample {
            Some(sample) => sample.of(grid, 0)?,
            None => grid.into(),
        };
        Ok(slots.with_trainers(self.swarm.trainers_per_path)?)
    }

    /// Number of peers, with newcomers of join storms.
    pub fn all_peers(&self) -> usize {
        let storms = self.faults.iter().filter(|fault| fault.kind == Kind::JoinStorm);
        self.swarm.peers + storms.map(|fault| fault.times).sum::<usize>()
    }

    /// Trainers of this peer.
    pub fn trainers(&self, peer: usize) -> usize {
        self.swarm.devices[peer % self.swarm.devices.len()]
    }

    /// The slowness of this peer.
    pub fn slowness(&self, peer: usize) -> u64 {
        self.swarm.slowness[peer % self.swarm.slowness.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        about = "A small one."
        [swarm]
        levels = [{ experts = 2 }, "shared", "path"]
        peers = 3
        phases = 4
        values = 16
        phase_ms = [1000, 2000]
        [[faults]]
        kind = "join-storm"
        times = 2
        [[faults]]
        kind = "split-in-three"
        for_ms = [5000, 9000]
    "#;

    #[test]
    fn a_file_describes_the_faults() {
        let scenario = Scenario::from_toml(SMALL).unwrap();
        assert_eq!(scenario.slots().unwrap().count(), 2);
        assert_eq!(scenario.all_peers(), 5);
        assert_eq!(scenario.faults[1].kind, Kind::SplitInThree);
        assert_eq!((scenario.faults[1].times, scenario.faults[1].until_ms), (1, 60_000));
        assert_eq!(Scenario { faults: vec![], ..scenario }.slowness(7), 1);
    }

    #[test]
    fn an_invalid_scenario_is_refused_with_a_message() {
        let refused = |from: &str, to: &str| Scenario::from_toml(&SMALL.replace(from, to)).unwrap_err().to_string();
        assert!(refused("peers = 3", "peers = 0").starts_with("swarm.peers: 1 to"));
        assert!(refused("join-storm", "earthquake").contains("unknown variant"));
        assert!(refused("phases", "faces").contains("unknown field"));
        assert!(refused("{ experts = 2 }", "{ experts = 0 }").starts_with("swarm.levels:"));
    }
}
