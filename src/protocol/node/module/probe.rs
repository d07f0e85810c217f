//! Owners that are silent for a little longer than usual are asked whether they live, by the one who would come next.
//!
//! One beat that is lost must not cost an owner its module, so a lease outlasts it. But a question and its answer take
//! less time than the rest of the lease: an owner that does not answer either is taken for dead at once. One that
//! answers has its lease, and no longer: whoever answers and does not beat is not at work.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::{ModuleId, PeerKey};
use crate::protocol::Node;
use crate::protocol::event::RequestId;
use crate::protocol::wire::message::Request;

/// Owners that were asked, since they were last heard.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Suspected(BTreeMap<PeerKey, Suspicion>);

#[derive(Debug)]
struct Suspicion {
    /// When it was last heard.
    heard: Millis,
    asked_at: Millis,
    /// Questions under way; no answer but the last ones counts.
    asked: Vec<RequestId>,
    answered: bool,
}

impl Node {
    /// Whether a peer has not been heard for a little longer than usual. One that is heard is not suspected any more.
    pub(in crate::protocol) fn is_silent(&mut self, owner: PeerKey) -> bool {
        let silent = self.roster.silent_since(self.now, owner).is_some();
        if !silent {
            self.suspected.0.remove(&owner);
        }
        silent
    }

    /// Whether an owner that still has its lease is dead all the same, as far as this node can tell, which is next in
    /// rank. In every sweep: it asks.
    pub(in crate::protocol) fn is_dead(&mut self, module: ModuleId, owner: PeerKey) -> bool {
        let now = self.now;
        let Some(heard) = self.roster.silent_since(now, owner) else { return false };
        let suspicion = self.suspected.0.get(&owner).filter(|suspicion| suspicion.heard == heard);
        let (asked_at, answered) = suspicion.map_or((now, false), |suspicion| (suspicion.asked_at, suspicion.answered));
        if answered || now.since(asked_at) >= self.patience.suspect_ms() {
            return !answered;
        }
        let head = self.modules.get(&module).and_then(crate::protocol::Module::head);
        let from = head.map(|head| (head.version, head.update));
        let id = self.ask(owner, Request::CatchUp { module, from });
        let fresh = Suspicion { heard, asked_at: now, asked: Vec::new(), answered: false };
        let suspicion = self.suspected.0.entry(owner).or_insert(fresh);
        if suspicion.heard != heard {
            *suspicion = Suspicion { heard, asked_at: now, asked: Vec::new(), answered: false };
        }
        suspicion.asked.push(id);
        false
    }

    /// Whether this was the answer of an owner that was asked whether it lives.
    pub(in crate::protocol) fn suspect_answered(&mut self, id: RequestId, answers: bool) -> bool {
        let Some(suspicion) = self.suspected.0.values_mut().find(|suspicion| suspicion.asked.contains(&id)) else {
            return false;
        };
        suspicion.answered |= answers;
        true
    }
}
