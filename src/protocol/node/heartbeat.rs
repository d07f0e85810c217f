//! Heartbeats, sent and received.

use crate::clock::Millis;
use crate::names::{ModuleId, PeerKey, Phase};
use crate::protocol::Held;
use crate::protocol::action::Action;
use crate::protocol::blobs::Unread;
use crate::protocol::limits::{MAX_LEASES, MEMBER_LEASE_MS};
use crate::protocol::membership::roster::Heard;
use crate::protocol::wire::message::{Heartbeat, Lease, Message, Stage};
use crate::protocol::{Node, Replica};

impl Node {
    pub(in crate::protocol) fn listening(&mut self, addresses: Vec<String>) {
        self.membership.set_addresses(addresses);
    }

    /// The leases of this node's paths, for heartbeats, with those that tell the number of its trainers and, where there is
    /// room, the run's amendment.
    pub fn leases(&self) -> Vec<Lease> {
        let lease = |(path, held): (&crate::names::PathId, &Held)| Lease {
            path: *path,
            phase: self.phase(*path).unwrap_or(Phase(0)),
            stage: held.stage(),
            trainer: self.paths.trainer(*path),
        };
        let paths = self.paths.held().iter().map(lease);
        let amended = self.amendment().map(|amended| amended.lease());
        Lease::of_trainers(self.trainers.count()).into_iter().chain(paths).chain(amended).take(MAX_LEASES).collect()
    }

    /// How many paths this node trains, or is about to.
    pub(in crate::protocol) fn active_paths(&self) -> usize {
        self.paths.active()
    }

    /// The most paths that this node can hold. With several trainers, one lease tells their number.
    pub(in crate::protocol) fn most_paths(&self) -> usize {
        MAX_LEASES - usize::from(self.trainers.count() > 1)
    }

    /// How many paths each trainer here trains in turn, rounded up.
    pub(in crate::protocol) fn turns_here(&self) -> usize {
        self.active_paths().div_ceil(self.trainers.count())
    }

    /// Whether there are more trainers here than paths for them.
    pub(in crate::protocol) fn has_free_trainer(&self) -> bool {
        self.active_paths() < self.trainers.count()
    }

    fn heartbeat(&mut self, module: ModuleId, leaving: bool) {
        let leases = self.leases();
        let Some(state) = self.modules.get(&module) else { return };
        let heartbeat = Heartbeat {
            start: self.membership.start().clone(),
            sequence: self.out.next_sequence(),
            head: state.head(),
            owner: state.leadership.owner().map(|owner| (state.leadership.term(), owner)),
            claim: state.leadership.claim().to_vec(),
            leases,
            addresses: self.membership.addresses().to_vec(),
            replicas: self.replicas.held().len() as u32,
            wanted: self.wanted(),
            copied: self.membership.copied(self.me),
            leaving,
            pace: self.pace(),
        };
        self.act(Action::Publish { module, message: Message::Heartbeat(heartbeat) });
    }

    pub(in crate::protocol) fn send_heartbeat(&mut self, module: ModuleId) {
        self.heartbeat(module, false);
    }

    pub(in crate::protocol) fn send_heartbeats(&mut self) {
        let modules: Vec<ModuleId> = self.modules.keys().copied().collect();
        for module in modules {
            self.heartbeat(module, false);
        }
    }

    /// Says goodbye but stays subscribed, for members that wait for this node to leave.
    pub(in crate::protocol) fn send_goodbye(&mut self, module: ModuleId) {
        self.heartbeat(module, true);
    }

    pub(in crate::protocol) fn say_goodbye(&mut self, module: ModuleId) {
        self.heartbeat(module, true);
        self.act(Action::Unsubscribe(module));
    }

    /// Handles a message. Returns whether it was more than a sign of life.
    pub(in crate::protocol) fn heard(&mut self, module: ModuleId, author: PeerKey, message: &Message) -> bool {
        if author == self.me || !self.modules.contains_key(&module) {
            return false;
        }
        if message.updates().iter().any(|signed| signed.update.contributions.unread().is_some()) {
            return match self.with_lists(module, author, Unread::Message(message.clone())) {
                Some(Unread::Message(message)) => self.heard(module, author, &message),
                _ => false,
            };
        }
        match message {
            Message::Heartbeat(heartbeat) => return self.heard_heartbeat(module, author, heartbeat),
            Message::Offer(offer) => self.heard_offer(module, author, offer.clone()),
            Message::Update(signed) => self.heard_update(module, signed),
            Message::Score(score) => self.heard_score(module, author, *score),
            Message::FraudProof(fraud_proof) => self.heard_fraud_proof(module, author, fraud_proof),
        }
        true
    }

    fn heard_heartbeat(&mut self, module: ModuleId, author: PeerKey, heartbeat: &Heartbeat) -> bool {
        let (heard, copy) = self.membership.hear(self.now, module, author, heartbeat);
        if let Some(copy) = copy {
            self.notice_copy(author, copy);
        }
        if heard == Heard::Ignored {
            return false;
        }
        self.hear_named(&heartbeat.copied);
        if self.is_gone() {
            return true;
        }
        self.hear_amendment(author, &heartbeat.leases);
        if let Some(state) = self.modules.get_mut(&module) {
            state.leadership.note_member();
        }
        if heard == Heard::New {
            self.act(Action::Learn { peer: author, addresses: heartbeat.addresses.clone() });
        }
        // A peer that leaves claims nothing any more.
        if heartbeat.leaving {
            self.owner_left(module, author, heartbeat.owner);
            return true;
        }
        // A node that leaves does not take back what it has handed off.
        let owner = heartbeat.owner.filter(|(_, owner)| !self.lifecycle.is_leaving() || *owner != self.me);
        if let Some((term, owner)) = owner {
            self.hear_owner(module, author, (term, owner), &heartbeat.claim);
        }
        if self.membership.roster().member(author).is_some_and(|member| member.last_said(heartbeat.sequence)) {
            self.settle_leases(author, &heartbeat.leases);
            self.stand_by(author, &heartbeat.leases);
        }
        self.hear_wanted(author, &heartbeat.wanted);
        heard != Heard::Same
    }

    /// Leaves the modules that no path here goes through, that need no replica here, and for which no contribution of
    /// this node is outstanding.
    pub(in crate::protocol) fn leave_unused_modules(&mut self) {
        let needed = self.needed_modules();
        let idle: Vec<ModuleId> = self.modules.keys().filter(|module| !needed.contains(module)).copied().collect();
        for module in idle {
            if self.stays_as_replica(module) || !self.modules.get(&module).is_some_and(|it| self.may_leave(module, it))
            {
                continue;
            }
            self.say_goodbye(module);
            self.tell_uncounted(module);
            self.act(Action::Persist(crate::protocol::Record::Left(module)));
            self.drop_collection(module);
            if let Some(state) = self.modules.remove(&module) {
                self.membership.leaves(module, state.leadership.term());
                state.for_each_reference(&mut |blob| self.release(blob));
            }
        }
        self.prune_replicas(&needed);
    }

    fn may_leave(&self, module: ModuleId, state: &Replica) -> bool {
        let at_work = state.aggregation.is_combining()
            || !state.applying.is_empty()
            || state.aggregation.is_closing()
            || self.trainers.training().any(|training| training.modules().contains(&module));
        if at_work {
            return false;
        }
        let Some(head) = state.head() else { return true };
        // All other holders have the same head, so what was counted here is not on one disk alone.
        let mut others = self.membership.roster().heads(self.now, module).peekable();
        let copied = others.peek().is_some() && others.all(|(_, other)| other == head);
        let offering = self.outstanding_offers().any(|offer| offer.module == module);
        copied && !offering
    }

    /// Whether a peer was a member of one of this node's modules when it was last heard.
    pub fn knows(&self, peer: PeerKey) -> bool {
        self.membership.roster().member(peer).is_some_and(|member| member.is_anywhere())
    }

    /// The peers that have been alive on this node's modules for so long without a break.
    pub fn steady_peers(&self, now: Millis, least_ms: u64) -> impl Iterator<Item = PeerKey> {
        let roster = self.membership.roster();
        roster.everybody(now).map(|(peer, _)| peer).filter(move |peer| roster.steady_ms(now, *peer) >= least_ms)
    }

    /// The living members of a module, including this node.
    pub(in crate::protocol) fn living_members(&self, module: ModuleId) -> Vec<PeerKey> {
        let mut members: Vec<PeerKey> =
            self.membership.roster().living(self.now, module).map(|(peer, _)| peer).collect();
        members.push(self.me);
        members.sort_unstable();
        members
    }

    /// Whether the stage of a lease means that its holder trains the path.
    pub(in crate::protocol) fn trains(stage: Stage) -> bool {
        Self::is_waited_for(stage) || stage == Stage::Skipping
    }

    /// Whether the stage of a lease means that the path's modules wait for the holder's contribution.
    pub(in crate::protocol) fn is_waited_for(stage: Stage) -> bool {
        matches!(stage, Stage::Waiting | Stage::Training)
    }

    pub(in crate::protocol) fn prune_members(&mut self) {
        // Ten leases: long enough that after a restart a peer's addresses are still known.
        self.membership.prune_before(self.now - 10 * MEMBER_LEASE_MS);
    }
}
