//! Owners that are silent for a little longer than usual are asked whether they live, by the one who would come next.
//!
//! One heartbeat that is lost must not cost an owner its module, so a lease outlasts it. But a request and its response take
//! less time than the rest of the lease: an owner that does not respond either is taken for dead at once. One that
//! responds has its lease, and no longer: an owner that responds and sends no heartbeat is not at work.

use std::collections::BTreeMap;

use super::super::event::RequestId;
use crate::clock::Millis;
use crate::names::PeerKey;

/// Owners that were asked, since they were last heard.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Probes(BTreeMap<PeerKey, Probe>);

#[derive(Debug)]
struct Probe {
    /// When the owner was last heard.
    heard: Millis,
    asked_at: Millis,
    /// Requests under way; no response but to the last ones counts.
    asked: Vec<RequestId>,
    answered: bool,
}

/// What is known of a silent owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum Verdict {
    /// It has responded.
    Alive,
    /// It has not, in time.
    Dead,
    /// It is to be asked.
    Ask,
}

impl Probes {
    /// What is known of an owner that was last heard then, and has this long to respond.
    pub(in crate::protocol) fn verdict(&self, now: Millis, owner: PeerKey, heard: Millis, timeout_ms: u64) -> Verdict {
        let probe = self.0.get(&owner).filter(|probe| probe.heard == heard);
        match probe {
            Some(probe) if probe.answered => Verdict::Alive,
            Some(probe) if now.since(probe.asked_at) >= timeout_ms => Verdict::Dead,
            _ => Verdict::Ask,
        }
    }

    /// The owner was asked. One that was heard since it was asked before is probed anew.
    pub(in crate::protocol) fn asked(&mut self, now: Millis, owner: PeerKey, heard: Millis, id: RequestId) {
        let fresh = || Probe { heard, asked_at: now, asked: Vec::new(), answered: false };
        let probe = self.0.entry(owner).or_insert_with(fresh);
        if probe.heard != heard {
            *probe = fresh();
        }
        probe.asked.push(id);
    }

    /// Whether this was the response of an owner that was probed.
    pub(in crate::protocol) fn responded(&mut self, id: RequestId, answers: bool) -> bool {
        let Some(probe) = self.0.values_mut().find(|probe| probe.asked.contains(&id)) else { return false };
        probe.answered |= answers;
        true
    }

    /// The owner is heard again.
    pub(in crate::protocol) fn clear(&mut self, owner: PeerKey) {
        self.0.remove(&owner);
    }
}
