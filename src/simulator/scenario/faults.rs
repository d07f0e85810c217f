//! Faults, drawn for each seed as a scenario asks.

use std::ops::Range;

use serde::Deserialize;

use crate::simulator::rng::{Between, SeededRng};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A peer crashes at any moment, and returns with its disk.
    Crash,
    /// A peer crashes and never returns. The only peer with a module is spared.
    Gone,
    /// A peer leaves cleanly. The only peer with a module is spared.
    Leave,
    /// A peer crashes and returns, again and again.
    Flap,
    /// A peer freezes, and continues.
    Freeze,
    /// A peer's disk rejects writes: the peer waits at its next record until there is space.
    FullDisk,
    /// A peer's trainer hangs after its next step, until it is restarted.
    Hang,
    /// The thread of a peer's trainer dies.
    TrainerDies,
    /// The network is partitioned into two parts.
    Split,
    /// The network is partitioned into three parts.
    SplitInThree,
    /// Some peers are heard but receive nothing.
    OneWay,
    /// This many newcomers join at once.
    JoinStorm,
}

impl Kind {
    /// Its name in a scenario's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Gone => "gone",
            Self::Leave => "leave",
            Self::Flap => "flap",
            Self::Freeze => "freeze",
            Self::FullDisk => "full-disk",
            Self::Hang => "hang",
            Self::TrainerDies => "trainer-dies",
            Self::Split => "split",
            Self::SplitInThree => "split-in-three",
            Self::OneWay => "one-way",
            Self::JoinStorm => "join-storm",
        }
    }
}

/// Number and duration of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    pub kind: Kind,
    /// Number of faults; for a join storm, number of newcomers.
    #[serde(default = "once")]
    pub times: usize,
    /// How long each lasts.
    #[serde(default)]
    pub for_ms: Between,
    /// Earliest start, after which all peers have had time to join.
    #[serde(default = "from_ms")]
    pub from_ms: u64,
    /// Latest start.
    #[serde(default = "until_ms")]
    pub until_ms: u64,
    /// Interval of faults from `from_ms` on, in place of `times`.
    pub every_ms: Option<u64>,
}

/// Faults in turn, one after the other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSchedule {
    /// The kinds, repeated from the first.
    pub kinds: Vec<Kind>,
    /// Interval.
    pub every_ms: u64,
    /// How long each lasts.
    pub for_ms: u64,
    /// Start of the first.
    pub from_ms: u64,
    /// No fault begins at or after this.
    pub until_ms: u64,
}

fn once() -> usize {
    1
}

fn from_ms() -> u64 {
    10_000
}

fn until_ms() -> u64 {
    60_000
}

/// A partition of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The part of each peer; peers of one part hear each other.
    pub parts: Vec<u8>,
    /// Whether only messages to part 1 are lost.
    pub one_way: bool,
}

impl Cut {
    /// Whether messages from one peer to the other are lost.
    pub fn between(&self, from: usize, to: usize) -> bool {
        let part = |peer: usize| self.parts.get(peer).copied().unwrap_or(0);
        part(from) != part(to) && (!self.one_way || part(to) == 1)
    }
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Peer(usize),
    /// Between peers.
    Cut(Cut),
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub kind: Kind,
    pub what: What,
    /// Start and end.
    pub when_ms: Range<u64>,
}

/// All faults of one seed. `settled` peers are there from the start; newcomers are numbered after them.
pub fn plan(
    faults: &[Faults],
    fault_schedule: Option<&FaultSchedule>,
    settled: usize,
    rng: &mut SeededRng,
) -> Vec<Planned> {
    let mut planned = Vec::new();
    let mut newcomer = settled;
    for fault in faults {
        if fault.kind == Kind::JoinStorm {
            let at_ms = rng.draw([fault.from_ms, fault.until_ms].into());
            for _ in 0..fault.times {
                let when_ms = at_ms..at_ms + rng.draw([0, 200].into());
                planned.push(Planned { kind: fault.kind, what: What::Peer(newcomer), when_ms });
                newcomer += 1;
            }
            continue;
        }
        for at_ms in times(fault, rng) {
            let when_ms = at_ms..at_ms + rng.draw(fault.for_ms);
            draw(fault.kind, when_ms, settled, rng, &mut planned);
        }
    }
    if let Some(fault_schedule) = fault_schedule {
        let times = (fault_schedule.from_ms..fault_schedule.until_ms).step_by(fault_schedule.every_ms.max(1) as usize);
        for (kind, at_ms) in fault_schedule.kinds.iter().cycle().zip(times) {
            draw(*kind, at_ms..at_ms + fault_schedule.for_ms, settled, rng, &mut planned);
        }
    }
    planned
}

fn times(fault: &Faults, rng: &mut SeededRng) -> Vec<u64> {
    match fault.every_ms {
        Some(every_ms) => (fault.from_ms..fault.until_ms).step_by(every_ms.max(1) as usize).collect(),
        None => (0..fault.times).map(|_| rng.draw([fault.from_ms, fault.until_ms].into())).collect(),
    }
}

fn draw(kind: Kind, when_ms: Range<u64>, peers: usize, rng: &mut SeededRng, planned: &mut Vec<Planned>) {
    let mut parts = |parts: u64, one_way: bool| {
        let mut of: Vec<u8> = (0..peers).map(|_| rng.draw([0, parts - 1].into()) as u8).collect();
        // At least one peer is apart from the first.
        if of.iter().all(|part| *part == of[0]) {
            of[peers - 1] = (of[0] + 1) % parts as u8;
        }
        What::Cut(Cut { parts: of, one_way })
    };
    let what = match kind {
        Kind::Split => parts(2, false),
        Kind::SplitInThree => parts(3, false),
        Kind::OneWay => parts(2, true),
        Kind::Flap => return flap(when_ms, rng.pick(peers), rng, planned),
        Kind::Crash
        | Kind::Gone
        | Kind::Leave
        | Kind::Freeze
        | Kind::FullDisk
        | Kind::Hang
        | Kind::TrainerDies
        | Kind::JoinStorm => What::Peer(rng.pick(peers)),
    };
    planned.push(Planned { kind, what, when_ms });
}

fn flap(when_ms: Range<u64>, peer: usize, rng: &mut SeededRng, planned: &mut Vec<Planned>) {
    let mut at_ms = when_ms.start;
    while at_ms < when_ms.end {
        let back_ms = at_ms + rng.draw([300, 3_000].into());
        planned.push(Planned { kind: Kind::Flap, what: What::Peer(peer), when_ms: at_ms..back_ms });
        at_ms = back_ms + rng.draw([1_000, 5_000].into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(kind: Kind, times: usize) -> Faults {
        Faults { kind, times, for_ms: [1_000, 9_000].into(), from_ms: 10_000, until_ms: 60_000, every_ms: None }
    }

    #[test]
    fn a_partition_separates_its_parts_and_a_one_way_one_only_in_one_direction() {
        let cut = Cut { parts: vec![0, 0, 1], one_way: false };
        assert!(cut.between(0, 2) && cut.between(2, 1) && !cut.between(0, 1));
        let one_way = Cut { one_way: true, ..cut };
        assert!(one_way.between(0, 2) && !one_way.between(2, 0));
    }

    #[test]
    fn every_kind_is_drawn_as_often_as_requested_and_a_partition_cuts_off_a_peer() {
        for seed in 0..50 {
            let mut rng = SeededRng::new(seed, "test");
            let asked = [faults(Kind::Crash, 3), faults(Kind::SplitInThree, 2), faults(Kind::JoinStorm, 4)];
            let planned = plan(&asked, None, 5, &mut rng);
            let count = |kind| planned.iter().filter(|one| one.kind == kind).count();
            assert_eq!([count(Kind::Crash), count(Kind::SplitInThree), count(Kind::JoinStorm)], [3, 2, 4]);
            for one in &planned {
                if let What::Cut(cut) = &one.what {
                    assert!((0..5).any(|peer| cut.between(0, peer)));
                }
            }
        }
    }

    #[test]
    fn a_regular_fault_occurs_at_its_times() {
        let often = Faults { every_ms: Some(20_000), ..faults(Kind::Freeze, 1) };
        let planned = plan(&[often], None, 3, &mut SeededRng::new(1, "test"));
        assert_eq!(planned.iter().map(|one| one.when_ms.start).collect::<Vec<_>>(), [10_000, 30_000, 50_000]);
    }

    #[test]
    fn a_fault_schedule_has_each_kind_in_turn() {
        let kinds = vec![Kind::Crash, Kind::Freeze];
        let fault_schedule = FaultSchedule { kinds, every_ms: 20, for_ms: 5, from_ms: 10, until_ms: 70 };
        let planned = plan(&[], Some(&fault_schedule), 3, &mut SeededRng::new(1, "test"));
        let seen: Vec<_> = planned.iter().map(|one| (one.kind, one.when_ms.clone())).collect();
        assert_eq!(seen, [(Kind::Crash, 10..15), (Kind::Freeze, 30..35), (Kind::Crash, 50..55)]);
    }
}
