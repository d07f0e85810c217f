//! Probes of silent owners by the member that is next in rank.

use crate::names::{ModuleId, PeerKey};
use crate::protocol::event::RequestId;
use crate::protocol::membership::probe::Verdict;
use crate::protocol::wire::message::Request;
use crate::protocol::{Node, Replica};

impl Node {
    /// Whether an owner has been silent for a little longer than usual. An owner that is heard again is no longer
    /// probed.
    pub(in crate::protocol) fn is_silent(&mut self, owner: PeerKey) -> bool {
        let silent = self.membership.roster().silent_since(self.now, owner).is_some();
        if !silent {
            self.membership.probes_mut().clear(owner);
        }
        silent
    }

    /// Whether an owner that still has its lease is dead, as judged by this node, which is next in rank. Sends a probe
    /// in every sweep.
    pub(in crate::protocol) fn is_dead(&mut self, module: ModuleId, owner: PeerKey) -> bool {
        let now = self.now;
        let Some(heard) = self.membership.roster().silent_since(now, owner) else { return false };
        let timeout_ms = self.membership.response_times().probe_ms();
        match self.membership.probes().verdict(now, owner, heard, timeout_ms) {
            Verdict::Alive => false,
            Verdict::Dead => true,
            Verdict::Ask => {
                let head = self.modules.get(&module).and_then(Replica::head);
                let from = head.map(|head| (head.version, head.update));
                let id = self.ask(owner, Request::CatchUp { module, from });
                self.membership.probes_mut().asked(now, owner, heard, id);
                false
            }
        }
    }

    /// Whether this was the response of a probed owner.
    pub(in crate::protocol) fn probe_answered(&mut self, id: RequestId, answers: bool) -> bool {
        self.membership.probes_mut().responded(id, answers)
    }
}
