//! The run's amendment: hearing of one, and going on by it.
//!
//! How many phases there are decides when a module is done, and nothing else about an update. So nodes that hear of an
//! amendment at different times make the same chains: one that has not heard of it only waits at the former end.

use std::sync::Arc;

use crate::names::{BlobHash, ModuleId, PeerKey};
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::blobs::Purpose;
use crate::protocol::wire::amended::Amended;
use crate::protocol::wire::message::Lease;

impl Node {
    /// The same node in a run that was amended before this start.
    #[must_use]
    pub fn amended(mut self, amended: Amended) -> Self {
        self.put_amendment(amended);
        self
    }

    /// The amendment in force.
    pub fn amendment(&self) -> Option<Amended> {
        self.lifecycle.amendments().in_force()
    }

    /// A peer may tell of an amendment in its leases. Fetches it if it outranks the one here.
    pub(in crate::protocol) fn hear_amendment(&mut self, from: PeerKey, leases: &[Lease]) {
        let Some(told) = Amended::of_leases(leases) else { return };
        if let Some(blob) = self.lifecycle.amendments_mut().hear(self.now, from, told) {
            self.fetch(blob, from, Purpose::Amendment);
        }
    }

    pub(in crate::protocol) fn amendment_fetched(&mut self, blob: BlobHash, found: bool) {
        if let Some(blob) = self.lifecycle.amendments_mut().fetched(self.now, blob, found) {
            self.act(Action::ReadAmendment(blob));
        }
    }

    pub(in crate::protocol) fn amendment_refused(&mut self, blob: BlobHash, is_false: bool) {
        self.lifecycle.amendments_mut().refused(self.now, blob, is_false);
        self.release(blob);
    }

    /// The run goes on, or on for longer, at once: what was done is not, and the others hear of it.
    pub(in crate::protocol) fn amend(&mut self, amended: Amended) {
        let done = |(module, state): (&ModuleId, &crate::protocol::Replica)| {
            state.head().is_some_and(|head| self.plan.is_done(*module, head)).then_some(*module)
        };
        let ended: Vec<ModuleId> = self.modules.iter().filter_map(done).collect();
        if !self.put_amendment(amended) {
            return self.release(amended.blob.hash);
        }
        for module in ended {
            // The time at the end is nobody's delay.
            self.head_moved(module, true);
            if self.owns(module) {
                self.open_collection(module, 0);
            }
        }
        self.act(Action::Report(Report::Amended { phases: self.plan.phases, number: amended.number }));
        self.send_heartbeats();
    }

    /// Returns whether the amendment is in force now, and was not before.
    fn put_amendment(&mut self, amended: Amended) -> bool {
        let before = self.plan.phases;
        let Some(replaced) = self.lifecycle.amendments_mut().put(self.now, amended, before) else { return false };
        if let Some(replaced) = replaced {
            self.release(replaced.blob.hash);
        }
        Arc::make_mut(&mut self.plan).phases = before.max(amended.phases);
        true
    }
}
