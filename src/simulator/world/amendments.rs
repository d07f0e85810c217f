//! Amendments of the run: one is signed at a drawn time, and peers read those that others tell of.

use std::sync::Arc;

use crate::names::BlobRef;
use crate::protocol::wire::amended::Amended;
use crate::protocol::{Event, RunPlan};
use crate::simulator::scenario::faults::{Kind, Planned, What};
use crate::simulator::world::{Due, World};

/// Time after which a peer that was down tries again.
const AGAIN_MS: u64 = 1_000;

impl World {
    /// Draws when the creator amends the run.
    pub(super) fn plan_amendments(&mut self) {
        for number in 0..self.scenario.amendments.len() {
            let at_ms = self.rng.draw(self.scenario.amendments[number].at_ms);
            self.calm_ms = self.calm_ms.max(at_ms);
            self.schedule(at_ms, (self.signer(), 0), Due::Amend(number));
        }
    }

    /// The peer with the creator's key: the first that does not go for good, perhaps before others have heard it.
    fn signer(&self) -> usize {
        let goes = |index: usize| {
            let goes = |planned: &&Planned| matches!(planned.kind, Kind::Gone | Kind::Leave);
            self.planned.iter().filter(goes).any(|planned| planned.what == What::Peer(index))
        };
        (0..self.scenario.swarm.peers).find(|index| !goes(*index)).unwrap_or(0)
    }

    /// The run as its manifest has it.
    pub(super) fn unamended_plan(&self) -> Arc<RunPlan> {
        if self.amended.is_empty() {
            return self.plan.clone();
        }
        Arc::new(RunPlan { phases: self.scenario.swarm.phases, ..(*self.plan).clone() })
    }

    /// The amendment by which all peers must go on in the end. While one is still to come, there is none.
    pub(super) fn amendment_in_force(&self) -> Option<Amended> {
        let none = Amended { phases: 0, number: 0, blob: BlobRef::of(b"") };
        match self.amended.len() < self.scenario.amendments.len() {
            true => Some(none),
            false => self.amended.iter().copied().max_by_key(Amended::rank),
        }
    }

    /// The creator signs and stores an amendment. One that is down, or without space, does so later.
    pub(super) fn amend(&mut self, number: usize) {
        let signer = self.signer();
        let creator = &mut self.peers[signer];
        if !creator.up || creator.is_stalled() || self.now_ms < creator.frozen_until_ms {
            return self.schedule(self.now_ms + AGAIN_MS, (signer, 0), Due::Amend(number));
        }
        let phases = self.scenario.amendments[number].phases;
        let blob = creator.disk.put(format!("amendment {number}: {phases} phases").into_bytes());
        let amended = Amended { phases, number: number as u32 + 1, blob };
        self.amended.push(amended);
        let plan = Arc::make_mut(&mut self.plan);
        plan.phases = plan.phases.max(phases);
        self.store_amendment(signer, amended);
    }

    /// A peer reads what another says is an amendment.
    pub(super) fn read_amendment(&mut self, index: usize, blob: BlobRef) {
        match self.amended.iter().find(|amended| amended.blob == blob).copied() {
            Some(amended) => self.store_amendment(index, amended),
            None => self.event_at(index, 0, Event::AmendmentRefused { blob: blob.hash, is_false: true }),
        }
    }

    fn store_amendment(&mut self, index: usize, amended: Amended) {
        let stored = &mut self.peers[index].disk.amendment;
        *stored = (*stored).into_iter().chain([amended]).max_by_key(Amended::rank);
        self.event_at(index, 0, Event::Amended(amended));
    }
}
