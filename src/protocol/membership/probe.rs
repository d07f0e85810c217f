//! Probes of silent owners. The member that would be the next owner asks an owner that is silent for a little longer
//! than usual whether it is alive.
//!
//! One lost heartbeat must not cost an owner its module, so a lease is longer. A request and its response take less
//! time than the rest of the lease: an owner that does not respond either is dead at once. An owner that responds keeps
//! its lease, but no longer. An owner that responds and sends no heartbeats is not working.

use std::collections::BTreeMap;

use super::super::event::RequestId;
use crate::clock::Millis;
use crate::names::PeerKey;

/// The owners that were probed since they were last heard.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Probes(BTreeMap<PeerKey, Probe>);

#[derive(Debug)]
struct Probe {
    /// When the owner was last heard.
    heard: Millis,
    asked_at: Millis,
    /// Pending requests of this probe. Only responses to these count.
    asked: Vec<RequestId>,
    answered: bool,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum Verdict {
    /// The owner has responded.
    Alive,
    /// The owner has not responded in time.
    Dead,
    /// The owner is to be probed, perhaps again.
    Ask,
}

impl Probes {
    /// The result for an owner that was last heard at this time and has this long to respond.
    pub(in crate::protocol) fn verdict(&self, now: Millis, owner: PeerKey, heard: Millis, timeout_ms: u64) -> Verdict {
        let probe = self.0.get(&owner).filter(|probe| probe.heard == heard);
        match probe {
            Some(probe) if probe.answered => Verdict::Alive,
            Some(probe) if now.since(probe.asked_at) >= timeout_ms => Verdict::Dead,
            _ => Verdict::Ask,
        }
    }

    /// A probe was sent. If the owner was heard since the earlier probe, a new one begins.
    pub(in crate::protocol) fn asked(&mut self, now: Millis, owner: PeerKey, heard: Millis, id: RequestId) {
        let fresh = || Probe { heard, asked_at: now, asked: Vec::new(), answered: false };
        let probe = self.0.entry(owner).or_insert_with(fresh);
        if probe.heard != heard {
            *probe = fresh();
        }
        probe.asked.push(id);
    }

    /// Notes the response to a request. Returns whether the request was a probe.
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
