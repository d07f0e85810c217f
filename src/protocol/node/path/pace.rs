//! The pace of peers. In the asynchronous mode it determines how many inner steps a phase has here, how often an owner
//! closes a collection, and how long a path waits for its own contribution.
//!
//! A peer measures itself and announces its *pace* in its heartbeats: the inner steps that each of its paths makes in
//! 1000 s. The fastest pace sets the measure, but with three or more peers it counts for at most twice the second
//! fastest. A Byzantine peer can thus at most halve the inner steps of others' phases, and no peer trains for less of
//! its time.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::config::OuterMode;
use crate::names::{ModuleId, PathId, PeerKey};
use crate::protocol::Node;
use crate::protocol::limits::{CLOSES_PER_PHASE, HEARTBEAT_MS, LEAST_STEPS_SHARE, UNMEASURED_STEPS_SHARE};

/// The pace that sets the measure: the fastest, but at most twice the second of three or more. Of two, one may really
/// be that slow.
fn measure(mut paces: Vec<u32>) -> Option<u32> {
    paces.retain(|pace| *pace > 0);
    paces.sort_unstable_by(|a, b| b.cmp(a));
    let most = if paces.len() > 2 { paces[1].saturating_mul(2) } else { u32::MAX };
    paces.first().map(|fastest| *fastest.min(&most))
}

impl Node {
    /// Inner steps that each path here makes in 1000 s; 0 if not measured or not needed.
    pub(in crate::protocol) fn pace(&self) -> u32 {
        if self.plan.mode == OuterMode::Synchronous {
            return 0;
        }
        let Some(pace) = self.trainers.steps_in_1000_s(self.active_paths() as u64) else { return 0 };
        u32::try_from(pace).unwrap_or(u32::MAX).max(1)
    }

    /// The pace of the fastest living members of these modules, including this peer.
    fn fastest_pace(&self, modules: &[ModuleId]) -> Option<u32> {
        let others = modules.iter().flat_map(|module| self.membership.roster().living(self.now, *module));
        let mut paces: BTreeMap<PeerKey, u32> = others.map(|(peer, member)| (peer, member.pace)).collect();
        let through = |path: &PathId| self.modules_of(*path).iter().any(|module| modules.contains(module));
        if self.paths.held().keys().any(through) {
            paces.insert(self.me, self.pace());
        }
        measure(paces.into_values().collect())
    }

    /// How many inner steps a path's next phase has: all of them, or as many as this peer makes in the time in which
    /// the fastest makes all.
    pub(in crate::protocol) fn steps(&self, path: PathId) -> u64 {
        let all = self.plan.inner_steps;
        let share = |share: u64| (all / share).max(1);
        if self.plan.mode == OuterMode::Synchronous {
            return all;
        }
        let mine = u64::from(self.pace());
        match self.fastest_pace(&self.modules_of(path)) {
            Some(fastest) if mine > 0 => {
                (all.saturating_mul(mine) / u64::from(fastest)).clamp(share(LEAST_STEPS_SHARE), all)
            }
            // The pace here is not known yet. The phase ends when the fastest peer would be done.
            Some(_) => all,
            // No pace is known. This peer may take eight times as long as others.
            None => share(UNMEASURED_STEPS_SHARE),
        }
    }

    /// When a phase ends at the latest, if the pace here is not known: when the fastest peer would have made these
    /// steps.
    pub(in crate::protocol) fn phase_ends(&self, path: PathId, steps: u64) -> Option<Millis> {
        let unmeasured = self.plan.mode == OuterMode::Asynchronous && self.pace() == 0;
        let fastest = self.fastest_pace(&self.modules_of(path)).filter(|_| unmeasured)?;
        Some(self.now + steps.saturating_mul(1_000_000) / u64::from(fastest))
    }

    /// The time in which the whole process was suspended is not training time.
    pub(in crate::protocol) fn stood_still(&mut self, for_ms: u64) {
        self.trainers.stood_still(for_ms);
    }

    /// How long an owner waits before it closes again, so that a path that keeps pace is not many versions late.
    pub(in crate::protocol) fn pause_ms(&self, module: ModuleId) -> u64 {
        if self.plan.mode == OuterMode::Synchronous {
            return 0;
        }
        let fastest = self.fastest_pace(&[module]).map(u64::from);
        let phase_ms = fastest.map_or(0, |pace| self.plan.inner_steps.saturating_mul(1_000_000) / pace);
        phase_ms / CLOSES_PER_PHASE
    }

    /// How long a path waits until its own contribution is counted: as long as an owner may take, but at least one
    /// heartbeat.
    pub(in crate::protocol) fn timeout_ms(&self) -> u64 {
        self.trainers.slowest().map_or(0, |measured| measured.took_ms / CLOSES_PER_PHASE).max(HEARTBEAT_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_of_three_sets_the_measure_to_twice_the_second_at_most() {
        assert_eq!(measure(vec![]), None);
        assert_eq!(measure(vec![0, 0]), None);
        assert_eq!(measure(vec![0, 7]), Some(7));
        assert_eq!(measure(vec![3, 7]), Some(7));
        assert_eq!(measure(vec![3, 11, 7]), Some(11));
        assert_eq!(measure(vec![3, u32::MAX, 7]), Some(14));
    }
}
