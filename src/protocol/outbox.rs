//! The decisions of a node that are not yet handed out: actions in order, sequence numbers that never repeat, and
//! deadlines.

use std::collections::BTreeSet;

use crate::clock::Millis;
use crate::protocol::action::Action;
use crate::protocol::event::RequestId;
use crate::protocol::timers::{Timer, Timers};
use crate::protocol::wire::message::Message;

/// The only way out of a node.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    actions: Vec<Action>,
    timers: Timers,
    /// Of the last heartbeat, offer or fraud proof. All share one counter, so that no two messages have the same bytes.
    sequence: u64,
    request: u64,
}

impl Outbox {
    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn extend(&mut self, actions: Vec<Action>) {
        self.actions.extend(actions);
    }

    /// All actions since the last call, in order. Of the heartbeats that one event caused, only the last of each module
    /// remains, because it contains the others.
    pub(super) fn take(&mut self) -> Vec<Action> {
        let mut said = BTreeSet::new();
        let mut actions = std::mem::take(&mut self.actions);
        actions.reverse();
        actions.retain(|action| match action {
            Action::Publish { module, message: Message::Heartbeat(_) } => said.insert(*module),
            _ => true,
        });
        actions.reverse();
        actions
    }

    pub(super) fn clear(&mut self) {
        self.actions.clear();
    }

    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn next_request(&mut self) -> RequestId {
        self.request += 1;
        RequestId(self.request)
    }

    pub(super) fn set_timer(&mut self, timer: Timer, at: Millis) {
        self.timers.set(timer, at);
    }

    pub(super) fn clear_timer(&mut self, timer: Timer) {
        self.timers.clear(timer);
    }

    /// Clears all deadlines.
    pub(super) fn stop_timers(&mut self) {
        self.timers = Timers::default();
    }

    /// The timers that are due, in the order of their kinds.
    pub(super) fn take_due(&mut self, now: Millis) -> Vec<Timer> {
        self.timers.take_due(now)
    }

    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.timers.next()
    }
}
